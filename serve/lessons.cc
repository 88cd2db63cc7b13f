#include "serve/lessons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/parse.h"
#include "orrery/orrery.h"
#include "planner/runs/goodput_simulation.h"
#include "planner/space/space.h"
#include "report/report.h"
#include "report/scaling.h"
#include "report/timeline.h"
#include "serve/stages.h"

namespace orrery::serve {
namespace {

using Numbers = std::map<std::string, double>;
using Words = std::vector<std::pair<std::string_view, std::string>>;

struct Range {
  double least = 0, most = 0, usual = 0;
};

struct Lesson {
  std::string_view name;
  std::map<std::string, Range> numbers;
  Json (*told)(const Numbers& numbers, const std::string& schedule);
};

Question question_of(const std::string& workload, const std::string& cluster, const Words& words) {
  Request request;
  request.workload = workload;
  request.cluster = cluster;
  for (const auto& [key, value] : words) set(request, key, value);
  request.search.top = 1;
  return orrery::question_of(request);
}

planner::Evaluation best(const std::string& workload, const std::string& cluster, const Words& words) {
  return orrery::plan(question_of(workload, cluster, words)).plans.front();
}

std::string text(double number) {
  return fmt::format("{:g}", number);
}

// PyTorch's DDP, gradients in buckets beside the backward pass.
Json amdahl(const Numbers& numbers, const std::string&) {
  Json points = Json::array();
  std::vector<ScalingPoint> rates;
  double alone_s = 0;
  for (int n = 1; n <= 64; n *= 2) {
    Request request;
    request.workload = "bert-large";
    request.cluster = "v100-ib100";
    for (const auto& [key, value] : Words{{"gpus", text(n)},
                                          {"global_batch", "256"},
                                          {"seq_len", "128"},
                                          {"precision", "fp16"},
                                          {"runtime", "pytorch-ddp"},
                                          {"tp", "1"},
                                          {"pp", "1"},
                                          {"cp", "1"},
                                          {"zero", "0"},
                                          {"recompute", "none"},
                                          {"bucket_bytes", "25M"}})
      set(request, key, value);
    request.search.top = 1;
    const planner::whatif::Point point =
        points_of(request, {{"network", {text(numbers.at("network"))}}}).points.front();
    const planner::Evaluation found = orrery::plan(point.job, point.pins, point.options).plans.front();
    const Breakdown& parts = found.simulation->breakdown;
    const double step_s = found.step_time_s();
    if (n == 1) alone_s = step_s;
    rates.push_back({static_cast<double>(n), 256 / step_s});
    points.push_back({{"devices", n},
                      {"step_time_s", step_s},
                      {"speedup", alone_s / step_s},
                      {"compute_s", parts.compute},
                      {"optimizer_s", parts.optimizer},
                      {"data_comm_s", parts.data_comm}});
  }
  // The serial share that one and two servers suggest.
  const double two = points[1].at("speedup").get<double>();
  Json told = {{"points", points}, {"serial_of_two", 2 / two - 1}};
  for (const ScalingFit& fit : fit_scaling(rates))
    if (fit.law == "usl")
      told["usl"] = {{"serial", fit.serial}, {"pairs", fit.pairs}, {"most_devices", fit.most_devices}};
  return told;
}

Json bubbles(const Numbers& numbers, const std::string& schedule) {
  constexpr int kLayers = 48;
  const int stages = static_cast<int>(numbers.at("stages"));
  if (kLayers % stages != 0)
    throw UserError(fmt::format("`stages` {}: does not divide the {} layers", stages, kLayers));
  Words words = {{"gpus", text(stages)},
                 {"global_batch", text(numbers.at("micro_batches"))},
                 {"tp", "1"},
                 {"pp", text(stages)},
                 {"dp", "1"},
                 {"micro_batch", "1"},
                 {"seq_len", "2048"},
                 {"precision", "bf16"},
                 {"zero", "0"},
                 {"recompute", "none"},
                 {"fit_probability", "0.01"},
                 {"schedule", schedule},
                 {"any_runtime", "on"}};
  if (schedule == "interleaved") {
    words.emplace_back("interleave", "2");
  } else {
    std::string even;
    for (int stage = 0; stage < stages; ++stage)
      even += fmt::format("{}{}", stage == 0 ? "" : ",", kLayers / stages);
    words.emplace_back("stage_layers", even);
  }
  const planner::Evaluation found = best("megatron-22b", "dgx-b300", words);
  const Simulated simulated = simulate_to_report(found.plan, true);
  const sim::Simulation& simulation = *simulated.evaluation.simulation;
  // Idle is the step less what the busiest stage computes, and its optimizer.
  const Breakdown& parts = simulation.breakdown;
  const double work_s = parts.compute + parts.recompute;
  return {{"step_time_s", simulation.step_time_s},
          {"work_s", work_s},
          {"idle_by_work", (simulation.step_time_s - work_s - parts.optimizer) / work_s},
          {"memory_bytes", simulated.evaluation.memory.total},
          {"timeline", timeline_json(found.plan, simulation, true)}};
}

Json ring(const Numbers& numbers, const std::string&) {
  CollectiveRequest request;
  request.cluster =
      sized_cluster("v100-ib100", NodeCounts{{static_cast<int>(numbers.at("servers"))}}, std::nullopt);
  for (double bytes = 1024; bytes <= 1024.0 * 1024 * 1024; bytes *= 4) request.bytes.push_back(bytes);
  request.bytes.push_back(numbers.at("mebibytes") * 1024 * 1024);
  Json told = {{"port_bytes_per_s", request.cluster.groups.front().node.nic.bandwidth_bytes_per_s}};
  for (const auto& [name, algorithm] : {std::pair{"ring", Algorithm::ring}, {"tree", Algorithm::tree}}) {
    request.algorithm = algorithm;
    for (const CollectiveTime& time : collective(request))
      told[name].push_back({{"bytes", time.bytes}, {"time_s", time.time_s}});
  }
  request.algorithm.reset();
  request.bytes = {request.bytes.back()};
  const CollectiveTime chosen = collective(request).front();
  told["chosen"] = {{"algorithm", name_of(chosen.algorithm)}, {"time_s", chosen.time_s}};
  return told;
}

// Horovod's one bucket: nothing is hidden behind the backward pass.
Json servers(const Numbers& numbers, const std::string&) {
  const int workers = static_cast<int>(numbers.at("workers"));
  const auto step = [](int n, Words more) {
    Words words = {{"gpus", text(n)},
                   {"global_batch", text(32 * n)},
                   {"micro_batch", "32"},
                   {"precision", "fp16"},
                   {"runtime", "horovod"},
                   {"tp", "1"},
                   {"pp", "1"},
                   {"cp", "1"},
                   {"zero", "0"},
                   {"recompute", "none"},
                   {"bucket_bytes", "128M"}};
    words.insert(words.end(), more.begin(), more.end());
    return best("resnet50", "v100-ib100", words);
  };
  const planner::Evaluation alone = step(1, {});
  Json told = {{"alone_s", alone.step_time_s()},
               {"gradient_bytes", 4.0 * static_cast<double>(alone.plan.job->workload.parameters())},
               {"port_bytes_per_s", alone.plan.job->cluster.groups.front().node.nic.bandwidth_bytes_per_s},
               {"ring_s", step(workers, {{"sync", "all-reduce"}}).step_time_s()},
               {"points", Json::array()}};
  for (int count = 1; count <= workers; count *= 2)
    told["points"].push_back(
        {{"servers", count},
         {"step_time_s",
          step(workers, {{"sync", "parameter-server"}, {"servers", text(count)}}).step_time_s()}});
  return told;
}

Json zero(const Numbers& numbers, const std::string&) {
  const int devices = static_cast<int>(numbers.at("devices"));
  Json told = {{"stages", Json::array()}};
  for (int stage = 0; stage <= 3; ++stage) {
    Words words = {{"gpus", text(devices)},
                   {"global_batch", text(devices)},
                   {"micro_batch", "1"},
                   {"seq_len", "4096"},
                   {"tp", "1"},
                   {"pp", "1"},
                   {"cp", "1"},
                   {"zero", text(stage)},
                   {"recompute", "full"}};
    if (stage > 0 && devices > 1) words.emplace_back("shard_group", text(devices));
    const Question question = question_of("llama2-7b", "dgx-h100", words);
    // Whether it fits or not.
    const std::vector<Choices> plans = planner::enumerate(question.job, question.pins);
    if (plans.empty())
      throw NoAnswer(fmt::format("there is no plan with ZeRO-{} on {}", stage, counted(devices, "device")));
    const planner::Memory memory = planner::predict_memory({question.job, plans.front()});
    told["parameters"] = question.job->workload.parameters();
    told["capacity_bytes"] = memory.capacity;
    told["stages"].push_back(
        {{"zero", stage},
         {"weights", memory.weights},
         {"gradients", memory.gradients},
         {"optimizer", memory.optimizer},
         {"activations", memory.activations},
         {"other", memory.total - memory.weights - memory.gradients - memory.optimizer - memory.activations},
         {"total", memory.total}});
  }
  return told;
}

Json failures(const Numbers& numbers, const std::string&) {
  constexpr int kRuns = 40;
  const Question question = question_of("llama3-70b", "dgx-h100",
                                        {{"gpus", "1024"}, {"global_batch", "1024"}, {"seq_len", "8192"}});
  GoodputRequest request;
  request.plan = guess(question).plan;
  request.length.tokens = 1e12;
  request.mtbf_device_hours = numbers.at("mtbf_device_hours");
  request.checkpoint_bandwidth_bytes_per_s = numbers.at("checkpoint_bandwidth");
  request.detect_s = 60;
  request.restart_s = 300;
  request.runs = kRuns;
  const Goodput found = goodput(request);
  const planner::TrainingRun& run = found.question.run;
  Json told = {{"step_time_s", run.plan().step_s},
               {"mtti_s", 1 / run.failures_per_s},
               {"checkpoint_s", run.checkpoint.stall_s},
               {"down_s", run.down_s()},
               {"checkpoint_bytes", found.checkpoint.bytes},
               {"best_every", found.answer.figures.every},
               {"points", Json::array()}};
  const double young_s = planner::young_interval_s(run.checkpoint.stall_s, 1 / run.failures_per_s);
  for (const double times : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) {
    const auto every = std::max<std::int64_t>(1, std::llround(times * young_s / run.plan().step_s));
    const planner::RunStatistics runs = planner::simulate_runs(run, every, kRuns, 1);
    told["points"].push_back({{"every_s", static_cast<double>(every) * run.plan().step_s},
                              {"every", every},
                              {"goodput", run.ideal_s() / runs.time_s.mean},
                              {"checkpoint", runs.spent.checkpoint / runs.time_s.mean},
                              {"rework", runs.spent.rework / runs.time_s.mean}});
  }
  return told;
}

const std::vector<Lesson>& lessons() {
  static const std::vector<Lesson> all = {
      {"amdahl", {{"network", {0.05, 20, 1}}}, amdahl},
      {"bubbles", {{"stages", {2, 8, 4}}, {"micro_batches", {1, 64, 8}}}, bubbles},
      {"ring", {{"servers", {2, 64, 8}}, {"mebibytes", {0.001, 4096, 100}}}, ring},
      {"servers", {{"workers", {2, 16, 8}}}, servers},
      {"zero", {{"devices", {1, 512, 8}}}, zero},
      {"failures",
       {{"mtbf_device_hours", {1000, 1e7, 50'000}}, {"checkpoint_bandwidth", {1e9, 1e13, 5e10}}},
       failures},
  };
  return all;
}

struct Asked {
  const Lesson* lesson = nullptr;
  Numbers numbers;
  std::string schedule = "1f1b";
};

Asked read(const Query& query) {
  Asked asked;
  for (const auto& [key, value] : query)
    if (key == "lesson")
      for (const Lesson& one : lessons())
        if (one.name == value) asked.lesson = &one;
  if (asked.lesson == nullptr) throw UserError("unknown lesson");
  for (const auto& [key, range] : asked.lesson->numbers) asked.numbers[key] = range.usual;
  for (const auto& [key, value] : query) {
    if (key == "lesson") continue;
    if (key == "schedule" && asked.lesson->told == bubbles) {
      if (value != "gpipe" && value != "1f1b" && value != "interleaved" && value != "zero-bubble")
        throw UserError("unknown schedule");
      asked.schedule = value;
      continue;
    }
    const auto range = asked.lesson->numbers.find(key);
    if (range == asked.lesson->numbers.end()) throw UserError("unknown key of the lesson");
    const auto number = parse_number(value);
    if (!number || !(*number >= range->second.least && *number <= range->second.most))
      throw UserError(
          fmt::format("`{}` is out of range", key),
          fmt::format("expected a number from {:g} to {:g}", range->second.least, range->second.most));
    asked.numbers[key] = *number;
  }
  return asked;
}

}  // namespace

void check_lesson(const Query& query) {
  read(query);
}

void lesson(const Query& query, const std::function<void(std::string_view line)>& emit) {
  in_stages(emit, [&](Stages& stages) {
    const Asked asked = read(query);
    stages.add("lesson", {{"told", asked.lesson->told(asked.numbers, asked.schedule)}});
  });
}

}  // namespace orrery::serve
