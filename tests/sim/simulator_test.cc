#include "sim/simulator.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <future>
#include <thread>

#include "base/error.h"
#include "cost/compute_cost.h"
#include "sim/scenario/folding.h"
#include "tests/support/hand_programs.h"
#include "tests/support/small_plans.h"
#include "tests/support/walked.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::test;
using namespace orrery::sim;

namespace {

// A GPT of `layers` layers of width `hidden` on a catalog cluster of `nodes` nodes.
std::shared_ptr<Job> gpt_job(const Cluster& cluster, int layers, int hidden, std::int64_t batch) {
  SmallModel model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = hidden / 128;
  model.vocab = 51200;
  model.seq_len = 2048;
  const auto job = small_job(model, batch);
  job->cluster = cluster;
  job->training.precision = DType::bf16;
  job->training.optimizer = Optimizer::adam;
  job->runtime = catalog_runtime("megatron-core");
  return job;
}

Choices choose(int tp, int pp, int dp) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  choices.sequence_parallel = tp > 1;
  return choices;
}

double simulated_s(const Plan& plan, bool fold = true, Detail detail = Detail::flows) {
  SimulationOptions options;
  options.fold = fold;
  options.detail = detail;
  return simulate(plan, options).step_time_s;
}

}  // namespace

TEST_CASE("only what shares links is simulated in a process of its own") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  const auto job = gpt_job(cluster, 4, 1024, 64);
  const Plan replicas{job, choose(1, 1, 16)}, shared{job, choose(2, 2, 4)};
  const SimulationOptions options;
  const double alone_s = simulate_all({replicas, shared}, options, 2).front().step_time_s;
  // A process with threads and without a server may not fork.
  std::promise<void> end;
  const std::jthread beside([&] { end.get_future().wait(); });
  CHECK(simulate_all({replicas, replicas}, options, 2).back().step_time_s == alone_s);
  CHECK(simulate(replicas).step_time_s == alone_s);
  CHECK_THROWS_AS(simulate_all({replicas, shared}, options, 2), InternalError);
  CHECK_THROWS_AS(simulate(shared), InternalError);
  end.set_value();
}

TEST_CASE("data-parallel replicas and tensor-parallel peers fold to one rank a stage") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 8);
  const Plan plan{gpt_job(cluster, 8, 1024, 64), choose(8, 4, 2)};
  const Folding folding = fold_ranks(plan);
  CHECK(folding.classes.size() == 4);
  for (const RankClass& c : folding.classes) CHECK(c.size == 16);
  CHECK(no_folding(plan).classes.size() == 64);
}

TEST_CASE("a slow device, or a slow port, splits the classes it touches and no others") {
  Cluster cluster = with_nodes(load_cluster("dgx-a100"), 4);
  const auto classes = [&](const Cluster& c) {
    return fold_ranks({gpt_job(c, 8, 1024, 64), choose(8, 1, 4)}).classes.size();
  };
  CHECK(classes(cluster) == 1);
  Cluster slow = cluster;
  Override device;
  device.node = 1;
  device.device = 3;
  device.target = OverrideTarget::device;
  device.speed = 0.5;
  slow.overrides.push_back(device);
  // The slow rank, its tensor-parallel peers, its data-parallel peers, all others.
  CHECK(classes(slow) == 4);
  slow = cluster;
  Override port;
  port.node = 2;
  port.port = 5;
  port.target = OverrideTarget::nic;
  port.speed = 0.25;
  slow.overrides.push_back(port);
  CHECK(classes(slow) > 1);
  CHECK(classes(slow) <= 8);
}

