// Programs and clusters by hand, with round numbers, and their simulation.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sim/interpreter.h"
#include "sim/processes/isolate.h"
#include "sim/scenario/scenario.h"

namespace orrery::test {

// `nodes` nodes of `devices` devices: 100 GB/s inside a node, one port of 10 GB/s a node, one switch, no
// latency. The communication library adds nothing (mpi with no latency, and no progress rule where `threads`
// is true).
inline Cluster round_cluster(int nodes, int devices) {
  Cluster cluster;
  cluster.name = "round";
  DeviceProfile profile;
  profile.name = "round";
  profile.kind = DeviceKind::gpu;
  profile.generation = "ampere";
  profile.peak_flops_per_s.fill(1e12);
  for (MatmulModel& model : profile.matmul) model.efficiency = 1;
  profile.memory_bandwidth_bytes_per_s = 1e12;
  cluster.profiles.push_back(profile);
  NodeGroup group;
  group.count = nodes;
  group.node.name = "node";
  group.node.devices = devices;
  group.node.intra.kind = IntraKind::nvswitch;
  group.node.intra.bandwidth_bytes_per_s = 100e9;
  group.node.nic.count = 1;
  group.node.nic.bandwidth_bytes_per_s = 10e9;
  group.node.nic.of_device.assign(static_cast<std::size_t>(devices), 0);
  group.node.nic.direct = true;
  cluster.groups.push_back(group);
  cluster.fabric.kind = FabricKind::star;
  cluster.communication.library = CommunicationLibrary::nccl;
  return cluster;
}

// Instructions that name their seconds: `flops` is the time of work in seconds.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(int rank) { program_.rank = rank; }
  using Id = std::uint32_t;

  Id compute(double seconds, std::vector<Id> after = {}, ComputeKind kind = ComputeKind::forward,
             int micro_batch = -1) {
    Instruction i;
    i.op = Op::compute;
    i.stream = Stream::compute;
    i.compute = kind;
    i.flops = seconds;
    i.micro_batch = micro_batch;
    i.after = std::move(after);
    return add(std::move(i));
  }
  Id send(int peer, double bytes, int tag, std::vector<Id> after = {},
          Stream stream = Stream::pipeline_forward) {
    return exchange({{peer, bytes, tag, true, {}}}, std::move(after), stream);
  }
  Id receive(int peer, double bytes, int tag, std::vector<Id> after = {},
             Stream stream = Stream::pipeline_forward_receive) {
    return exchange({{peer, bytes, tag, false, {}}}, std::move(after), stream);
  }
  Id exchange(std::vector<Transfer> transfers, std::vector<Id> after = {}, Stream stream = Stream::data) {
    Instruction i;
    i.op = Op::exchange;
    i.stream = stream;
    i.transfers = std::move(transfers);
    i.after = std::move(after);
    return add(std::move(i));
  }
  Id collective(CollectiveKind kind, const std::vector<int>& ranks, double bytes, std::vector<Id> after = {},
                Stream stream = Stream::data, GroupKind group_kind = GroupKind::data) {
    Instruction i;
    i.op = Op::collective;
    i.stream = stream;
    i.collective = kind;
    i.bytes = bytes;
    i.after = std::move(after);
    i.group = group(ranks, group_kind);
    return add(std::move(i));
  }
  Id load(double bytes, std::vector<Id> after = {}) {
    Instruction i;
    i.op = Op::load;
    i.stream = Stream::input;
    i.bytes = bytes;
    i.after = std::move(after);
    return add(std::move(i));
  }
  const Program& program() const { return program_; }

 private:
  int group(const std::vector<int>& ranks, GroupKind kind) {
    for (std::size_t g = 0; g < program_.groups.size(); ++g)
      if (program_.groups[g].ranks == ranks && program_.groups[g].kind == kind) return static_cast<int>(g);
    program_.groups.push_back({kind, ranks});
    return static_cast<int>(program_.groups.size()) - 1;
  }
  Id add(Instruction instruction) {
    program_.instructions.push_back(std::move(instruction));
    return static_cast<Id>(program_.instructions.size()) - 1;
  }
  Program program_;
};

struct HandOptions {
  int steps = 1;
  bool reduce_flows = true;
  bool messages = false;
  int assumed_busy = 1;
};

// Rank r on device r (devices beyond the cluster's are shared round robin). Keeps references.
inline sim::Scenario scenario_of_programs(const Network& network, const std::vector<Program>& programs,
                                          const HandOptions& options = {}) {
  sim::ScenarioInput input;
  input.network = &network;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    input.programs.push_back(&programs[r]);
    input.class_of.push_back(static_cast<int>(r));
  }
  input.device_of = [&](int rank) { return rank % network.cluster().devices(); };
  input.work_s = [](const Program&, const Instruction& instruction) { return instruction.flops; };
  input.assumed_busy = options.assumed_busy;
  input.reduce_flows = options.reduce_flows;
  input.messages = options.messages;
  return sim::build_scenario(input);
}

inline sim::Trace run_programs(const Cluster& cluster, const std::vector<Program>& programs,
                               const HandOptions& options = {}) {
  const Network network(cluster);
  const sim::Scenario scenario = scenario_of_programs(network, programs, options);
  return sim::trace_from_bytes(
      sim::run_isolated([&] { return sim::to_bytes(sim::interpret(scenario, options.steps)); }));
}

}  // namespace orrery::test
