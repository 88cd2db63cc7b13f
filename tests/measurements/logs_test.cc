// Readers of logs, on logs that were made up by the formats of those who write them.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;
using namespace orrery::measurements;

namespace {

std::string data(const std::string& name) {
  return std::string(ORRERY_TEST_DATA) + "/measurements/" + name;
}

Measurements read_text(const std::string& text) {
  Measurements all;
  read(Source("a.log", text), {load_cluster("dgx-h100"), ""}, &all);
  return all;
}

std::string without(std::string text, const std::string& line_with) {
  const std::size_t at = text.find(line_with);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.erase(begin, text.find('\n', at) + 1 - begin);
}

}  // namespace

TEST_CASE("torchtitan's log says its plan and how many tokens a second, in a terminal's colours") {
  const Measurements all = read_text(read_file(data("torchtitan.log")));
  REQUIRE(all.steps.size() == 1);
  const Plan& plan = all.steps[0].row.plan;
  CHECK(plan.choices.world() == 8);
  CHECK(plan.choices.tp == 2);
  CHECK(plan.choices.dp == 4);
  CHECK(plan.choices.micro_batch == 2);
  CHECK(plan.job->training.global_batch == 8);
  CHECK(plan.job->training.seq_len == 8192);
  CHECK(plan.choices.recompute == Recompute::selective);
  CHECK(plan.job->workload.layers == 32);
  CHECK(plan.job->runtime.name == "torchtitan");
  // Of 6004, 6010, 5990 and 6008 tokens a second and device; the first line compiles.
  CHECK(all.steps[0].row.measured_s == Approx(8 * 8192 / (8 * 6006.0)));
  CHECK(all.steps[0].spread > 0);
  CHECK(all.steps[0].spread < 0.01);
}

TEST_CASE("a log of torchtitan that leaves something out, or is of another device, is named") {
  const std::string text = read_file(data("torchtitan.log"));
  for (const char* line : {"device mesh", "Trainer is", "Model llama3"}) {
    const Measurements all = read_text(without(text, line));
    CHECK(all.steps.empty());
    REQUIRE(all.ignored.size() == 1);
    CHECK_THAT(all.ignored[0].why, Catch::Contains("does not print"));
  }
  std::string other = text;
  other.replace(other.find("NVIDIA H100 80GB HBM3"), 21, "NVIDIA A100-SXM4-80GB");
  CHECK_THROWS_WITH(read_text(other), Catch::Contains("A100"));
}

TEST_CASE("torchtitan's logs of before late 2025 say their mesh and batch in other words") {
  std::string text = read_file(data("torchtitan.log"));
  const auto replace_line = [&](const std::string& with, const std::string& instead) {
    const std::size_t at = text.find(with), end = text.find('\n', at);
    REQUIRE(at != std::string::npos);
    text.replace(at, end - at, instead);
  };
  replace_line("Building device mesh", "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]");
  replace_line("Trainer is",
               "Training starts at step 1, with local batch size 2, global batch size 8, "
               "sequence length 8192, total steps 100 (warmup 20)");
  const auto check = [&] {
    const Measurements all = read_text(text);
    REQUIRE(all.steps.size() == 1);
    const Plan& plan = all.steps[0].row.plan;
    CHECK(plan.choices.tp == 2);
    CHECK(plan.choices.dp == 4);
    CHECK(plan.choices.micro_batch == 2);
    CHECK(plan.job->training.global_batch == 8);
    CHECK(all.steps[0].row.measured_s == Approx(8 * 8192 / (8 * 6006.0)));
  };
  check();
  for (std::size_t at = text.find("tps: "); at != std::string::npos; at = text.find("tps: ", at))
    text.replace(at, 3, "wps");
  check();
  replace_line("Building 2-D",
               "Building 3-D device mesh with ['dp_shard_mod_ep', 'dp_shard_in_ep', 'tp'], [2, 2, 2]");
  CHECK_THAT(read_text(text).ignored.at(0).why, Catch::Contains("experts"));
}

