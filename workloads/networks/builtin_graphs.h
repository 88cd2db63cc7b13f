// Catalog models that are no transformers, built by code: convolutional networks and a recommender.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

struct BuiltinGraph {
  std::string_view name;
  std::string_view description;
  Workload (*build)();
};

const std::vector<BuiltinGraph>& builtin_graphs();  // sorted by name

}  // namespace orrery::internal
