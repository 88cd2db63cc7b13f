#include "cli/plan_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/output.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"

namespace orrery::cli {

void write_plan(const Plan& plan, const std::string& file) {
  proto::Plan message;
  to_proto(plan, &message);
  message.set_orrery_version(ORRERY_VERSION);
  write_file_atomically(file, to_textproto(message));
}

void add_detail_option(CLI::App& verb, std::string& detail) {
  verb.add_option("--detail", detail,
                  "flows: a collective is one flow an edge; messages: each step's messages one by one, for "
                  "small groups (default: flows)")
      ->type_name("flows|messages");
}

sim::Detail parse_detail(const std::string& name) {
  if (name == "flows") return sim::Detail::flows;
  if (name == "messages") return sim::Detail::messages;
  throw UserError(fmt::format("--detail {} is unknown", name), "expected flows or messages");
}

bool parse_fold(const std::string& name) {
  if (name == "on") return true;
  if (name == "off") return false;
  throw UserError(fmt::format("--fold {} is unknown", name), "expected on or off");
}

std::string breakdown_text(const Breakdown& breakdown) {
  const double total = breakdown.total();
  if (total <= 0) return {};
  std::string text = "of the step:";
  for (const auto& [name, seconds] : planner::parts_of(breakdown))
    if (seconds >= total * 0.0005) text += fmt::format("  {} {:.1f}%", name, 100 * seconds / total);
  return text + "\n";
}

std::string plan_table(const std::vector<planner::Evaluation>& plans) {
  const auto any = [&](auto used) {
    return std::any_of(plans.begin(), plans.end(), [&](const auto& e) { return used(e.plan.choices); });
  };
  const bool cp = any([](const Choices& c) { return c.cp > 1; });
  const bool ep = any([](const Choices& c) { return c.ep > 1; });
  const bool pp = any([](const Choices& c) { return c.pp > 1; });
  const bool zero = any([](const Choices& c) { return c.zero > 0; });
  const bool sequence_parallel = any([](const Choices& c) { return c.sequence_parallel; });
  const bool tokens = plans.front().plan.job->training.seq_len > 0;

  std::vector<std::string> head = {"#", "tp", "pp", "dp"};
  if (cp) head.emplace_back("cp");
  if (ep) head.emplace_back("ep");
  head.emplace_back("micro-batch");
  if (pp) head.emplace_back("schedule");
  head.emplace_back("recompute");
  if (zero) head.emplace_back("zero");
  if (sequence_parallel) head.emplace_back("sp");
  for (const char* name :
       {"step", tokens ? "tokens/s" : "samples/s", "TFLOP/s/device", "MFU", "memory", "bound by"})
    head.emplace_back(name);

  std::vector<std::vector<std::string>> rows;
  for (const auto& evaluation : plans) {
    const Choices& c = evaluation.plan.choices;
    const planner::Throughput rate = planner::throughput(evaluation);
    std::vector<std::string> row = {std::to_string(rows.size() + 1), std::to_string(c.tp),
                                    std::to_string(c.pp), std::to_string(c.dp)};
    if (cp) row.push_back(std::to_string(c.cp));
    if (ep) row.push_back(std::to_string(c.ep));
    row.push_back(fmt::format("{}×{}", c.micro_batch, evaluation.plan.micro_batches()));
    if (pp)
      row.push_back(c.interleave > 1 ? fmt::format("{} {}", name_of(c.schedule), c.interleave)
                                     : std::string(name_of(c.schedule)));
    row.push_back(c.recompute == Recompute::full && c.recompute_layers > 0
                      ? fmt::format("full:{}", c.recompute_layers)
                      : std::string(name_of(c.recompute)));
    if (zero) row.push_back(std::to_string(c.zero));
    if (sequence_parallel) row.emplace_back(c.sequence_parallel ? "on" : "off");
    row.push_back(human_seconds(evaluation.step_time_s()));
    row.push_back(fmt::format("{:.{}f}", tokens ? rate.tokens_per_s : rate.samples_per_s,
                              (tokens ? rate.tokens_per_s : rate.samples_per_s) < 100 ? 1 : 0));
    row.push_back(fmt::format("{:.{}f}", rate.model_tflops_per_gpu, rate.model_tflops_per_gpu < 10 ? 2 : 0));
    row.push_back(fmt::format("{:.1f}%", rate.mfu * 100));
    row.push_back(human_bytes(evaluation.memory.total));
    row.push_back(planner::bound_by(evaluation));
    rows.push_back(std::move(row));
  }
  return table(head, rows);
}

std::string load_table(const planner::Load& load) {
  std::vector<std::vector<std::string>> stages, replicas;
  for (const planner::StageLoad& stage : load.stages)
    stages.push_back({std::to_string(stage.stage), std::to_string(stage.layers),
                      human_seconds(stage.compute_s), human_bytes(stage.memory_bytes),
                      human_bytes(stage.capacity_bytes)});
  stages.push_back(
      {"std", "", human_seconds(load.stage_compute_std_s), human_bytes(load.stage_memory_std_bytes), ""});
  for (const planner::ReplicaLoad& group : load.replicas)
    replicas.push_back({group.count == 1 ? std::to_string(group.first)
                                         : fmt::format("{}-{}", group.first, group.first + group.count - 1),
                        std::to_string(group.samples), human_seconds(group.compute_s)});
  replicas.push_back({"std", "", human_seconds(load.replica_compute_std_s)});
  return table({"stage", "layers", "computes", "memory", "of"}, stages) +
         table({"replica", "samples", "computes"}, replicas);
}

}  // namespace orrery::cli
