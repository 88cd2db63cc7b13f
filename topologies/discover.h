// Describes the machine that this runs on.
#pragma once

#include <filesystem>
#include <optional>

#include "topologies/cluster.h"

namespace orrery {

// One node: processors and memory from hwloc, GPUs from NVML when its library can be loaded at run time.
// Cores get the "generic-cpu" model, or the calibration stored by `orrery calibrate` where that was made on
// this machine.
Cluster discover_localhost();

// Where `orrery calibrate` without --out writes, and discover_localhost() reads:
// user_data_folder()/localhost.textproto, a proto::Cluster with its device and communication profiles.
std::filesystem::path localhost_calibration_file();

}  // namespace orrery
