#include "sim/interpreter.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/random.h"
#include "program/schedule.h"
#include "tests/support/hand_programs.h"

using namespace orrery;
using namespace orrery::test;
using sim::Trace;

namespace {

std::vector<Program> programs_of(const std::vector<ProgramBuilder>& builders) {
  std::vector<Program> programs;
  for (const ProgramBuilder& builder : builders) programs.push_back(builder.program());
  return programs;
}

// A transfer of `bytes` between the first two nodes on an idle machine, as the cost model has it.
double lone_transfer_s(const Cluster& cluster, double bytes) {
  const Network network(cluster);
  const GroupShape shape = group_shape(network, {0, cluster.groups[0].node.devices});
  return plan_transfer(bytes, shape, cluster).seconds(bytes);
}

double transfer_latency_s(const Cluster& cluster, double bytes) {
  const Network network(cluster);
  const GroupShape shape = group_shape(network, {0, cluster.groups[0].node.devices});
  return plan_transfer(bytes, shape, cluster).latency_s;
}

// A stage with messages of no bytes to its neighbours.
ProgramBuilder stage_program(Schedule schedule, int stage, int stages, int micro_batches, double forward_s,
                             double backward_s) {
  ProgramBuilder rank(stage);
  for (const Slot& slot : schedule_slots(schedule, stage, stages, 1, micro_batches)) {
    std::vector<ProgramBuilder::Id> after;
    if (slot.kind == SlotKind::forward) {
      const int tag = 2 * slot.micro_batch;
      if (stage > 0) after.push_back(rank.receive(stage - 1, 0, tag));
      const auto done = rank.compute(forward_s, after);
      if (stage + 1 < stages) rank.send(stage + 1, 0, tag, {done});
    } else {
      const int tag = 2 * slot.micro_batch + 1;
      if (stage + 1 < stages)
        after.push_back(rank.receive(stage + 1, 0, tag, {}, Stream::pipeline_backward_receive));
      const auto done = rank.compute(backward_s, after, ComputeKind::backward);
      if (stage > 0) rank.send(stage - 1, 0, tag, {done}, Stream::pipeline_backward);
    }
  }
  return rank;
}

}  // namespace

TEST_CASE("one rank: a stream runs one instruction after another, streams run side by side") {
  ProgramBuilder a(0);
  const auto first = a.compute(1);
  a.compute(2);
  a.collective(CollectiveKind::all_reduce, {0}, 1e9, {first});  // alone in its group: no time
  const Trace trace = run_programs(round_cluster(1, 1), {a.program()});
  CHECK(trace.step_ends_s.back() == Approx(3));
  REQUIRE(trace.events.size() == 3);
  CHECK(trace.events[1].start_s == Approx(1));
  CHECK(trace.events[2].end_s == Approx(1));
}

TEST_CASE("a rank without instructions takes no time") {
  CHECK(run_programs(round_cluster(1, 1), {ProgramBuilder(0).program()}).step_ends_s.back() == 0);
}

TEST_CASE("two ranks, one link: the transfer waits for both and takes what the cost model says") {
  const Cluster cluster = round_cluster(2, 1);
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  a.send(1, 1e9, 0, {a.compute(1)});
  b.receive(0, 1e9, 0, {b.compute(2)});
  const Trace trace = run_programs(cluster, programs_of({a, b}));
  CHECK(trace.step_ends_s.back() == Approx(2 + lone_transfer_s(cluster, 1e9)));
}

TEST_CASE("two flows share a port: both take twice the time of one") {
  // Devices 0 and 1 of node 0 send to devices 2 and 3 of node 1, all through one port of 10 GB/s.
  const Cluster cluster = round_cluster(2, 2);
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2),
                                       ProgramBuilder(3)};
  for (int i = 0; i < 2; ++i) {
    ranks[i].send(i + 2, 10e9, 0);
    ranks[i + 2].receive(i, 10e9, 0);
  }
  const Trace trace = run_programs(cluster, programs_of(ranks));
  // 20 GB over 10 GB/s.
  CHECK(trace.step_ends_s.back() == Approx(2 + transfer_latency_s(cluster, 10e9)).epsilon(1e-6));
}

TEST_CASE("opposite directions of a port do not share") {
  const Cluster cluster = round_cluster(2, 1);
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  a.send(1, 10e9, 0);
  a.receive(1, 10e9, 1);
  b.receive(0, 10e9, 0);
  b.send(0, 10e9, 1);
  const Trace trace = run_programs(cluster, programs_of({a, b}));
  CHECK(trace.step_ends_s.back() == Approx(lone_transfer_s(cluster, 10e9)).epsilon(1e-6));
}

