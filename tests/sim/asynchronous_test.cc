// Asynchronous parameter servers in virtual time: everyone at its own pace, by hand.
#include <catch2/catch.hpp>
#include <vector>

#include "program/lower/lowering.h"
#include "sim/simulator.h"
#include "tests/support/hand_programs.h"
#include "tests/support/small_plans.h"

namespace orrery::sim {
namespace {

using test::round_cluster;

struct Workers {
  std::vector<double> seconds;  // that each computes in a step
  double bytes = 0;             // that each pushes, and pulls
  double apply_s = 0;           // of a push, divided over all servers
  int servers = 1;
  Sync sync = Sync::async_parameter_server;
  int staleness = 0;
};

std::vector<Program> programs_of(const Workers& workers) {
  Choices choices;
  choices.dp = static_cast<int>(workers.seconds.size());
  choices.sync = workers.sync;
  choices.servers = workers.servers;
  choices.staleness = workers.staleness;
  choices.overlap_grad_reduce = false;
  const Plan plan{test::small_job({}, choices.dp), choices};
  check_plan(plan);
  std::vector<Program> programs;
  for (int rank = 0; rank < choices.dp; ++rank) {
    Program program = lower(plan, rank);
    REQUIRE(program.buckets.size() == 1);
    const auto by_hand = [&](std::vector<Instruction>& instructions) {
      for (Instruction& instruction : instructions) {
        const bool update = instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
        instruction.flops = update ? workers.apply_s / workers.servers : 0;
        for (Transfer& transfer : instruction.transfers) transfer.bytes = workers.bytes / workers.servers;
      }
    };
    by_hand(program.instructions);
    for (Service& service : program.services) by_hand(service.instructions);
    for (Instruction& instruction : program.instructions) {
      if (instruction.op != Op::compute) continue;
      instruction.flops = workers.seconds[static_cast<std::size_t>(rank)];
      break;
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

Trace trace_of(const Workers& workers, const Cluster& cluster) {
  test::HandOptions options;
  options.steps = 12;
  return test::run_programs(cluster, programs_of(workers), options);
}

double period(const Trace& trace, std::size_t rank) {
  return trace.late_s[rank] / trace.late_steps[rank];
}

// Seconds in which all together do as many steps as there are workers.
double step_s(const Workers& workers, const Cluster& cluster = round_cluster(4, 1)) {
  const Trace trace = trace_of(workers, cluster);
  if (workers.sync == Sync::parameter_server)
    return (trace.step_ends_s.back() - trace.step_ends_s.front()) / 11;
  double rate = 0;
  for (std::size_t r = 0; r < workers.seconds.size(); ++r) rate += 1 / period(trace, r);
  return static_cast<double>(workers.seconds.size()) / rate;
}

constexpr double kPort = 10e9;  // bytes a second, of a host of round_cluster

}  // namespace

TEST_CASE("a slow worker slows no other where servers are asynchronous") {
  const Workers workers{{1, 1, 1, 3}};
  const Trace trace = trace_of(workers, round_cluster(4, 1));
  for (const std::size_t rank : {0, 1, 2}) CHECK(period(trace, rank) == Approx(1).epsilon(1e-3));
  CHECK(period(trace, 3) == Approx(3).epsilon(1e-3));
  CHECK(step_s(workers) == Approx(4 / (3 + 1.0 / 3)).epsilon(1e-3));
}

TEST_CASE("bounded staleness lies between asynchronous and synchronous servers") {
  Workers workers{{1, 1, 1, 3}, 0.1 * kPort};
  workers.seconds[0] = 1.2;  // the server's own worker waits for no message
  const double asynchronous = step_s(workers);
  // 1 / 1.2, twice about 1 / 1.4 (they push and pull together) and 1 / 3.2 steps a second.
  CHECK(asynchronous == Approx(4 / (1 / 1.2 + 2 / 1.4 + 1 / 3.2)).epsilon(0.03));
  Workers synchronous = workers;
  synchronous.sync = Sync::parameter_server;
  // The slow one's gradients come last and alone; then everyone pulls through the server's port at once.
  CHECK(step_s(synchronous) == Approx(3 + 0.1 + 0.3).epsilon(0.01));
  for (const int staleness : {5, 3, 1}) {
    workers.staleness = staleness;
    const double bounded = step_s(workers);
    CAPTURE(staleness, bounded);
    // In the long run nobody is faster than the slowest. Whom its push sets free pull when it does.
    CHECK(bounded >= (3 + 0.1 + 0.1) * 0.999);
    CHECK(bounded <= (3 + 0.1 + 0.3) * 1.001);
  }
}

TEST_CASE("equal workers meet at the server's port, as many as push at a time") {
  const Workers workers{{1.6, 1, 1, 1}, 0.1 * kPort};
  // Started together and all alike they push together: three slices at a time in, three out.
  CHECK(step_s(workers) == Approx(1 + 0.3 + 0.3).epsilon(0.01));
}

TEST_CASE("a saturated server's port sets the pace, and more servers have more ports") {
  const double bytes = 0.2 * kPort;
  for (const int servers : {1, 2, 4}) {
    Workers workers{{0.3, 0, 0, 0}, bytes};
    workers.servers = servers;
    const Trace trace = trace_of(workers, round_cluster(4, 1));
    // Every push and every pull of the others' slices passes the server's port, one direction each.
    const double through_port = 3 * bytes / servers / kPort;
    CAPTURE(servers);
    CHECK(period(trace, 3) >= through_port * 0.99);
    // Where some workers serve and some do not they fall out of step, and who does not waits for the later of
    // two ports.
    const double later = servers == 2 ? 1.15 : 1.01;
    CHECK(period(trace, 3) <= 2 * through_port * later);
  }
}

TEST_CASE("pushes are applied one after another, ahead of what the server's rank computes") {
  const Workers workers{{1, 1, 1, 1}, 0, 0.1};
  const Trace trace = trace_of(workers, round_cluster(4, 1));
  // Its own step takes 1.1 s, and the pushes of the three others 0.3 s of every one of theirs.
  CHECK(period(trace, 0) == Approx(1.1 / (1 - 0.3 / period(trace, 1))).epsilon(0.05));
  CHECK(period(trace, 1) >= 1.1 * 0.999);
  CHECK(period(trace, 1) <= 1.4);
}

TEST_CASE("ranks of one node copy what is pushed beside what the server computes") {
  Cluster cluster = round_cluster(1, 3);
  cluster.communication.library = CommunicationLibrary::mpi;
  Workers workers{{1, 1, 1}, 1e9, 0.01};
  workers.servers = 3;
  const double step = step_s(workers, cluster);
  CHECK(step > 1);
  CHECK(step < 1.5);
}

}  // namespace orrery::sim
