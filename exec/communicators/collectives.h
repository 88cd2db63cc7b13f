// Orrery's own collectives over any PointToPoint: non-blocking, progressed by Request::test, with the
// algorithm that the cost model chose. What the simulator prices is what runs.
//
//   all_reduce      ring (2(n-1) steps of 1/n), recursive doubling (ceil(log2 n) steps of all)
//   reduce_scatter  ring (n-1 steps)
//   all_gather      ring (n-1 steps)
//   all_to_all      every pair at once
//   broadcast, reduce  binomial tree
//
// Every member computes bit-identical results, so replicas never drift apart.
#pragma once

#include <memory>

#include "exec/communicators/communicator.h"
#include "exec/communicators/point_to_point.h"

namespace orrery::exec {

// Sums and maxima of fp32, fp16, bf16 (each step rounded), int32 and int64. Other types can be moved but not
// reduced (InternalError).
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<PointToPoint> transport);

// A world of one rank, where there is no MPI.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace orrery::exec
