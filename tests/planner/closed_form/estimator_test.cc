#include "planner/closed_form/estimator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.h"
#include "planner/closed_form/memory_model.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "program/operator_work.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

// Ranks of one machine as `orrery calibrate` describes it, whose second core leaves the first less of its
// speed than it did on the machine that was measured.
std::shared_ptr<Job> cores_job(int ranks, std::int64_t batch) {
  auto job = make_job("gpt2", ORRERY_TEST_DATA "/clusters/two-cores.textproto", ranks, batch, 64, "orrery");
  job->cluster.profiles.front().concurrency_scale = {1, 0.8};
  return job;
}

// Containers on one machine, a rank each, behind a switch of 100 Mb/s.
std::shared_ptr<Job> containers_job(int ranks, std::int64_t batch) {
  auto job = cores_job(2, batch);
  NodeGroup& group = job->cluster.groups.front();
  job->cluster.shared_cores = group.node.shared_cores;
  group.node.shared_cores = 0;
  group.node.devices = 1;
  group.node.nic = {.count = 1, .bandwidth_bytes_per_s = 12.5e6, .of_device = {0}};
  group.count = ranks;
  job->cluster.fabric.transport = Transport::tcp;
  return job;
}

// Plans drawn from the spaces of unlike jobs, whatever their memory.
std::vector<Plan> random_plans(int of_each) {
  const std::vector<std::shared_ptr<Job>> jobs = {
      make_job("gpt2", "dgx-a100", 8, 32, 256),
      make_job("gpt2", "v100-ib100", 4, 16, 512),
      make_job("gpt2-xl", "dgx-a100", 16, 64, 1024),
      make_job("llama3-8b", "dgx-h100", 16, 32, 2048),
      make_job("bert-large", "pcie-4090", 8, 32, 128),
      make_job("gpt2-xl", "a100-eth100", 16, 32, 512),
      make_job("resnet50", "v100-ib100", 8, 128, 0),
      make_job("gpt2", "localhost", 4, 8, 64, "orrery"),
      make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048),
      make_job("gpt2-xl", "dgx-a100", 8, 64, 1024),
      cores_job(2, 8),
      cores_job(4, 8),
      containers_job(4, 8),
  };
  std::vector<Plan> plans;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const std::vector<Choices> space = enumerate(jobs[j], {});
    const CounterRandom random(1, j);
    for (int i = 0; i < of_each; ++i) plans.push_back({jobs[j], space[random.bits(i) % space.size()]});
  }
  return plans;
}

// What the search cuts by is never above what it ranks by, whatever is asked for.
void check_objectives(const Plan& plan, const sim::Simulation& simulation) {
  const Job& job = *plan.job;
  const Bound bound = Estimator(plan.job).lower_bound(plan.choices);
  Evaluation evaluation;
  evaluation.plan = plan;
  evaluation.memory = predict_memory(plan);
  evaluation.simulation = simulation;
  for (const Objective objective :
       {Objective::step_time, Objective::cost, Objective::energy, Objective::memory}) {
    if (objective == Objective::cost && usd_per_s(job.cluster) <= 0) continue;
    if (objective == Objective::energy && !states_power(job.cluster)) continue;
    INFO(name_of(objective));
    CHECK(objective_value(objective, job, bound.step_s, bound.compute_s, evaluation.memory.total) <=
          objective_value(objective, evaluation) * (1 + 1e-9));
  }
}

