// What people measured: logs, tables, traces, each by its own reader.
#include "evidence/collectives.h"
#include "evidence/validate.h"
#include "measurements/kinds.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/target.h"
#include "topologies/readers/catalog.h"

namespace orrery::fuzz {
namespace {

using measurements::Measurements;

void check_measured(const Measurements& all) {
  for (const auto& row : all.collectives)
    possible(row.seconds > 0 && std::isfinite(row.seconds) && row.bytes > 0 && std::isfinite(row.bytes),
             "an impossible collective");
  for (const auto& step : all.steps)
    possible(step.row.measured_s > 0 && std::isfinite(step.row.measured_s), "an impossible step");
  for (const auto& product : all.products)
    possible(product.seconds > 0 && std::isfinite(product.m * product.n * product.k * product.count),
             "an impossible product");
  for (const auto& log : all.logs)
    for (const double seconds : log.steps_s)
      possible(seconds > 0 && std::isfinite(seconds), "an impossible step of a log");
  for (const auto& trace : all.traces)
    for (const auto& step : trace.steps) {
      possible(step.seconds > 0 && std::isfinite(step.seconds), "an impossible step of a trace");
      possible(step.idle_s >= 0 && step.idle_s <= step.seconds, "more idle time than time");
      for (const auto& activity : step.activities)
        possible(activity.seconds >= 0 && std::isfinite(activity.seconds), "an impossible activity");
    }
}

using Recognises = bool (*)(std::string_view head);
using Read = void (*)(const measurements::Source& source, const measurements::Context& context,
                      Measurements* all);

template <Recognises recognises, Read read>
bool read_or_refused(std::string_view bytes) {
  static const measurements::Context context{load_cluster("dgx-h100"), ""};
  const measurements::Source source("fuzz", std::string(bytes));
  if (!recognises(source.head())) return false;
  return sound_or_refused(
      [&] {
        Measurements all;
        read(source, context, &all);
        measurements::conclude_traces(context, &all);
        return all;
      },
      check_measured);
}

// What is no table is asked what it lacks.
bool is_table(std::string_view head) {
  const bool is = measurements::is_step_table(head);
  possible(is || measurements::lacks_of_step_table(head).size() < 200, "an endless complaint");
  return is;
}

std::vector<std::string> own(const char* name) {
  return {data_file(std::string("measurements/") + name)};
}
std::vector<std::string> nccl_tests_seeds() {
  return joined(joined(own("all_reduce_perf.log"), own("all_reduce_perf.json")), published_texts("nccl", ""));
}
std::vector<std::string> megatron_log_seeds() {
  return joined(joined(own("megatron.log"), own("megatron-core.log")),
                published_texts("logs", "bigscience__meg"));
}
std::vector<std::string> trainer_log_seeds() {
  return joined(own("trainer.log"), published_texts("logs", "bigscience__hf"));
}
std::vector<std::string> trainer_state_seeds() {
  return own("trainer_state.json");
}
std::vector<std::string> torchtitan_log_seeds() {
  return own("torchtitan.log");
}
std::vector<std::string> nemo_log_seeds() {
  return joined(joined(own("nemo.log"), own("mlperf.log")), published_texts("logs", "mlperf41"));
}
std::vector<std::string> deepspeed_log_seeds() {
  return joined(own("deepspeed.log"), published_texts("logs", "seekpoint"));
}
std::vector<std::string> kineto_seeds() {
  return joined(own("kineto.json"), published_traces());
}
std::vector<std::string> own_trace_seeds() {
  return own("own_trace.json");
}
std::vector<std::string> chakra_seeds() {
  return own("chakra.0.et");
}
std::vector<std::string> nsys_seeds() {
  return own("nsys.sqlite");
}
std::vector<std::string> step_table_seeds() {
  return joined(own("steps.csv"), {measurements::step_table_template()});
}

// Tables as `validate --published` reads them: of steps or memory, and of collectives.
bool published_table(std::string_view bytes) {
  return sound_or_refused([&] { return evidence::validate_published({as_file(bytes, "table.csv")}); },
                          [](const evidence::Published& read) {
                            for (const auto& row : read.rows)
                              possible(!row.step_s || std::isfinite(row.step_s->predicted),
                                       "an impossible row");
                          });
}
std::vector<std::string> published_table_seeds() {
  std::vector<std::string> seeds = {own_seed("steps.csv")};
  for (const char* folder : {"steps", "memory"})
    for (const std::string& table : published_tables(folder))
      if (published_table(table)) seeds.push_back(table);  // not every table is one of these
  return seeds;
}
bool published_collectives(std::string_view bytes) {
  return sound_or_refused(
      [&] { return evidence::validate_published_collectives({as_file(bytes, "table.csv")}); },
      [](const evidence::PublishedCollectives& read) {
        for (const evidence::CollectiveRow& row : read.rows)
          possible(
              !row.seconds || (std::isfinite(row.seconds->predicted) && std::isfinite(row.seconds->measured)),
              "an impossible row");
      });
}
std::vector<std::string> published_collectives_seeds() {
  std::vector<std::string> seeds = {own_seed("collectives.csv")};
  for (const std::string& table : published_tables("collectives"))
    if (published_collectives(table)) seeds.push_back(table);
  return seeds;
}

}  // namespace

std::vector<Target> measured() {
  using namespace measurements;
  return {{"nccl_tests", read_or_refused<is_nccl_tests, read_nccl_tests>, nccl_tests_seeds},
          {"megatron_log", read_or_refused<is_megatron_log, read_megatron_log>, megatron_log_seeds},
          {"trainer_log", read_or_refused<is_trainer_log, read_trainer_log>, trainer_log_seeds},
          {"trainer_state", read_or_refused<is_trainer_state, read_trainer_state>, trainer_state_seeds},
          {"torchtitan_log", read_or_refused<is_torchtitan_log, read_torchtitan_log>, torchtitan_log_seeds},
          {"nemo_log", read_or_refused<is_nemo_log, read_nemo_log>, nemo_log_seeds},
          {"deepspeed_log", read_or_refused<is_deepspeed_log, read_deepspeed_log>, deepspeed_log_seeds},
          {"kineto", read_or_refused<is_kineto, read_kineto>, kineto_seeds, 100},
          {"own_trace", read_or_refused<is_own_trace, read_own_trace>, own_trace_seeds},
          {"chakra", read_or_refused<is_chakra, read_chakra>, chakra_seeds},
          {"nsys", read_or_refused<is_nsys, read_nsys>, nsys_seeds, 200},
          {"step_table", read_or_refused<is_table, read_step_table>, step_table_seeds},
          {"published_table", published_table, published_table_seeds, 200},
          {"published_collectives", published_collectives, published_collectives_seeds, 200}};
}

}  // namespace orrery::fuzz