TEST_CASE("torchtitan's log of somebody's own flavor is of the model that is asked about, or of a row") {
  std::string text = read_file(data("torchtitan.log"));
  const std::size_t at = text.find("llama3 8B");
  REQUIRE(at != std::string::npos);
  text.replace(at, 9, "llama3 orrery");
  const auto read_for = [&](const std::string& model) {
    Measurements all;
    Context context{load_cluster("dgx-h100"), ""};
    if (!model.empty()) context.model = std::make_shared<const Workload>(load_workload(model));
    read(Source("a.log", text), context, &all);
    return all;
  };
  const Measurements same = read_for("llama3-8b");
  REQUIRE(same.steps.size() == 1);
  CHECK(same.steps[0].row.plan.job->workload.layers == 32);
  CHECK(same.steps[0].row.measured_s == Approx(8 * 8192 / (8 * 6006.0)));
  for (const char* other : {"", "llama3-70b"}) {
    const Measurements none = read_for(other);
    CHECK(none.steps.empty());
    REQUIRE(none.logs.size() == 1);
    CHECK(none.logs[0].steps_s.front() == Approx(8 * 8192 / (8 * 6004.0)));
    CHECK(none.logs[0].batch == 8);
  }
  text.replace(text.find("sequence length 8192"), 20, "sequence length -192");
  CHECK(read_for("").logs.empty());
}

TEST_CASE("Megatron-Bridge's log, which prints no arguments, is of the row of a table that names it") {
  const TemporaryFolder folder;
  const std::string table = folder.path() + "/steps.csv", log = folder.path() + "/bridge.log";
  std::string lines;
  for (int i = 1; i <= 4; ++i)
    lines += "2: iteration " + std::to_string(i) +
             "/ 10 | elapsed time per iteration (ms): " + std::to_string(i == 1 ? 30000 : 11200 + i) +
             ".0 | global batch size: 128 |\n";
  write_file_atomically(log, lines);
  write_file_atomically(table,
                        "framework,model,n_gpus,tp,gbs_sequences,mbs_sequences,seq_len_tokens,trace\n"
                        "Megatron-Bridge,llama3-8b,8,2,128,1,8192,bridge.log\n");
  // The table is read after it, whatever their order.
  const Measurements all = measurements::read({table, log}, {load_cluster("dgx-h100"), ""});
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps[0].row.measured_s == Approx(11.203));
  CHECK(all.steps[0].trace == log);
}

TEST_CASE("logs of one rank read the same behind what a launcher writes before every line") {
  for (const char* name :
       {"megatron.log", "torchtitan.log", "nemo.log", "trainer.log", "all_reduce_perf.log"}) {
    INFO(name);
    const std::string text = read_file(data(name));
    const Measurements plain = read_text(text);
    REQUIRE(plain.steps.size() + plain.collectives.size() > 0);
    for (const char* tag :
         {"[1,0]<stdout>:", "[prterun-node-a-42@1,0]<stdout>: ", "[default0]:", "[rank0]:", "0: ",
          " 12: [default7]:", "[0] ", "[pod/train-0/main] ", "worker-0  | ", "node-1: ", "node-1: [rank0]:",
          "(Worker pid=42, ip=10.0.0.5) ", "2026-01-11T20:13:40.123456789Z ", "2026-01-11 20:13:40,123 ",
          "[2026-01-11 20:13:40] ", "20:13:40 ", "Jan 11 20:13:40 node-1 train[42]: ", "\x1b[36m"}) {
      INFO(tag);
      std::string tagged;
      for (const LogLine& line : lines_of(text)) tagged += tag + std::string(line.text) + "\n";
      const Measurements all = read_text(tagged);
      REQUIRE(all.steps.size() == plain.steps.size());
      CHECK(all.collectives.size() == plain.collectives.size());
      if (!all.steps.empty()) {
        CHECK(all.steps[0].row.label == plain.steps[0].row.label);
        CHECK(all.steps[0].row.measured_s == plain.steps[0].row.measured_s);
      }
    }
  }
  CHECK(without_rank("[2025-01-01 10:00:00] step 1") == "step 1");
  CHECK(without_rank("2025-01-01 step 1") == "2025-01-01 step 1");
  CHECK(without_rank("bf16: True") == "bf16: True");
  CHECK(without_rank("| 5 | 7 |") == "| 5 | 7 |");
  CHECK(without_rank("[INFO|trainer.py:2414] 2025") == "[INFO|trainer.py:2414] 2025");
  CHECK(without_rank("10:00: x") == "10:00: x");
}

