#include "evidence/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "evidence/memory_tables.h"
#include "evidence/steps.h"
#include "evidence/validate.h"
#include "planner/evaluation/evaluation.h"
#include "tests/support/jobs.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::evidence;
using namespace orrery::planner;

namespace {

namespace fs = std::filesystem;

Plan megatron_plan(int tp, int pp) {
  Plan plan;
  const auto job = test::make_job("megatron-22b", "dgx-a100", tp * pp, 8, 2048);
  plan.job = job;
  plan.choices.tp = tp;
  plan.choices.pp = pp;
  plan.choices.sequence_parallel = tp > 1;
  return plan;
}

// Of eight tensor ranks with micro-batches of two, and of the job as `change` leaves it.
template <typename Change>
double buffers_of_pairs(int batch, const Change& change) {
  const auto job = test::make_job("megatron-22b", "dgx-a100", 8, batch, 2048);
  change(*job);
  Plan plan{job, {}};
  plan.choices.tp = 8;
  plan.choices.micro_batch = 2;
  return predict_memory(plan).buffers;
}

// Source, rows, mean, median and bias of a block, in percent.
std::string lines_of(const std::string& title, const Summary& summary) {
  std::string text =
      "| " + title + " | rows | skipped | mean | median | worst | bias |\n|---|---|---|---|---|---|---|\n";
  for (const auto& [name, of, kind] : summary.sources) {
    if (of.rows == 0) continue;
    text += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} | {:.1f} | {:+.2f} |\n", name, of.rows, of.skipped,
                        100 * of.mape, 100 * of.median_ape, 100 * of.max_ape, 100 * of.bias);
  }
  return text;
}

std::vector<double> numbers(const std::string& line) {
  std::vector<double> found;
  std::istringstream fields(line);
  for (std::string field; std::getline(fields, field, '|');) {
    char* end = nullptr;
    const double value = std::strtod(field.c_str(), &end);
    if (end != field.c_str()) found.push_back(value);
  }
  return found;
}

}  // namespace

TEST_CASE("what is allocated, reserved and gone from the device are three figures") {
  const Plan plan = megatron_plan(8, 1);
  const Memory m = predict_memory(plan);
  const DeviceProfile& device = plan.job->cluster.profiles.front();
  CHECK(m.allocated ==
        Approx(m.weights + m.gradients + m.optimizer + m.activations + m.buffers).epsilon(1e-12));
  CHECK(m.reserved == Approx(m.allocated * (1 + plan.job->runtime.allocator_margin)));
  CHECK(m.total == Approx(m.reserved + device.context_bytes));
  CHECK(m.transient < m.activations);
}

TEST_CASE("a test's environment says what cuBLAS keeps and whether attention is fused") {
  const std::string header =
      "model_family,test_case,golden_file,gpu,n_gpus,n_layers,hidden,n_heads,seq_len_tokens,tp,pp,cp,gbs_"
      "sequences,"
      "mbs_sequences,precision,deterministic_or_debug_env,other_flags,mem_max_allocated_bytes\n";
  const auto read = [&](const std::string& golden, const std::string& gpu, const std::string& environment) {
    const CsvTable table =
        parse_csv(header + "gpt,gpt3_mcore_te," + golden + "," + gpu + ",8,12,512,8,1024,2,2,1,32,4,bf16," +
                      environment + ",transformer-impl=transformer_engine,1360538112\n",
                  "ci.csv");
    return read_configuration(table, table.rows[0]).row.plan.job;
  };
  const std::string loose = "NVTE_ALLOW_NONDETERMINISTIC_ALGO=1";
  const std::string strict = "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 CUBLAS_WORKSPACE_CONFIG=:4096:8";
  const auto workspace = [&](const std::string& gpu, const std::string& environment) {
    const RuntimeProfile runtime = read("golden", gpu, environment)->runtime;
    return gpu == "A100" ? runtime.older_workspace_bytes : runtime.workspace_bytes;
  };
  // Two of 8 MiB, PyTorch's, instead of two of 32.
  CHECK(workspace("A100", strict) - workspace("A100", loose) == Approx(2 * 24 * (1 << 20)).epsilon(0.02));
  CHECK(workspace("H100", strict) == workspace("H100", loose));
  CHECK(read("golden", "A100", strict)->runtime.deterministic_attention);
  CHECK_FALSE(read("golden", "A100", loose)->runtime.deterministic_attention);
  CHECK(read("golden_dracooci", "A100", loose)->training.fused_attention);
  CHECK_FALSE(read("golden_dracooci", "A100", strict)->training.fused_attention);
}

