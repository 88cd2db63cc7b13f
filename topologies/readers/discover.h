// Describes the machine that this runs on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "topologies/cluster.h"

namespace orrery {

// One node whose devices are the processor cores that this process may use, joined by shared memory, under an
// MPI library: cores, memory and instruction set from hwloc and the kernel, rates from the "generic-cpu"
// profile scaled by clock and vector width (discover.cc says how); or all of it from the calibration stored
// by `orrery calibrate` where that was made on this machine. Throws UserError where that file is damaged.
Cluster discover_localhost();

// The same without looking at the stored calibration: what a new calibration starts from.
Cluster discover_uncalibrated_localhost();

// One node of this machine's GPUs with their NVLinks and InfiniBand ports, from NVML (loaded at run time) and
// the kernel; nothing where there is no NVML or no GPU. `device`: what to take the GPUs for; empty:
// the catalog's by their PCI ids. Throws UserError where the GPUs are of different models, or none of the
// catalog's.
std::optional<Cluster> discover_gpus(const std::string& device = {});

// What identifies this machine in a calibration: "machine: Intel(R) Xeon(R) …, 2 cores". A calibration's
// `source` holds it.
std::string machine_signature();

// Where `orrery calibrate` without --out writes, and discover_localhost() reads:
// user_data_folder()/localhost.textproto, a proto::Cluster with its device and communication profiles.
std::filesystem::path localhost_calibration_file();

}  // namespace orrery
