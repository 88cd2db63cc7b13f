#include "program/samples/sequence_lengths.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/random.h"

using namespace orrery;

namespace {

SequenceLengths of(std::vector<int> tokens) {
  SequenceLengths lengths;
  lengths.tokens = std::move(tokens);
  return lengths;
}

class LengthsFile {
 public:
  explicit LengthsFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("orrery-lengths-" + std::to_string(::getpid()) + "-" + std::to_string(count_++))) {
    std::ofstream(path_) << text;
  }
  ~LengthsFile() { std::filesystem::remove(path_); }
  LengthsFile(const LengthsFile&) = delete;
  LengthsFile& operator=(const LengthsFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

// Steps drawn one by one: what the slowest of the replicas computes, by the mean of all.
double drawn_wait(const std::vector<int>& tokens, int replicas, int micro_batches, int micro_batch,
                  bool at_each) {
  const CounterRandom random(7, 0);
  std::uint64_t turn = 0;
  double slowest = 0, all = 0;
  constexpr int kSteps = 2000;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> own(static_cast<std::size_t>(replicas), 0);
    for (int m = 0; m < micro_batches; ++m) {
      double most = 0;
      for (double& replica : own) {
        int longest = 0;
        for (int i = 0; i < micro_batch; ++i)
          longest =
              std::max(longest, tokens[static_cast<std::size_t>(random.uniform(turn++) * tokens.size())]);
        replica += longest;
        most = std::max(most, static_cast<double>(longest));
        all += static_cast<double>(longest) / replicas;
      }
      if (at_each) slowest += most;
    }
    if (!at_each) slowest += *std::max_element(own.begin(), own.end());
  }
  return slowest / all;
}

}  // namespace

TEST_CASE("a micro-batch of two of two lengths is mostly as long as the longer") {
  const SequenceLengths lengths = of({100, 300});
  // Pairs: 100 once in four, else 300.
  CHECK(computed(lengths, 512, 2).tokens == Approx(250));
  CHECK(computed(lengths, 512, 2).attended == Approx((0.25 * 1e4 + 0.75 * 9e4) / 250));
  CHECK(computed(lengths, 512, 1).tokens == Approx(200));
  CHECK(content(lengths, 512).tokens == Approx(200));
  CHECK(content(lengths, 512).attended == Approx((1e4 + 9e4) / 2 / 200));
  CHECK(longest_of(lengths, 512) == 300);
}

TEST_CASE("packed rows are full and their tokens see their own sequence") {
  SequenceLengths lengths = of({100, 300});
  lengths.packed = true;
  CHECK(computed(lengths, 2048, 4).tokens == 2048);
  CHECK(computed(lengths, 2048, 4).attended == Approx(250));
  CHECK(longest_of(lengths, 2048) == 2048);
}

TEST_CASE("sequences of one length cost what they cost without a word on lengths") {
  const SequenceLengths lengths = of({512});
  const Extent one = computed(lengths, 512, 8), none = computed({}, 512, 8);
  CHECK(one.tokens == none.tokens);
  CHECK(one.attended == none.attended);
  CHECK(wait_for_longest(lengths, 512, {64, 8, 8, 4, false, 0}) == Approx(1));
}

TEST_CASE("the slowest replica exceeds the mean as much as drawn steps do") {
  SequenceLengths lengths = sequence_lengths_from("lognormal:300,200", 2048);
  for (const bool at_each : {false, true})
    for (const int replicas : {2, 8, 64}) {
      const double drawn = drawn_wait(lengths.tokens, replicas, 8, 4, at_each);
      const double said = wait_for_longest(lengths, 2048, {replicas, 8, 4, 1, at_each, 0});
      CAPTURE(at_each, replicas, drawn, said);
      CHECK(std::abs(said / drawn - 1) < (at_each ? 0.01 : 0.04));
    }
}

