// JSON objects as records: each field is said once, with its name, what it means and where its value comes
// from, and both the object and its JSON Schema (draft 2020-12) are made of that. So neither can say what the
// other does not know.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"

namespace orrery {

// The schema's side of a record.
class Fields {
 public:
  // `definitions` gets each named record that this one holds; the schema of a named record refers to it.
  Json schema(Json& definitions) const;
  // Each field's schema by name, and the names of those that no object is without.
  Json properties(Json& definitions) const;
  std::vector<std::string> required() const;

 protected:
  struct Entry {
    std::string name;
    std::function<Json(Json& definitions)> schema;
    bool required = true;
  };
  // `unit`: of fields whose names do not end with one.
  Fields(std::string name, std::string unit) : name_(std::move(name)), unit_(std::move(unit)) {}
  void add_entry(std::string_view name, std::string_view meaning, std::function<Json(Json&)> schema,
                 bool required);

  std::string name_, unit_;
  std::vector<Entry> entries_;
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

// JSON has no shape of its own: `given` says it.
template <typename Got>
Json shape() {
  static_assert(!std::is_same_v<std::remove_cvref_t<Got>, Json>);
  using V = std::remove_cvref_t<Got>;
  if constexpr (kMayBeAbsent<V>)
    return shape<decltype(*std::declval<V>())>();
  else if constexpr (std::is_same_v<V, bool>)
    return {{"type", "boolean"}};
  else if constexpr (std::is_integral_v<V>)
    return {{"type", "integer"}};
  else if constexpr (std::is_floating_point_v<V>)
    return {{"type", "number"}};
  else if constexpr (std::is_convertible_v<V, std::string_view>)
    return {{"type", "string"}};
  else if constexpr (IsMap<V>::value)
    return {{"type", "object"}, {"additionalProperties", shape<typename V::mapped_type>()}};
  else
    return {{"type", "array"}, {"items", shape<typename V::value_type>()}};
}

template <typename V>
Json shape_of_value(Json&) {
  return shape<V>();
}

// What a getter is kept as. Most capture nothing and become a pointer, so that fields of one type share what
// is compiled of them: a lambda of its own for each field took the compiler twice as long.
template <typename Get, typename T>
auto as_function(Get get) {
  using R = std::invoke_result_t<Get, const T&>;
  if constexpr (std::is_convertible_v<Get, R (*)(const T&)>)
    return static_cast<R (*)(const T&)>(get);
  else
    return std::function<R(const T&)>(std::move(get));
}

}  // namespace record_detail

// The fields of an object that says a T, in their order.
template <typename T>
class Record : public Fields {
 public:
  // A name where several objects have these fields: the schema says them once.
  explicit Record(std::string name = {}, std::string unit = {}) : Fields(std::move(name), std::move(unit)) {}