TEST_CASE("ranks of a class have the same Program up to their peers") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  for (const Choices& choices : {choose(2, 2, 4), choose(8, 2, 1), choose(4, 1, 4), choose(1, 4, 4)}) {
    const Plan plan{gpt_job(cluster, 4, 512, 32), choices};
    const Folding folding = fold_ranks(plan);
    for (int rank = 0; rank < choices.world(); ++rank) {
      const Program own = lower(plan, rank);
      const Program other = lower(
          plan, folding.classes[static_cast<std::size_t>(folding.class_of[static_cast<std::size_t>(rank)])]
                    .representative);
      REQUIRE(own.instructions.size() == other.instructions.size());
      for (std::size_t i = 0; i < own.instructions.size(); ++i) {
        const Instruction& a = own.instructions[i];
        const Instruction& b = other.instructions[i];
        CHECK((a.op == b.op && a.stream == b.stream && a.after == b.after && a.bytes == b.bytes &&
               a.flops == b.flops && a.group == b.group && a.op_begin == b.op_begin && a.op_end == b.op_end &&
               a.transfers.size() == b.transfers.size()));
      }
    }
  }
}

TEST_CASE("where every rank is a worker and a server, one stands for all, and the step stays what it is") {
  const Cluster all = load_cluster("dgx-a100");
  const auto plan_of = [&](Sync sync, int nodes) {
    Choices choices = choose(1, 1, 8 * nodes);
    choices.sync = sync;
    choices.servers = choices.dp;
    return Plan{gpt_job(with_nodes(all, nodes), 2, 512, 2 * choices.dp), choices};
  };
  // A bucket's elements are no multiple of 24: slices differ by one.
  for (const int nodes : {1, 2, 3}) {
    const Plan plan = plan_of(Sync::parameter_server, nodes);
    CAPTURE(nodes);
    REQUIRE(fold_ranks(plan).classes.size() == 1);
    CHECK(simulated_s(plan, true) == Approx(simulated_s(plan, false)).epsilon(1e-4));
  }
  // Asynchronous workers fall out of step, and few are simulated one by one; many in step.
  CHECK(fold_ranks(plan_of(Sync::async_parameter_server, 2)).classes.size() == 16);
  const Plan many = plan_of(Sync::async_parameter_server, 3);
  REQUIRE(fold_ranks(many).classes.size() == 1);
  // In step they meet at the ports otherwise than when they fall out of it: 7% shorter to 1% longer over ten
  // lengths.
  CHECK(simulated_s(many, true) == Approx(simulated_s(many, false)).epsilon(0.08));
}

TEST_CASE("servers of some ranks, of nodes half in use or beside a slow device are simulated one by one") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  const auto classes = [](const Cluster& c, int dp, int servers) {
    Choices choices = choose(1, 1, dp);
    choices.sync = Sync::parameter_server;
    choices.servers = servers;
    return fold_ranks({gpt_job(c, 2, 512, 2 * dp), choices}).classes.size();
  };
  CHECK(classes(cluster, 16, 16) == 1);
  CHECK(classes(cluster, 16, 2) == 16);
  CHECK(classes(cluster, 12, 12) == 12);
  Cluster slow = cluster;
  Override device;
  device.node = 1;
  device.device = 3;
  device.target = OverrideTarget::device;
  device.speed = 0.5;
  slow.overrides.push_back(device);
  CHECK(classes(slow, 16, 16) == 16);
}