TEST_CASE(
    "lines that a progress bar draws over itself, Windows' ends of lines and a byte order mark are read") {
  std::vector<std::pair<int, std::string>> found;
  for (const LogLine& line : lines_of("\xEF\xBB\xBF"
                                      "a\r\n  1%|\r  2%|\rb\r\n\n\x1b[?25l\x1b[1mc\x1b[0m"))
    found.emplace_back(line.number, line.text);
  CHECK(found == std::vector<std::pair<int, std::string>>{
                     {1, "a"}, {2, "  1%|"}, {2, "  2%|"}, {2, "b"}, {3, ""}, {4, "c"}});
  // NeMo's bar, of which one line of the file has all, each state of it drawn three times.
  std::string text = read_file(data("nemo.log"));
  const Measurements plain = read_text(text);
  const std::size_t bar = text.find("Epoch 0");
  std::string drawn;
  for (const LogLine& line : lines_of(std::string_view(text).substr(bar)))
    for (int i = 0; i < 30 && !line.text.empty(); ++i) drawn += std::string(line.text) + '\r';
  const Measurements all = read_text(text.substr(0, bar) + drawn + "\n");
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps[0].row.measured_s == plain.steps[0].row.measured_s);
  CHECK(all.steps[0].spread == plain.steps[0].spread);
}

TEST_CASE("Megatron's logs may count seconds, and a line that was cut off says no time") {
  std::string text = read_file(data("megatron-core.log"));
  text = text.substr(0, text.find("- arguments -", 100) - 23);
  const Measurements plain = read_text(text);
  REQUIRE(plain.steps.size() == 1);
  CHECK(plain.steps[0].row.measured_s == Approx(2.003));
  const std::size_t cut = text.find(": 2004.0");
  CHECK(read_text(text.substr(0, cut + 4)).steps.at(0).row.measured_s == Approx(2.0025));
  for (const auto& [ms, s] :
       {std::pair{"10001.0", "10.001"}, {"2002.0", "2.002"}, {"2003.0", "2.003"}, {"2004.0", "2.004"}})
    text.replace(text.find(std::string("(ms): ") + ms), 6 + std::string(ms).size(), std::string("(s): ") + s);
  CHECK(read_text(text).steps.at(0).row.measured_s == Approx(2.003));
}

TEST_CASE("a Trainer's evaluations are no part of its steps") {
  const std::string text = read_file(data("trainer.log"));
  const auto seconds_with = [&](const std::string& instead, const std::string& before = "") {
    std::string other = text;
    const std::size_t at = other.find("{'train_runtime'");
    other.replace(at, other.find('\n', at) - at, before + instead);
    const Measurements all = read_text(other);
    return all.steps.empty() ? 0.0 : all.steps.at(0).row.measured_s;
  };
  const std::string ends =
      text.substr(text.find("{'train_runtime'"),
                  text.find('\n', text.find("{'train_runtime'")) - text.find("{'train_runtime'"));
  CHECK(seconds_with(ends) == Approx(90.0 / 200));
  const std::string evaluates = "{'eval_loss': 3.2, 'eval_runtime': 10.0, 'epoch': 0.5}\n";
  CHECK(seconds_with(ends, evaluates + evaluates) == Approx(70.0 / 200));
  // Two nodes say so, each its own.
  CHECK(seconds_with(ends + "\n" + ends, evaluates + evaluates) == Approx(80.0 / 200));
  // What it prints beside that line, or in its place; what follows is not training.
  CHECK(seconds_with("***** train metrics *****\n  train_runtime  = 0:01:30.00\n" + evaluates) ==
        Approx(90.0 / 200));
  CHECK_THROWS_WITH(seconds_with("***** train metrics *****\n  train_runtime  = 1 day, 0:01:30.00"),
                    Catch::Contains("432.4 s a step"));
}

TEST_CASE("a Trainer's log that was cut off is read by its progress bar") {
  std::string text = read_file(data("trainer.log"));
  text = text.substr(0, text.find("{'train_runtime'"));
  const auto read_with = [&](const std::string& bar) { return read_text(text + bar); };
  const std::string begin = "  0%|  | 0/200 [00:00<?, ?it/s]\r  1%|# | 2/200 [00:09<07:00,  2.12s/it]\r";
  const Measurements all = read_with(begin + " 50%|##| 100/200 [00:58<00:49,  2.00it/s]\r");
  REQUIRE(all.steps.size() == 1);
  // From the second step's end to the hundredth's.
  CHECK(all.steps[0].row.measured_s == Approx(49.0 / 98));
  CHECK(all.steps[0].spread == Approx(1 / 49.0));
  const Measurements evaluated =
      read_with(begin + "{'eval_runtime': 9.0}\n  7%|#| 7/9 [00:01<00:01, 2it/s]\r" +
                " 50%|##| 100/200 [01:07<00:49,  2.00it/s]\r");
  CHECK(evaluated.steps.at(0).row.measured_s == Approx(49.0 / 98));
  // Whole seconds of few say nothing, nor do other bars.
  CHECK(read_with(begin).steps.empty());
  CHECK(read_with(begin + " 50%|##| 100/300 [00:58<00:49,  2.00it/s]\r").steps.empty());
}

