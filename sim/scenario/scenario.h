// What the interpreter runs: Programs resolved to durations, communications and flows. Nothing here knows of
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "cost/collective_cost.h"
#include "program/plan.h"
#include "program/program.h"
#include "sim/network/flow_system.h"
#include "sim/network/packet_load.h"
#include "sim/scenario/folding.h"
#include "topologies/network.h"

namespace orrery::sim {

// Instruction `instruction` of simulated rank `rank` (an index into Scenario::ranks).
struct TaskRef {
  std::int32_t rank = 0;
  std::uint32_t instruction = 0;
};

// Bytes that go out once the communication is complete, all transfers of the flow alike. flow -1: no time but
// the latency.
struct Payload {
  int flow = -1;
  double bytes = 0;  // of one transfer of the flow
  double latency_s = 0;
  int packets = -1;  // index in Scenario::packets: what it takes of processors; -1: nothing
};

// One message of a collective that is simulated message by message.
struct Message {
  Payload payload;
  std::vector<int> next;  // messages that wait for this one
  int waits_for = 0;      // number of messages that this one waits for
};

// A collective, or one transfer of an exchange, between simulated ranks. All payloads go out at once when
// everyone has come; whoever came goes on when all have arrived.
struct Communication {
  std::vector<TaskRef> tasks;  // a transfer: its sender (where simulated) first
  Payload payload;
  int messages = -1;     // index in Scenario::message_graphs: simulated message by message instead
  bool eager = false;    // a transfer whose sender does not wait
  bool by_hand = false;  // copied by members' own threads: moves only while these do not compute
  bool collective = false;
  int line = -1;  // of an eager transfer: the connection on which it waits for those before it; -1: none
};

constexpr std::uint32_t kNoTask = ~0U;

struct CommunicationRef {
  std::int32_t communication = 0;
  bool sends = false;
};

struct Task {
  Stream stream = Stream::compute;
  bool works = false;                   // occupies the device for work_s; else it meets others
  bool slowed = false;                  // by a collective that runs beside it
  double work_s = 0;                    // at full speed
  std::uint32_t waits_for = 0;          // instructions in `after`
  bool has_predecessor = false;         // on its stream
  std::uint32_t stream_next = kNoTask;  // next on its stream
  std::vector<CommunicationRef> communications;
  // Asynchronous servers: where pushes of the same parameters are counted (one of Scenario::push_counters);
  // -1: none. Work on them is a push applied; a message of them waits for Instruction::lead.
  int pushes = -1;
  int lead = -1;
};

// When the host issues a task. It issues a rank's tasks in their order, ahead of the device, but for the
// tasks that it waits for: with the end of each a new stretch begins.
struct Issue {
  std::uint32_t stretch = 0;
  double begin_s = 0,
         end_s = 0;  // from the beginning of the stretch: the task neither starts nor ends before
  bool waited_for = false;
};

struct RankScript {
  const Program* program = nullptr;
  std::int32_t rank = 0;   // global
  std::int32_t ranks = 1;  // that it stands for
  int node = 0;            // whose cores it shares
  int on_node = 1;         // of the ranks that it stands for, on that node
  double core_share = 1;   // of a core, where cores are shared: what it may use at most; work_s is at that
  double overlap_slowdown = 0;
  int steps = 0;  // that it runs; 0: as many as are simulated
  // A service of asynchronous servers: index of the rank on whose device it works, ahead of that rank's own
  // work; -1: a rank.
  int beside = -1;
  int worker = 0;                       // global rank: whom it serves; a rank: itself
  std::uint32_t first_instruction = 0;  // in Timelines, of the rank's instructions
  std::vector<Task> tasks;
  std::vector<Issue> issues;  // by task; empty: the host costs nothing
  // Tasks that have task i in their `after`: next[next_begin[i] .. next_begin[i + 1])
  std::vector<std::uint32_t> next_begin;
  std::vector<std::uint32_t> next;
};

struct NodeCores {
  int cores = 0;             // 0: a device each
  std::vector<double> keep;  // relative speed while 1, 2, … ranks compute; empty: 1
  // One rank's speed depends on which others compute.
  bool shared() const { return cores > 0 || !keep.empty(); }
};

struct Scenario {
  std::vector<RankScript> ranks;
  std::vector<NodeCores> nodes;  // by RankScript::node
  std::vector<Communication> communications;
  std::vector<std::vector<Message>> message_graphs;
  std::vector<std::vector<TakenCores>> packets;
  int lines = 0;  // connections
  FlowSystem flows;
  // One thread a rank (MPI without a progress thread): it issues instructions one after another, and waits
  // only before work whose dependencies are not there yet.
  bool single_threaded = false;
  double step_overhead_s = 0;
  bool ends_in_global_synchronisation = false;
  // Asynchronous servers: ranks go on, each at its pace, until all have done as many steps as are simulated.
  bool asynchronous = false;
  int push_counters = 0;
  std::list<Program> services;  // of the scripts that serve
};

// What the builder needs to know beside the Programs. Tests give their own.
struct ScenarioInput {
  const Network* network = nullptr;
  std::vector<const Program*> programs;  // of the simulated ranks
  std::vector<int> class_of;             // global rank -> index in `programs` of the rank that stands for it
  std::function<int(int)> device_of;     // of a global rank
  // Seconds at the device's nominal speed, beside `assumed_busy` busy devices of the node, itself included.
  std::function<double(const Program&, const Instruction&)> work_s;
  int assumed_busy = 1;
  // Seconds of the computation that a collective travels beside (ComputeCost::beside_seconds); may be empty.
  std::function<double(const Program&, const Instruction&)> beside_s;
  // Seconds of the host to issue an instruction, and by instruction whether it waits for its end; may be
  // empty: the host costs nothing.
  std::function<double(const Program&, const Instruction&)> host_s;
  std::function<std::vector<bool>(const Program&)> host_waits;
  // A rank's group of a kind, and the rank that is to `other` what `peer` is to `rank`; only asked when one
  // rank stands for several.
  std::function<Group(GroupKind kind, int rank)> group_of;
  std::function<int(int rank, int peer, int other)> counterpart_of;
  const Algorithm* algorithm = nullptr;  // of every collective, instead of the best
  double communication_efficiency = 1;
  double step_overhead_s = 0;
  double micro_batch_overhead_s = 0;
  RuntimeProfile runtime;     // for waiting_seconds (cost/compute_cost.h)
  double expert_exposed = 1;  // Plan::expert_exposed()
  bool messages = false;      // collectives message by message
  bool reduce_flows = true;   // FlowSystem::reduce; tests switch it off
};

// What the plan's runtime profile says of time that no instruction has.
void set_runtime(const Plan& plan, ScenarioInput* input);

// Throws InternalError naming rank and instruction where the Programs do not fit together, NoAnswer where a
// device or a route is dead.
Scenario build_scenario(const ScenarioInput& input);

// Storage of a node, as links of their own.
constexpr LinkId kStorageReadLink = -1'000'000'000LL;  // minus the node

}  // namespace orrery::sim