TEST_CASE("folded equals unfolded over a grid of plans") {
  std::size_t point = 0;
  for (const char* name : {"dgx-a100", "a100-eth100", "v100-ib100"}) {
    const Cluster all = load_cluster(name);
    const int devices = all.groups[0].node.devices;
    for (const auto& [tp, pp, dp] : std::vector<std::array<int, 3>>{
             {1, 1, 8}, {2, 2, 2}, {8, 1, 2}, {4, 2, 2}, {1, 4, 4}, {2, 4, 1}, {4, 1, 4}, {1, 2, 8}}) {
      const int world = tp * pp * dp;
      if (world % devices != 0) continue;
      const Cluster cluster = with_nodes(all, world / devices);
      for (const int zero : {0, 1, 3}) {
        Choices choices = choose(tp, pp, dp);
        choices.zero = zero;
        if (zero == 3 && dp > 2) choices.shard_group = dp / 2;
        if (zero == 3 && pp > 1) continue;  // parameters would be gathered for every micro-batch
        if (!walked(++point, 2)) continue;
        const Plan plan{gpt_job(cluster, 4, 1024, 4 * dp), choices};
        CAPTURE(name, tp, pp, dp, zero);
        CHECK(simulated_s(plan, true) == Approx(simulated_s(plan, false)).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("folded equals unfolded where context ranks pass keys around") {
  // On PCIe neighbours of the ring are different, and the ring looks the same from either end.
  std::size_t point = 0;
  for (const char* name : {"pcie-4090", "dgx-a100", "a100-eth100", "pcie-a40"})
    for (const auto& [tp, cp, pp, dp] : std::vector<std::array<int, 4>>{{2, 4, 2, 1},
                                                                        {1, 4, 2, 2},
                                                                        {2, 2, 2, 2},
                                                                        {1, 8, 2, 1},
                                                                        {2, 4, 1, 2},
                                                                        {4, 4, 1, 1},
                                                                        {1, 4, 1, 4}}) {
      if (!walked(++point, 2)) continue;
      const Cluster all = load_cluster(name);
      const Cluster cluster = with_nodes(all, tp * cp * pp * dp / all.groups[0].node.devices);
      Choices choices = choose(tp, pp, dp);
      choices.cp = cp;
      const Plan plan{gpt_job(cluster, 4, 1024, 4 * dp), choices};
      CAPTURE(name, tp, cp, pp, dp);
      CHECK(simulated_s(plan, true) == Approx(simulated_s(plan, false)).epsilon(0.01));
    }
}

TEST_CASE("folded equals unfolded on up to 256 devices") {
  for (const char* name : {"dgx-a100", "a100-eth100"}) {
    const Cluster all = load_cluster(name);
    for (const auto& [tp, pp, dp, zero] : std::vector<std::array<int, 4>>{
             {8, 4, 2, 1}, {4, 2, 8, 0}, {8, 2, 8, 1}, {1, 1, 64, 3}, {4, 4, 16, 1}, {8, 4, 8, 0}}) {
      const Cluster cluster = with_nodes(all, tp * pp * dp / all.groups[0].node.devices);
      Choices choices = choose(tp, pp, dp);
      choices.zero = zero;
      const Plan plan{gpt_job(cluster, 4, 1024, 2 * dp), choices};
      CAPTURE(name, tp, pp, dp, zero);
      CHECK(simulated_s(plan, true) == Approx(simulated_s(plan, false)).epsilon(0.01));
    }
  }
}

TEST_CASE(
    "folded equals unfolded where links are different: tapered trees, rails, tori, dragonflies, slow parts") {
  const Cluster base = with_nodes(load_cluster("dgx-a100"), 8);
  std::vector<std::pair<const char*, Cluster>> clusters;
  Cluster c = base;
  c.fabric.kind = FabricKind::fat_tree;
  c.fabric.nodes_per_leaf = 3;  // leaves of 3, 3 and 2 nodes
  c.fabric.oversubscription = 4;
  clusters.emplace_back("tapered", c);
  c.fabric.kind = FabricKind::rail_fat_tree;
  clusters.emplace_back("rails", c);
  c.fabric.kind = FabricKind::torus;
  c.fabric.torus = {4, 2};
  clusters.emplace_back("torus", c);
  c.fabric.kind = FabricKind::dragonfly;
  c.fabric.groups = 2;
  c.fabric.routers = 2;
  c.fabric.nodes_per_router = 2;
  c.fabric.global_bandwidth_bytes_per_s = 25e9;
  c.fabric.link_bandwidth_bytes_per_s = 100e9;
  clusters.emplace_back("dragonfly", c);
  c = base;
  Override slow;
  slow.node = 5;
  slow.device = 2;
  slow.port = 2;
  slow.target = OverrideTarget::device;
  slow.speed = 0.6;
  c.overrides = {slow};
  clusters.emplace_back("slow device", c);
  slow.target = OverrideTarget::nic;
  slow.speed = 0.1;
  c.overrides = {slow};
  clusters.emplace_back("slow port", c);
  std::size_t point = 0;
  for (const auto& [name, cluster] : clusters)
    for (const auto& [tp, pp, dp] :
         std::vector<std::array<int, 3>>{{8, 4, 2}, {4, 2, 8}, {2, 4, 8}, {8, 1, 8}, {1, 8, 8}}) {
      if (!walked(++point, 3)) continue;
      const Plan plan{gpt_job(cluster, 8, 1024, 8 * dp), choose(tp, pp, dp)};
      SimulationOptions options;
      const Simulation folded = simulate(plan, options);
      options.fold = false;
      const Simulation unfolded = simulate(plan, options);
      CAPTURE(name, tp, pp, dp, folded.simulated_ranks);
      CHECK(folded.step_time_s == Approx(unfolded.step_time_s).epsilon(0.01));
    }
}

TEST_CASE("a step after a global synchronisation is the steady state's") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  for (const Choices& choices : {choose(2, 2, 4), choose(1, 4, 4), choose(8, 1, 2), choose(1, 1, 16)}) {
    Plan plan{gpt_job(cluster, 8, 1024, 64), choices};
    SimulationOptions three;
    three.steps = 3;
    const Simulation one = simulate(plan);
    CHECK(one.step_ends_s.size() == 1);  // gradients are clipped by their global norm
    CHECK(one.step_time_s == Approx(simulate(plan, three).step_time_s).epsilon(0.005));
    auto job = std::make_shared<Job>(*plan.job);
    job->runtime.clip_gradients = false;
    plan.job = job;
    const Simulation two = simulate(plan);
    CHECK(two.step_time_s == Approx(simulate(plan, three).step_time_s).epsilon(1e-6));
  }
}

TEST_CASE("every form of parallelism that has a lowering is simulated, folded as unfolded") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  const auto job = gpt_job(cluster, 8, 1024, 64);
  SmallModel experts;
  experts.layers = 4;
  experts.hidden = 1024;
  experts.experts = 8;
  experts.seq_len = 2048;
  const auto expert_job = std::make_shared<Job>(*job);
  expert_job->workload = small_workload(experts);
  std::vector<std::pair<std::shared_ptr<Job>, Choices>> plans;
  const auto add = [&](const std::shared_ptr<Job>& of, Choices choices, auto change) {
    change(choices);
    plans.emplace_back(of, choices);
  };
  add(job, choose(1, 1, 16), [](Choices& c) { c.sync = Sync::parameter_server, c.servers = 2; });
  for (const Compression kind : {Compression::fp16, Compression::int8, Compression::topk})
    add(job, choose(1, 1, 16), [&](Choices& c) { c.grad_compression = kind; });
  add(expert_job, choose(1, 1, 16), [](Choices& c) { c.ep = 8; });
  add(expert_job, choose(2, 1, 8), [](Choices& c) { c.ep = 8; });
  add(expert_job, choose(1, 1, 16), [](Choices& c) { c.ep = 8, c.overlap_experts = true; });
  add(expert_job, choose(2, 1, 8), [](Choices& c) { c.ep = 4, c.etp = 2, c.sequence_parallel = true; });
  add(expert_job, choose(4, 2, 2), [](Choices& c) { c.ep = 2, c.etp = 2; });
  add(job, choose(1, 1, 4), [](Choices& c) { c.cp = 4; });
  add(job, choose(2, 2, 2), [](Choices& c) { c.cp = 2; });
  add(job, choose(1, 4, 4), [](Choices& c) { c.schedule = Schedule::interleaved, c.interleave = 2; });
  add(job, choose(1, 4, 4), [](Choices& c) { c.schedule = Schedule::zero_bubble; });
  add(job, choose(2, 2, 4), [](Choices& c) { c.zero = 3; });
  add(job, choose(2, 1, 8), [](Choices& c) { c.replica_batches = {12, 12, 8, 8, 8, 8, 4, 4}; });
  add(job, choose(2, 2, 4), [](Choices& c) { c.recompute = Recompute::full; });
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan plan{plans[i].first, plans[i].second};
    check_plan(plan);
    CAPTURE(i);
    CHECK(simulated_s(plan, true) == Approx(simulated_s(plan, false)).epsilon(0.01));
  }
}

TEST_CASE("two simulations of one plan are identical to the bit") {
  const Cluster cluster = with_nodes(load_cluster("a100-eth100"), 2);
  const Plan plan{gpt_job(cluster, 4, 1024, 16), choose(2, 2, 4)};
  const Simulation a = simulate(plan);
  const Simulation b = simulate(plan);
  CHECK(a.step_time_s == b.step_time_s);
  REQUIRE(a.timeline.events.size() == b.timeline.events.size());
  for (std::size_t i = 0; i < a.timeline.events.size(); ++i) {
    CHECK(a.timeline.events[i].start_s == b.timeline.events[i].start_s);
    CHECK(a.timeline.events[i].end_s == b.timeline.events[i].end_s);
  }
  const std::vector<Simulation> all = simulate_all({plan, plan, plan}, {}, 2);
  REQUIRE(all.size() == 3);
  for (const Simulation& one : all) {
    CHECK(one.step_time_s == a.step_time_s);
    CHECK(one.programs.size() == a.programs.size());
    CHECK(one.links.front().name == a.links.front().name);
    CHECK(one.breakdown.total() == Approx(a.step_time_s));
  }
}

TEST_CASE("a step is never shorter than the compute of its busiest rank, and the breakdown adds up") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  for (const Choices& choices : {choose(2, 2, 4), choose(8, 2, 1), choose(1, 1, 16), choose(1, 8, 2)}) {
    const Plan plan{gpt_job(cluster, 8, 1024, 32), choices};
    const Simulation s = simulate(plan);
    const ComputeCost cost(plan, plan.job->cluster.profiles[0]);
    double most = 0;
    for (const Program& program : s.programs) {
      double work = 0;
      for (const Instruction& i : program.instructions)
        if (i.op == Op::compute) work += cost.seconds(program, i);
      most = std::max(most, work);
    }
    CHECK(s.step_time_s >= most * (1 - 1e-9));
    CHECK(s.breakdown.total() == Approx(s.step_time_s).epsilon(1e-6));
    for (const LinkLoad& link : s.links) CHECK(link.utilization <= 1 + 1e-6);
  }
}

TEST_CASE("energy is idle power throughout and the rest while computing") {
  Cluster cluster = with_nodes(load_cluster("dgx-a100"), 1);
  cluster.profiles[0].idle_power_w = 100;
  cluster.profiles[0].peak_power_w = 400;
  cluster.groups[0].node.host_power_w = 0;
  const Plan plan{gpt_job(cluster, 2, 1024, 8), choose(1, 1, 8)};
  const Simulation s = simulate(plan);
  const double busy = s.breakdown.compute + s.breakdown.recompute + s.breakdown.optimizer;
  CHECK(s.energy_j >= 8 * 100 * s.step_time_s);
  CHECK(s.energy_j <= 8 * 400 * s.step_time_s);
  // Overlap slows compute, so its busy time is a little more than its work.
  CHECK(s.energy_j == Approx(8 * (100 * s.step_time_s + 300 * busy)).epsilon(0.05));
}

TEST_CASE("a step lasts as long as reading the next one's samples, which delays nothing else") {
  Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  cluster.groups.front().node.storage_read_bytes_per_s = 1e9;
  auto job = gpt_job(cluster, 8, 1024, 64);
  const Plan plan{job, choose(1, 1, 16)};
  const Simulation in_memory = simulate(plan);
  job->training.sample_bytes = 1;
  CHECK(simulate(plan).step_time_s == Approx(in_memory.step_time_s).epsilon(0.01));
  // Half of the 64 samples on each node, 1 GB/s.
  job->training.sample_bytes = 1e9;
  const Simulation starved = simulate(plan);
  CHECK(starved.step_time_s == Approx(32 + job->runtime.step_overhead_s));
  CHECK(starved.breakdown.input == Approx(starved.step_time_s - in_memory.step_time_s).epsilon(0.02));
  job->training.sample_bytes = 2e9;
  CHECK(simulated_s(plan, /*fold=*/false) == Approx(64 + job->runtime.step_overhead_s));
}

TEST_CASE("links report the bytes that cross them") {
  // Data parallel over 2 nodes of one device: a ring of two sends the gradients (fp32) once each way.
  const Cluster cluster = with_nodes(load_cluster("v100-ib100"), 2);
  auto job = gpt_job(cluster, 2, 1024, 2);
  job->runtime.clip_gradients = false;
  const Simulation s = simulate({job, choose(1, 1, 2)});
  double gradients = 0;
  for (const Bucket& bucket : s.programs.front().buckets)
    gradients += 4.0 * static_cast<double>(bucket.elements);
  REQUIRE(!s.links.empty());
  const auto nic = std::find_if(s.links.begin(), s.links.end(), [](const LinkLoad& link) {
    return link.name.find("nic") != std::string::npos;
  });
  REQUIRE(nic != s.links.end());
  const double steps = static_cast<double>(s.step_ends_s.size());
  CHECK(nic->bytes == Approx(steps * gradients).epsilon(0.01));
}

TEST_CASE("more bandwidth never slows a step") {
  double before = 1e9;
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    Cluster cluster = with_nodes(load_cluster("a100-eth100"), 2);
    cluster.groups[0].node.nic.bandwidth_bytes_per_s *= factor;
    const double now = simulated_s({gpt_job(cluster, 4, 1024, 16), choose(2, 2, 4)});
    CHECK(now <= before * (1 + 1e-6));
    before = now;
  }
}

