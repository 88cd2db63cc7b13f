#include "handover/settings.h"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "handover/import.h"
#include "handover/keys/known_keys.h"

namespace orrery::planner {
namespace {

// TOML's and YAML's values as JSON's, no deeper and no more than JSON may be.
class Values {
 public:
  explicit Values(const std::string& file) : file_(file) {}

  Json of(const toml::node& node, int depth) {
    enter(depth);
    if (const toml::table* table = node.as_table()) {
      std::vector<std::pair<std::string, const toml::node*>> rows;
      for (const auto& [key, value] : *table) rows.emplace_back(std::string(key.str()), &value);
      std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
        return a.second->source().begin.line < b.second->source().begin.line;
      });
      Json json = Json::object();
      for (const auto& [key, value] : rows) json[key] = of(*value, depth + 1);
      return json;
    }
    if (const toml::array* array = node.as_array()) {
      Json json = Json::array();
      for (const toml::node& value : *array) json.push_back(of(value, depth + 1));
      return json;
    }
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_boolean()) return value->get();
    return nullptr;  // dates
  }

  Json of(const YAML::Node& node, int depth) {
    enter(depth);
    if (node.IsMap()) {
      Json json = Json::object();
      for (const auto& row : node)
        if (row.first.IsScalar()) json[row.first.Scalar()] = of(row.second, depth + 1);
      return json;
    }
    if (node.IsSequence()) {
      Json json = Json::array();
      for (const YAML::Node& value : node) json.push_back(of(value, depth + 1));
      return json;
    }
    if (!node.IsScalar()) return nullptr;
    return scalar(node.Scalar(), node.Tag() == "!");
  }

 private:
  void enter(int depth) {
    if (depth > kMaxJsonDepth || ++values_ > kMaxJsonValues)
      throw UserError(file_, 0, "nests too deep or repeats too much", "expected a file of settings");
  }

  static Json scalar(const std::string& text, bool quoted) {
    if (quoted) return text;
    if (text == "null" || text == "~" || text == "Null" || text == "None" || text.empty()) return nullptr;
    const std::string lower = lower_case(text);
    if (lower == "true" || lower == "yes" || lower == "on") return true;
    if (lower == "false" || lower == "no" || lower == "off") return false;
    if (const auto whole = parse_whole(text)) return *whole;
    if (const auto number = parse_number(text)) return *number;
    return text;
  }

  const std::string& file_;
  std::size_t values_ = 0;
};

}  // namespace

struct Settings::Leaves {
  std::map<std::string, Json> values;
  std::vector<std::string> order;

  Leaves(const Json& json, const std::string& file) {
    if (!json.is_object()) throw UserError(file, 1, "holds no table", "expected a file of settings");
    flatten(json, "");
  }
  const Json* at(const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : &found->second;
  }

 private:
  void flatten(const Json& table, const std::string& prefix) {
    for (const auto& [key, value] : table.items()) {
      const std::string name = prefix.empty() ? key : prefix + "." + key;
      if (value.is_object()) {
        flatten(value, name);
      } else if (!value.is_null() && values.emplace(name, value).second) {
        order.push_back(name);
      }
    }
  }
};

Settings::Settings(std::shared_ptr<const Leaves> leaves, std::string file, std::string_view text)
    : file_(std::move(file)), text_(text), leaves_(std::move(leaves)), order_(leaves_->order) {}

Settings Settings::from_toml(std::string_view text, const std::string& file) {
  try {
    const toml::table table = toml::parse(text);
    return {std::make_shared<Leaves>(Values(file).of(table, 0), file), file, text};
  } catch (const toml::parse_error& error) {
    throw UserError(file, static_cast<int>(error.source().begin.line), "not TOML",
                    "expected a file of settings");
  }
}

Settings Settings::from_yaml(std::string_view text, const std::string& file) {
  try {
    const YAML::Node node = YAML::Load(std::string(text));
    return {std::make_shared<Leaves>(Values(file).of(node, 0), file), file, text};
  } catch (const YAML::Exception& error) {
    throw UserError(file, error.mark.line + 1, "not YAML", "expected a file of settings");
  }
}

Settings Settings::from_json(std::string_view text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto* const end = text.data() + std::min(error.byte, text.size());
    throw UserError(file, static_cast<int>(std::count(text.data(), end, '\n')) + 1, "not JSON",
                    "expected a file of settings");
  } catch (const Json::out_of_range&) {
    throw UserError(file, 0, "a number beyond all bounds", "expected a file of settings");
  }
  return {std::make_shared<Leaves>(json, file), file, text};
}

namespace {

void add_yaml(const Json& json, int depth, std::string* text) {
  for (const auto& [key, value] : json.items()) {
    *text += fmt::format("{:{}}{}:", "", 2 * depth, key);
    if (value.is_object() && !value.empty()) {
      *text += "\n";
      add_yaml(value, depth + 1, text);
    } else {  // JSON's scalars and lists are YAML's
      *text += " " + value.dump() + "\n";
    }
  }
}

}  // namespace

std::string yaml_of(const std::string& json) {
  std::string text;
  add_yaml(Json::parse(json), 0, &text);
  return text;
}