TEST_CASE("an uplink oversubscribed 4:1 is shared by all that crosses it") {
  // Two leaves of 4 nodes; 4 flows of 10 GB cross an uplink of one node's rate.
  Cluster cluster = round_cluster(8, 1);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 4;
  cluster.fabric.oversubscription = 4;
  std::vector<ProgramBuilder> ranks;
  for (int r = 0; r < 8; ++r) ranks.emplace_back(r);
  for (int i = 0; i < 4; ++i) {
    ranks[i].send(i + 4, 10e9, 0);
    ranks[i + 4].receive(i, 10e9, 0);
  }
  const double end = run_programs(cluster, programs_of(ranks)).step_ends_s.back();
  CHECK(end == Approx(4 + transfer_latency_s(cluster, 10e9)).epsilon(1e-3));
}

TEST_CASE("a ring of all devices takes the closed form on an idle network") {
  for (const int nodes : {1, 2, 3, 4}) {
    for (const int devices : {1, 2, 3, 8}) {
      if (nodes * devices == 1) continue;
      const Cluster cluster = round_cluster(nodes, devices);
      const Network network(cluster);
      std::vector<int> all;
      std::vector<ProgramBuilder> ranks;
      for (int r = 0; r < nodes * devices; ++r) {
        all.push_back(r);
        ranks.emplace_back(r);
      }
      const double bytes = 1e9;
      for (ProgramBuilder& rank : ranks) rank.collective(CollectiveKind::all_reduce, all, bytes);
      const double expected =
          plan_collective(CollectiveKind::all_reduce, bytes, group_shape(network, all), cluster)
              .seconds(bytes);
      CAPTURE(nodes, devices);
      for (const bool reduce : {true, false}) {
        HandOptions options;
        options.reduce_flows = reduce;
        CHECK(run_programs(cluster, programs_of(ranks), options).step_ends_s.back() ==
              Approx(expected).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("tensor, data and pipeline traffic that meet on a port share it") {
  // Node 0 holds ranks 0, 1; node 1 holds ranks 2, 3. A transfer 0 -> 2 of 10 GB and all-reduces over {0, 2}
  // and {1, 3} of 10 GB: each ring of two sends 10 GB from node 0. Three flows, 30 GB out of a 10 GB/s port.
  const Cluster cluster = round_cluster(2, 2);
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2),
                                       ProgramBuilder(3)};
  ranks[0].send(2, 10e9, 0);
  ranks[2].receive(0, 10e9, 0);
  for (const int r : {0, 2}) ranks[r].collective(CollectiveKind::all_reduce, {0, 2}, 10e9);
  for (const int r : {1, 3}) ranks[r].collective(CollectiveKind::all_reduce, {1, 3}, 10e9);
  const double end = run_programs(cluster, programs_of(ranks)).step_ends_s.back();
  CHECK(end == Approx(3).epsilon(0.001));
}

TEST_CASE("GPipe and 1F1B with equal stages take (m + p - 1)(f + b): a bubble of (p - 1) / (m + p - 1)") {
  const Cluster cluster = round_cluster(8, 1);
  const double f = 1;
  const double b = 2;
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    for (const int stages : {1, 2, 4, 7}) {
      for (const int micro_batches : {1, 3, 8}) {
        std::vector<ProgramBuilder> ranks;
        for (int s = 0; s < stages; ++s)
          ranks.push_back(stage_program(schedule, s, stages, micro_batches, f, b));
        const Trace trace = run_programs(cluster, programs_of(ranks));
        const double end = trace.step_ends_s.back();
        CAPTURE(static_cast<int>(schedule), stages, micro_batches);
        // Messages of no bytes still have a latency.
        CHECK(end == Approx((micro_batches + stages - 1) * (f + b)).epsilon(1e-3));
        const double bubble = 1 - micro_batches * (f + b) / end;
        CHECK(bubble == Approx((stages - 1.0) / (micro_batches + stages - 1)).margin(1e-3));
      }
    }
  }
}

TEST_CASE("cores are shared: three ranks of one second on two cores take 1.5 s") {
  Cluster cluster = round_cluster(1, 3);
  cluster.groups[0].node.shared_cores = 2;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2)};
  for (ProgramBuilder& rank : ranks) rank.compute(1);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(1.5));
  // One that ends early frees its share: 3 x 0.5 s of work at 2/3 speed, then two ranks on two cores.
  ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2)};
  ranks[0].compute(0.5);
  ranks[1].compute(1);
  ranks[2].compute(1);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(0.75 + 0.5));
}