TEST_CASE("more micro-batches never raise a pipeline's bubble fraction") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 1);
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    double before = 1;
    for (const int micro_batches : {1, 2, 3, 4, 8, 16, 32}) {
      Choices choices = choose(1, 8, 1);
      choices.schedule = schedule;
      const Simulation s = simulate({gpt_job(cluster, 8, 2048, micro_batches), choices});
      const double bubble = s.breakdown.bubble / s.step_time_s;
      CAPTURE(micro_batches, static_cast<int>(schedule));
      CHECK(bubble <= before + 1e-9);
      before = bubble;
    }
  }
}

TEST_CASE("flows and messages agree on collectives of up to 64 devices") {
  std::size_t point = 0;
  for (const char* name : {"dgx-a100", "dgx-h100", "v100-ib100"}) {
    const Cluster all = load_cluster(name);
    for (const int devices : {2, 4, 8, 16, 64}) {
      const int per_node = all.groups[0].node.devices;
      if (devices > per_node && devices % per_node != 0) continue;
      const Cluster cluster = with_nodes(all, std::max(1, devices / per_node));
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
        if (devices > cluster.devices() || !walked(++point, 2)) continue;
        const Algorithm ring = Algorithm::ring;
        const double bytes = 256 << 20;
        const CollectiveResult flows =
            simulate_collective(kind, bytes, cluster, devices, Detail::flows, &ring);
        const CollectiveResult messages =
            simulate_collective(kind, bytes, cluster, devices, Detail::messages, &ring);
        CAPTURE(name, devices, std::string(name_of(kind)), flows.plan.seconds(bytes));
        CHECK(flows.time_s == Approx(flows.plan.seconds(bytes)).epsilon(0.05));
        CHECK(messages.time_s == Approx(flows.time_s).epsilon(0.05));
      }
    }
  }
}

