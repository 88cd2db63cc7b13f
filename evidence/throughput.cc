#include "evidence/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "evidence/words/machines.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery::evidence {
namespace {

bool is_mlperf(const CsvTable& table) {
  return table.column("benchmark") >= 0 && table.column("epoch_derived_images_per_s") >= 0;
}
bool is_examples(const CsvTable& table) {
  return table.column("model_path") >= 0 && table.column("throughput") >= 0;
}
bool is_scaling(const CsvTable& table) {
  return table.column("gpu_and_network") >= 0 && table.column("metric") >= 0;
}

// The columns that name a row's model and machine, for people.
std::pair<const char*, const char*> names_of(const CsvTable& table) {
  if (is_mlperf(table)) return {"benchmark", "accelerator"};
  if (is_examples(table)) return {"model_path", "system_heading"};
  return {"model", "gpu_and_network"};
}

Workload catalog_workload(const std::string& name, const std::vector<std::string>& changes) {
  if (changes.empty()) return load_workload(name);
  proto::Workload message;
  to_proto(load_workload(name), &message);
  for (const std::string& text : changes)
    merge_textproto(text, "a rule's model", message.mutable_transformer());
  return workload_from_proto(message, name, "");
}

// Samples of a device's micro-batch.
int device_batch(const Fields& row, int devices, int accumulation) {
  if (row.count("device_batch") > 0) return row.count("device_batch");
  const int batch = row.count("global_batch");
  if (batch <= 0) throw Unreadable{"the global batch is not stated"};
  if (!Training{.global_batch = batch}.divides_over(devices, accumulation))
    throw Unreadable{fmt::format("{} devices x {} do not divide the batch {}", devices, accumulation, batch)};
  return batch / devices / accumulation;
}

std::string label_of(const CsvTable& table, const Job& job, const Choices& c, int accumulation) {
  std::string label = fmt::format("dp{} mb{} ", c.dp, c.micro_batch);
  if (is_mlperf(table)) label += fmt::format("x{} ", accumulation);
  label += name_of(job.training.precision);
  return is_examples(table) ? label + " " + job.runtime.name : label;
}

double samples_per_s(const Plan& plan) {
  return static_cast<double>(plan.job->training.global_batch) / predict(plan).estimate_s;
}

}  // namespace

bool is_throughput_table(const CsvTable& table) {
  return is_mlperf(table) || is_examples(table) || is_scaling(table);
}

ExplicitRow read_throughput(const CsvTable& table, const CsvRow& fields) {
  Fields row(table, fields);
  const std::string& path = row.text("model_path");
  row.set("model_name", path.substr(path.rfind('/') + 1));
  Findings findings = apply_rules(rules("throughput"), &row);
  if (!findings.skip.empty()) throw Unreadable{findings.skip};
  const proto::Reading& reading = *findings.reading;
  ExplicitRow result;
  result.file = std::filesystem::path(table.file).stem();
  result.line = fields.line;
  result.measured_per_s = row.real("measured");
  result.efficiency = reading.efficiency();
  const int devices = row.count("n_gpus");
  if (is_examples(table) && (devices <= 0 || result.measured_per_s <= 0))
    throw Unreadable{"the number of devices or the throughput is not stated"};
  if (result.measured_per_s <= 0) throw Unreadable{"no throughput is stated"};
  if (devices <= 0) throw Unreadable{"the number of devices is not stated"};
  const int accumulation = row.count("accumulation", 1);
  Choices& c = result.plan.choices;
  c.dp = devices;
  c.micro_batch = device_batch(row, devices, accumulation);
  auto job = std::make_shared<Job>();
  job->cluster = throughput_machine(row.text("gpu"), devices, row.count("gpus_per_node", 1), reading);
  job->workload = catalog_workload(row.text("workload"), findings.transformer);
  job->runtime = runtime_named(row.text("runtime"), findings.runtime);
  change(findings.training, &job->training);
  job->training.global_batch = static_cast<std::int64_t>(devices) * c.micro_batch * accumulation;
  change(findings.choices, &c);
  if (c.dp == 1) c.zero = 0;
  result.label = label_of(table, *job, c, accumulation);
  result.assumed = std::move(findings.assumed);
  result.plan.job = std::move(job);
  return result;
}

double predicted_throughput(const ExplicitRow& row) {
  const double rate = samples_per_s(row.plan);
  if (!row.efficiency) return rate;
  // The same work a device on one of them.
  Plan single = row.plan;
  auto job = std::make_shared<Job>(*row.plan.job);
  const int devices = row.plan.choices.dp;
  job->cluster.groups.front().count = 1;
  job->cluster = with_devices(std::move(job->cluster), 1);
  job->training.global_batch /= devices;
  single.choices.dp = 1;
  single.choices.zero = 0;
  single.job = std::move(job);
  return 100 * rate / devices / samples_per_s(single);
}

void ThroughputJudge::add_table(const std::string& name, const CsvTable& table,
                                std::vector<PublishedRow>* rows, std::vector<ExplicitRow>* explicit_rows) {
  Source source;
  source.name = name;
  const auto [model, machine] = names_of(table);
  for (const CsvRow& fields : table.rows) {
    PublishedRow judged;
    judged.file = name;
    judged.line = fields.line;
    judged.source = table.field(fields, "source");
    judged.model = table.field(fields, model);
    judged.device = table.field(fields, machine);
    try {
      ExplicitRow row = read_throughput(table, fields);
      const double predicted = predicted_throughput(row);
      judged.plan = row.label;
      judged.per_s = {predicted, row.measured_per_s, predicted / row.measured_per_s - 1};
      source.rows.push_back({predicted, row.measured_per_s, fmt::format("{}:{}", name, fields.line), ""});
      if (explicit_rows != nullptr) explicit_rows->push_back(std::move(row));
    } catch (const Unreadable& why) {
      judged.skipped = why.why;
    } catch (const UserError& error) {
      judged.skipped = error.what();
    }
    if (!judged.skipped.empty()) ++source.skipped;
    rows->push_back(std::move(judged));
  }
  sources_.push_back(std::move(source));
}

std::optional<Summary> ThroughputJudge::summary() const {
  if (sources_.empty()) return std::nullopt;
  std::vector<Judged> all;
  int skipped = 0;
  Summary summary;
  for (const Source& source : sources_) {
    summary.sources.push_back({source.name, figures(source.rows, source.skipped), {}});
    all.insert(all.end(), source.rows.begin(), source.rows.end());
    skipped += source.skipped;
  }
  summary.all = figures(all, skipped);
  return summary;
}

}  // namespace orrery::evidence
