// Models that come with Orrery, and the one door through which any workload comes in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "workloads/workload.h"

namespace orrery {

struct WorkloadEntry {
  std::string name;
  std::string description;
};

std::vector<WorkloadEntry> catalog_workloads();  // sorted by name

// A Hugging Face config.json, an .onnx file, a .textproto, or a catalog name. Throws UserError.
Workload load_workload(const std::string& file_or_name);

}  // namespace orrery
