#include "evidence/memory_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "evidence/words/machines.h"
#include "program/operator_work.h"
#include "program/schedule.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery::evidence {
namespace {

using planner::Memory;

constexpr int kVocabularyMultiple = 128;  // of a tensor rank's share

// What the rules of evidence/data/memory.textproto say of a row.
struct Found {
  Fields fields;
  Findings findings;
  const proto::Reading& reading() const { return *findings.reading; }
};

Found find(const CsvTable& table, const CsvRow& row) {
  Fields fields(table, row);
  Findings findings = apply_rules(rules("memory"), &fields);
  return {std::move(fields), std::move(findings)};
}

ExplicitRow begin_row(const CsvTable& table, const CsvRow& fields, const Findings& findings) {
  ExplicitRow row;
  row.file = std::filesystem::path(table.file).stem();
  row.line = fields.line;
  row.assumed = findings.assumed;
  return row;
}

Workload workload_of(const Found& found) {
  const Fields& row = found.fields;
  proto::Workload message;
  message.set_name(row.text("test_case"));
  message.set_default_seq_len(row.count("seq_len_tokens"));
  proto::Transformer& t = *message.mutable_transformer();
  t.set_layers(row.count("n_layers"));
  t.set_hidden(row.count("hidden"));
  t.set_heads(row.count("n_heads"));
  if (t.layers() <= 0 || t.hidden() <= 0 || t.heads() <= 0)
    throw Unreadable{"layers, hidden size or heads are not stated"};
  t.set_kv_heads(row.count("n_kv_heads", t.heads()));
  t.set_head_dim(t.hidden() / t.heads());
  t.set_max_positions(row.count("seq_len_tokens"));
  t.set_vocab(padded(row.count("vocab_or_tokenizer"), kVocabularyMultiple, row.count("tp", 1)));
  for (const std::string& text : found.findings.transformer) merge_textproto(text, "a rule's model", &t);
  // With a gate the default is 8/3 h, in multiples of 64.
  const int gated_ffn = static_cast<int>(t.hidden() * 4 * 2 / 3 / 64) * 64;
  t.set_ffn_hidden(row.count("ffn_hidden", t.gated_ffn() ? gated_ffn : 4 * t.hidden()));
  if (row.count("num_experts") > 0) {
    proto::MixtureOfExperts& moe = *t.mutable_moe();
    moe.set_experts(row.count("num_experts"));
    moe.set_experts_per_token(row.count("moe_topk", 2));
    moe.set_expert_ffn_hidden(row.count("moe_ffn_hidden", t.ffn_hidden()));
  }
  return workload_from_proto(message, message.name(), "");
}

std::shared_ptr<Job> job_of(const Found& found, int devices) {
  const Fields& row = found.fields;
  auto job = std::make_shared<Job>();
  job->workload = workload_of(found);
  job->cluster =
      with_devices(cluster_with_device(row.text("gpu"), "no catalog cluster of the device"), devices);
  job->runtime = runtime_named(row.text("runtime"), found.findings.runtime);
  job->training.global_batch = row.count("gbs_sequences");
  job->training.seq_len = row.count("seq_len_tokens");
  change(found.findings.training, &job->training);
  return job;
}

Choices choices_of(const Found& found, const Workload& workload, int devices) {
  const Fields& row = found.fields;
  Choices c;
  c.tp = row.count("tp", 1);
  c.pp = row.count("pp", 1);
  c.cp = row.count("cp", 1);
  c.ep = row.count("ep", 1);
  c.etp = row.count("etp", c.tp);
  c.micro_batch = row.count("mbs_sequences", 1);
  c.dp = replicas_of(c, devices);
  const bool experts = workload.transformer->moe.has_value();
  if (experts && (c.dp * c.cp * c.tp) % (std::int64_t{c.ep} * c.etp) != 0)
    throw Unreadable{"expert parallelism does not divide the devices"};
  if (!experts) c.ep = c.etp = 1;
  change(found.findings.choices, &c);
  if (c.dp * c.cp == 1) c.zero = 0;
  const int instances = row.count("sharding_instances", 1);
  if (instances > 1 && c.dp * c.cp > 1) c.shard_group = c.dp * c.cp / instances;
  c.sequence_parallel = found.reading().sequence_parallel() && c.tp > 1;
  const int chunk_layers = row.count("chunk_layers");
  const int chunks = row.count("chunks");
  if (c.pp > 1 && (chunk_layers > 0 || chunks > 0)) {
    c.schedule = Schedule::interleaved;
    c.interleave = chunks > 0 ? chunks : workload.layers / c.pp / chunk_layers;
  }
  return c;
}

// Of the layers alone, as figures 1 and 7 have it: without the embedding's mask of dropout.
double activations(const Plan& plan) {
  const Memory memory = planner::predict_memory_of_stage(plan, 0);
  const int in_flight = peak_in_flight(plan.choices.schedule, 0, plan.choices.pp, plan.choices.interleave,
                                       static_cast<int>(plan.micro_batches()));
  const double mask = saved_bytes(plan.job->workload.operators.front(), shard_of(plan), plan.job->runtime);
  return memory.activations - memory.transient -
         mask * (plan.choices.pp > 1 ? static_cast<double>(in_flight) / plan.choices.interleave : 1);
}

// 18 bytes a parameter of the layers.
double states(const Plan& plan) {
  const Memory memory = planner::predict_memory_of_stage(plan, plan.choices.pp / 2);
  double all = memory.weights + memory.gradients + memory.optimizer;
  if (plan.choices.pp == 1) {
    for (const Operator& op : plan.job->workload.operators)
      if (op.layer < 0 || op.layer >= plan.job->workload.layers)
        all -= 18 * static_cast<double>(local_parameters(op, shard_of(plan)));
  }
  return all;
}

}  // namespace

