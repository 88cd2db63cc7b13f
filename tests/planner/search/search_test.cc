#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/format.h"
#include "planner/search/candidates.h"
#include "planner/search/group_order.h"
#include "planner/search/split_search.h"
#include "planner/space/space.h"
#include "planner/uncertainty/outlook.h"
#include "tests/support/jobs.h"
#include "tests/support/walked.h"

namespace orrery::planner {
namespace {

using test::make_job;

struct Question {
  std::shared_ptr<Job> job;
  Pins pins;
};

Pins narrow(std::optional<int> zero, std::optional<Recompute> recompute) {
  Pins pins;
  pins.any_runtime = true;
  pins.zero = zero;
  pins.recompute = recompute;
  pins.recompute_layers = 0;
  return pins;
}

Pins in_one_stage() {
  Pins pins = narrow({}, Recompute::none);
  pins.pp = 1;
  return pins;
}

Pins in_overlapped_buckets(std::optional<int> zero) {
  Pins pins = narrow(zero, Recompute::none);
  pins.bucket_bytes = 64e6;
  pins.overlap_grad_reduce = true;
  return pins;
}

SearchOptions exhaustive_options() {
  SearchOptions options;
  options.rank = Rank::nominal;
  options.fit_probability = 0.5;
  options.budget_s = 1e9;
  return options;
}

// The best of the space by simulating all of it; whether `answer` is in it.
double exhaustive(const Question& question, const Choices& answer, bool* listed) {
  std::vector<Plan> plans;
  *listed = false;
  const SearchOptions searched = exhaustive_options();
  const auto job =
      with_group_order(with_best_splits(question.job, question.pins, searched).job, question.pins, searched);
  for (const Choices& choices : enumerate(job, question.pins)) {
    *listed |= choices == answer;
    plans.push_back({job, choices});
    if (!predict_memory(plans.back()).fits()) plans.pop_back();
  }
  REQUIRE(plans.size() <= 2000);
  sim::SimulationOptions options;
  options.keep_timeline = false;
  double best = std::numeric_limits<double>::infinity();
  for (const sim::Simulation& simulation : sim::simulate_all(plans, options, 2))
    best = std::min(best, simulation.step_time_s);
  return best;
}

// A plan with most of its memory full is faster and may not fit.
SearchResult of_a_full_device(double fit_probability, bool beside) {
  SearchOptions options;
  options.top = 1;
  options.fit_probability = fit_probability;
  options.subsets = beside;
  return planner::search(make_job("megatron-22b", "dgx-a100", 8, 8, 2048, "megatron-deepspeed"), {}, options);
}

TEST_CASE("a plan that is faster and less sure to fit is said, with what gets it") {
  const SearchResult result = of_a_full_device(0.95, true);
  REQUIRE(result.unsure);
  const double fits = result.unsure->interval->fit_probability;
  CHECK(fits >= 0.5);
  CHECK(fits < 0.95);
  CHECK(result.unsure->step_time_s() < 0.95 * result.plans.front().step_time_s());
  CHECK_THAT(result.why_unsure, Catch::Contains("faster") && Catch::Contains("`fit_probability` 0."));
  CHECK_THAT(result.why, Catch::Contains(result.why_unsure));
  CHECK_FALSE(of_a_full_device(0.95, false).unsure);
  // Asked for, a plan as fast is the answer, and nothing is left to be said of a plan as likely.
  const SearchResult asked = of_a_full_device(std::floor(100 * fits) / 100, true);
  CHECK(asked.plans.front().step_time_s() <= 1.01 * result.unsure->step_time_s());
}

// So many nodes with one V100 and as many with one A100.
std::shared_ptr<Job> heterogeneous_job(const std::string& workload, int of_each, std::int64_t batch,
                                       int seq_len) {
  auto job = make_job(workload, "v100-ib100", of_each, batch, seq_len);
  const Cluster other = load_cluster("dgx-a100");
  job->cluster.profiles.push_back(other.profiles[other.groups.front().node.profile]);
  job->cluster.groups.push_back(job->cluster.groups.front());
  job->cluster.groups.back().node.profile = static_cast<int>(job->cluster.profiles.size()) - 1;
  return job;
}

void check_exhaustive(const std::vector<Question>& questions) {
  for (std::size_t q = 0; q < questions.size(); ++q) {
    if (!walked(q, 3)) continue;
    const Question& question = questions[q];
    const SearchResult result = planner::search(question.job, question.pins, exhaustive_options());
    INFO(question.job->workload.name << " on " << question.job->cluster.name << ": " << result.candidates);
    CHECK(result.proven);
    CHECK(result.gap == 0);
    const Evaluation& best = result.plans.front();
    bool listed = false;
    const double least_s = exhaustive(question, best.plan.choices, &listed);
    // A cut that the space does not list (cut_refinement.h) is the answer only where it is better.
    if (listed)
      CHECK(best.step_time_s() == least_s);
    else
      CHECK(best.step_time_s() < least_s);
  }
}

TEST_CASE(
    "a graph that data-parallel software trains is planned so, and what tensor ranks would save is said") {
  const char* t5 = ORRERY_TEST_DATA "/huggingface/t5-small.json";
  const auto job = make_job(t5, "dgx-a100", 16, 128, 0, "typical-data-parallel");
  SearchOptions options;
  options.rank = Rank::nominal;
  const auto of = [](const SearchResult& result) { return result.plans.front().plan.choices; };
  const SearchResult result = planner::search(job, {}, options);
  CHECK((of(result).tp == 1 && of(result).pp == 1));
  CHECK_THAT(result.beyond_replicas,
             Catch::Contains("TP 8") && Catch::Contains("only Orrery's own executor"));
  CHECK_THAT(result.why, Catch::Contains(result.beyond_replicas));
  Pins pins;
  pins.tp = 8;
  const SearchResult pinned = planner::search(job, pins, options);
  CHECK(of(pinned).tp == 8);
  CHECK(pinned.beyond_replicas.empty());
  // Fewer samples than devices: replicas alone cannot be had.
  const SearchResult few =
      planner::search(make_job(t5, "dgx-a100", 16, 8, 0, "typical-data-parallel"), {}, options);
  CHECK(of(few).tp * of(few).pp > 1);
  CHECK_THAT(few.beyond_replicas, Catch::Contains("cannot be had here"));
}

TEST_CASE("on small spaces the answer is exhaustive simulation's") {
  const Pins plain = in_overlapped_buckets(1), bare = in_overlapped_buckets(0), sharded = in_one_stage();
  Pins free = narrow({}, {});
  free.dp = 1;
  const std::vector<Question> questions = {
      {make_job("gpt2", "dgx-a100", 2, 4, 128), narrow({}, Recompute::none)},
      {make_job("gpt2", "dgx-a100", 4, 8, 128), plain},
      {make_job("gpt2", "dgx-a100", 4, 6, 128), bare},
      {make_job("gpt2", "dgx-h100", 4, 12, 64), plain},
      {make_job("gpt2", "v100-ib100", 2, 4, 256), bare},
      {make_job("gpt2", "v100-ib100", 4, 8, 256), bare},
      {make_job("gpt2", "v100-ib100", 4, 4, 128), sharded},
      {make_job("gpt2", "pcie-4090", 4, 8, 128), plain},
      {make_job("gpt2", "a100-eth100", 4, 8, 128), plain},
      {make_job("bert-base", "dgx-h100", 4, 16, 128), plain},
      {make_job("bert-base", "dgx-a100", 2, 6, 128), sharded},
      {make_job("bert-large", "dgx-a100", 4, 4, 128), sharded},
      {make_job("gpt2-xl", "dgx-a100", 2, 2, 128), narrow(1, Recompute::none)},
      {make_job("gpt2-xl", "dgx-h100", 4, 4, 128), sharded},
      {make_job("resnet50", "v100-ib100", 2, 32, 0), bare},
      {make_job("resnet50", "v100-ib100", 4, 32, 0), sharded},
      {make_job("vgg16", "v100-ib100", 2, 16, 0), bare},
      {make_job("gpt2", "localhost", 1, 2, 64, "orrery"), free},
      {make_job("gpt2", "localhost", 2, 4, 64, "orrery"), narrow({}, Recompute::none)},
      {make_job("gpt2", "localhost", 3, 6, 64, "orrery"), bare},
  };
  CHECK(questions.size() >= 20);
  check_exhaustive(questions);
}

TEST_CASE("so it is with compression, parameter servers, split operators and heterogeneous devices") {
  Pins compressed = in_one_stage();
  compressed.search_compression = true;
  Pins servers = in_one_stage();
  servers.bucket_bytes = 64e6;
  servers.search_sync = true;
  const Pins split = in_one_stage(), shared = in_overlapped_buckets({});
  check_exhaustive({
      {make_job("gpt2", "v100-ib100", 4, 8, 128), compressed},
      {make_job("bert-base", "dgx-a100", 2, 8, 128), compressed},
      {make_job("gpt2", "dgx-a100", 4, 8, 128), servers},
      {make_job("resnet50", "v100-ib100", 4, 32, 0), servers},
      {make_job("vgg16", "v100-ib100", 4, 64, 0), split},
      {make_job("dlrm", "v100-ib100", 4, 256, 0), split},
      {heterogeneous_job("gpt2", 1, 12, 128), shared},
      {heterogeneous_job("resnet50", 1, 48, 0), shared},
  });
}

TEST_CASE("in which order a file lists its groups of nodes makes no difference") {
  // Nineteen devices divide by nothing: a pipeline, whose head is best not on an A100.
  auto fast_first = make_job("llama3-8b", "dgx-h100", 16, 96, 8192);
  Cluster& cluster = fast_first->cluster;
  const Cluster other = load_cluster("aws-p4d-24xlarge");
  cluster.profiles.push_back(other.profiles[other.groups.front().node.profile]);
  cluster.groups.push_back({other.groups.front().node, 1});
  NodeType& slow = cluster.groups.back().node;
  slow.profile = static_cast<int>(cluster.profiles.size()) - 1;
  slow.devices = slow.nic.count = 3;
  slow.nic.of_device = {0, 1, 2};
  slow.name = "a";
  cluster.groups.front().node.name = "h";
  auto slow_first = std::make_shared<Job>(*fast_first);
  std::swap(slow_first->cluster.groups.front(), slow_first->cluster.groups.back());
  SearchOptions options;
  options.rank = Rank::nominal;
  options.subsets = false;
  const SearchResult of_fast = planner::search(fast_first, {}, options);
  const SearchResult of_slow = planner::search(slow_first, {}, options);
  CHECK(of_fast.plans.front().step_time_s() == Approx(of_slow.plans.front().step_time_s()).epsilon(0.02));
  CHECK_THAT(of_fast.group_order, Catch::Contains("1 node of a, then 2 nodes of h"));
  CHECK_THAT(of_fast.why, Catch::Contains(of_fast.group_order));
  CHECK(of_slow.group_order.empty());
  CHECK(of_fast.plans.front().plan.job->cluster.groups.front().node.devices == 3);
}

// A minute: test_planner "[.long]".
TEST_CASE("so it is on the larger of small spaces", "[.long]") {
  const Pins plain = in_overlapped_buckets(1), sharded = in_one_stage(), shared = in_overlapped_buckets({});
  Pins cut = narrow(0, Recompute::none);
  cut.tp = 2;
  check_exhaustive({
      {make_job("gpt2", "dgx-a100", 8, 8, 128), plain},
      {make_job("gpt2", "pcie-4090", 8, 8, 128), plain},
      {make_job("llama3-8b", "dgx-h100", 8, 8, 256), sharded},
      {make_job("vgg16", "v100-ib100", 4, 32, 0), cut},
      {heterogeneous_job("gpt2", 2, 12, 128), shared},
  });
}

TEST_CASE("an answer under a small budget says its gap, and the gap holds") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 256);
  const Pins pins = narrow(1, Recompute::none);
  SearchOptions options;
  options.rank = Rank::nominal;
  options.top = 1;
  options.budget_s = 1e-6;
  const SearchResult hasty = planner::search(job, pins, options);
  options.budget_s = 1e9;
  const SearchResult thorough = planner::search(job, pins, options);
  REQUIRE(thorough.proven);
  CHECK(hasty.simulated < thorough.simulated);
  const double best = thorough.plans.front().step_time_s();
  CHECK(hasty.plans.front().step_time_s() * (1 - hasty.gap) <= best * (1 + 1e-9));
}