void check_bounds(int of_each) {
  const std::vector<Plan> plans = random_plans(of_each);
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto simulations = sim::simulate_all(plans, options, 2);
  std::vector<double> errors;
  double tightness = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const StepTimes times = Estimator(plans[i].job).times(plans[i].choices);
    const double simulated = simulations[i].step_time_s;
    INFO(plans[i].job->workload.name << " on " << plans[i].job->cluster.name << ": " << describe(plans[i])
                                     << (plans[i].choices.overlap_grad_reduce ? "" : ", no overlap")
                                     << "; estimate " << times.estimate_s << " simulated " << simulated);
    CHECK(times.lower_bound_s <= simulated * (1 + 1e-9));
    CHECK(times.lower_bound_s <= times.estimate_s * (1 + 1e-9));
    const double by_slots = Estimator(plans[i].job).slot_bound(plans[i].choices).step_s;
    CHECK(by_slots >= times.lower_bound_s * (1 - 1e-9));
    CHECK(by_slots <= simulated * (1 + 1e-9));
    check_objectives(plans[i], simulations[i]);
    errors.push_back(times.estimate_s / simulated - 1);
    tightness += times.lower_bound_s / simulated / static_cast<double>(plans.size());
  }
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double q) { return errors[static_cast<std::size_t>(q * (errors.size() - 1))]; };
  std::vector<double> sizes;
  for (const double error : errors) sizes.push_back(std::abs(error));
  std::sort(sizes.begin(), sizes.end());
  INFO("estimate against simulation over "
       << plans.size() << " plans: 5% " << at(0.05) << ", median " << at(0.5) << ", 95% " << at(0.95)
       << "; absolute: median " << sizes[sizes.size() / 2] << ", 90% " << sizes[sizes.size() * 9 / 10]
       << ", worst " << sizes.back() << "; bound/simulated " << tightness);
  CHECK(sizes[sizes.size() / 2] < 0.08);
  CHECK(sizes[sizes.size() * 9 / 10] < 0.5);
}

TEST_CASE("tensor collectives beside their products cost what is longer than these, simulated as estimated") {
  const auto job = test::make_job("llama3-8b", "dgx-h100", 8, 16, 8192);
  job->runtime.collective_overhead_s = 1e-4;  // whatever it is fitted to: that is never hidden
  const auto step = [&](bool overlap, int tp) {
    job->runtime.overlap_tensor = job->runtime.overlap_tensor_backward = overlap;
    Choices c;
    c.tp = tp;
    c.dp = 8 / tp;
    c.sequence_parallel = true;
    const sim::Simulation simulated = sim::simulate({job, c});
    CAPTURE(overlap, tp);
    CHECK(Estimator(job).times(c).estimate_s == Approx(simulated.step_time_s).epsilon(0.03));
    return simulated;
  };
  for (const int tp : {2, 4, 8}) {
    const sim::Simulation apart = step(false, tp), beside = step(true, tp);
    // Products of 8,192 tokens take longer than their rows travel over NVLink: most is hidden, less where
    // tensor ranks are many, whose products are short and whose pieces' first and last are all the same.
    CHECK(beside.breakdown.tensor_comm < (tp < 8 ? 0.45 : 0.6) * apart.breakdown.tensor_comm);
    CHECK(beside.step_time_s < apart.step_time_s);
    CHECK(beside.step_time_s > apart.step_time_s - apart.breakdown.tensor_comm);
  }
  // Over two nodes nothing overlaps.
  const auto wide = test::make_job("llama3-8b", "dgx-h100", 16, 16, 8192);
  Choices c;
  c.tp = 16;
  c.sequence_parallel = true;
  wide->runtime.overlap_tensor = wide->runtime.overlap_tensor_backward = false;
  const double apart_s = Estimator(wide).times(c).estimate_s;
  const auto same = std::make_shared<Job>(*wide);
  same->runtime.overlap_tensor = same->runtime.overlap_tensor_backward = true;
  CHECK(Estimator(same).times(c).estimate_s > 0.85 * apart_s);
}

TEST_CASE("the lower bound is never above the simulated step, and the estimate is near it") {
  check_bounds(25);
}

// Tensor ranks' groups gather through one port: what a framework loses of it by itself, the others use.
TEST_CASE("groups that share a port lose no more of it than is theirs, simulated as estimated") {
  const auto step_s = [](double efficiency, int tp) {
    const auto job = make_job("gpt3-7b", "a100-eth100", 32, 64, 1024, "megatron-deepspeed");
    job->runtime.communication_efficiency = efficiency;
    Choices c;
    c.tp = tp;
    c.dp = 32 / tp;
    c.zero = 3;
    c.recompute = Recompute::full;
    c.micro_batch = 64 / c.dp;
    const double simulated = sim::simulate({job, c}).step_time_s;
    CHECK(Estimator(job).times(c).estimate_s == Approx(simulated).epsilon(0.1));
    return simulated;
  };
  CHECK(step_s(0.5, 8) < 1.25 * step_s(0.95, 8));  // eight groups fill the port
  CHECK(step_s(0.5, 1) > 1.3 * step_s(0.95, 1));   // one does not
}

