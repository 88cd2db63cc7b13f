#include "sim/scenario/scenario.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "cost/collective_cost.h"
#include "cost/compute_cost.h"
#include "sim/network/collective_edges.h"
#include "sim/network/flow_requests.h"
#include "sim/network/message_graph.h"
#include "sim/scenario/group_classes.h"
#include "sim/scenario/rank_script.h"

namespace orrery::sim {
namespace {

// Below this a flow loads no link: its time is its latency.
constexpr double kLeastBytes = 1;

// A service of asynchronous servers: on which simulated rank, for which (global) rank.
struct ServiceOf {
  int rank = 0;
  int worker = 0;
  std::uint32_t first_instruction = 0;
};

// Who sends to whom, of the simulated, and under which tag.
struct Ends {
  int source = 0, destination = 0, tag = 0;
  bool operator==(const Ends&) const = default;
};
struct HashOfEnds {
  std::size_t operator()(const Ends& ends) const {
    std::uint64_t mixed = 0;
    for (const int part : {ends.source, ends.destination, ends.tag})
      mixed = (mixed ^ static_cast<std::uint32_t>(part)) * 0x9E3779B97F4A7C15ULL;
    return mixed ^ (mixed >> 32);
  }
};
// The communications of two ends in turn: the n-th of the one is the n-th of the other.
struct Meetings {
  std::vector<int> ids;
  std::size_t sent = 0, received = 0;
};

class Builder {
 public:
  explicit Builder(const ScenarioInput& input)
      : input_(input),
        network_(*input.network),
        cluster_(network_.cluster()),
        groups_(input),
        requests_(network_, result_.flows) {}

  Scenario build() {
    members_of_class();
    add_services();
    for (std::size_t i = 0; i < programs_.size(); ++i) add_rank(static_cast<int>(i));
    check_communications();
    resolve_payloads();
    result_.step_overhead_s = input_.step_overhead_s;
    result_.single_threaded = single_threaded();
    result_.ends_in_global_synchronisation = ends_in_global_synchronisation();
    return std::move(result_);
  }

