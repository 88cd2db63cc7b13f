// JSON objects as records: each field is said once, with its name, what it means and where its value comes
// from, and both the object and its JSON Schema (draft 2020-12) are made of that. So neither can say what the
// other does not know. What fields of many types share is compiled once (record.cc): an answer has hundreds
// of them, and whatever is made anew for each is what takes the compiler long.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"

namespace orrery {

class Fields;

namespace record_detail {

using AnyFunction = void (*)();  // cast back to what it is where it is called

struct Writer {
  std::string name;            // its field's, and
  const Fields* of = nullptr;  // of what that holds, as the entry has them
  // `call` is an R (*)(const Writer&, const void* from): `put` knows the R, `call` what `from` points at. It
  // calls `plain`, the getter, or what `held` holds, if that captures something.
  AnyFunction call = nullptr, plain = nullptr;
  std::shared_ptr<const void> held;
  void (*put)(const Writer& writer, const void* from, Json& json) = nullptr;
};

}  // namespace record_detail

// What a record is, whatever it is of.
class Fields {
 public:
  // `definitions` gets each named record that this one holds; the schema of a named record refers to it.
  Json schema(Json& definitions) const;
  // Each field's schema by name, and the names of those that no object is without.
  Json properties(Json& definitions) const;
  std::vector<std::string> required() const;

  // `from` points at what the record is of (Record<T>::write and json are the typed ones).
  void write_from(const void* from, Json& json) const;
  Json json_from(const void* from) const;

 protected:
  enum class Kind { kValue, kNullable, kObject, kList, kMap };
  struct Entry {
    std::string name, meaning, unit;
    Kind kind = Kind::kValue;
    Json shape;  // of a value
    const Fields* of = nullptr;
    bool required = true;
  };
  // `unit`: of fields whose names do not end with one.
  Fields(std::string name, std::string unit) : name_(std::move(name)), unit_(std::move(unit)) {}
  void add(Entry entry, record_detail::Writer writer);
  void add_all(const Fields& of, bool optional, record_detail::Writer writer);

 private:
  std::string name_, unit_;
  std::vector<Entry> entries_;
  std::vector<record_detail::Writer> writers_;

  static Json schema_of(const Entry& entry, Json& definitions);
};

// "s" of "step_time_s", "bytes/s" of "link_bytes_per_s"; empty where a name ends with none.
std::string unit_of(std::string_view name);

// Shapes of what is JSON before it is a field: an object of values of one shape, by names that are or are not
// known beforehand.
Json shape_of_map(const Json& of);
Json shape_of_map(const Json& of, const std::vector<std::string>& names);

namespace record_detail {

template <typename V>
struct IsOptional : std::false_type {};
template <typename V>
struct IsOptional<std::optional<V>> : std::true_type {};
// What may be absent: an optional, or a pointer that may be null (text is no pointer here).
template <typename V>
constexpr bool kMayBeAbsent = IsOptional<V>::value ||
                              (std::is_pointer_v<V> && !std::is_convertible_v<V, std::string_view>);
template <typename V, typename = void>
struct IsMap : std::false_type {};
template <typename V>
struct IsMap<V, std::void_t<typename V::mapped_type>> : std::true_type {};

// Hands on what `got` is or holds; nothing where it is absent.
template <typename Got, typename Put>
void where_present(const Got& got, const Put& put) {
  if constexpr (kMayBeAbsent<Got>) {
    if (got) put(*got);
  } else {
    put(got);
  }
}

Json shape_named(const char* type);
Json shape_of_list(const Json& of);

// JSON has no shape of its own: `given` says it.
template <typename Got>
Json shape() {
  using V = std::remove_cvref_t<Got>;
  static_assert(!std::is_same_v<V, Json>);
  if constexpr (kMayBeAbsent<V>)
    return shape<decltype(*std::declval<V>())>();
  else if constexpr (std::is_same_v<V, bool>)
    return shape_named("boolean");
  else if constexpr (std::is_integral_v<V>)
    return shape_named("integer");
  else if constexpr (std::is_floating_point_v<V>)
    return shape_named("number");
  else if constexpr (std::is_convertible_v<V, std::string_view>)
    return shape_named("string");
  else if constexpr (IsMap<V>::value)
    return shape_of_map(shape<typename V::mapped_type>());
  else
    return shape_of_list(shape<typename V::value_type>());
}

void set(Json& json, bool value);
void set(Json& json, std::int64_t value);
void set(Json& json, std::uint64_t value);
void set(Json& json, double value);
void set(Json& json, std::string_view value);
template <typename V>
void set_value(Json& json, const V& value) {
  if constexpr (std::is_same_v<V, bool>)
    set(json, value);
  else if constexpr (std::is_integral_v<V>)
    set(json, static_cast<std::conditional_t<std::is_signed_v<V>, std::int64_t, std::uint64_t>>(value));
  else if constexpr (std::is_floating_point_v<V>)
    set(json, static_cast<double>(value));
  else if constexpr (std::is_convertible_v<V, std::string_view>)
    set(json, std::string_view(value));
  else
    json = value;
}

template <typename R>
R get(const Writer& writer, const void* from) {
  return reinterpret_cast<R (*)(const Writer&, const void*)>(writer.call)(writer, from);
}
template <typename T, typename R>
R call_plain(const Writer& writer, const void* from) {
  return reinterpret_cast<R (*)(const T&)>(writer.plain)(*static_cast<const T*>(from));
}
template <typename T, typename R, typename Get>
R call_held(const Writer& writer, const void* from) {
  return (*static_cast<const Get*>(writer.held.get()))(*static_cast<const T*>(from));
}

template <typename T, typename R, typename Get>
Writer writer_of(Get getter, void (*put)(const Writer&, const void*, Json&)) {
  Writer writer;
  writer.put = put;
  if constexpr (std::is_convertible_v<Get, R (*)(const T&)>) {
    writer.plain = reinterpret_cast<AnyFunction>(static_cast<R (*)(const T&)>(getter));
    writer.call = reinterpret_cast<AnyFunction>(&call_plain<T, R>);
  } else {
    writer.held = std::make_shared<const Get>(std::move(getter));
    writer.call = reinterpret_cast<AnyFunction>(&call_held<T, R, Get>);
  }
  return writer;
}

template <typename R>
void put_value(const Writer& writer, const void* from, Json& json) {
  where_present(get<R>(writer, from), [&](const auto& got) { set_value(json[writer.name], got); });
}
template <typename R>
void put_nullable(const Writer& writer, const void* from, Json& json) {
  json[writer.name] = nullptr;
  put_value<R>(writer, from, json);
}
template <typename R, typename U>
void put_object(const Writer& writer, const void* from, Json& json) {
  where_present(get<R>(writer, from), [&](const U& got) { json[writer.name] = writer.of->json_from(&got); });
}
template <typename R, typename U>
void put_list(const Writer& writer, const void* from, Json& json) {
  where_present(get<R>(writer, from), [&](const auto& all) {
    Json& list = json[writer.name] = Json::array();
    for (const U& one : all) list.push_back(writer.of->json_from(&one));
  });
}
template <typename R, typename U>
void put_map(const Writer& writer, const void* from, Json& json) {
  const auto& got = get<R>(writer, from);
  Json& all = json[writer.name] = Json::object();
  for (const auto& [key, one] : got) all[key] = writer.of->json_from(static_cast<const U*>(&one));
}
template <typename R, typename U>
void put_fields(const Writer& writer, const void* from, Json& json) {
  where_present(get<R>(writer, from), [&](const U& got) { writer.of->write_from(&got, json); });
}

}  // namespace record_detail

// The fields of an object that says a T, in their order.
template <typename T>
class Record : public Fields {
  template <typename Get>
  using Result = std::invoke_result_t<Get, const T&>;
  template <typename Get>
  static constexpr bool kOptional = record_detail::kMayBeAbsent<std::remove_cvref_t<Result<Get>>>;

