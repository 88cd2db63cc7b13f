// Published rows, said to `orrery plan` by hand: their model, cluster and runtime as files, their plan as
// pins.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "evidence/memory_tables.h"
#include "evidence/row.h"
#include "evidence/steps.h"
#include "evidence/throughput.h"
#include "evidence/validate.h"
#include "planner/space/pin_options.h"
#include "planner/space/space.h"
#include "proto/cluster.pb.h"
#include "proto/runtime_profile.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "request/request.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::evidence;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRowsOfSource = 200;

// Files of a folder of this test's own, one for each content.
class Files {
 public:
  Files() : folder_(fs::temp_directory_path() / fmt::format("orrery_pinned_rows_{}", getpid())) {
    fs::create_directories(folder_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { fs::remove_all(folder_); }

  template <typename Message, typename Value>
  std::string file_of(const Value& value) {
    Message message;
    to_proto(value, &message);
    const auto [known, fresh] = names_.try_emplace(to_textproto(message));
    if (fresh) {
      known->second = (folder_ / fmt::format("{}.textproto", names_.size())).string();
      write_file_atomically(known->second, known->first);
    }
    return known->second;
  }

  std::string file_of(const SequenceLengths& lengths) {
    const std::string file = (folder_ / "lengths.txt").string();
    write_file_atomically(file, fmt::format("{}\n", fmt::join(lengths.tokens, "\n")));
    return file;
  }

 private:
  fs::path folder_;
  std::map<std::string, std::string> names_;
};

// What a user would write on the command line.
std::map<std::string, std::string> words_of(const Plan& plan, Files* files) {
  const Job& job = *plan.job;
  const Choices& c = plan.choices;
  std::map<std::string, std::string> words = {
      {"workload", files->file_of<proto::Workload>(job.workload)},
      {"cluster", files->file_of<proto::Cluster>(job.cluster)},
      {"runtime", files->file_of<proto::RuntimeProfile>(job.runtime)},
      {"global_batch", std::to_string(job.training.global_batch)},
      {"precision", std::string(name_of(job.training.precision))},
      {"optimizer", std::string(name_of(job.training.optimizer))},
      {"tp", std::to_string(c.tp)},
      {"pp", std::to_string(c.pp)},
      {"dp", std::to_string(c.dp)},
      {"cp", std::to_string(c.cp)},
      {"ep", std::to_string(c.ep)},
      {"etp", std::to_string(c.etp)},
      {"micro_batch", std::to_string(c.micro_batch)},
      {"schedule", std::string(name_of(c.schedule))},
      {"interleave", std::to_string(c.interleave)},
      {"zero", std::to_string(c.zero)},
      {"recompute", c.recompute_layers > 0 ? fmt::format("full:{}", c.recompute_layers)
                                           : std::string(name_of(c.recompute))},
      {"overlap_experts", c.overlap_experts ? "on" : "off"},
      {"overlap_grad_reduce", c.overlap_grad_reduce ? "on" : "off"},
      {"order", "tp,cp,ep,dp,pp"}};
  if (job.workload.transformer) words["attention"] = job.training.fused_attention ? "fused" : "unfused";
  if (c.recompute_modules != 0)
    words["recompute"] = fmt::format("selective:{}", fmt::join(names_of(c.recompute_modules), ","));
  if (job.training.lengths.any()) words["lengths"] = files->file_of(job.training.lengths);
  if (job.training.lengths.packed) words["packed"] = "on";
  if (job.training.seq_len > 0) words["seq_len"] = std::to_string(job.training.seq_len);
  if (c.tp > 1) words["sequence_parallel"] = c.sequence_parallel ? "on" : "off";
  if (c.zero > 0) words["shard_group"] = std::to_string(c.shard_group > 0 ? c.shard_group : c.dp * c.cp);
  const planner::Pins pins = planner::pins_of(plan);
  words["bucket_bytes"] = fmt::format("{:.0f}", *pins.bucket_bytes);
  if (pins.stage_layers) words["stage_layers"] = fmt::format("{}", fmt::join(*pins.stage_layers, ","));
  return words;
}

// The plan that these words leave, and what it takes: as `orrery plan` reads and estimates it.
planner::Evaluation asked(const std::map<std::string, std::string>& words) {
  Request request;
  for (const auto& [key, text] : words) set(request, key, text);
  const Question question = question_of(request);
  std::vector<Choices> plans = planner::enumerate(question.job, question.pins);
  // Of heterogeneous nodes, the planner also offers to share the batch unevenly.
  if (plans.size() > 1) std::erase_if(plans, [](const Choices& c) { return !c.replica_batches.empty(); });
  REQUIRE(plans.size() == 1);
  return planner::evaluate({question.job, plans.front()});
}

std::vector<ExplicitRow> rows_of(const std::string& file) {
  const CsvTable table = read_csv(file);
  std::vector<ExplicitRow> rows;
  for (const CsvRow& fields : table.rows) {
    try {
      ExplicitRow row = is_step_table(table) ? read_step(table, fields) : read_throughput(table, fields);
      if (row.measured_s > 0 || row.measured_per_s > 0) rows.push_back(std::move(row));
    } catch (const Unreadable&) {
    } catch (const UserError&) {
    }
  }
  return rows;
}

void check_tables(const std::string& under) {
  Files files;
  for (const std::string& file : test::published_tables(under).files) {
    const std::vector<ExplicitRow> rows = rows_of(file);
    const std::size_t count = std::min(rows.size(), kRowsOfSource);
    for (std::size_t i = 0; i < count; ++i) {
      const ExplicitRow& row = rows[i * rows.size() / count];
      INFO(row.file << ":" << row.line << " " << row.label);
      const planner::Evaluation evaluation = asked(words_of(row.plan, &files));
      CHECK(evaluation.estimate_s == Approx(planner::estimate_step_seconds(row.plan)).epsilon(1e-3));
      CHECK(evaluation.memory.total == Approx(planner::predict_memory(row.plan).total).epsilon(1e-3));
    }
  }
}

}  // namespace

TEST_CASE("a published step, pinned by hand, takes what its row is predicted to take") {
  check_tables("steps");
}

TEST_CASE("a published throughput, pinned by hand, takes what its row is predicted to take") {
  check_tables("throughput");
}

TEST_CASE("a published peak of memory, pinned by hand, is that of its row's last stage") {
  Files files;
  for (const std::string& file : test::published_tables("memory").files) {
    std::vector<ExplicitRow> rows;
    const Published published = validate_published({file}, &rows);
    std::map<int, double> predicted;  // by line
    for (const PublishedRow& row : published.rows)
      if (row.memory_bytes) predicted[row.line] = row.memory_bytes->predicted;
    // Korthikanti et al.'s count layers alone.
    CHECK(rows.empty() != is_configuration_table(read_csv(file)));
    CHECK(20 * rows.size() >= (rows.empty() ? 0 : 19 * predicted.size()));  // nearly all are plans
    const std::size_t count = std::min(rows.size(), kRowsOfSource);
    for (std::size_t i = 0; i < count; ++i) {
      const ExplicitRow& row = rows[i * rows.size() / count];
      INFO(row.file << ":" << row.line << " " << row.label);
      const Plan plan = asked(words_of(row.plan, &files)).plan;
      CHECK(planner::predict_memory_of_stage(plan, plan.choices.pp - 1).allocated ==
            Approx(predicted.at(row.line)).epsilon(1e-3));
    }
  }
}

TEST_CASE("a row as a plan file says what was measured, what was assumed and why, and is read back") {
  const CsvTable table = parse_csv(
      "source,framework,date,model,n_layers,hidden,n_heads,seq_len_tokens,gpu,n_gpus,gpus_per_node,precision,"
      "tp,pp,"
      "dp,gbs_sequences,mbs_sequences,act_recompute,step_time_s,notes\n"
      "x,torchtitan,2024-12,Llama-3.1-8B,32,4096,32,8192,H100-80GB,8,8,bf16,1,1,8,16,2,selective,2.8435,"
      "FSDP\n",
      "steps.csv");
  ExplicitRow row = read_step(table, table.rows[0]);
  row.assumed.push_back({"what a column says\nin two lines", ""});
  const std::string text = plan_file(row);
  CHECK_THAT(text, Catch::Contains("# measured: 2.8435 s a step"));
  CHECK_THAT(text, Catch::Contains("# assumed: runtime fused_elementwise: false (torchtitan's reports list"));
  const fs::path file = fs::temp_directory_path() / fmt::format("orrery_row_{}.textproto", getpid());
  write_file_atomically(file.string(), text);
  const Plan again = load_plan(file.string());
  fs::remove(file);
  CHECK(planner::estimate_step_seconds(again) ==
        Approx(planner::estimate_step_seconds(row.plan)).epsilon(1e-12));
  // Rows of two tables of one name would overwrite each other.
  CHECK_THROWS_WITH(write_plans({row, row}, "/no/such/folder"),
                    Catch::Contains("two tables are called steps"));
}
