#include "workloads/readers/huggingface_families.h"

#include <fmt/format.h>

#include "base/embedded.h"
#include "base/error.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_families();

namespace internal {
namespace {

std::vector<std::string> texts_of(const Json& list) {
  return list.get<std::vector<std::string>>();
}

void merge(const Json& row, Family* family) {
  for (const auto& [key, value] : row.items()) {
    if (key == "like") continue;
    if (key == "graph") {
      family->graph = value.get<std::string>();
    } else if (key == "tensors") {
      family->tensors = value.get<std::string>();
    } else if (key == "defaults") {
      family->defaults.update(value);
    } else if (key == "usual") {
      family->usual.update(value);
    } else if (key == "set") {
      family->set.update(value);
    } else if (key == "is") {
      for (std::string& fact : texts_of(value)) family->is.insert(std::move(fact));
    } else if (key == "is_not") {
      for (const std::string& fact : texts_of(value)) family->is.erase(fact);
    } else if (key == "keys") {
      for (const auto& [dimension, name] : value.items()) family->keys[dimension] = name.get<std::string>();
    } else if (key == "means") {
      for (const auto& [name, facts] : value.items()) family->means[name] = texts_of(facts);
    } else if (key == "left_out") {
      for (const auto& [name, why] : value.items()) family->left_out[name] = why.get<std::string>();
    } else if (key == "harmless") {
      for (const auto& [name, why] : value.items()) family->harmless[name] = why.get<std::string>();
    } else if (key == "dropouts") {
      for (const auto& [name, places] : value.items()) family->dropouts[name] = texts_of(places);
    } else if (key == "notes") {
      for (std::string& note : texts_of(value)) family->notes.push_back(std::move(note));
    } else {
      ORRERY_CHECK(key == "unexecuted", "families.json has a column that is not known");
      for (std::string& what : texts_of(value)) family->unexecuted.push_back(std::move(what));
    }
  }
}

Family family_of(const Json& rows, const std::string& type) {
  const Json& row = rows.at(type);
  Family family;
  if (const auto like = row.find("like"); like != row.end()) {
    family = family_of(rows, like->get<std::string>());
    family.tensors.clear();
  }
  if (family.tensors.empty()) family.tensors = type;
  merge(row, &family);
  return family;
}

}  // namespace

const std::map<std::string, Family, std::less<>>& huggingface_families() {
  static const std::map<std::string, Family, std::less<>> families = [] {
    const Json rows = parse_json(embedded_families().front().content, "families.json");
    std::map<std::string, Family, std::less<>> all;
    for (const auto& [type, row] : rows.items())
      if (row.is_object()) all.emplace(type, family_of(rows, type));
    return all;
  }();
  return families;
}

void check_usual(Config& config, const Family& family) {
  for (const auto* keys : {&family.left_out, &family.harmless})
    for (const auto& [key, why] : *keys) config.use(key);
  for (const auto& [key, value] : family.usual.items())
    if (const Json* says = config.find(key); says != nullptr && *says != value)
      config.fail(key, fmt::format("{:.40}", says->dump(-1, ' ', true, Json::error_handler_t::replace)),
                  fmt::format("expected {}", value.dump()));
}

}  // namespace internal
}  // namespace orrery