TEST_CASE("a figure that was read on the first stage is compared with what that holds") {
  const Plan plan = megatron_plan(4, 2);
  ExplicitRow row;
  row.plan = plan;
  row.measured_bytes = 1e10;
  row.memory_kind = MemoryKind::total;
  const auto compared = [&] {
    MemoryJudge judge;
    PublishedRow judged;
    judge.add_step(row, predict_memory(plan), &judged);
    return judged.memory_bytes->predicted;
  };
  const double first = predict_memory_of_stage(plan, 0).total, last = predict_memory_of_stage(plan, 1).total;
  REQUIRE(first != last);
  CHECK(compared() == std::max(first, last));
  row.memory_of_first_stage = true;
  CHECK(compared() == first);
}

TEST_CASE("Transformer Engine keeps one placeholder for each weight shape, whatever the number of layers") {
  Plan plan = megatron_plan(8, 1);
  const Memory with = predict_memory(plan);
  auto job = std::make_shared<Job>(*plan.job);
  job->runtime.dummy_weight_gradients = false;
  plan.job = job;
  const Memory without = predict_memory(plan);
  // qkv 3h^2, proj h^2, up 4h^2, down 4h^2 of h 6144 over 8 ranks, two bytes each; and what biases add.
  const double h = 6144;
  CHECK(with.buffers - without.buffers == Approx(12 * h * h / 8 * 2).epsilon(1e-3));
}

TEST_CASE(
    "attention's output is kept twice before Hopper, and where it must be deterministic but on Hopper") {
  const double tokens = 2048, h = 6144, layers = 48;
  for (const auto& [cluster, twice, twice_strict] :
       {std::tuple("dgx-a100", true, true), {"dgx-h100", false, false}, {"dgx-b200", false, true}}) {
    for (const bool strict : {false, true}) {
      const auto job = test::make_job("megatron-22b", cluster, 8, 8, 2048);
      job->runtime.deterministic_attention = strict;
      Plan plan{job, {}};
      plan.choices.tp = 8;
      plan.choices.sequence_parallel = true;
      const double kept = predict_memory(plan).activations;
      job->runtime.copies_attention_output = false;
      CAPTURE(cluster, strict);
      const double expected = (strict ? twice_strict : twice) ? layers * tokens * h * 2 / 8 : 0;
      CHECK(kept - predict_memory(plan).activations == Approx(expected).margin(1));
    }
  }
}

TEST_CASE(
    "grouped products of experts have workspaces of their own, and what lies before Hopper smaller ones") {
  const auto buffers = [](const char* model, const char* cluster, double RuntimeProfile::*without) {
    const auto job = test::make_job(model, cluster, 8, 8, 2048);
    if (without != nullptr) job->runtime.*without = 0;
    Plan plan{job, {}};
    plan.choices.dp = 8;
    return predict_memory(plan).buffers;
  };
  const auto of_experts = [&](const char* model, const char* cluster) {
    return buffers(model, cluster, nullptr) -
           buffers(model, cluster, &RuntimeProfile::expert_workspace_bytes);
  };
  CHECK(of_experts("mixtral-8x7b", "dgx-h100") == Approx(4 * 32 << 20));
  CHECK(of_experts("llama3-8b", "dgx-h100") == 0);
  CHECK(buffers("llama3-8b", "dgx-h100", nullptr) - buffers("llama3-8b", "dgx-a100", nullptr) ==
        Approx((2 * 23.9 + 28) * (1 << 20)).epsilon(1e-3));
  CHECK(buffers("mixtral-8x7b", "dgx-a100", nullptr) -
            buffers("mixtral-8x7b", "dgx-a100", &RuntimeProfile::older_expert_workspace_bytes) ==
        Approx((4 * 4 - 4 * 32) * (1 << 20)));
}