 public:
  // A name where several objects have these fields: the schema says them once.
  explicit Record(std::string name = {}, std::string unit = {}) : Fields(std::move(name), std::move(unit)) {}

  // A value: a number, text, a switch, or a list or map by name of such. An empty optional (a null
  // pointer) leaves the field out.
  template <typename Get>
  Record& value(std::string_view name, std::string_view meaning, Get get) {
    using R = Result<Get>;
    return adding(name, meaning, Kind::kValue, record_detail::shape<R>(), nullptr, !kOptional<Get>, get,
                  record_detail::put_value<R>);
  }
  // The same, null where there is none.
  template <typename Get>
  Record& nullable(std::string_view name, std::string_view meaning, Get get) {
    using R = Result<Get>;
    return adding(name, meaning, Kind::kNullable, record_detail::shape<R>(), nullptr, true, get,
                  record_detail::put_nullable<R>);
  }
  // An object of its own, of a U (or an optional, or a pointer: absent where there is none).
  template <typename U, typename Get>
  Record& object(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    return adding(name, meaning, Kind::kObject, {}, &of, !kOptional<Get>, get,
                  record_detail::put_object<Result<Get>, U>);
  }
  // A list of objects; of an optional or a pointer absent where there is none.
  template <typename U, typename Get>
  Record& list(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    return adding(name, meaning, Kind::kList, {}, &of, !kOptional<Get>, get,
                  record_detail::put_list<Result<Get>, U>);
  }
  // Objects by names that are no fields (of files, say): of what has pairs of a name and a U.
  template <typename U, typename Get>
  Record& map(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    return adding(name, meaning, Kind::kMap, {}, &of, true, get, record_detail::put_map<Result<Get>, U>);
  }
  // Another record's fields among these, of what `get` has (an optional or a pointer: absent where it has
  // none).
  template <typename U, typename Get>
  Record& with(const Record<U>& of, Get get) {
    using R = Result<Get>;
    add_all(of, kOptional<Get>,
            record_detail::writer_of<T, R>(std::move(get), record_detail::put_fields<R, U>));
    return *this;
  }
  // A field that only a program knows: its schema is given.
  template <typename Get>
  Record& given(std::string_view name, std::string_view meaning, Json shape, Get get) {
    return adding(name, meaning, Kind::kValue, std::move(shape), nullptr, true, get,
                  record_detail::put_value<Result<Get>>);
  }

  void write(const T& from, Json& json) const { write_from(&from, json); }
  Json json(const T& from) const { return json_from(&from); }

 private:
  template <typename Get>
  Record& adding(std::string_view name, std::string_view meaning, Kind kind, Json shape, const Fields* of,
                 bool required, Get get, void (*put)(const record_detail::Writer&, const void*, Json&)) {
    add({std::string(name), std::string(meaning), {}, kind, std::move(shape), of, required},
        record_detail::writer_of<T, Result<Get>>(std::move(get), put));
    return *this;
  }
};

}  // namespace orrery
