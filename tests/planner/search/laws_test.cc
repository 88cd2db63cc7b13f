// What must hold between answers, whatever the figures.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/search/search.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

constexpr double kSlack = 0.005;

double nominal_step_s(const std::shared_ptr<Job>& job, const Pins& pins) {
  SearchOptions options;
  options.rank = Rank::nominal;
  return planner::search(job, pins, options).plans.front().step_time_s();
}

// Of a sequence, on a rank, in what is searched (docs/planner.md, "The space").
constexpr int kLeastTokens = 2048;

// Each dimension pinned to values that are searched, alone, and tp with pp.
std::vector<Pins> pinned(int seq_len) {
  std::vector<Pins> all;
  const auto with = [&](auto Pins::*field, auto value) {
    Pins& pins = all.emplace_back();
    pins.*field = value;
  };
  for (const int ranks : {1, 2, 4, 8}) {
    with(&Pins::tp, ranks);
    with(&Pins::pp, ranks);
    if (ranks == 1 || seq_len / ranks >= kLeastTokens) with(&Pins::cp, ranks);
    with(&Pins::micro_batch, ranks);
    for (const int stages : {1, 2, 4, 8}) {
      Pins& pins = all.emplace_back();
      pins.tp = ranks;
      pins.pp = stages;
    }
  }
  for (const int zero : {0, 1, 2, 3}) with(&Pins::zero, zero);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    with(&Pins::recompute, recompute);
  return all;
}

void check_pins(const std::shared_ptr<Job>& job) {
  const double free_s = nominal_step_s(job, {});
  int answered = 0;
  for (const Pins& pins : pinned(job->training.seq_len)) {
    INFO(fmt::format("{} on {}: tp {} pp {} cp {} micro-batch {} zero {}", job->workload.name,
                     job->cluster.name, pins.tp.value_or(-1), pins.pp.value_or(-1), pins.cp.value_or(-1),
                     pins.micro_batch.value_or(-1), pins.zero.value_or(-1)));
    double pinned_s = 0;
    try {
      pinned_s = nominal_step_s(job, pins);
    } catch (const NoAnswer&) {  // none fits
      continue;
    } catch (const UserError&) {  // no such plan on these devices
      continue;
    }
    CHECK(pinned_s >= free_s * (1 - kSlack));
    ++answered;
  }
  CHECK(answered >= 8);
}

void check_doubling(const std::string& workload, const std::string& cluster, int devices, int seq_len,
                    std::int64_t from, std::int64_t to) {
  double before = 0;
  for (std::int64_t batch = from; batch <= to; batch *= 2) {
    const double rate =
        static_cast<double>(batch) / nominal_step_s(make_job(workload, cluster, devices, batch, seq_len), {});
    INFO(workload << " on " << cluster << ", batch " << batch);
    CHECK(rate >= before * (1 - kSlack));
    before = rate;
  }
}

TEST_CASE("no plan pinned inside the space beats the one that is best as predicted") {
  check_pins(make_job("gpt2", "dgx-a100", 8, 64, 1024));
}

TEST_CASE("doubling the batch never lowers the rate") {
  check_doubling("gpt2", "dgx-a100", 8, 1024, 8, 256);
  check_doubling("llama3-8b", "dgx-h100", 16, 8192, 16, 256);
}

TEST_CASE("the large questions keep to these laws", "[.long]") {
  check_pins(make_job("llama2-7b", "aws-p4d-24xlarge", 16, 64, 4096));
  check_pins(make_job("gpt3-175b", "dgx-a100", 1024, 1536, 2048));
  check_pins(make_job("llama3-70b", "dgx-h100", 512, 1024, 8192));
  check_pins(make_job("mixtral-8x7b", "dgx-h100", 64, 256, 4096));
  check_pins(make_job("llama3-405b", "dgx-h100", 16384, 2048, 8192));
  check_doubling("gpt3-175b", "dgx-a100", 1024, 2048, 384, 3072);
  check_doubling("llama3-70b", "dgx-h100", 512, 8192, 256, 2048);
  check_doubling("mixtral-8x7b", "dgx-h100", 64, 4096, 64, 1024);
  check_doubling("llama3-405b", "dgx-h100", 16384, 8192, 512, 2048);
}

}  // namespace
}  // namespace orrery::planner