// Eight ranks of a stage leave their node through one port, there and back.
TEST_CASE(
    "estimates know that a stage shares its node's port, whole and partitioned messages, and each chunk's") {
  double last_s = 0;
  for (const double slower : {1.0, 2.0, 4.0}) {
    std::vector<Plan> plans;
    for (const char* runtime : {"typical", "megatron-core", "megatron-lm-2022"}) {
      const auto job = make_job("gpt3-7b", "a100-eth100", 32, 32, 1024, runtime);
      job->cluster.groups.front().node.nic.bandwidth_bytes_per_s /= slower;
      for (const int interleave : {1, 2, 4}) {
        Choices c;
        c.tp = 8;
        c.pp = 4;
        c.interleave = interleave;
        c.schedule = interleave > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
        c.sequence_parallel = job->runtime.name == "typical";
        plans.push_back({job, c});
      }
    }
    sim::SimulationOptions options;
    options.keep_timeline = false;
    const auto simulations = sim::simulate_all(plans, options, 2);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const StepTimes times = Estimator(plans[i].job).times(plans[i].choices);
      INFO(plans[i].job->runtime.name << ", " << describe(plans[i]) << ", port " << slower
                                      << " times slower");
      CHECK(times.estimate_s == Approx(simulations[i].step_time_s).epsilon(0.12));
    }
    CHECK(simulations.front().step_time_s > last_s);
    last_s = simulations.front().step_time_s;
    // A part of eight instead of the whole: the same through a port, but for the gathers, with sequence
    // parallelism.
    CHECK(message_share(plans[0]) == 1);
    CHECK(message_share(plans[3]) == 1);
    CHECK(message_share(plans[6]) == 0.125);
  }
}

// A stage in the middle of a pipeline sends both ways, through the port of a node of its own or of one that
// it shares with its neighbour; the first node's port carries half as much.
TEST_CASE("estimates know that messages of a pipeline's middle meet in its nodes' ports") {
  for (const double slower : {4.0, 10.0}) {
    const auto job = make_job("llama3-8b", "a100-eth100", 64, 64, 8192, "typical");
    job->cluster.groups.front().node.nic.bandwidth_bytes_per_s /= slower;
    std::vector<Plan> plans;
    for (const int tp : {8, 4}) {
      for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble, Schedule::interleaved}) {
        Choices c;
        c.tp = tp;
        c.pp = 64 / tp;
        c.schedule = schedule;
        c.interleave = schedule == Schedule::interleaved ? 2 : 1;
        c.sequence_parallel = true;
        plans.push_back({job, c});
      }
    }
    sim::SimulationOptions options;
    options.keep_timeline = false;
    const auto simulations = sim::simulate_all(plans, options, 2);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      INFO(describe(plans[i]) << ", port " << slower << " times slower");
      // Worst where messages take as long as what is computed beside them.
      CHECK(Estimator(job).times(plans[i].choices).estimate_s ==
            Approx(simulations[i].step_time_s).epsilon(0.125));
    }
  }
}

// Groups of a node cross the processors' interconnect side by side, those inside layers beside those that
// gather parameters and reduce gradients with every micro-batch.
TEST_CASE("estimates know who shares a link inside a node, and how much slower the others get") {
  const auto job = make_job("llama3-8b", "pcie-l40s", 8, 64, 8192, "typical");
  std::vector<Plan> plans;
  for (const int zero : {2, 3}) {
    for (const auto& [tp, cp] : {std::pair{2, 1}, {4, 1}, {1, 4}, {2, 2}, {2, 4}}) {
      Choices c;
      c.tp = tp;
      c.cp = cp;
      c.dp = 8 / tp / cp;
      c.zero = zero;
      c.recompute = Recompute::full;
      c.micro_batch = cp == 4 ? 4 : 2;
      c.sequence_parallel = tp > 1;
      c.bucket_bytes = 1.6e8;
      plans.push_back({job, c});
    }
  }
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto simulations = sim::simulate_all(plans, options, 2);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    INFO(describe(plans[i]));
    CHECK(Estimator(job).times(plans[i].choices).estimate_s ==
          Approx(simulations[i].step_time_s).epsilon(0.1));
  }
}

