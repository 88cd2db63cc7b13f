#include "planner/published.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "planner/published_rows.h"
#include "planner/published_statistics.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

constexpr const char* kHeader =
    "source,framework,date,model,n_layers,hidden,n_heads,seq_len_tokens,gpu,n_gpus,gpus_per_node,precision,"
    "tp,"
    "pp,vp_interleave,dp,gbs_sequences,mbs_sequences,act_recompute,step_time_s,inter_link,vocab,notes\n";

CsvTable table(const std::string& row) {
  return parse_csv(kHeader + row + "\n", "steps.csv");
}

}  // namespace

TEST_CASE("figures of merit are the contract's") {
  // Errors +9%, -20%, 0%, +5%.
  const std::vector<Judged> rows = {
      {1.09, 1.0, "a", "p"}, {1.6, 2.0, "a", "q"}, {4.0, 4.0, "a", "r"}, {1.05, 1.0, "b", "p"}};
  const Json j = figures(rows, 3);
  CHECK(j["rows"] == 4);
  CHECK(j["skipped"] == 3);
  CHECK(j["mape"].get<double>() == Approx(0.085));
  CHECK(j["median_ape"].get<double>() == Approx(0.07));
  CHECK(j["max_ape"].get<double>() == Approx(0.2));
  CHECK(j["bias"].get<double>() == Approx(-0.015));
  CHECK(j["within_10_percent"].get<double>() == Approx(0.75));
  CHECK(j["groups"] == 1);
  CHECK(j["kendall_tau"].get<double>() == Approx(1.0));
  CHECK(j["regret"]["max"].get<double>() == Approx(0.0));
}

TEST_CASE("tau-b and regret of a group that is half wrong") {
  // Measured 1, 2, 3; predicted 2, 1, 3: of three pairs one is discordant; the plan picked is q, 2 against 1.
  const GroupFigures g = group_figures({{2, 1, "g", "p"}, {1, 2, "g", "q"}, {3, 3, "g", "r"}});
  CHECK(g.groups == 1);
  CHECK(g.kendall_tau == Approx(1.0 / 3));
  CHECK(g.regret_mean == Approx(1.0));
  // Plans predicted alike: the slowest counts. Repeats are averaged: q is measured 2.
  const GroupFigures ties = group_figures({{1, 1, "g", "p"}, {1, 1.5, "g", "q"}, {1, 2.5, "g", "q"}});
  CHECK(ties.regret_max == Approx(1.0));
}

TEST_CASE("a row of a table becomes the plan that was run") {
  const CsvTable t = table(
      "Korthikanti,Megatron-LM,2022-05,GPT 175B,96,12288,96,2048,A100-80GB SXM,64,8,mixed fp16,8,8,3,1,64,1,"
      "selective + sequence parallelism,13.75,8x200Gb HDR IB,51200,");
  const PublishedStep step = read_published_step(t, t.rows[0]);
  const Choices& c = step.plan.choices;
  CHECK(step.plan.job->runtime.name == "megatron-lm-2022");
  CHECK(step.plan.job->training.precision == DType::fp16);
  CHECK(step.plan.job->cluster.devices() == 64);
  CHECK(c.world() == 64);
  CHECK(c.interleave == 3);
  CHECK(c.schedule == Schedule::interleaved);
  CHECK(c.recompute == Recompute::selective);
  CHECK(c.sequence_parallel);
  CHECK(step.measured_s == 13.75);
}

TEST_CASE("a row that lacks what is needed says so") {
  const auto why = [](const std::string& row) {
    const CsvTable t = table(row);
    try {
      read_published_step(t, t.rows[0]);
    } catch (const Unreadable& unreadable) {
      return unreadable.why;
    }
    return std::string();
  };
  CHECK(why("x,Megatron-LM,2022,GPT,96,12288,96,2048,A100,64,8,fp16,8,8,,,64,1,full,,,,") ==
        "neither a step time nor a throughput is stated");
  CHECK(why("x,Megatron-LM,2022,GPT,,,,2048,A100,64,8,fp16,8,8,,,64,1,full,1,,,") ==
        "layers, hidden size or heads are not stated");
  CHECK(why("x,Megatron-LM,2022,GPT,96,12288,96,2048,TPU,64,8,fp16,8,8,,,64,1,full,1,,,") ==
        "no catalog cluster of the device 'TPU'");
  CHECK(why("x,Megatron-LM,2022,GPT,96,12288,96,2048,A100,64,8,fp16,8,8,,,63,2,full,1,,,") ==
        "micro-batch 2 does not divide a replica's 63");
  CHECK(why("x,Nobody's,2022,GPT,96,12288,96,2048,A100,64,8,fp16,8,8,,,64,1,full,1,,,") ==
        "no runtime profile of the framework 'Nobody's'");
}

TEST_CASE("a table of something else is refused") {
  const auto file = std::filesystem::temp_directory_path() / "orrery_published_other.csv";
  write_file_atomically(file, "a,b\n1,2\n");
  CHECK_THROWS_AS(validate_published({file.string()}), UserError);
  std::filesystem::remove(file);
}

TEST_CASE("Korthikanti et al.'s end-to-end rows are predicted within 6%, 3% in the mean") {
  const auto folder = test::published("steps");
  if (folder.empty()) {
    WARN("skipped: no published tables here (ORRERY_PUBLISHED)");
    return;
  }
  const Json j = validate_published({(folder / "steps/korthikanti_2022_seqpar_selective.csv").string()});
  CHECK(j["all"]["rows"] == 9);
  CHECK(j["all"]["mape"].get<double>() < 0.03);
  double worst = 0;  // of the eight rows without data parallelism
  for (const Json& row : j["rows"])
    if (row["n_gpus"] != 2240) worst = std::max(worst, std::abs(row["relative_error"].get<double>()));
  CHECK(worst < 0.06);
}
