// Bandwidth and latency of a cluster's links by collectives that were measured on it.
#pragma once

#include <string>
#include <vector>

#include "measurements/calibration/learned.h"
#include "measurements/measurement.h"

namespace orrery::measurements {

// Where what was measured leaves the model's curve, after calibration.
struct Departure {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int nodes = 1, devices_per_node = 1;
  std::string algorithm, protocol;  // as predicted
  double least_bytes = 0, most_bytes = 0;
  double times = 1;  // measured over predicted, median
};

struct Links {
  Cluster cluster;  // as measured
  // "intra": bytes inside a node, "between": bytes between nodes, "latency": steps without bytes; factors on
  // time.
  std::vector<Learned> learned;
  HeldOut held_out;
  std::vector<Departure> departures;
};

// `cluster` as it is without measurements. Throws NoAnswer where a time is beyond what its links can carry.
Links learn_links(const Cluster& cluster, const std::vector<MeasuredCollective>& collectives);

}  // namespace orrery::measurements