// A minute: test_planner "[.long]".
TEST_CASE("the lower bound holds on thousands of random plans", "[.long]") {
  check_bounds(400);
}

// Plans of fully connected layers at the end of many small ones, whose parameters are gathered late, and of
// samples read from slow storage.
TEST_CASE("the closed form knows which layers wait for their parameters, and the storage") {
  const auto vgg = make_job("vgg16", "v100-ib100", 8, 256, 0);
  const auto starved = make_job("resnet50", "v100-ib100", 4, 128, 0);
  starved->training.sample_bytes = 1 << 20;
  sim::SimulationOptions options;
  options.keep_timeline = false;
  for (const auto& job : {vgg, starved}) {
    Pins pins;
    pins.pp = 1;
    pins.recompute = Recompute::none;
    const std::vector<Choices> space = enumerate(job, pins);
    std::vector<Plan> plans;
    const CounterRandom random(3, 0);
    for (int i = 0; i < 40; ++i) plans.push_back({job, space[random.bits(i) % space.size()]});
    const auto simulations = sim::simulate_all(plans, options, 2);
    Estimator estimator(job);
    std::vector<double> errors;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const StepTimes times = estimator.times(plans[i].choices);
      INFO(job->workload.name << ": " << describe(plans[i]) << ", ZeRO " << plans[i].choices.zero);
      CHECK(times.lower_bound_s <= simulations[i].step_time_s * (1 + 1e-9));
      CHECK(times.estimate_s == Approx(simulations[i].step_time_s).epsilon(0.2));
      errors.push_back(std::abs(times.estimate_s / simulations[i].step_time_s - 1));
    }
    std::sort(errors.begin(), errors.end());
    CHECK(errors[errors.size() / 2] < 0.03);
  }
}

TEST_CASE("memoised figures equal those of a fresh look at each plan") {
  const auto job = make_job("llama3-8b", "dgx-h100", 16, 32, 2048);
  const std::vector<Choices> plans = enumerate(job, {});
  Estimator estimator(job);
  MemoryModel memory(job);
  const CounterRandom random(2, 0);
  for (int i = 0; i < 40; ++i) {
    const Choices& choices = plans[random.bits(i) % plans.size()];
    CHECK(estimator.times(choices).estimate_s == estimate_step_seconds(Plan{job, choices}));
    const Memory one = memory.predict(choices);
    const Memory other = predict_memory(Plan{job, choices});
    CHECK(one.total == other.total);
    CHECK(one.stage == other.stage);
  }
}

TEST_CASE("an estimate is the same whichever schedule was asked about before") {
  const auto job = make_job("llama3-8b", "dgx-h100", 16, 32, 2048);
  REQUIRE(job->runtime.overlap_tensor_backward);
  Estimator estimator(job);
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble, Schedule::one_f_one_b,
                                  Schedule::gpipe, Schedule::zero_bubble, Schedule::gpipe}) {
    Choices c;
    c.tp = 8;
    c.pp = 2;
    c.sequence_parallel = true;
    c.schedule = schedule;
    CAPTURE(name_of(schedule));
    CHECK(estimator.times(c).estimate_s == estimate_step_seconds(Plan{job, c}));
    CHECK(estimator.lower_bound_s(c) == Estimator(job).lower_bound_s(c));
  }
}

TEST_CASE(
    "one device computes without communication: the estimate is its compute and the host's first launch") {
  const auto job = make_job("gpt2", "dgx-a100", 1, 8, 1024);  // kernels take longer than their launches
  Choices choices;
  choices.micro_batch = 8;
  const StepTimes times = Estimator(job).times(choices);
  CHECK(times.estimate_s >= times.compute_s * (1 - 1e-9));
  CHECK(times.estimate_s <= times.compute_s * 1.001);
  const sim::Simulation simulation = sim::simulate(Plan{job, choices});
  CHECK(simulation.step_time_s >= times.compute_s * (1 - 1e-9));
}