TEST_CASE("two masks stand where the data loader makes them, one where there is one micro-batch") {
  const auto buffers = [](int batch, int masks) {
    return buffers_of_pairs(batch, [masks](Job& job) { job.runtime.loaded_masks = masks; });
  };
  CHECK(buffers(8, 2) - buffers(8, 0) == Approx(2 * 2 * 2048.0 * 2048));
  CHECK(buffers(2, 2) - buffers(2, 0) == Approx(2 * 2048.0 * 2048));
}

TEST_CASE("a buffer of one layer's scores stands where attention multiplies into one") {
  const auto buffers = [](bool fused, bool buffer) {
    return buffers_of_pairs(8, [=](Job& job) {
      job.training.fused_attention = fused;
      job.runtime.score_buffer = buffer;
    });
  };
  CHECK(buffers(false, true) - buffers(false, false) == Approx(2 * 64 / 8 * 2048.0 * 2048 * 2));
  CHECK(buffers(true, true) == buffers(true, false));
}

TEST_CASE("the loss costs its logits once, in fp32 and in bf16, on the last stage only") {
  Plan plan = megatron_plan(8, 2);
  plan.choices.recompute = Recompute::full;
  const Memory last = predict_memory_of_stage(plan, 1);
  auto job = std::make_shared<Job>(*plan.job);
  job->runtime.fused_loss = false;
  plan.job = job;
  const double logits = 2048.0 * 51200 / 8;
  // Unfused: exponentials beside the fp32 copy.
  CHECK(predict_memory_of_stage(plan, 1).activations >= last.activations);
  CHECK(predict_memory_of_stage(plan, 1).activations - last.activations <= 4 * logits * 1.001);
  CHECK(predict_memory_of_stage(plan, 0).activations ==
        Approx(predict_memory_of_stage(megatron_plan(8, 2), 0).activations).epsilon(0.9));
}

TEST_CASE(
    "a runtime that holds on to logits has them on the last stage, once and for every stage's micro-batch") {
  Plan plan = megatron_plan(4, 2);
  const Memory without = predict_memory_of_stage(plan, 1);
  auto job = std::make_shared<Job>(*plan.job);
  job->runtime.held_logit_bytes = 4;
  job->runtime.waiting_logit_bytes = 2;
  plan.job = job;
  const double logits = 2048.0 * 51200 / 4;
  const Memory with = predict_memory_of_stage(plan, 1);
  CHECK(with.allocated - without.allocated == Approx((4 + 2 * 2) * logits));
  CHECK(with.activations - without.activations == with.allocated - without.allocated);
  CHECK(with.transient == without.transient);
  auto bare = std::make_shared<Job>(*job);
  bare->runtime.held_logit_bytes = bare->runtime.waiting_logit_bytes = 0;
  CHECK(predict_memory_of_stage(plan, 0).allocated ==
        predict_memory_of_stage({bare, plan.choices}, 0).allocated);
}

