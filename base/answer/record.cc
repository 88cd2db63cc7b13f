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

void Fields::add_entry(std::string_view name, std::string_view meaning, std::function<Json(Json&)> schema,
                       bool required) {
  ORRERY_CHECK(!meaning.empty(), "field " + std::string(name) + " says nothing of what it means");
  std::string unit = unit_of(name);
  if (unit.empty()) unit = unit_;
  entries_.push_back({std::string(name),
                      [meaning = std::string(meaning), unit, schema = std::move(schema)](Json& definitions) {
                        Json shape = schema(definitions);
                        shape["description"] = meaning;
                        // A field's own word counts: "" is no unit, whatever its neighbours have.
                        if (!shape.contains("x-unit")) shape["x-unit"] = unit;
                        if (shape["x-unit"] == "") shape.erase("x-unit");
                        return shape;
                      },
                      required});
}

Json Fields::properties(Json& definitions) const {
  Json all = Json::object();
  for (const Entry& entry : entries_)
    if (!all.contains(entry.name)) all[entry.name] = entry.schema(definitions);
  return all;
}

std::vector<std::string> Fields::required() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.required) names.push_back(entry.name);
  return names;
}

Json Fields::schema(Json& definitions) const {
  const Json reference = {{"$ref", "#/$defs/" + name_}};
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
