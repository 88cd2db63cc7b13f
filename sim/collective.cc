// One collective alone, as nccl-tests measures it.
#include <numeric>

#include "base/error.h"
#include "cost/group_shape.h"
#include "sim/interpreter.h"
#include "sim/plan_bytes.h"
#include "sim/processes/isolate.h"
#include "sim/scenario/scenario.h"
#include "sim/simulator.h"

namespace orrery::sim {
namespace {

struct Asked {
  CollectiveKind kind = CollectiveKind::all_reduce;
  double bytes = 0;
  int devices = 0;
  Detail detail = Detail::flows;
  bool forced = false;
  Algorithm algorithm = Algorithm::ring;  // where it is forced

  const Algorithm* forced_algorithm() const { return forced ? &algorithm : nullptr; }
};

std::vector<int> devices_of(const Asked& asked) {
  std::vector<int> devices(static_cast<std::size_t>(asked.devices));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

Program program_of(const Asked& asked) {
  Program program;
  program.groups.push_back({GroupKind::world, devices_of(asked)});
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::data;
  instruction.form = Parallelism::data;
  instruction.collective = asked.kind;
  instruction.group = 0;
  instruction.bytes = asked.bytes;
  program.instructions.push_back(std::move(instruction));
  return program;
}

std::string trace_bytes(const Asked& asked, const Cluster& cluster) {
  const Program program = program_of(asked);
  const Network network(cluster);
  ScenarioInput input;
  input.network = &network;
  input.programs = {&program};  // all ranks do the same: one stands for all
  input.class_of.assign(static_cast<std::size_t>(asked.devices), 0);
  input.device_of = [](int rank) { return rank; };
  input.group_of = [&](GroupKind, int) { return program.groups.front(); };
  input.algorithm = asked.forced_algorithm();
  input.messages = asked.detail == Detail::messages;
  input.reduce_flows = false;  // SimGrid shares all links
  return to_bytes(interpret(build_scenario(input), 1));
}

std::string answer(const std::string& request) {
  ByteReader in(request);
  Asked asked;
  in(asked);
  return trace_bytes(asked, read_cluster(in));
}

}  // namespace

CollectiveResult simulate_collective(CollectiveKind kind, double bytes, const Cluster& cluster, int devices,
                                     Detail detail, const Algorithm* forced) {
  if (devices < 1 || devices > cluster.devices())
    throw UserError("a collective over " + std::to_string(devices) + " devices",
                    "1 to " + std::to_string(cluster.devices()) + ", which the cluster has");
  Asked asked{kind, bytes, devices, detail, forced != nullptr};
  if (forced != nullptr) asked.algorithm = *forced;
  Work work;
  work.body = [&](int) { return trace_bytes(asked, cluster); };
  work.request = [&](int) {
    ByteWriter out;
    out(asked);
    write_cluster(out, cluster);
    return out.take();
  };
  work.function = answer;
  CollectiveResult result;
  result.plan =
      plan_collective(kind, bytes, group_shape(Network(cluster), devices_of(asked)), cluster, forced);
  const Trace trace = trace_from_bytes(run_isolated(work));
  result.time_s = trace.step_ends_s.back();
  result.events = trace.activities;
  return result;
}

}  // namespace orrery::sim
