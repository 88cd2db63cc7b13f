// What was measured on a cluster, kept by the cluster's content: `orrery calibrate CLUSTER` writes, whatever
// plans on that cluster reads.
#pragma once

#include <cstdint>
#include <filesystem>

#include "topologies/cluster.h"

namespace orrery {

// user_data_folder()/clusters/NAME-DIGEST.textproto, a proto::Cluster with its calibration. The digest is of
// all that says how fast the cluster is: not of prices, power, descriptions, hosts' names, nor of how many
// nodes there are, of which nothing is learned.
std::filesystem::path site_calibration_file(const Cluster& cluster);
// As measurements have it, where there are some of it, with its own prices, words and nodes. Throws UserError
// where their file is damaged.
Cluster with_site_calibration(Cluster cluster);
// When what was measured, of a cluster or of this machine, last changed: another number whenever it did.
std::int64_t last_calibration();

}  // namespace orrery