TEST_CASE("thousands' commas are taken out, and no others") {
  CHECK(without_grouping("1,234,567.5") == "1234567.5");
  CHECK(without_grouping("999") == "999");
  for (const char* other : {"11,2", "1,2345", "1234,567", "1,500,", "a,100", ",100", ""})
    CHECK(without_grouping(other) == other);
}

TEST_CASE("NeMo's log with its configuration is a step of its own") {
  const Measurements all = read_text(read_file(data("nemo.log")));
  REQUIRE(all.steps.size() == 1);
  const Plan& plan = all.steps[0].row.plan;
  CHECK(plan.choices.world() == 8);
  CHECK(plan.choices.tp == 2);
  CHECK(plan.job->training.global_batch == 64);
  CHECK(plan.job->training.seq_len == 4096);
  CHECK(plan.job->workload.layers == 32);
  CHECK(all.steps[0].row.measured_s == Approx((5.92 + 5.93) / 2));
}

TEST_CASE("MLPerf's lines count samples, and what lies around an evaluation counts for nothing") {
  const Measurements all = read_text(read_file(data("mlperf.log")));
  CHECK(all.steps.empty());
  REQUIRE(all.logs.size() == 1);
  // Ten steps each; the first of all behind a warm-up left out, and the first behind the evaluation.
  const std::vector<double> expected = {2.003, 2.004, 2.006, 2.007};
  REQUIRE(all.logs[0].steps_s.size() == 4);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(all.logs[0].steps_s[i] == Approx(expected[i]));
}

TEST_CASE("DeepSpeed's log says times, and a table what they are of") {
  const Measurements alone = read_text(read_file(data("deepspeed.log")));
  REQUIRE(alone.logs.size() == 1);
  REQUIRE(alone.logs[0].steps_s.size() == 3);
  CHECK(alone.logs[0].steps_s[0] == Approx(256.0 / 640));
  const Measurements pipeline = read_text(
      "steps: 10 loss: 2.2985 iter time (s): 0.400 samples/sec: 639.687\n"
      "steps: 20 loss: 2.2270 iter time (s): 0.320 samples/sec: 800.222\n");
  REQUIRE(pipeline.logs.size() == 1);
  CHECK(pipeline.logs[0].steps_s == std::vector<double>{0.320});

  const TemporaryFolder folder;
  const std::string table = folder.path() + "/steps.csv",
                    header =
                        "framework,model,n_layers,hidden,n_heads,vocab,n_gpus,tp,pp,dp_sharding,gbs_"
                        "sequences,mbs_sequences,seq_len_tokens,"
                        "act_recompute,trace\n";
  write_file_atomically(
      table, header + "DeepSpeed,GPT,12,768,12,50257,8,1,1,ZeRO-1,256,8,1024,none,deepspeed.log\n");
  const Context context{load_cluster("dgx-h100"), ""};
  const Measurements both = measurements::read({table, data("deepspeed.log")}, context);
  REQUIRE(both.steps.size() == 1);
  CHECK(both.steps[0].row.measured_s == Approx(256.0 / 640));
  CHECK(both.steps[0].trace == data("deepspeed.log"));
  CHECK(both.ignored.empty());
  const Measurements unnamed = measurements::read({data("deepspeed.log")}, context);
  REQUIRE(unnamed.ignored.size() == 1);
  CHECK_THAT(unnamed.ignored[0].why, Catch::Contains("column 'trace'"));
}