TEST_CASE("packed rows differ in their sums of squares as drawn rows do") {
  SequenceLengths lengths = sequence_lengths_from("lognormal:300,200", 4096);
  lengths.packed = true;
  const CounterRandom random(11, 0);
  std::uint64_t turn = 0;
  double sum = 0, squares = 0;
  constexpr int kRows = 20000;
  int left = 0;  // of a sequence that the row before cut
  for (int row = 0; row < kRows; ++row) {
    double own = 0;
    for (int at = 0; at < 4096;) {
      if (left == 0)
        left = lengths.tokens[static_cast<std::size_t>(random.uniform(turn++) *
                                                       static_cast<double>(lengths.tokens.size()))];
      const int here = std::min(left, 4096 - at);
      own += static_cast<double>(here) * here;
      at += here;
      left -= here;
    }
    sum += own / kRows;
    squares += own * own / kRows;
  }
  const double drawn = std::sqrt(squares - sum * sum) / sum;
  // Of 16 replicas with one row each and nothing but attention: 1 + the largest of 16 draws x the variation.
  const double said = wait_for_longest(lengths, 4096, {16, 1, 1, 1, false, 1.0}) - 1;
  CHECK(said / 1.7660 == Approx(drawn).epsilon(0.15));
}

TEST_CASE("waiting falls with the micro-batches that average and vanishes where lengths are balanced") {
  SequenceLengths lengths = sequence_lengths_from("lognormal:300,200", 2048);
  const double few = wait_for_longest(lengths, 2048, {16, 1, 4, 1, false, 0});
  const double many = wait_for_longest(lengths, 2048, {16, 64, 4, 1, false, 0});
  CHECK(many < few);
  CHECK(many > 1);
  CHECK(wait_for_longest(lengths, 2048, {1, 64, 4, 1, false, 0}) == Approx(1));
  lengths.balanced = true;
  CHECK(wait_for_longest(lengths, 2048, {16, 1, 4, 1, false, 0}) == 1);
}

TEST_CASE("a plan that stands for one of more micro-batches waits as that one") {
  SequenceLengths lengths = sequence_lengths_from("lognormal:300,200", 2048);
  const double whole = wait_for_longest(lengths, 2048, {16, 64, 4, 1, false, 0});
  lengths.samples_each = 64 * 4;
  CHECK(wait_for_longest(lengths, 2048, {16, 8, 4, 1, false, 0}) == whole);
}

TEST_CASE("a lognormal's quantiles have its mean and deviation") {
  const std::vector<int> tokens = sequence_lengths_from("lognormal:300,150", 1 << 20).tokens;
  double mean = 0, squares = 0;
  for (const int length : tokens) {
    mean += length / static_cast<double>(tokens.size());
    squares += static_cast<double>(length) * length / static_cast<double>(tokens.size());
  }
  CHECK(mean == Approx(300).epsilon(0.005));
  CHECK(std::sqrt(squares - mean * mean) == Approx(150).epsilon(0.05));
  CHECK(sequence_lengths_from("lognormal:300,150", 256).tokens.back() == 256);
}

TEST_CASE("a file of lengths becomes its quantiles, its longest kept") {
  std::string text;
  for (int i = 1000; i >= 1; --i) text += std::to_string(i) + "\n";
  const SequenceLengths lengths = sequence_lengths_from(LengthsFile(text).path(), 4096);
  CHECK(std::is_sorted(lengths.tokens.begin(), lengths.tokens.end()));
  CHECK(lengths.tokens.back() == 1000);
  CHECK(content(lengths, 4096).tokens == Approx(500.5).epsilon(0.01));
}

TEST_CASE("what is no length is named with its line") {
  const LengthsFile file("12\n\n-3\n");
  CHECK_THROWS_WITH(sequence_lengths_from(file.path(), 100),
                    file.path() + ":3: '-3' (expected a sequence's length in tokens)");
  CHECK_THROWS_WITH(sequence_lengths_from(LengthsFile("\n").path(), 100), Catch::Contains("no lengths"));
  for (const char* said :
       {"lognormal:300", "lognormal:0,1", "lognormal:a,b", "lognormal:1,inf", "lognormal:1e308,2"})
    CHECK_THROWS_WITH(sequence_lengths_from(said, 100), Catch::Contains("expected lognormal:MEAN,SD"));
}
