// Settings of other systems from their files (TOML, YAML, JSON), asked for by name; and why what nobody asked
// for says nothing of a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse.h"

namespace orrery::planner {

struct Imported;

// The text of a JSON object as YAML, a line a value.
std::string yaml_of(const std::string& json);

// The leaves of nested tables under their dotted names, "parallelism.tensor_parallel_degree". What is null
// ("none" in YAML) is not there. Each reader throws UserError naming file and key where the value is of
// another kind.
class Settings {
 public:
  // Throw UserError with file:line where the text is no table, or nests or repeats without end.
  static Settings from_toml(std::string_view text, const std::string& file);
  static Settings from_yaml(std::string_view text, const std::string& file);
  static Settings from_json(std::string_view text, const std::string& file);

  std::optional<int> count(const std::string& name, int least = 1, int most = 1 << 24);
  std::optional<double> number(const std::string& name);
  std::optional<bool> flag(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::optional<std::vector<std::string>> list(const std::string& name);
  std::optional<std::vector<std::vector<std::string>>> lists(const std::string& name);
  // The first of several names for one thing that is there; else the first.
  std::string one_of(const std::vector<std::string>& names) const;
  // A whole number, where there is one; looked at alone, it is still among the rest.
  std::optional<std::int64_t> peek(const std::string& name) const;
  // "${model.hidden}": what another key says.
  bool is_reference(const std::string& name) const;
  bool has(const std::string& name) const;
  bool has_under(const std::string& table) const;
  // Is said to be ignored, with this reason where it is there.
  void ignore(const std::string& name, std::string_view why);
  // The same of every setting that has this word for a value; it is then not there.
  void ignore_all(std::string_view value, std::string_view why);
  // What nobody has asked for, each with a reason, in the file's order. `system`: handover/keys/known_keys.h.
  std::vector<std::string> rest(std::string_view system);
  // The same, with what was read and what is misspelt.
  void tell_rest(std::string_view system, Imported* imported);
  [[noreturn]] void refuse(const std::string& name, std::string_view expected) const;

 private:
  struct Leaves;
  Settings(std::shared_ptr<const Leaves> leaves, std::string file, std::string_view text);
  int line_of(const std::string& name) const;
  bool asked(const std::string& name);

  std::string file_, text_;
  std::shared_ptr<const Leaves> leaves_;  // never changed
  std::vector<std::string> order_;        // names not yet asked for, as they stand
  std::vector<std::string> said_;
  std::set<std::string> hidden_;
};

}  // namespace orrery::planner