TEST_CASE(
    "with `prove` nothing that may be better is left, or the gap is smaller, and the answer no slower") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 64, 2048, "typical");
  SearchOptions options;
  options.rank = Rank::nominal;
  options.budget_s = 0.05;
  const SearchResult quick = planner::search(job, {}, options);
  options.prove = true;
  const SearchResult proven = planner::search(job, {}, options);
  CAPTURE(quick.gap, proven.gap, quick.simulated, proven.simulated);
  CHECK(proven.simulated > quick.simulated);
  CHECK(proven.gap < quick.gap);
  CHECK(proven.gap < 0.03);
  CHECK(proven.plans.front().step_time_s() <= quick.plans.front().step_time_s());
}

TEST_CASE("the answer is the same, and as sure, however long the table is") {
  const auto job = make_job("llama3-8b", "dgx-h100", 8, 128, 8192, "typical");
  Pins pins;
  pins.tp = 2;
  SearchOptions options;
  options.rank = Rank::nominal;
  options.top = 1;
  const SearchResult alone = planner::search(job, pins, options);
  CHECK(alone.proven);
  for (const int top : {3, 10}) {
    options.top = top;
    const SearchResult listed = planner::search(job, pins, options);
    CHECK(listed.plans.front().plan.choices == alone.plans.front().plan.choices);
    CHECK(listed.proven == alone.proven);
    CHECK(listed.plans.size() == static_cast<std::size_t>(top));
  }
}

