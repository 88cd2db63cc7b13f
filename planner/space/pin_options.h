// The dimensions of a plan as options: what pins each, and what a plan has of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/option.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

using FieldValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                std::vector<std::string>>;
// A key of a plan's JSON.
struct PlanField {
  std::string key;
  std::function<FieldValue(const Plan& plan)> value;
  std::string what = {};  // it means; empty: its option's help says it
};

struct PinOption {
  Option option;
  // False where the text is outside the option's range.
  std::function<bool(Pins& pins, const std::string& text)> read;
  // Into `merged` what `other` says of it, where `own` says nothing that matters to it.
  std::function<void(Pins& merged, const Pins& own, const Pins& other)> fill;
  // What a user would say to have of it what this plan has; nothing where the plan's other choices leave it
  // without a meaning.
  std::function<void(Pins& pins, const Plan& plan)> hold;
  std::vector<PlanField> fields;
};

// In the order of a plan's JSON.
const std::vector<PinOption>& pin_options();
// As settings of `pins`, which must outlive them.
std::vector<Setting> pin_settings(Pins& pins);
// Pins that leave this plan alone of its job's space.
Pins pins_of(const Plan& plan);
// `own`, and `other` where it says nothing.
Pins merged(const Pins& own, const Pins& other);

}  // namespace orrery::planner