bool Settings::has(const std::string& name) const {
  return leaves_->at(name) != nullptr && hidden_.count(name) == 0;
}

bool Settings::asked(const std::string& name) {
  if (!has(name)) return false;
  order_.erase(std::remove(order_.begin(), order_.end(), name), order_.end());
  return true;
}

void Settings::refuse(const std::string& name, std::string_view expected) const {
  const Json* found = leaves_->at(name);
  const std::string value =
      found == nullptr ? "" : found->dump(-1, ' ', true, Json::error_handler_t::replace);
  throw UserError(file_, 0, fmt::format("{} is {}", name, value.substr(0, 60)),
                  fmt::format("expected {}", expected));
}

std::optional<int> Settings::count(const std::string& name, int least, int most) {
  if (!asked(name)) return std::nullopt;
  const Json& value = *leaves_->at(name);
  const double number = value.is_number() ? value.get<double>() : least - 1.0;
  if (!(number >= least) || number > most || number != std::floor(number))
    refuse(name, fmt::format("a whole number from {} to {}", least, most));
  return static_cast<int>(number);
}

std::optional<double> Settings::number(const std::string& name) {
  if (!asked(name)) return std::nullopt;
  const Json& value = *leaves_->at(name);
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(name, "a number");
  return value.get<double>();
}

std::optional<bool> Settings::flag(const std::string& name) {
  if (!asked(name)) return std::nullopt;
  const Json& value = *leaves_->at(name);
  if (!value.is_boolean()) refuse(name, "true or false");
  return value.get<bool>();
}

std::optional<std::string> Settings::text(const std::string& name) {
  if (!asked(name)) return std::nullopt;
  const Json& value = *leaves_->at(name);
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (!value.is_string()) refuse(name, "a word");
  return value.get<std::string>();
}

namespace {

std::optional<std::vector<std::string>> words_in(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const Json& one : list) {
    if (!one.is_string()) return std::nullopt;
    words.push_back(one.get<std::string>());
  }
  return words;
}

}  // namespace

std::optional<std::vector<std::string>> Settings::list(const std::string& name) {
  if (!asked(name)) return std::nullopt;
  auto words = words_in(*leaves_->at(name));
  if (!words) refuse(name, "a list of words");
  return words;
}

std::optional<std::vector<std::vector<std::string>>> Settings::lists(const std::string& name) {
  if (!asked(name)) return std::nullopt;
  const Json& value = *leaves_->at(name);
  if (!value.is_array()) refuse(name, "a list of lists of words");
  std::vector<std::vector<std::string>> all;
  for (const Json& one : value) {
    auto words = words_in(one);
    if (!words) refuse(name, "a list of lists of words");
    all.push_back(*std::move(words));
  }
  return all;
}

std::string Settings::one_of(const std::vector<std::string>& names) const {
  for (const std::string& name : names)
    if (has(name)) return name;
  return names.front();
}

std::optional<std::int64_t> Settings::peek(const std::string& name) const {
  const Json* found = leaves_->at(name);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

bool Settings::is_reference(const std::string& name) const {
  const Json* found = leaves_->at(name);
  return found != nullptr && found->is_string() && found->get_ref<const std::string&>().starts_with("${");
}

bool Settings::has_under(const std::string& table) const {
  const auto at = leaves_->values.lower_bound(table + ".");
  return at != leaves_->values.end() && at->first.starts_with(table + ".");
}

void Settings::ignore_all(std::string_view value, std::string_view why) {
  for (const std::string& name : std::vector<std::string>(order_)) {
    if (*leaves_->at(name) != std::string(value)) continue;
    ignore(name, why);
    hidden_.insert(name);
  }
}

void Settings::ignore(const std::string& name, std::string_view why) {
  if (asked(name)) said_.push_back(fmt::format("{}: {}", name, why));
}

std::vector<std::string> Settings::rest(std::string_view system) {
  std::vector<std::string> all = std::exchange(said_, {});
  for (const std::string& name : std::exchange(order_, {})) all.push_back(ignored_because(system, name));
  return all;
}

void Settings::tell_rest(std::string_view system, Imported* imported) {
  imported->read += static_cast<int>(leaves_->order.size() - order_.size() - said_.size());
  for (const std::string& name : order_)
    if (const std::string meant = misspelt_plan_setting(system, name); !meant.empty())
      imported->misspelt.push_back({name, meant, line_of(name)});
  for (std::string& one : rest(system)) imported->ignored.push_back(std::move(one));
}

// Where its last part stands as a key: whoever misspells one does so once.
int Settings::line_of(const std::string& name) const {
  const auto dot = name.rfind('.');
  const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
  const auto in_a_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text_.find(key); at != std::string::npos; at = text_.find(key, at + 1)) {
    if (at > 0 && in_a_word(text_[at - 1])) continue;
    const std::size_t behind = text_.find_first_not_of("\"' \t", at + key.size());
    if (behind == std::string::npos || (text_[behind] != ':' && text_[behind] != '=')) continue;
    return 1 +
           static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  return 0;
}

}  // namespace orrery::planner