TEST_CASE("what takes long to simulate is not simulated for the table alone") {
  // Behind eight plans without a pipeline there are some of 32 and 64 stages whose context ranks span nodes:
  // five million activities each.
  const auto job = make_job("llama3-405b", "dgx-h100", 1024, 512, 8192, "torchtitan");
  SearchOptions options;
  options.subsets = false;
  const SearchResult result = planner::search(job, {}, options);
  REQUIRE(result.plans.size() == 10);
  for (const Evaluation& one : result.plans) CHECK(sim::expected_activities(one.plan) <= kManyActivities);
}

TEST_CASE("ranked as predicted, no plan is slower than what is best in most worlds") {
  const auto job = make_job("mixtral-8x7b", "a100-eth100", 64, 64, 4096, "typical");
  SearchOptions options;
  const SearchResult robust = planner::search(job, {}, options);
  options.rank = Rank::nominal;
  const double nominal_s = planner::search(job, {}, options).plans.front().step_time_s();
  for (const Evaluation& one : robust.plans) CHECK(nominal_s <= one.step_time_s());
}

TEST_CASE("what is reported fits in memory and is ranked") {
  const auto job = make_job("gpt2-xl", "dgx-a100", 8, 64, 1024);
  const SearchResult result = planner::search(job, {}, {});
  REQUIRE_FALSE(result.plans.empty());
  CHECK(result.feasible <= result.candidates);
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    CHECK(result.plans[i].memory.fits());
    REQUIRE(result.plans[i].odds);
    if (i > 0) CHECK(result.plans[i - 1].odds->regret_s <= result.plans[i].odds->regret_s);
  }
}

