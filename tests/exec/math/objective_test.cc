// Which rows of a sample are predicted, and what is hidden for it.
#include "exec/math/objective.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/jobs.h"

namespace orrery::test {
namespace {

using namespace orrery::exec;

constexpr std::int32_t kMask = 256;

struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

Sample hidden(const Job& job, std::int64_t step, std::int64_t sample, const std::vector<std::int32_t>& text) {
  Sample result{text, std::vector<std::int32_t>(text.size())};
  hide_tokens(job, step, sample, kMask, result.tokens, result.targets);
  return result;
}

std::vector<std::int32_t> text_of(int length) {
  std::vector<std::int32_t> text(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>((i * 7) % 251);
  return text;
}

}  // namespace

TEST_CASE("15% of a sequence's tokens are hidden, at least one, from the same draw every time") {
  for (const auto& [length, count] : std::vector<std::pair<int, int>>{{1, 1}, {3, 1}, {24, 4}, {512, 77}}) {
    const auto job = make_job("bert-base", "localhost", 1, 8, length, "orrery");
    CHECK(predictions_per_sample(*job) == count);
    const auto text = text_of(length);
    const Sample a = hidden(*job, 3, 5, text);
    const Sample b = hidden(*job, 3, 5, text);
    CHECK(a.tokens == b.tokens);
    CHECK(a.targets == b.targets);
    int asked = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (a.targets[i] == kNoTarget) {
        CHECK(a.tokens[i] == text[i]);
      } else {
        CHECK(a.targets[i] == text[i]);
        ++asked;
      }
    }
    CHECK(asked == count);
  }
  const auto causal = make_job("gpt2", "localhost", 1, 8, 24, "orrery");
  CHECK(predictions_per_sample(*causal) == 24);
}

TEST_CASE(
    "of the hidden tokens 80% become the mask, 10% another token, 10% stay, and samples and steps differ") {
  const auto job = make_job("bert-base", "localhost", 1, 8, 512, "orrery");
  const auto text = text_of(512);
  int masked = 0;
  int kept = 0;
  int total = 0;
  std::vector<int> times(text.size());
  for (int step = 0; step < 20; ++step)
    for (int sample = 0; sample < 20; ++sample) {
      const Sample s = hidden(*job, step, sample, text);
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (s.targets[i] == kNoTarget) continue;
        ++total;
        ++times[i];
        masked += s.tokens[i] == kMask;
        kept += s.tokens[i] == text[i];
        CHECK(s.tokens[i] <= kMask);
      }
    }
  // 30,800 draws: three standard deviations are 0.7% and 0.5%. A random token is the old one 1 time in 256.
  CHECK(masked / static_cast<double>(total) == Approx(0.8).margin(0.007));
  CHECK(kept / static_cast<double>(total) == Approx(0.1 + 0.1 / 256).margin(0.006));
  // Every position in its turn: 60 of 400 times on average, deviation 7.
  for (const int count : times) CHECK(std::abs(count - 60) < 36);
  CHECK(hidden(*job, 0, 1, text).targets != hidden(*job, 0, 2, text).targets);
  CHECK(hidden(*job, 1, 0, text).targets != hidden(*job, 2, 0, text).targets);
}

}  // namespace orrery::test