  // A value: a number, text, a switch, or a list or map by name of such. An empty optional (a null
  // pointer) leaves the field out.
  template <typename Get>
  Record& value(std::string_view name, std::string_view meaning, Get get) {
    return add_value(name, meaning, record_detail::as_function<Get, T>(get));
  }
  // The same, null where there is none.
  template <typename Get>
  Record& nullable(std::string_view name, std::string_view meaning, Get get) {
    return add_nullable(name, meaning, record_detail::as_function<Get, T>(get));
  }
  // An object of its own, of a U (or an optional, or a pointer: absent where there is none).
  template <typename U, typename Get>
  Record& object(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    return add_object(name, meaning, of, record_detail::as_function<Get, T>(get));
  }
  // A list of objects; of an optional or a pointer absent where there is none.
  template <typename U, typename Get>
  Record& list(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    return add_list(name, meaning, of, record_detail::as_function<Get, T>(get));
  }
  // Objects by names that are no fields (of files, say): of what has pairs of a name and a U.
  template <typename U, typename Get>
  Record& map(std::string_view name, std::string_view meaning, const Record<U>& of, Get get) {
    add_entry(
        name, meaning,
        [&of](Json& definitions) {
          return Json{{"type", "object"}, {"additionalProperties", of.schema(definitions)}};
        },
        true);
    writers_.push_back([name = std::string(name), &of, get](const T& from, Json& json) {
      const auto& got = get(from);
      Json& all = json[name] = Json::object();
      for (const auto& [key, one] : got) all[key] = of.json(one);
    });
    return *this;
  }
  // Another record's fields among these, of what `get` has (an optional or a pointer: absent where it has
  // none).
  template <typename U, typename Get>
  Record& with(const Record<U>& of, Get get) {
    using V = std::remove_cvref_t<std::invoke_result_t<Get, const T&>>;
    constexpr bool optional = record_detail::kMayBeAbsent<V>;
    for (const Entry& entry : of.entries_) {
      entries_.push_back(entry);
      if (optional) entries_.back().required = false;
    }
    writers_.push_back([&of, get](const T& from, Json& json) {
      record_detail::where_present(get(from), [&](const auto& got) { of.write(got, json); });
    });
    return *this;
  }
  // A field that only a program knows: its schema is given.
  template <typename Get>
  Record& given(std::string_view name, std::string_view meaning, Json shape, Get get) {
    add_entry(
        name, meaning, [shape = std::move(shape)](Json&) { return shape; }, true);
    writers_.push_back(
        [name = std::string(name), get](const T& from, Json& json) { json[name] = get(from); });
    return *this;
  }

  void write(const T& from, Json& json) const {
    for (const auto& writer : writers_) writer(from, json);
  }
  Json json(const T& from) const {
    Json json = Json::object();
    write(from, json);
    return json;
  }

 private:
  template <typename>
  friend class Record;

  template <typename F>
  using Got = std::remove_cvref_t<std::invoke_result_t<F, const T&>>;

  template <typename F>
  Record& add_value(std::string_view name, std::string_view meaning, F get) {
    constexpr bool optional = record_detail::kMayBeAbsent<Got<F>>;
    add_entry(name, meaning, record_detail::shape_of_value<Got<F>>, !optional);
    writers_.push_back([name = std::string(name), get](const T& from, Json& json) {
      record_detail::where_present(get(from), [&](const auto& got) { json[name] = got; });
    });
    return *this;
  }
  template <typename F>
  Record& add_nullable(std::string_view name, std::string_view meaning, F get) {
    add_entry(
        name, meaning,
        [](Json&) {
          Json shape = record_detail::shape<Got<F>>();
          shape["type"] = {shape["type"], "null"};
          return shape;
        },
        true);
    writers_.push_back([name = std::string(name), get](const T& from, Json& json) {
      const auto& got = get(from);
      json[name] = got ? Json(*got) : Json();
    });
    return *this;
  }
  template <typename U, typename F>
  Record& add_object(std::string_view name, std::string_view meaning, const Record<U>& of, F get) {
    constexpr bool optional = record_detail::kMayBeAbsent<Got<F>>;
    add_entry(
        name, meaning, [&of](Json& definitions) { return of.schema(definitions); }, !optional);
    writers_.push_back([name = std::string(name), &of, get](const T& from, Json& json) {
      record_detail::where_present(get(from), [&](const auto& got) { json[name] = of.json(got); });
    });
    return *this;
  }
  template <typename U, typename F>
  Record& add_list(std::string_view name, std::string_view meaning, const Record<U>& of, F get) {
    constexpr bool optional = record_detail::kMayBeAbsent<Got<F>>;
    add_entry(
        name, meaning,
        [&of](Json& definitions) {
          return Json{{"type", "array"}, {"items", of.schema(definitions)}};
        },
        !optional);
    writers_.push_back([name = std::string(name), &of, get](const T& from, Json& json) {
      record_detail::where_present(get(from), [&](const auto& all) {
        Json& list = json[name] = Json::array();
        for (const auto& one : all) list.push_back(of.json(one));
      });
    });
    return *this;
  }

  std::vector<std::function<void(const T&, Json&)>> writers_;
};

}  // namespace orrery
