#include "base/answer/record.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"

namespace orrery {

std::string unit_of(std::string_view name) {
  // Longer ends first.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kEnds = {
      {{"_bytes_per_s", "bytes/s"},
       {"_flops_per_s", "FLOP/s"},
       {"samples_per_s", "samples/s"},
       {"tokens_per_s", "tokens/s"},
       {"_tflops_per_gpu", "TFLOP/s"},
       {"_s_per_byte", "s/byte"},
       {"_usd_per_device_hour", "USD/h"},
       {"_usd_per_hour", "USD/h"},
       {"_bytes", "bytes"},
       {"_flops", "FLOPs"},
       {"_hours", "h"},
       {"_days", "days"},
       {"_usd", "USD"},
       {"_mwh", "MWh"},
       {"_j", "J"},
       {"_ms", "ms"},
       {"_s", "s"}}};
  for (const std::string_view bound : {"_low", "_high"})
    if (name.ends_with(bound)) return unit_of("_" + std::string(name.substr(0, name.size() - bound.size())));
  for (const std::string_view bound : {"_low_", "_high_"})
    if (const auto at = name.find(bound); at != std::string_view::npos)
      return unit_of(name.substr(at + bound.size() - 1));
  for (const auto& [end, unit] : kEnds)
    if (name.ends_with(end)) return std::string(unit);
  return {};
}

Json shape_of_map(const Json& of) {
  return {{"type", "object"}, {"additionalProperties", of}};
}

Json shape_of_map(const Json& of, const std::vector<std::string>& names) {
  Json properties = Json::object();
  for (const std::string& name : names) properties[name] = of;
  return {
      {"type", "object"}, {"properties", properties}, {"required", names}, {"additionalProperties", false}};
}

namespace record_detail {

Json shape_named(const char* type) {
  return {{"type", type}};
}
Json shape_of_list(const Json& of) {
  return {{"type", "array"}, {"items", of}};
}

void set(Json& json, bool value) {
  json = value;
}
void set(Json& json, std::int64_t value) {
  json = value;
}
void set(Json& json, std::uint64_t value) {
  json = value;
}
void set(Json& json, double value) {
  json = value;
}
void set(Json& json, std::string_view value) {
  json = value;
}

}  // namespace record_detail

void Fields::add(Entry entry, record_detail::Writer writer) {
  ORRERY_CHECK(!entry.meaning.empty(), "field " + entry.name + " says nothing of what it means");
  entry.unit = unit_of(entry.name);
  if (entry.unit.empty()) entry.unit = unit_;
  writer.name = entry.name;
  writer.of = entry.of;
  entries_.push_back(std::move(entry));
  writers_.push_back(std::move(writer));
}

void Fields::add_all(const Fields& of, bool optional, record_detail::Writer writer) {
  for (const Entry& entry : of.entries_) {
    entries_.push_back(entry);
    if (optional) entries_.back().required = false;
  }
  writer.of = &of;
  writers_.push_back(std::move(writer));
}

void Fields::write_from(const void* from, Json& json) const {
  for (const record_detail::Writer& writer : writers_) writer.put(writer, from, json);
}

Json Fields::json_from(const void* from) const {
  Json json = Json::object();
  write_from(from, json);
  return json;
}

Json Fields::schema_of(const Entry& entry, Json& definitions) {
  Json shape = entry.shape;
  switch (entry.kind) {
    case Kind::kValue:
      break;
    case Kind::kNullable:
      shape["type"] = {shape["type"], "null"};
      break;
    case Kind::kObject:
      shape = entry.of->schema(definitions);
      break;
    case Kind::kList:
      shape = record_detail::shape_of_list(entry.of->schema(definitions));
      break;
    case Kind::kMap:
      shape = shape_of_map(entry.of->schema(definitions));
      break;
  }
  shape["description"] = entry.meaning;
  // A field's own word counts: "" is no unit, whatever its neighbours have.
  if (!shape.contains("x-unit")) shape["x-unit"] = entry.unit;
  if (shape["x-unit"].get_ref<const std::string&>().empty()) shape.erase("x-unit");
  return shape;
}

Json Fields::properties(Json& definitions) const {
  Json all = Json::object();
  for (const Entry& entry : entries_)
    if (!all.contains(entry.name)) all[entry.name] = schema_of(entry, definitions);
  return all;
}

std::vector<std::string> Fields::required() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.required) names.push_back(entry.name);
  return names;
}

Json Fields::schema(Json& definitions) const {
  Json reference = {{"$ref", "#/$defs/" + name_}};
  if (!name_.empty() && definitions.contains(name_)) {
    // Another record of that name would stand for this one. Empty: this one holds itself.
    const Json& known = definitions[name_];
    std::set<std::string> names;
    for (const Entry& entry : entries_) names.insert(entry.name);
    ORRERY_CHECK(
        known.empty() || (known["properties"].size() == names.size() &&
                          std::all_of(names.begin(), names.end(),
                                      [&](const auto& name) { return known["properties"].contains(name); })),
        "two records are called " + name_);
    return reference;
  }
  if (!name_.empty()) definitions[name_] = Json::object();
  Json shape = {{"type", "object"},
                {"properties", properties(definitions)},
                {"required", required()},
                {"additionalProperties", false}};
  if (name_.empty()) return shape;
  definitions[name_] = std::move(shape);
  return reference;
}

}  // namespace orrery