 private:
  const Program& program(int index) const { return *programs_[static_cast<std::size_t>(index)]; }
  int class_of(int rank) const { return input_.class_of[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks_of_class(int index) const {
    return members_[static_cast<std::size_t>(index)];
  }
  bool stands_for_others(int index) const { return ranks_of_class(index).size() > 1; }

  void members_of_class() {
    members_.resize(input_.programs.size());
    for (std::size_t rank = 0; rank < input_.class_of.size(); ++rank)
      members_[static_cast<std::size_t>(input_.class_of[rank])].push_back(static_cast<int>(rank));
  }

  // Behind the ranks, each as a script of its own.
  void add_services() {
    programs_ = input_.programs;
    for (std::size_t i = 0; i < input_.programs.size(); ++i) {
      const Program& p = *input_.programs[i];
      std::vector<Program> services = service_programs(p);
      auto first = static_cast<std::uint32_t>(p.instructions.size());
      for (std::size_t s = 0; s < services.size(); ++s) {
        ServiceOf of{static_cast<int>(i), p.services[s].worker, first};
        first += static_cast<std::uint32_t>(services[s].instructions.size());
        service_of_[{p.rank, of.worker}] = static_cast<int>(programs_.size());
        services_.push_back(of);
        result_.services.push_back(std::move(services[s]));
        programs_.push_back(&result_.services.back());
        members_.push_back(members_[i]);
      }
    }
    result_.asynchronous = !services_.empty();
  }

  const ServiceOf* service(int index) const {
    const std::size_t ranks = input_.programs.size();
    const auto at = static_cast<std::size_t>(index);
    return at < ranks ? nullptr : &services_[at - ranks];
  }

  // The script that a message to or from a rank meets there.
  int script_at(int index, int peer) const {
    if (service(index) != nullptr) return class_of(peer);
    // Who stands for the peer serves whom its peer serves, as far away.
    const int server = program(class_of(peer)).rank;
    const int worker =
        server == peer ? program(index).rank : input_.counterpart_of(peer, program(index).rank, server);
    const auto at = service_of_.find({server, worker});
    return at == service_of_.end() ? class_of(peer) : at->second;
  }

  // ---- ranks ----

  void add_rank(int index) {
    const Program& p = program(index);
    RankScript script;
    script.program = &p;
    script.rank = p.rank;
    script.ranks = static_cast<int>(ranks_of_class(index).size());
    script.worker = p.rank;
    if (const ServiceOf* of = service(index)) {
      script.beside = of->rank;
      script.worker = of->worker;
      script.first_instruction = of->first_instruction;
    }
    place(index, script);
    script.tasks.resize(p.instructions.size());
    order_tasks(p, script);
    std::vector<bool> started(1, false);
    for (std::size_t i = 0; i < p.instructions.size(); ++i) {
      Task& task = script.tasks[i];
      task.stream = p.instructions[i].stream;
      add_task(index, i, p.instructions[i], task, started);
      if (result_.asynchronous) count_pushes(p.instructions[i], p.rank, task);
    }
    if (input_.host_s) script.issues = issues_of(p, input_);
    result_.ranks.push_back(std::move(script));
  }

  void count_pushes(const Instruction& instruction, int rank, Task& task) {
    const bool applies = instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
    if (!applies && instruction.lead < 0) return;
    const int bucket = applies ? instruction.op_begin : instruction.reads.front().index;
    const auto [at, added] = push_counters_.try_emplace({rank, bucket}, result_.push_counters);
    if (added) ++result_.push_counters;
    task.pushes = at->second;
    task.lead = instruction.lead;
  }

  void place(int index, RankScript& script) {
    const int device = input_.device_of(script.rank);
    const int node = cluster_.place(device).node;
    const NodeType& type = cluster_.node_type(node);
    const DeviceProfile& profile = cluster_.profile_of(device);
    speed_ = cluster_.device_speed(device);
    if (speed_ <= 0)
      throw NoAnswer("rank " + std::to_string(script.rank) + " runs on device " + std::to_string(device) +
                     ", which is dead");
    script.overlap_slowdown = profile.overlap_slowdown;
    // Nodes that stand on one machine share its cores as the ranks of one node do.
    const bool together = cluster_.shared_cores > 0;
    const int cores = together ? cluster_.shared_cores : type.shared_cores;
    const auto [at, added] =
        nodes_.try_emplace(cores_key(cluster_, node), static_cast<int>(result_.nodes.size()));
    if (added)
      result_.nodes.push_back({cores, relative_speeds(profile.concurrency_scale, input_.assumed_busy)});
    script.node = at->second;
    script.on_node = 0;
    script.core_share = cores > 0 ? speed_ : 1;
    for (const int other : ranks_of_class(index))
      if (together || cluster_.place(input_.device_of(other)).node == node) ++script.on_node;
  }

  void add_task(int index, std::size_t i, const Instruction& instruction, Task& task,
                std::vector<bool>& started) {
    switch (instruction.op) {
      case Op::compute:
      case Op::pack:
      case Op::unpack:
        task.works = true;
        task.slowed = instruction.op == Op::compute;
        task.work_s = input_.work_s(program(index), instruction) / speed_;
        if (instruction.op == Op::compute && instruction.compute == ComputeKind::forward &&
            instruction.micro_batch >= 0) {
          const auto mb = static_cast<std::size_t>(instruction.micro_batch);
          if (mb >= started.size()) started.resize(mb + 1, false);
          if (!started[mb]) task.work_s += input_.micro_batch_overhead_s;
          started[mb] = true;
        }
        return;
      case Op::collective:
        add_collective(index, i, instruction, task);
        return;
      case Op::exchange:
        for (std::size_t t = 0; t < instruction.transfers.size(); ++t)
          add_transfer(index, i, instruction, static_cast<int>(t), task);
        return;
      case Op::load:
        add_storage(index, i, instruction, task);
        return;
    }
    throw InternalError("the simulator does not run " + std::string(name_of(instruction.op)) + " (" +
                        where(program(index), i) + ")");
  }

  // ---- collectives ----

  void add_collective(int index, std::size_t i, const Instruction& instruction, Task& task) {
    const int gc = groups_.of(index, program(index), instruction.group);
    GroupClass& group = groups_[gc];
    std::size_t& occurrence = occurrences_[{index, gc}];
    if (occurrence == group.collectives.size()) {
      group.collectives.push_back(new_communication());
      Communication& communication = result_.communications.back();
      communication.collective = true;
      plan_payload(group, gc, program(index), instruction, communication);
    }
    const int id = group.collectives[occurrence];
    ++occurrence;
    result_.communications[static_cast<std::size_t>(id)].tasks.push_back(
        {index, static_cast<std::uint32_t>(i)});
    expected_.resize(result_.communications.size(), 0);
    expected_[static_cast<std::size_t>(id)] = static_cast<int>(group.simulated.size());
    task.communications.push_back({id, false});
  }

  bool single_threaded() const { return cluster_.communication.library == CommunicationLibrary::mpi; }

  void plan_payload(const GroupClass& group, int gc, const Program& of, const Instruction& instruction,
                    Communication& communication) {
    const int n = static_cast<int>(group.devices.size());
    if (n <= 1) return;
    communication.by_hand = single_threaded() && group.shape.nodes == 1;
    const CollectivePlan plan = groups_.collective(gc, of, instruction);
    // What computation hides is not simulated.
    const double beside_s = input_.beside_s ? input_.beside_s(of, instruction) : 0;
    const double alone_s =
        plan.latency_s + instruction.bytes / (plan.bandwidth_bytes_per_s * input_.communication_efficiency);
    const double exposed =
        alone_s > 0
            ? shown_seconds(instruction, alone_s, beside_s, group.shape, input_.expert_exposed) / alone_s
            : 1;
    communication.payload.latency_s =
        exposed * plan.latency_s + waiting_seconds(instruction, n, input_.runtime);
    if (instruction.form == Parallelism::data)
      communication.payload.latency_s +=
          pieces_seconds(instruction.collective, instruction.bytes, n, input_.runtime, cluster_);
    const double bytes = exposed * instruction.bytes;
    if (exposed <= 0 || bytes < kLeastBytes) return;
    const double bandwidth = plan.bandwidth_bytes_per_s * input_.communication_efficiency;
    if (input_.messages) {
      communication.messages = message_graph_of(group, plan, instruction, bandwidth / exposed);
      communication.payload.latency_s = 0;
      return;
    }
    const double unit = edge_unit(instruction.collective, plan.algorithm, n);
    const EdgeShape shape = edge_shape(instruction.collective, plan.algorithm);
    const int request = collective_request(group, gc, shape, instruction);
    use(request, communication_payloads_, static_cast<int>(result_.communications.size()) - 1, unit * bytes,
        unit * bandwidth);
  }

  int collective_request(const GroupClass& group, int gc, EdgeShape shape, const Instruction& instruction) {
    const bool rooted = shape == EdgeShape::from_root || shape == EdgeShape::to_root;
    const int root = rooted ? instruction.root : 0;
    const auto key = std::make_tuple(gc, static_cast<int>(shape), root, static_cast<int>(instruction.stream));
    const auto [at, added] = collective_requests_.try_emplace(key, requests_.next());
    if (!added) return at->second;
    PatternRequest request;
    request.queue = queue(group.simulated.front(), instruction.stream, 0);
    add_edges(shape, root, group.group);
    request.own = requests_.take();
    // The groups of all other ranks that the members stand for.
    const int first = group.simulated.front();
    if (stands_for_others(first)) {
      std::vector<bool> seen(input_.class_of.size(), false);
      for (const int other : ranks_of_class(first)) {
        if (seen[static_cast<std::size_t>(other)]) continue;
        const Group same = input_.group_of(group.group.kind, other);
        for (const int rank : same.ranks) seen[static_cast<std::size_t>(rank)] = true;
        add_edges(shape, root, same);
      }
      request.all = requests_.take();
    }
    requests_.add(std::move(request));
    return at->second;
  }

  void add_edges(EdgeShape shape, int root, const Group& group) {
    std::vector<int> devices;
    devices.reserve(group.ranks.size());
    for (const int rank : group.ranks) devices.push_back(input_.device_of(rank));
    for (const Edge& edge : collective_edges(shape, root, devices, cluster_))
      requests_.add_edge(devices[static_cast<std::size_t>(edge.source)],
                         devices[static_cast<std::size_t>(edge.destination)], edge.share);
  }

  int message_graph_of(const GroupClass& group, const CollectivePlan& plan, const Instruction& instruction,
                       double bandwidth) {
    std::vector<Message> messages;
    for (const MessageNode& node :
         message_graph(instruction.collective, plan, instruction.root, group.devices, cluster_)) {
      Message message;
      message.next = node.next;
      message.payload.latency_s = node.latency_share * plan.latency_s;
      messages.push_back(std::move(message));
      const int request = pair_request(node.source, node.destination);
      use(request, message_payloads_, static_cast<int>(message_payloads_index_.size()),
          node.share * instruction.bytes, node.rate_share * bandwidth);
      message_payloads_index_.emplace_back(result_.message_graphs.size(), messages.size() - 1);
    }
    for (std::size_t m = 0; m < messages.size(); ++m)
      for (const int next : messages[m].next) ++messages[static_cast<std::size_t>(next)].waits_for;
    result_.message_graphs.push_back(std::move(messages));
    return static_cast<int>(result_.message_graphs.size()) - 1;
  }

  int pair_request(int source, int destination) {
    const auto [at, added] = pair_requests_.try_emplace({source, destination}, requests_.next());
    if (added) {
      PatternRequest request;
      requests_.add_edge(source, destination, 1);
      request.own = requests_.take();
      requests_.add(std::move(request));
    }
    return at->second;
  }

  // ---- exchanges ----

  void add_transfer(int index, std::size_t i, const Instruction& instruction, int position, Task& task) {
    const Transfer& transfer = instruction.transfers[static_cast<std::size_t>(position)];
    const int peer = script_at(index, transfer.peer);
    const int source = transfer.send ? index : peer;
    const int destination = transfer.send ? peer : index;
    Meetings& meetings = transfers_[{source, destination, transfer.tag}];
    std::size_t& occurrence = transfer.send ? meetings.sent : meetings.received;
    if (occurrence == meetings.ids.size()) {
      meetings.ids.push_back(new_communication());
      expected_.resize(result_.communications.size(), 2);
    }
    const int id = meetings.ids[occurrence];
    ++occurrence;
    Communication& communication = result_.communications[static_cast<std::size_t>(id)];
    const TaskRef here{index, static_cast<std::uint32_t>(i)};
    transfers_at_once_.resize(result_.communications.size(), 1);
    int& at_once = transfers_at_once_[static_cast<std::size_t>(id)];
    at_once = std::max(at_once, transfers_with(instruction, transfer));
    transfer_bytes_.resize(result_.communications.size(), -1);
    double& bytes = transfer_bytes_[static_cast<std::size_t>(id)];
    // Who stands for all servers keeps one's slice: others differ from it by an element.
    const bool stands_for_slices = instruction.form == Parallelism::server && stands_for_others(index);
    if (bytes >= 0 && bytes != transfer.bytes && !stands_for_slices)
      throw InternalError("sender and receiver disagree about the bytes of a transfer: " +
                          where(program(index), i));
    bytes = transfer.bytes;
    task.communications.push_back({id, transfer.send});
    if (!transfer.send) {
      communication.tasks.push_back(here);
      return;
    }
    communication.tasks.insert(communication.tasks.begin(), here);
    const int from = program(index).rank;
    const int source_device = input_.device_of(from);
    const int destination_device = input_.device_of(transfer.peer);
    const CollectivePlan plan = groups_.transfer(source_device, destination_device, transfer.bytes);
    communication.payload.latency_s = plan.latency_s;
    const bool beside = cluster_.place(source_device).node == cluster_.place(destination_device).node;
    const CommunicationProfile& profile = cluster_.communication;
    communication.eager = single_threaded() && transfer.bytes <= (beside || profile.network_eager_bytes <= 0
                                                                      ? profile.eager_bytes
                                                                      : profile.network_eager_bytes);
    communication.by_hand = single_threaded() && beside;
    // What the sender does not wait for is in order all the same: a connection carries bytes one after
    // another.
    if (communication.eager && !beside) {
      const auto [at, added] = lines_.try_emplace({from, transfer.peer}, result_.lines);
      if (added) ++result_.lines;
      communication.line = at->second;
    }
    if (transfer.bytes < kLeastBytes || plan.bandwidth_bytes_per_s <= 0) return;
    const int stream_queue = communication.eager ? kNoQueue : queue(index, instruction.stream, position);
    const int request = transfer_request(index, transfer.peer, stream_queue);
    use(request, communication_payloads_, id, transfer.bytes,
        plan.bandwidth_bytes_per_s * input_.communication_efficiency);
  }

  // That an instruction sends, or receives, together with one of its transfers.
  static int transfers_with(const Instruction& instruction, const Transfer& transfer) {
    return static_cast<int>(
        std::count_if(instruction.transfers.begin(), instruction.transfers.end(),
                      [&](const Transfer& other) { return other.send == transfer.send; }));
  }

  // By how much the last of some transfers is later than if they shared a port evenly.
  double spread_of(int communication) const {
    const auto at = static_cast<std::size_t>(communication);
    const int together = at < transfers_at_once_.size() ? transfers_at_once_[at] : 1;
    const bool by_hand = result_.communications[at].by_hand;
    return by_hand ? 1 : 1 + cluster_.communication.network_flow_spread * std::log(together);
  }

  int transfer_request(int index, int peer, int stream_queue) {
    const auto key = std::make_tuple(index, peer, stream_queue);
    const auto [at, added] = transfer_requests_.try_emplace(key, requests_.next());
    if (!added) return at->second;
    PatternRequest request;
    request.queue = stream_queue;
    const int from = program(index).rank;
    requests_.add_edge(input_.device_of(from), input_.device_of(peer), 1);
    request.own = requests_.take();
    if (stands_for_others(index)) {
      for (const int other : ranks_of_class(index))
        requests_.add_edge(input_.device_of(other),
                           input_.device_of(input_.counterpart_of(from, peer, other)), 1);
      request.all = requests_.take();
    }
    requests_.add(std::move(request));
    return at->second;
  }

  // ---- storage ----

  void add_storage(int index, std::size_t i, const Instruction& instruction, Task& task) {
    const int id = new_communication();
    expected_.resize(result_.communications.size(), 1);
    result_.communications.back().tasks.push_back({index, static_cast<std::uint32_t>(i)});
    task.communications.push_back({id, false});
    const RankScript script = placed(index);
    const NodeType& type = cluster_.node_type(script.node);
    const double rate = type.storage_read_bytes_per_s;
    if (rate <= 0 || instruction.bytes < kLeastBytes) return;
    const LinkId link = kStorageReadLink - script.node;
    const auto [at, added] = storage_requests_.try_emplace(index, requests_.next());
    if (added) {
      PatternRequest request;
      request.queue = queue(index, instruction.stream, 0);
      const auto ranks = static_cast<double>(script.on_node);
      const int index = result_.flows.add_link(link).first;
      result_.flows.set_capacity(index, rate);
      request.fixed.push_back({index, ranks, ranks});
      requests_.add(std::move(request));
    }
    use(at->second, communication_payloads_, id, instruction.bytes, rate);
  }

  // Real node number and how many ranks of the class are on it.
  RankScript placed(int index) const {
    RankScript script;
    script.node = cluster_.place(input_.device_of(program(index).rank)).node;
    script.on_node = 0;
    for (const int other : ranks_of_class(index))
      if (cluster_.place(input_.device_of(other)).node == script.node) ++script.on_node;
    return script;
  }

  // ---- flows ----

  int new_communication() {
    result_.communications.emplace_back();
    return static_cast<int>(result_.communications.size()) - 1;
  }

  int queue(int index, Stream stream, int position) {
    return queues_
        .try_emplace(std::make_tuple(index, static_cast<int>(stream), position),
                     static_cast<int>(queues_.size()))
        .first->second;
  }

  struct Use {
    int request = 0;
    int target = 0;
    double bytes = 0;
    double bound = 0;
  };

  void use(int request, std::vector<Use>& uses, int target, double bytes, double bound) {
    requests_.raise_bound(request, bound);
    uses.push_back({request, target, bytes, bound});
  }

  void resolve_payloads() {
    requests_.make_patterns();
    const auto resolve = [&](const Use& use, Payload& payload) {
      payload.flow = requests_.flow(use.request, use.bound);
      payload.bytes = use.bytes;
      payload.packets = requests_.packets(use.request, use.bound, nodes_);
    };
    for (const Use& use : communication_payloads_) {
      Payload& payload = result_.communications[static_cast<std::size_t>(use.target)].payload;
      resolve(use, payload);
      payload.bytes *= spread_of(use.target);
    }
    for (const Use& use : message_payloads_) {
      const auto [graph, message] = message_payloads_index_[static_cast<std::size_t>(use.target)];
      resolve(use, result_.message_graphs[graph][message].payload);
    }
    result_.packets = requests_.take_packets();
    result_.flows.reduce(!input_.reduce_flows);
  }

  // ---- checks ----

  void check_communications() const {
    for (std::size_t m = 0; m < result_.communications.size(); ++m) {
      const Communication& communication = result_.communications[m];
      if (static_cast<int>(communication.tasks.size()) == expected_[m]) continue;
      const TaskRef& task = communication.tasks.front();
      throw InternalError(where(program(task.rank), task.instruction) + " waits for " +
                          std::to_string(expected_[m]) + " ranks, of which " +
                          std::to_string(communication.tasks.size()) + " come");
    }
  }

  // After the last collective over all ranks nobody waits for a peer but in collectives of its data group,
  // which all start alike: the next step begins as this one did.
  bool ends_in_global_synchronisation() const {
    const std::size_t world = input_.class_of.size();
    if (world == 1) return true;
    for (const Program* p : input_.programs) {
      bool synchronised = false;
      for (std::size_t i = p->instructions.size(); i-- > 0 && !synchronised;) {
        const Instruction& instruction = p->instructions[i];
        if (instruction.op == Op::exchange) return false;
        if (instruction.op == Op::collective)
          synchronised = p->groups[static_cast<std::size_t>(instruction.group)].ranks.size() == world;
      }
      if (!synchronised) return false;
    }
    return true;
  }

  const ScenarioInput& input_;
  const Network& network_;
  const Cluster& cluster_;
  Scenario result_;
  double speed_ = 1;  // of the device of the rank being added
  std::vector<std::vector<int>> members_;
  std::map<int, int> nodes_;
  GroupClasses groups_;
  std::map<std::pair<int, int>, std::size_t> occurrences_;
  std::unordered_map<Ends, Meetings, HashOfEnds> transfers_;  // millions, where pipelines are long
  std::vector<double> transfer_bytes_;
  std::vector<int> transfers_at_once_;  // by communication
  std::vector<int> expected_;
  std::map<std::tuple<int, int, int>, int> queues_;
  std::map<std::pair<int, int>, int> lines_;  // of a simulated rank to a peer
  std::vector<const Program*> programs_;      // of the ranks, then of the services
  std::vector<ServiceOf> services_;
  std::map<std::pair<int, int>, int> service_of_;     // by server and worker
  std::map<std::pair<int, int>, int> push_counters_;  // by server and bucket
  std::map<std::tuple<int, int, int, int>, int> collective_requests_;
  std::map<std::tuple<int, int, int>, int> transfer_requests_;
  std::map<int, int> storage_requests_;  // by simulated rank
  std::map<std::pair<int, int>, int> pair_requests_;
  std::vector<Use> communication_payloads_;
  std::vector<Use> message_payloads_;
  std::vector<std::pair<std::size_t, std::size_t>> message_payloads_index_;
  FlowRequests requests_;
};

}  // namespace

void set_runtime(const Plan& plan, ScenarioInput* input) {
  const RuntimeProfile& runtime = plan.job->runtime;
  if (runtime.communication_efficiency > 0)
    input->communication_efficiency = runtime.communication_efficiency;
  input->step_overhead_s = runtime.step_overhead_s;
  input->micro_batch_overhead_s = runtime.micro_batch_overhead_s;
  input->runtime = runtime;
  if (plan.choices.zero == 3)
    input->runtime.updates_by_broadcast = false;  // what ZeRO-3 gathers is no update
  input->expert_exposed = plan.expert_exposed();
}

Scenario build_scenario(const ScenarioInput& input) {
  return Builder(input).build();
}

}  // namespace orrery::sim