TEST_CASE("containers of one machine share its cores across nodes, a slow one within its own share") {
  Cluster cluster = round_cluster(4, 1);
  cluster.shared_cores = 2;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2),
                                       ProgramBuilder(3)};
  for (ProgramBuilder& rank : ranks) rank.compute(1);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(2));
  // Node 3 may use a quarter of a core: it takes 4 s for its second of work, and leaves 1.75 cores to the
  // other three, which take 3 / 1.75 s.
  cluster.overrides.push_back({.node = 3, .target = OverrideTarget::node, .speed = 0.25});
  const Trace trace = run_programs(cluster, programs_of(ranks));
  CHECK(trace.rank_step_ends_s[0][0] == Approx(3 / 1.75));
  CHECK(trace.rank_step_ends_s[0][3] == Approx(4));
}

TEST_CASE("busy neighbours slow each other as the profile says") {
  Cluster cluster = round_cluster(1, 2);
  cluster.groups[0].node.shared_cores = 2;
  cluster.profiles[0].concurrency_scale = {1, 0.5};
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  ranks[0].compute(1);
  ranks[1].compute(2);
  // Both at half speed until 2 s, then rank 1's second half at full speed.
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(3));
  HandOptions both_busy;
  both_busy.assumed_busy = 2;  // the seconds already count the neighbour
  CHECK(run_programs(cluster, programs_of(ranks), both_busy).step_ends_s.back() == Approx(1.5));
}

TEST_CASE("a collective beside compute slows it by the profile's fraction") {
  Cluster cluster = round_cluster(2, 1);
  cluster.profiles[0].overlap_slowdown = 0.25;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  for (ProgramBuilder& rank : ranks) {
    rank.collective(CollectiveKind::all_reduce, {0, 1}, 10e9);
    rank.compute(10);
  }
  const Network network(cluster);
  const double beside =
      plan_collective(CollectiveKind::all_reduce, 10e9, group_shape(network, {0, 1}), cluster).seconds(10e9);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() ==
        Approx(10 + beside * (1 - 1 / 1.25)).epsilon(1e-9));
}

TEST_CASE("inside a node MPI ranks copy by hand: nothing moves while they compute") {
  Cluster cluster = round_cluster(1, 2);
  cluster.groups[0].node.intra.kind = IntraKind::shared_memory;
  cluster.communication.library = CommunicationLibrary::mpi;
  cluster.communication.point_to_point_bytes_per_s = 5e9;
  cluster.communication.intra_efficiency = 1;
  cluster.communication.network_efficiency = 1;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  for (ProgramBuilder& rank : ranks) {
    rank.collective(CollectiveKind::all_reduce, {0, 1}, 1e9);
    rank.compute(1);
  }
  const Network network(cluster);
  const double alone =
      plan_collective(CollectiveKind::all_reduce, 1e9, group_shape(network, {0, 1}), cluster).seconds(1e9);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(1 + alone).epsilon(1e-9));
  // With SimGrid sharing the link the transfer is suspended and resumed.
  HandOptions shared;
  shared.reduce_flows = false;
  CHECK(run_programs(cluster, programs_of(ranks), shared).step_ends_s.back() ==
        Approx(1 + alone).epsilon(1e-6));
}

TEST_CASE("between nodes an MPI rank's communication moves while it computes, and it waits where it must") {
  Cluster cluster = round_cluster(2, 1);
  cluster.communication.library = CommunicationLibrary::mpi;
  cluster.communication.network_efficiency = 1;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  for (ProgramBuilder& rank : ranks) {
    const auto sum = rank.collective(CollectiveKind::all_reduce, {0, 1}, 10e9);
    rank.compute(0.25);
    rank.compute(1, {sum});
  }
  const Network network(cluster);
  const double alone =
      plan_collective(CollectiveKind::all_reduce, 10e9, group_shape(network, {0, 1}), cluster).seconds(10e9);
  CHECK(alone > 0.25);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(1 + alone).epsilon(1e-9));
}

TEST_CASE("small messages leave without the receiver, and the sender goes on") {
  Cluster cluster = round_cluster(2, 1);
  cluster.communication.library = CommunicationLibrary::mpi;
  cluster.communication.eager_bytes = 1000;
  cluster.communication.network_efficiency = 1;
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  a.compute(1, {a.send(1, 1000, 0)});
  b.receive(0, 1000, 0, {b.compute(5)});
  const Trace trace = run_programs(cluster, programs_of({a, b}), {.steps = 2});
  CHECK(trace.rank_step_ends_s[0][0] == Approx(1));
  CHECK(trace.rank_step_ends_s[1][0] == Approx(2));
  CHECK(trace.step_ends_s[1] == Approx(10));
}