// Sums over the copies of a shard are on the way beside the last backward pass: behind what is gathered and
// summed within a group, and slowing what is computed.
TEST_CASE(
    "estimates of sharded data parallelism are near their simulations, in groups and partly recomputed") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  for (const char* cluster : {"pcie-l40s", "a100-eth100", "dgx-h100"}) {
    const auto job = test::make_job("llama2-7b", cluster, 32, 128, 4096);
    for (const int micro_batch : {1, 4})
      for (const int zero : {2, 3})
        for (const int group : {0, 8, 16})
          for (const int layers : {0, 27}) {
            Choices c;
            c.dp = 32;
            c.zero = zero;
            c.shard_group = group;
            c.micro_batch = micro_batch;
            c.recompute = Recompute::full;
            c.recompute_layers = layers;
            const Plan plan{job, c};
            const double simulated_s = sim::simulate(plan, options).step_time_s;
            INFO(cluster << ": " << describe(plan) << ", simulated " << simulated_s);
            CHECK(Estimator(job).times(c).estimate_s == Approx(simulated_s).epsilon(0.04));
          }
  }
}

// Replicas on nodes of their own, each node holding several stages of one: a stage's sums have the ports
// alone while the others of its node still compute, or have summed theirs.
TEST_CASE("stages of a node that end at different times reduce at different times") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  for (const double port_bytes_per_s : {1.25e9, 3.125e9, 12.5e9}) {
    const auto job = test::make_job("llama3-8b", "a100-eth100", 32, 64, 4096, "typical");
    job->cluster.groups.front().node.nic.bandwidth_bytes_per_s = port_bytes_per_s;
    for (const auto& [tp, pp] : {std::pair{1, 8}, {2, 4}, {4, 2}, {1, 4}, {2, 2}})
      for (const int zero : {0, 1})
        for (const bool overlap : {false, true}) {
          Choices c;
          c.tp = tp;
          c.pp = pp;
          c.dp = 32 / tp / pp;
          c.zero = zero;
          c.overlap_grad_reduce = overlap;
          c.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
          c.recompute = Recompute::full;
          const Plan plan{job, c};
          const StepTimes times = Estimator(job).times(c);
          const double simulated_s = sim::simulate(plan, options).step_time_s;
          INFO(describe(plan) << " over " << port_bytes_per_s << ": estimated " << times.estimate_s
                              << ", simulated " << simulated_s);
          CHECK(times.estimate_s == Approx(simulated_s).epsilon(zero == 0 ? 0.08 : 0.12));
          CHECK(times.lower_bound_s <= simulated_s * (1 + 1e-9));
        }
  }
}

TEST_CASE("context ranks in a mesh pass keys on over the links that join neighbours, as they are simulated") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto job = test::make_job("gpt2-xl", "dgx-v100-32g", 32, 64, 1024, "typical");
  for (const int pp : {1, 4})
    for (const int micro_batch : {1, 4}) {
      Choices c;
      c.cp = 4;
      c.pp = pp;
      c.dp = 8 / pp;
      c.micro_batch = micro_batch;
      const Plan plan{job, c};
      const double simulated_s = sim::simulate(plan, options).step_time_s;
      INFO(describe(plan) << ", simulated " << simulated_s);
      CHECK(Estimator(job).times(c).estimate_s == Approx(simulated_s).epsilon(0.06));
    }
}

// A step of few micro-batches, whose reductions are long: what is complete when decides.
TEST_CASE(
    "gradients are reduced when the pass that completes them ends, chunk by chunk, or behind all weights") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto near = [&](const char* model, const char* cluster, int devices, const Choices& c) {
    const auto job = test::make_job(model, cluster, devices, 2 * c.dp, 1024, "typical");
    const Plan plan{job, c};
    const double simulated_s = sim::simulate(plan, options).step_time_s;
    INFO(describe(plan) << " of " << model << ", simulated " << simulated_s);
    CHECK(Estimator(job).times(c).estimate_s == Approx(simulated_s).epsilon(0.05));
  };
  Choices c;
  c.pp = 2;
  c.dp = 16;
  for (const int chunks : {4, 8, 12}) {  // 24% too slow, were all but the first chunk complete together
    c.schedule = Schedule::interleaved;
    c.interleave = chunks;
    near("gpt2-xl", "dgx-b200", 32, c);
  }
  c.schedule = Schedule::zero_bubble;  // 9% too fast, did the pass back through the layers complete them
  c.interleave = 1;
  c.dp = 64;
  c.recompute = Recompute::full;
  near("gpt3-7b", "dgx-h100", 128, c);
}

}  // namespace
}  // namespace orrery::planner
