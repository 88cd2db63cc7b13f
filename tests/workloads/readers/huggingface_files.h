// The public configurations that the tests of the reader share.
#pragma once

#include <string>

#include "workloads/readers/catalog.h"
#include "workloads/workload.h"

namespace orrery::test {

inline std::string file_of(const std::string& name) {
  return std::string(ORRERY_TEST_DATA) + "/huggingface/" + name + ".json";
}

inline Workload load(const std::string& name) {
  return load_workload(file_of(name));
}

}  // namespace orrery::test
