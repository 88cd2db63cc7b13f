// The model of a plan as torchtitan v0.2.2 builds it: which of its families, with which arguments.
#pragma once

#include <string>
#include <vector>

#include "program/plan.h"

namespace orrery::planner {

struct TorchtitanFlavor {
  std::string family;  // llama3 qwen3 deepseek_v3
  std::string python;  // a module that adds the flavor "orrery" to the family (experimental.custom_import)
  std::vector<std::string> notes;  // what differs all the same
};

// Families and their arguments as of torchtitan v0.2.2 (torchtitan/models/*/__init__.py, model/args.py).
// Throws UserError, with what it lacks, where none of them is the model or runs the plan.
TorchtitanFlavor torchtitan_flavor(const Plan& plan);

}  // namespace orrery::planner