TEST_CASE("the answer is the same whatever the number of processes") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 256);
  SearchOptions options;
  options.jobs = 1;
  const SearchResult one = planner::search(job, {}, options);
  options.jobs = 3;
  const SearchResult three = planner::search(job, {}, options);
  REQUIRE(one.plans.size() == three.plans.size());
  CHECK(one.simulated == three.simulated);
  CHECK(one.why == three.why);
  for (std::size_t i = 0; i < one.plans.size(); ++i) {
    CHECK(one.plans[i].plan.choices == three.plans[i].plan.choices);
    CHECK(one.plans[i].step_time_s() == three.plans[i].step_time_s());
  }
}

TEST_CASE("the memory objective finds the fastest plan within a margin of the least memory") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 512);
  SearchOptions options;
  options.objective = Objective::memory;
  options.prove = true;
  const SearchResult result = planner::search(job, {}, options);
  std::vector<Plan> plans;
  std::vector<double> bytes;
  for (const Choices& choices : enumerate(job, {})) {
    plans.push_back({job, choices});
    bytes.push_back(predict_memory(plans.back()).total);
  }
  const double least = *std::min_element(bytes.begin(), bytes.end());
  std::vector<Plan> small;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (bytes[i] <= least * (1 + kMemoryMargin)) small.push_back(plans[i]);
  const Evaluation& answer = result.plans.front();
  CHECK(answer.memory.total <= least * (1 + kMemoryMargin));
  REQUIRE(small.size() <= 2000);
  sim::SimulationOptions simulation;
  simulation.keep_timeline = false;
  double fastest_s = std::numeric_limits<double>::infinity();
  for (const sim::Simulation& one : sim::simulate_all(small, simulation, 2))
    fastest_s = std::min(fastest_s, one.step_time_s);
  CHECK(result.proven);
  CHECK(answer.step_time_s() <= fastest_s * (1 + 1e-9));
}