TEST_CASE("S parameter servers on S hosts take and give S times what one does") {
  const Cluster cluster = round_cluster(4, 1);  // ports of 10 GB/s
  for (const int servers : {1, 2, 3, 4}) {
    Choices choices = choose(1, 1, 4);
    choices.sync = Sync::parameter_server;
    choices.servers = servers;
    choices.overlap_grad_reduce = false;
    const Plan plan{small_job({}, 8), choices};
    std::vector<Program> programs = lower_all(plan);
    double bytes = 0;
    for (const Bucket& bucket : programs[0].buckets) bytes += 4 * static_cast<double>(bucket.elements);
    constexpr double kLarger = 1e6;  // latencies do not matter
    for (Program& program : programs)
      for (Instruction& instruction : program.instructions) {
        instruction.flops = 0;  // hand programs' seconds
        for (Transfer& transfer : instruction.transfers) transfer.bytes *= kLarger;
      }
    // A server's port takes in three slices; where not everyone serves, some worker sends all of its own.
    const double busiest = std::max(3.0 / servers, servers < 4 ? 1 : 0.75);
    const double once = busiest * bytes * kLarger / 10e9;
    CHECK(run_programs(cluster, programs).step_ends_s.back() == Approx(2 * once).epsilon(0.01));
  }
}
