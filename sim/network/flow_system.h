// What shares what in the network: flows, the links they load, and the exact reduction of that system to the
// few constraints that can bind.
//
// A *pattern* is a set of transfers that advance together at one rate: the edges of a ring (no edge can get
// ahead of the others), or the same transfer of all ranks of a class (folding). On each link it has a weight:
// how many of its transfers cross it, scaled by the share of the bytes that they carry. A *flow* is a pattern
// with a rate bound (what protocol and algorithm reach on an idle network). Rates are max-min fair under
//   for each link: sum over running flows of weight * rate <= capacity.
//
// Reductions, none of which changes a rate:
//   - links with equal weights and capacity are one constraint;
//   - flows of one *queue* never run at the same time (a stream runs one instruction at a time), so a
//     constraint that only one queue touches is a rate bound of its flows;
//   - a constraint that loads each pattern no more than another one does, in parts of its capacity, never
//   binds
//     before that one;
//   - a constraint that holds even when every queue runs its most demanding flow at its bound never binds.
// A flow with no constraint left has a duration known in advance; SimGrid shares the rest.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/network/flat_index.h"
#include "topologies/network.h"

namespace orrery::sim {

struct LinkWeight {
  int link = 0;  // index in the FlowSystem
  double weight = 0;
  // That cross the link, per byte of a transfer: the weight, unless the flow is let off some.
  double bytes = 0;
};

// Adds weights up by link.
class LoadSum {
 public:
  void add(int link, double weight);
  // By link, each once; what follows adds up anew.
  std::vector<LinkWeight> take();

 private:
  std::vector<double> weight_;  // by link
  std::vector<int> loaded_;     // links of weight above 0
};

// A queue that may run any number of its flows at once.
constexpr int kNoQueue = -1;

struct Pattern {
  std::vector<LinkWeight> loads;
  int queue = kNoQueue;
};

struct Flow {
  int pattern = 0;
  double bound_bytes_per_s = 0;  // of one transfer; infinite: none
};

// sum over flows of weight * rate <= capacity
struct Constraint {
  double capacity_bytes_per_s = 0;
  std::vector<std::pair<int, int>> weights;  // (pattern, integer weight), capacity scaled alike
};

class FlowSystem {
 public:
  // The index of a link, and whether it is new. It is without capacity until it is given one.
  std::pair<int, bool> add_link(LinkId id);
  void set_capacity(int link, double bytes_per_s) { capacity_[static_cast<std::size_t>(link)] = bytes_per_s; }
  // Loads each link once.
  int add_pattern(std::vector<LinkWeight> loads, int queue);
  // The same flow for the same arguments.
  int add_flow(int pattern, double bound_bytes_per_s);
  // Once, after the last flow. `keep_all`: merge equal links only, so that SimGrid shares everything.
  void reduce(bool keep_all = false);

  const std::vector<Pattern>& patterns() const { return patterns_; }
  const std::vector<Flow>& flows() const { return flows_; }
  std::size_t links() const { return capacity_.size(); }
  LinkId id_of(int link) const { return ids_[static_cast<std::size_t>(link)]; }
  double capacity(int link) const { return capacity_[static_cast<std::size_t>(link)]; }
  // After reduce(): what binds, and each flow's rate when it runs alone.
  const std::vector<Constraint>& constraints() const { return constraints_; }
  const std::vector<int>& constraints_of(int flow) const {
    return pattern_constraints_[static_cast<std::size_t>(flows_[static_cast<std::size_t>(flow)].pattern)];
  }
  double lone_rate(int flow) const { return lone_rate_[static_cast<std::size_t>(flow)]; }

 private:
  // A capacity and the patterns that load it, each with its weight.
  struct Load {
    double capacity = 0;
    std::vector<std::pair<int, double>> weights;
  };
  std::vector<Load> distinct_loads() const;
  void drop_implied(std::vector<const Load*>* loads) const;

  std::vector<double> capacity_;  // by link
  std::vector<LinkId> ids_;
  FlatIndex index_;  // of ids
  std::vector<Pattern> patterns_;
  std::vector<Flow> flows_;
  std::map<std::pair<int, double>, int> flow_index_;
  std::vector<Constraint> constraints_;
  std::vector<std::vector<int>> pattern_constraints_;
  std::vector<double> lone_rate_;
};

}  // namespace orrery::sim