TEST_CASE("the memory objective says what little memory costs in time") {
  const auto job = make_job("llama3-8b", "dgx-h100", 16, 64, 8192);
  SearchOptions options;
  options.objective = Objective::memory;
  const SearchResult small = planner::search(job, {}, options);
  options.objective = Objective::step_time;
  options.rank = Rank::nominal;
  const SearchResult fast = planner::search(job, {}, options);
  const Evaluation& answer = small.plans.front();
  REQUIRE(small.fastest);
  CHECK(small.fastest->step_time_s() < 1.02 * fast.plans.front().step_time_s());
  CHECK(small.fastest->step_time_s() < answer.step_time_s());
  CHECK(small.fastest->memory.total > (1 + kMemoryMargin) * answer.memory.total);
  const std::string times =
      fmt::format("{:.3g} times as long", answer.step_time_s() / small.fastest->step_time_s());
  CHECK(small.price_of_memory.find(times) != std::string::npos);
  CHECK(small.why.find(small.price_of_memory) != std::string::npos);
  // The other objectives have no price of memory.
  CHECK_FALSE(fast.fastest);
  CHECK(fast.price_of_memory.empty());
}

TEST_CASE("no pinned tensor parallelism is faster than what is proven of all of a recommender") {
  // Its tables are split by columns over 16 ranks, and by rows over 32.
  for (const int devices : {16, 32}) {
    const auto job = make_job("dlrm", "a100-eth100", devices, 32 * devices, 0);
    SearchOptions options;
    options.rank = Rank::nominal;
    const SearchResult all = planner::search(job, {}, options);
    const double best_s = all.plans.front().step_time_s();
    for (const int tp : {2, 8, 16, 32}) {  // in CI those that the tables are split over
      if (tp > devices || !walked(static_cast<std::size_t>(tp), 16)) continue;
      Pins pins;
      pins.tp = tp;
      const SearchResult own = planner::search(job, pins, options);
      INFO(devices << " devices, tp " << tp);
      CHECK(own.plans.front().step_time_s() >= best_s * (1 - all.gap) * (1 - 1e-9));
      CHECK(own.plans.front().step_time_s() >= best_s * 0.98);
    }
  }
}

TEST_CASE("the energy objective finds the least simulated energy of the whole space") {
  const Question question{make_job("gpt2", "dgx-a100", 2, 4, 128), narrow({}, Recompute::none)};
  SearchOptions options;
  options.objective = Objective::energy;
  options.budget_s = 1e9;
  const SearchResult result = planner::search(question.job, question.pins, options);
  CHECK(result.proven);
  std::vector<Plan> plans;
  for (const Choices& choices : enumerate(question.job, question.pins))
    plans.push_back({question.job, choices});
  sim::SimulationOptions simulation;
  simulation.keep_timeline = false;
  double least = std::numeric_limits<double>::infinity();
  for (const sim::Simulation& one : sim::simulate_all(plans, simulation, 2))
    least = std::min(least, one.energy_j);
  CHECK(result.plans.front().simulation->energy_j == least);
}