TEST_CASE("what a sender does not wait for leaves in order, one message after another") {
  Cluster cluster = round_cluster(2, 1);
  cluster.communication.library = CommunicationLibrary::mpi;
  cluster.communication.network_eager_bytes = 1e9;
  cluster.communication.network_efficiency = 1;
  const Network network(cluster);
  const double one = plan_transfer(1e9, group_shape(network, {0, 1}), cluster).seconds(1e9);
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  for (int i = 0; i < 3; ++i) a.send(1, 1e9, i);
  for (int i = 0; i < 3; ++i) b.receive(0, 1e9, i);
  const Trace trace = run_programs(cluster, programs_of({a, b}));
  const double latency = plan_transfer(1e9, group_shape(network, {0, 1}), cluster).latency_s;
  CHECK(trace.rank_step_ends_s[0][0] < 0.1 * one);
  std::vector<double> ends;
  for (const TimelineEvent& event : trace.events)
    if (event.rank == 1) ends.push_back(event.end_s);
  REQUIRE(ends.size() == 3);
  CHECK(ends[0] == Approx(one));  // shared evenly the first would come with the last
  CHECK(ends[1] == Approx(latency + 2 * (one - latency)));
  CHECK(ends[2] == Approx(latency + 3 * (one - latency)));
}

TEST_CASE("ranks of one node share its storage") {
  Cluster cluster = round_cluster(1, 2);
  cluster.groups[0].node.storage_read_bytes_per_s = 1e9;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  ranks[0].load(1e9);
  ranks[1].load(2e9);
  CHECK(run_programs(cluster, programs_of(ranks)).step_ends_s.back() == Approx(3).epsilon(1e-6));
}

TEST_CASE("what never meets is an error that names the instruction") {
  const Cluster cluster = round_cluster(2, 1);
  ProgramBuilder a(0);
  a.send(1, 8, 0);
  CHECK_THROWS_WITH(run_programs(cluster, {a.program(), ProgramBuilder(1).program()}),
                    Catch::Contains("rank 0, instruction 0"));
}

TEST_CASE("ranks that wait for each other in a circle are a stall that names them") {
  const Cluster cluster = round_cluster(2, 1);
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  for (int r = 0; r < 2; ++r) ranks[r].send(1 - r, 8, 0, {ranks[r].receive(1 - r, 8, 0)});
  CHECK_THROWS_WITH(run_programs(cluster, programs_of(ranks)),
                    Catch::Contains("stalled") && Catch::Contains("rank 0 at instruction 0"));
}

TEST_CASE("the reduced system of flows gives the times of the full one") {
  // Random traffic between 3 nodes of 2 devices: transfers and rings of different sizes and starts.
  const Cluster cluster = round_cluster(3, 2);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const CounterRandom random(seed, 1);
    std::uint64_t draw = 0;
    const auto below = [&](int n) { return static_cast<int>(random.uniform(draw++) * n); };
    std::vector<ProgramBuilder> ranks;
    for (int r = 0; r < 6; ++r) ranks.emplace_back(r);
    for (int round = 0; round < 6; ++round) {
      for (ProgramBuilder& rank : ranks) rank.compute(0.01 * below(10));
      if (below(2) == 0) {
        const int source = below(6);
        const int destination = (source + 1 + below(5)) % 6;
        const double bytes = 1e8 * (1 + below(20));
        ranks[source].send(destination, bytes, round);
        ranks[destination].receive(source, bytes, round);
      } else {
        const std::vector<int> members =
            below(2) == 0 ? std::vector<int>{0, 2, 4} : std::vector<int>{1, 3, 5};
        const double bytes = 1e8 * (1 + below(20));
        for (const int r : members) ranks[r].collective(CollectiveKind::all_reduce, members, bytes);
      }
    }
    const std::vector<Program> programs = programs_of(ranks);
    HandOptions full;
    full.reduce_flows = false;
    const Trace reduced = run_programs(cluster, programs);
    const Trace complete = run_programs(cluster, programs, full);
    CAPTURE(seed);
    REQUIRE(reduced.events.size() == complete.events.size());
    for (std::size_t i = 0; i < reduced.events.size(); ++i)
      CHECK(reduced.events[i].end_s == Approx(complete.events[i].end_s).epsilon(1e-6).margin(1e-7));
  }
}
