// NCCL 2.28's choice of algorithm and protocol, and what it costs. Structure and constants are the tuner's
// (src/graph/tuning.cc, restated in docs/collectives.md); where measurement shows a constant off, the value
// per GPU generation below replaces it, as NCCL's own tuner plug-in interface allows.
#pragma once

#include <string>
#include <string_view>

#include "cost/collective_cost.h"

namespace orrery {

// What is fitted to published measurements, per GPU generation and intra-node link (docs/collectives.md says
// to which and with what error).
struct NcclProfile {
  std::string_view name;
  double link_efficiency = 0;  // long messages on a ring, Simple protocol, of the link's nominal rate
  double copy_steps = 0;       // the local copy of a rank's own part, in steps of the ring
  double base_s = 0;           // launch and first step, LL protocol
  double hop_s = 0;            // each step inside a node, LL protocol
  double ll128_s = 0;          // what the LL128 protocol adds to base_s
  double simple_s = 0;         // what the Simple protocol adds to base_s
  double ramp_s = 0;           // pipeline fill, Simple: adds sqrt(ramp_s x time on the link)
  double p2p_s = 0;            // launch of a group of sends and receives, LL
  double p2p_simple_s = 0;     // what the Simple protocol adds to it
  double p2p_efficiency = 0;   // all-to-all and send/recv, long messages
  double p2p_copy_steps = 0;   // the local copy of an all-to-all, as copy_steps
  double nvls_efficiency = 0;  // NVLink SHARP, of the link's nominal rate; 0: none
  double nvls_s = 0;           // latency of an NVLS collective
  double nvls_ramp_s = 0;      // pipeline fill of NVLS, as ramp_s
};

const NcclProfile& nccl_profile(const GroupShape& shape);

// Fraction of the nominal rate of a device's NVLinks or PCIe that long messages of its best algorithm reach.
double nccl_link_fraction(LinkKind kind, const std::string& generation);

CollectivePlan nccl_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                               const Cluster& cluster, const Algorithm* forced);
CollectivePlan nccl_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