bool is_configuration_table(const CsvTable& table) {
  return table.column("mem_max_allocated_bytes") >= 0 && table.column("test_case") >= 0;
}

bool is_korthikanti_table(const CsvTable& table) {
  return table.column("quantity") >= 0 && table.column("value") >= 0 && table.column("unit") >= 0 &&
         table.column("model") >= 0 && table.column("metric") < 0;
}

MemoryRow read_configuration(const CsvTable& table, const CsvRow& fields) {
  const Found found = find(table, fields);
  const Fields& row = found.fields;
  MemoryRow result;
  result.measured = row.real("mem_max_allocated_bytes");
  if (result.measured <= 0) throw Unreadable{"no peak of memory is stated"};
  if (!found.findings.skip.empty()) throw Unreadable{found.findings.skip};
  const int devices = row.count("n_gpus");
  if (devices <= 0) throw Unreadable{"the number of devices is not stated"};
  const std::shared_ptr<Job> job = job_of(found, devices);
  const Plan plan{job, choices_of(found, job->workload, devices)};
  const Choices& c = plan.choices;
  // The last rank writes the log: the last stage's.
  result.predicted = planner::predict_memory_of_stage(plan, c.pp - 1).allocated;
  result.row = begin_row(table, fields, found.findings);
  result.row.plan = plan;
  result.row.group =
      fmt::format("{}|{}|{}|{}", row.text("model_family"), row.text("gpu"), devices, row.text("golden_file"));
  result.row.label =
      fmt::format("tp{} pp{} dp{} cp{} ep{} v{} mb{} zero{} {}{}{}", c.tp, c.pp, c.dp, c.cp, c.ep,
                  c.interleave, c.micro_batch, c.zero, name_of(c.recompute), c.sequence_parallel ? " sp" : "",
                  job->training.fused_attention ? "" : " unfused");
  result.row.measured_bytes = result.measured;
  return result;
}

MemoryRow read_korthikanti(const CsvTable& table, const CsvRow& fields) {
  const Found found = find(table, fields);
  const Fields& row = found.fields;
  if (!found.findings.skip.empty()) throw Unreadable{found.findings.skip};
  auto job = std::make_shared<Job>();
  Plan plan;
  Choices& c = plan.choices;
  c.tp = row.count("tp");
  c.pp = row.count("pp");
  c.micro_batch = row.count("mbs");
  c.interleave = row.count("vpp");
  if (c.interleave > 1) c.schedule = Schedule::interleaved;
  job->workload = load_workload(row.text("workload"));
  job->cluster =
      with_devices(cluster_with_device(row.text("gpu"), "no catalog cluster of the device"), c.tp * c.pp);
  job->runtime = runtime_named(row.text("runtime"), found.findings.runtime);
  job->training.global_batch = row.count("batch");
  change(found.findings.training, &job->training);
  plan.job = job;
  const std::string& quantity = row.text("quantity");
  const double whole = activations(plan);  // tensor parallelism alone, nothing computed again
  change(found.findings.choices, &c);
  c.sequence_parallel = found.reading().sequence_parallel();
  MemoryRow result;
  result.row = begin_row(table, fields, found.findings);
  result.row.group = row.text("model");
  result.row.label = quantity;
  result.measured = row.real("value");
  if (row.text("unit") == "GiB") {
    result.measured *= kGibibyte;
    result.predicted = contains(quantity, "params") ? states(plan) : activations(plan);
  } else {
    result.predicted = 100 * activations(plan) / whole;
  }
  result.row.plan = std::move(plan);
  if (result.measured <= 0) throw Unreadable{"no value"};
  return result;
}

}  // namespace orrery::evidence