TEST_CASE("a log of several runs, one behind the other, is a step of each") {
  const auto replaced = [](std::string text, const std::string& with, const std::string& instead) {
    REQUIRE(text.find(with) != std::string::npos);
    for (std::size_t at = text.find(with); at != std::string::npos; at = text.find(with, at + instead.size()))
      text.replace(at, with.size(), instead);
    return text;
  };
  const std::string megatron = read_file(data("megatron.log")),
                    torchtitan = read_file(data("torchtitan.log")), nemo = read_file(data("nemo.log")),
                    trainer = read_file(data("trainer.log"));
  const std::vector<std::pair<std::string, std::string>> runs = {
      {megatron,
       replaced(megatron, "  tensor_model_parallel_size ......", "  tensor_model_parallel_size .. 2 .")},
      {torchtitan, replaced(torchtitan, "dp_shard=4, cp=1, tp=2", "dp_shard=8, cp=1, tp=1")},
      {nemo, replaced(replaced(nemo, "tensor_model_parallel_size: 2", "tensor_model_parallel_size: 4"),
                      "=5.9", "=6.9")},
      {trainer, replaced(replaced(trainer, "n_layer=24", "n_layer=12"), "'train_runtime': 90.0",
                         "'train_runtime': 50.0")}};
  for (const auto& [one, other] : runs) {
    INFO(one.substr(0, 80));
    const Measurements first = read_text(one), second = read_text(other), both = read_text(one + other);
    REQUIRE(first.steps.size() == 1);
    REQUIRE(second.steps.size() == 1);
    for (const Ignored& ignored : both.ignored) UNSCOPED_INFO(ignored.why);
    REQUIRE(both.steps.size() == 2);
    CHECK(both.ignored.empty());
    for (std::size_t i = 0; i < 2; ++i) {
      const MeasuredStep &is = both.steps[i], &was = (i == 0 ? first : second).steps[0];
      CHECK(is.row.label == was.row.label);
      CHECK(is.row.measured_s == was.row.measured_s);
      CHECK(is.row.plan.job->workload.layers == was.row.plan.job->workload.layers);
    }
    CHECK(both.steps[1].line > both.steps[0].line);
    // What a run that did not get far has said counts for nothing.
    const std::size_t end = std::min({one.find("elapsed time"), one.find("step:"), one.find("Epoch 0"),
                                      one.find("***** Running training")});
    const Measurements last = read_text(one.substr(0, one.rfind('\n', end) + 1) + other);
    REQUIRE(last.steps.size() == 1);
    CHECK(last.steps[0].row.label == second.steps[0].row.label);
    CHECK(last.steps[0].row.measured_s == second.steps[0].row.measured_s);
  }
}

TEST_CASE("the Trainer's trainings of one process share the configuration that is printed once") {
  const std::string text = read_file(data("trainer.log"));
  std::string second = text.substr(text.rfind('\n', text.find("***** Running training")) + 1);
  second.replace(second.find("'train_runtime': 90.0"), 21, "'train_runtime': 80.0");
  const Measurements both = read_text(text + second);
  REQUIRE(both.steps.size() == 2);
  CHECK(both.steps[1].row.label == both.steps[0].row.label);
  CHECK(both.steps[1].row.measured_s == Approx(0.4));
}

TEST_CASE("a log of several runs that says no layout is of no row") {
  const std::string bridge =
      "iteration 1/ 10 | elapsed time per iteration (ms): 9000.0 | global batch size: 128 |\n"
      "iteration 2/ 10 | elapsed time per iteration (ms): 4000.0 | global batch size: 128 |\n";
  CHECK(read_text(bridge).logs.size() == 1);
  CHECK(read_text(bridge).logs[0].batch == 128);
  for (const std::string& text : {bridge, read_file(data("deepspeed.log")), read_file(data("mlperf.log"))}) {
    CHECK(read_text(text).logs.size() == 1);
    const Measurements both = read_text(text + text);
    CHECK(both.logs.empty());
    CHECK_THAT(both.ignored.at(0).why, Catch::StartsWith("2 runs in one log"));
  }
}

TEST_CASE("a log of which only the first line has a time says nothing") {
  const auto first_only = [](const std::string& name, const std::string& word) {
    const std::string text = read_file(data(name));
    const std::size_t first = text.find(word);
    REQUIRE(first != std::string::npos);
    return text.substr(0, text.find('\n', first) + 1);
  };
  const std::string megatron = first_only("megatron.log", "elapsed time");
  for (const std::string& text :
       {megatron, megatron + " iteration 2/ 9 | elapsed time per iteration (ms): nan |\n",
        first_only("torchtitan.log", "tps: "), first_only("nemo.log", "train_step_timing"),
        first_only("deepspeed.log", "CurrSamplesPerSec")}) {
    const Measurements all = read_text(text);
    CHECK(all.steps.empty());
    CHECK(all.logs.empty());
    CHECK_THAT(all.ignored.at(0).why, Catch::Contains("warms up"));
  }
  // Of torchtitan every rank may print its first step.
  const std::string step = first_only("torchtitan.log", "tps: ");
  CHECK(read_text(step + step.substr(step.rfind('\n', step.size() - 2) + 1)).steps.empty());
}