TEST_CASE("where neither all activations nor all but the core's fit, other modules beat whole layers") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 64, 8192, "typical");
  Pins pins;
  pins.tp = pins.pp = pins.cp = 2;
  pins.ep = 8;
  pins.micro_batch = 1;
  pins.schedule = Schedule::interleaved;
  pins.overlap_experts = false;
  SearchOptions options;
  options.rank = Rank::nominal;
  const auto best = [&](std::optional<Recompute> kind) {
    Pins own = pins;
    own.recompute = kind;
    return planner::search(job, own, options).plans.front();
  };
  const Evaluation chosen = best({}), none = best(Recompute::none), core = best(Recompute::selective),
                   whole = best(Recompute::full);
  CHECK(chosen.plan.choices.recompute == Recompute::selective);
  CHECK(chosen.plan.choices.recompute_modules == modules_from_names("layernorm,moe_act"));
  CHECK(chosen.step_time_s() < whole.step_time_s());
  // What fits with 95% probability holds less than these, which do not.
  for (const Evaluation& other : {none, core}) {
    CHECK(other.memory.total > 1.05 * chosen.memory.total);
    CHECK(other.memory.total * std::exp(1.645 * 0.1) > other.memory.capacity);
  }
}

TEST_CASE("no plan that fits is an answer: what is short, by how much, and what would do") {
  const auto refusal = [](const std::shared_ptr<Job>& job, const Pins& pins, double fit_probability = 0.95) {
    SearchOptions options;
    options.fit_probability = fit_probability;
    try {
      planner::search(job, pins, options);
    } catch (const NoAnswer& answer) {
      return std::string(answer.what());
    }
    return std::string();
  };
  SECTION("more nodes") {
    const std::string text = refusal(make_job("llama2-70b", "dgx-a100", 8, 8, 4096), {});
    CHECK_THAT(text,
               Catch::Contains("fits in memory") && Catch::Contains("stage") && Catch::Contains("nodes"));
    // What it says would fit does, as surely as is wanted.
    const auto at = text.find("with ");
    REQUIRE(at != std::string::npos);
    const int nodes = std::stoi(text.substr(at + 5));
    auto larger = make_job("llama2-70b", "dgx-a100", 8, 8, 4096);
    larger->cluster = with_nodes(larger->cluster, nodes);
    Estimator estimator(larger);
    const Room room = {fillable_share(0.95, spread_of(*larger))};
    CHECK(gather(larger, {}, Objective::step_time, 1, estimator, room).feasible > 0);
  }
  SECTION("of several kinds of nodes, more of each") {
    const auto job =
        make_job("gpt3-175b", ORRERY_TEST_DATA "/clusters/h100-a100.textproto", 16, 8, 2048, "typical");
    CHECK_THAT(refusal(job, {}), Catch::Contains("It fits with 4+4 nodes (64 devices): "));
  }
  SECTION("what fits less surely than is wanted says how likely it does") {
    const auto job = make_job("llama3-8b", "pcie-4090", 1, 16, 2048, "typical");
    const std::string sure = refusal(job, {}), half = refusal(job, {}, 0.5);
    CHECK_THAT(sure, Catch::Contains("It fits with states in host memory (`offload` optimizer): ") &&
                         Catch::Contains(" (fits with 56% probability) and "));
    CHECK_THAT(half, !Catch::Contains("probability"));
    // Where another plan fits surely, it is that which is named.
    CHECK_THAT(half, Catch::Contains(
                         "(`offload` all): TP 1 x PP 1 x DP 1, micro-batch 4, full recomputation of 26"));
    CHECK_THAT(sure, Catch::Contains(
                         "(`offload` all): TP 1 x PP 1 x DP 1, micro-batch 4, full recomputation of 29"));
  }
  SECTION("adapters, a base in 4 bits, shorter sequences, each with its cost") {
    const auto job = make_job("llama3-8b", "pcie-4090", 1, 4, 1024);
    const std::string text = refusal(job, {});
    CHECK_THAT(text, Catch::Contains("(`lora_rank` 16)") &&
                         Catch::Contains("(`lora_rank` 16 and `quantize_base` nf4-dq)") &&
                         Catch::Contains("8 devices of the node") && Catch::Contains(" a step"));
    // Each is what a search for it finds, by the closed form.
    auto adapted = std::make_shared<Job>(*job);
    FineTuning tuning;
    tuning.rank = 16;
    fine_tune(adapted->workload, tuning);
    Estimator estimator(adapted);
    const Room room = {fillable_share(0.95, spread_of(*adapted))};
    const Candidates found = gather(adapted, {}, Objective::step_time, 1, estimator, room);
    REQUIRE(!found.promising.empty());
    double least = found.promising.front().times.estimate_s;
    for (const Candidate& candidate : found.promising) least = std::min(least, candidate.times.estimate_s);
    CHECK_THAT(text, Catch::Contains(human_seconds(least) + " a step"));
    CHECK_THAT(refusal(adapted, {}), Catch::Equals(""));
    // Of 70 billion parameters not even the adapters' base fits.
    CHECK_THAT(refusal(make_job("llama2-70b", "pcie-4090", 1, 1, 1024), {}),
               !Catch::Contains("(`lora_rank` 16)"));
  }
  SECTION("without looking at every plan of every change") {
    // Of millions of plans, for each number of nodes and each length: by the families alone.
    const auto job = make_job("deepseek-v3", "dgx-h100", 16, 16, 4096);
    std::int64_t families = 0;
    const std::clock_t before = std::clock();
    for_each_family(job, {}, [&](Family&&) { ++families; });
    const std::clock_t listed = std::clock() - before;
    const std::string text = refusal(job, {});
    const std::clock_t told = std::clock() - before - listed;
    INFO(families << " families, listed in " << listed << ", told of in " << told);
    CHECK_THAT(text, Catch::Contains("nodes") && Catch::Contains("(`lora_rank` 16 and"));
    CHECK(told < 60 * listed);
  }
  SECTION("a pin that stands in the way") {
    Pins pins;
    pins.micro_batch = 256;
    pins.recompute = Recompute::none;
    const std::string text = refusal(make_job("gpt2-xl", "dgx-a100", 2, 512, 1024), pins);
    CHECK_THAT(text, Catch::Contains("`micro_batch`"));
  }
}