TEST_CASE("published peaks of memory: figures by source are those of the golden file, to 0.1 point",
          "[golden]") {
  std::vector<std::string> files = test::published_tables("memory").files;
  const test::PublishedTables steps = test::published_tables("steps");
  for (const char* name :
       {"simumax_b200_training", "bigscience_bloom_a100_sweeps", "bigscience_v100_sweeps",
        "sailor_gh200_heterogeneous", "litgpt_lora_a100_40gb", "alpa_example", "torchtitan"})
    if (steps.has(name)) files.push_back(steps.find(name));
  if (files.empty()) return;
  const auto judged = [&](const std::string& source) {
    return std::any_of(files.begin(), files.end(),
                       [&](const fs::path& file) { return file.stem() == source; });
  };
  const Published result = validate_published(files);
  REQUIRE(result.memory);
  const Summary& memory = result.memory->figures;
  const std::string text =
      "Errors of `orrery validate --published`, percent (tests/evidence/"
      "memory_test.cc; ORRERY_UPDATE_GOLDEN=1 writes this file).\n\n" +
      lines_of("memory", memory);
  const fs::path golden = test::golden_file("published_memory.md");
  if (test::updates_golden()) write_file_atomically(golden, text);
  // The golden's lines of tables that have changed since stay uncompared.
  std::istringstream now(text), then(read_file(golden));
  std::string a, b;
  while (std::getline(then, b)) {
    const std::string source = b.starts_with("| ") ? b.substr(2, b.find(" |", 2) - 2) : "memory";
    if (source != "memory" && !judged(source)) continue;
    REQUIRE(std::getline(now, a));
    CAPTURE(a, b);
    const std::vector<double> x = numbers(a), y = numbers(b);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) <= 0.1001);
  }
  CHECK_FALSE(std::getline(now, a));

  const auto below_5_percent = [&](const std::string& name, double Figures::*figure) {
    for (const SourceFigures& source : memory.sources) {
      CAPTURE(name);
      if (source.name == name) CHECK(source.figures.*figure < 0.05);
    }
  };
  below_5_percent("simumax_b200_training", &Figures::max_ape);
  below_5_percent("korthikanti_2022_fig1_fig7_memory", &Figures::max_ape);
  below_5_percent("megatron_ci_golden_values", &Figures::median_ape);
}

TEST_CASE("published throughput: what is predicted, and that nothing is skipped without a reason") {
  const test::PublishedTables tables = test::published_tables("throughput");
  if (tables.files.empty()) return;
  const Published result = validate_published(tables.files);
  REQUIRE(result.throughput);
  if (tables.whole) {
    CHECK(result.throughput->all.rows >= 130);
    CHECK(result.throughput->all.median_ape < 0.2);
  }
  for (const SourceFigures& source : result.throughput->sources) {
    CAPTURE(source.name);
    CHECK(source.figures.rows > 0);
    CHECK(source.figures.median_ape < 0.2);
  }
  for (const PublishedRow& row : result.rows) CHECK(row.per_s.has_value() == row.skipped.empty());
}

TEST_CASE("rows of memory tables that are no plan say why") {
  const CsvTable table = parse_csv(
      "source,model_family,test_case,golden_file,gpu,n_gpus,n_layers,hidden,n_heads,seq_len_tokens,tp,pp,"
      "gbs_sequences,mbs_sequences,precision,mem_max_allocated_bytes,other_flags\n"
      "x,mimo,a,g,A100,8,12,512,8,1024,1,1,32,4,bf16,1e9,\n"
      "x,gpt,b,g,A100,8,12,512,8,1024,1,1,32,4,bf16,,\n"
      "x,gpt,c,g,A100,8,12,512,8,1024,1,1,32,4,bf16,1e9,optimizer=muon\n"
      "x,gpt,d,g,A100,8,12,512,8,1024,3,1,32,4,bf16,1e9,\n",
      "m.csv");
  const auto why = [&](int i) {
    try {
      read_configuration(table, table.rows[i]);
    } catch (const Unreadable& unreadable) {
      return unreadable.why;
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(why(0) == "an image encoder beside the language model");
  CHECK(why(1) == "no peak of memory is stated");
  CHECK(why(2) == "the optimizer is Muon");
  CHECK(why(3) == "tp 3 pp 1 cp 1 do not divide 8 devices");
}
