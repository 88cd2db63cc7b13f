// The settings of systems whose files are read and written: names, types, what each changes. Data: SYSTEM.txt
// beside this file says where it was read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::planner {

// What a setting that is read back does to a plan: `plan` is honoured; of the others only what they are is
// said.
enum class KeyEffect : std::uint8_t { plan, model, runtime, unplanned, none };

struct KnownKey {
  std::string_view name;  // with *: of every name that fits
  // "count" "number" "flag" "word" "one:a|b" "each:a|b" (a list of these) "list" "lists" "any"
  std::string_view type;
  KeyEffect effect = KeyEffect::none;
  std::string_view meaning;
};

// In the file's order. `system`: "deepspeed" "megatron" "nemo" "torchtitan". Throws InternalError on another
// and on a malformed line.
const std::vector<KnownKey>& known_keys(std::string_view system);
// The setting of that name; else the longest pattern that fits; else, of NeMo, Megatron-LM's flag of the last
// part's name. None: nullptr.
const KnownKey* known_key(std::string_view system, std::string_view name);

// "--lr: changes no time and no memory of a step": why a setting that is not honoured says nothing of a plan.
std::string ignored_because(std::string_view system, const std::string& name);
// Whether it says of a setting that it changes nothing of a plan, or that something else says it.
bool is_harmless(std::string_view ignored);

// The setting that an unknown name differs from in a letter or two, where that would be honoured: whoever
// wrote it asked for something that nobody plans. Else empty.
std::string misspelt_plan_setting(std::string_view system, const std::string& name);

}  // namespace orrery::planner