TEST_CASE("the Trainer's log says DeepSpeed by its argument, and whether embeddings are tied") {
  const std::string text = read_file(data("trainer.log"));
  std::string argument = without(text, "zero_optimization_stage");
  CHECK(read_text(argument).steps.at(0).row.plan.job->runtime.name == "hugging-face");
  argument.insert(argument.find("gradient_accumulation_steps=2"), "deepspeed=None, ");
  CHECK(read_text(argument).steps.at(0).row.plan.job->runtime.name == "hugging-face");
  CHECK(read_text(argument).doubts.empty());
  argument.replace(argument.find("deepspeed=None"), 14, "deepspeed=ds_config.json");
  const Measurements all = read_text(argument);
  CHECK(all.steps.at(0).row.plan.job->runtime.name == "deepspeed");
  CHECK_THAT(all.doubts.at(0).text(), Catch::StartsWith("a.log:") && Catch::Contains("ZeRO"));
  argument.replace(argument.find("ds_config.json"), 14, "{'zero_optimization': {'stage': 3}}");
  CHECK(read_text(argument).steps.at(0).row.plan.choices.zero == 3);
  CHECK(read_text(argument).doubts.empty());

  const auto parameters = [&](const std::string& tied) {
    std::string other = text;
    other.insert(other.find("  \"vocab_size\""), "  \"tie_word_embeddings\": " + tied + ",\n");
    return read_text(other).steps.at(0).row.plan.job->workload.parameters();
  };
  CHECK(parameters("false") - parameters("true") == 50257 * 2048);
}

TEST_CASE(
    "the Trainer's log and state that print no configuration are of the row of a table that names them") {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/hf.log", table = folder.path() + "/steps.csv";
  const auto read_both = [&](const std::string& named, const std::string& batch) {
    write_file_atomically(table,
                          "framework,model,seq_len_tokens,n_gpus,precision,gbs_sequences,mbs_sequences,"
                          "act_recompute,trace\n"
                          "hugging-face,llama3.2-1b,4096,8,bf16," +
                              batch + ",4,full," + named + "\n");
    return read({folder.path() + "/" + named, table}, {load_cluster("dgx-h100"), ""});
  };
  write_file_atomically(log,
                        "***** Running training *****\n  Num examples = 3,200\n"
                        "  Instantaneous batch size per device = 4\n"
                        "  Total train batch size (w. parallel, distributed & accumulation) = 32\n"
                        "  Gradient Accumulation steps = 1\n  Total optimization steps = 100\n"
                        "{'train_runtime': 250.0, 'train_samples_per_second': 12.8}\n");
  const Measurements all = read_both("hf.log", "32");
  for (const auto& one : all.ignored) UNSCOPED_INFO(one.why);
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps[0].row.measured_s == Approx(2.5));
  CHECK(all.steps[0].spread == Approx(0.01));
  CHECK(all.steps[0].row.plan.job->runtime.name == "hugging-face");
  CHECK(all.ignored.empty());
  const Measurements other = read_both("hf.log", "64");
  REQUIRE(other.ignored.size() == 1);  // the log is named, whatever is wrong with the row
  CHECK_THAT(other.ignored[0].why, Catch::Contains("where hf.log says 32"));
  CHECK_THAT(read({log}, {load_cluster("dgx-h100"), ""}).ignored.at(0).why,
             Catch::StartsWith("1 step of 2.5 s whose model"));

  // A training that was resumed has two times, each of its own steps.
  const std::string state = read_file(data("trainer_state.json"));
  write_file_atomically(folder.path() + "/trainer_state.json", state);
  CHECK_THAT(read_both("trainer_state.json", "32").ignored.at(0).why, Catch::StartsWith("2 runs in one log"));
  write_file_atomically(folder.path() + "/trainer_state.json", without(state, "\"step\": 100"));
  const Measurements once = read_both("trainer_state.json", "32");
  REQUIRE(once.steps.size() == 1);
  CHECK(once.steps[0].row.measured_s == Approx(0.8));
}

TEST_CASE("colours are taken off a line, and nothing else") {
  CHECK(without_colours("\x1b[31mstep: \x1b[38;2;1;2;3m 1\x1b[0m!") == "step:  1!");
  CHECK(without_colours("plain [1] m") == "plain [1] m");
  CHECK(without_colours("cut \x1b[3") == "cut ");
}