TEST_CASE("a step's cost and energy by hand") {
  Job job;
  NodeType node;
  node.devices = 4;
  node.price_usd_per_device_hour = 1.8;
  node.host_power_w = 500;
  DeviceProfile device;
  device.idle_power_w = 100;
  device.peak_power_w = 400;
  job.cluster.profiles = {device};
  job.cluster.groups = {{node, 2}};
  // 8 devices at 1.8 USD/h for 10 s: 0.04 USD.
  CHECK(objective_value(Objective::cost, job, 10, 6, 0) == Approx(0.04));
  // Each device 100 W for 10 s and 300 W more for 6 s; each host 500 W for 10 s.
  CHECK(objective_value(Objective::energy, job, 10, 6, 0) == Approx(8 * (1000 + 1800) + 2 * 5000));
  job.cluster.groups[0].node.price_usd_per_device_hour = 0;
  CHECK_THROWS_AS(objective_value(Objective::cost, job, 10, 6, 0), UserError);
}

TEST_CASE("where nothing fits on some devices of a node, more of them are named before further nodes") {
  std::string refusal;
  try {
    planner::search(make_job("llama3-8b", "dgx-h100", 1, 8, 2048, "typical"), {}, {});
  } catch (const NoAnswer& none) {
    refusal = none.what();
  }
  CHECK_THAT(refusal, Catch::Contains("It fits with 3 devices of the node: "));
  CHECK_THAT(refusal, !Catch::Contains("nodes ("));
}

}  // namespace
}  // namespace orrery::planner
