// What the arguments that Megatron-LM prints say of a run beyond the columns of a table of steps: all that a
// plan can say, and what no plan says.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/row.h"

namespace orrery::measurements {

class MegatronArguments {
 public:
  // The first that is printed counts; None says nothing.
  void say(std::string_view name, std::string_view value);
  // In place of what was printed before.
  void say_at_last(std::string_view name, std::string_view value) { arguments_[std::string(name)] = value; }

  // Empty where it is not printed, or None.
  std::string argument(std::string_view name) const;
  // The first of these that is printed.
  std::string first(const std::vector<std::string_view>& names) const;
  bool stated(std::string_view name) const { return arguments_.find(name) != arguments_.end(); }
  bool is(std::string_view name) const { return argument(name) == "True"; }
  // 0 where it is no number from 1 to 2^24.
  int count(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> arguments_;
};

// Megatron-Core's models are an option until mid-2024, then what runs unless the old ones are asked for
// (use_legacy_models). Transformer Engine's layers are what Megatron-Core is made of, whoever calls them.
bool is_megatron_core(const MegatronArguments& arguments);

// As the tokenizer's vocabulary is filled up; empty: not printed.
std::string vocabulary_of(const MegatronArguments& arguments);

struct MegatronSays {
  evidence::Said said;
  std::string beyond;  // that no plan says: the argument, and its value unless True; empty: nothing
};
MegatronSays says_of(const MegatronArguments& arguments);

}  // namespace orrery::measurements
