#include "program/samples/sequence_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/statistics.h"

namespace orrery {
namespace {

constexpr std::size_t kQuantiles = 128;
constexpr std::string_view kLognormal = "lognormal:";
constexpr std::string_view kExpected =
    "expected lognormal:MEAN,SD in tokens, or a file with a length on each line";

// Mean of f over single sequences.
template <typename F>
double mean_of(const std::vector<int>& tokens, F f) {
  double sum = 0;
  for (const int length : tokens) sum += f(static_cast<double>(length));
  return sum / static_cast<double>(tokens.size());
}

// Mean of f over the longest of so many.
template <typename F>
double mean_of_longest(const std::vector<int>& tokens, double draws, F f) {
  double sum = 0, below = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double until = std::pow(static_cast<double>(i + 1) / static_cast<double>(tokens.size()), draws);
    sum += (until - below) * f(static_cast<double>(tokens[i]));
    below = until;
  }
  return sum;
}

Extent extent_of(double tokens, double squares) {
  return {tokens, tokens > 0 ? squares / tokens : 0};
}

double square(double x) {
  return x * x;
}

double number_in(std::string_view text, std::string_view said) {
  const std::optional<double> value = parse_number(text);
  constexpr double kMost = 1e9;  // no sequence is as long
  if (!value || *value <= 0 || *value > kMost)
    throw UserError(fmt::format("`lengths` {}", said), std::string(kExpected));
  return *value;
}

// Of the distribution's middle of each of equal parts.
std::vector<int> lognormal(std::string_view said, int longest) {
  const std::string_view numbers = said.substr(kLognormal.size());
  const std::size_t comma = numbers.find(',');
  if (comma == std::string_view::npos)
    throw UserError(fmt::format("`lengths` {}", said), std::string(kExpected));
  const double mean = number_in(numbers.substr(0, comma), said);
  const double deviation = number_in(numbers.substr(comma + 1), said);
  const double variance = std::log1p(square(deviation / mean));
  const double middle = std::log(mean) - variance / 2;
  std::vector<int> tokens;
  for (std::size_t i = 0; i < kQuantiles; ++i) {
    const double p = (static_cast<double>(i) + 0.5) / static_cast<double>(kQuantiles);
    const double z = -std::sqrt(2.0) * boost::math::erfc_inv(2 * p);
    const double length = std::exp(middle + std::sqrt(variance) * z);
    tokens.push_back(static_cast<int>(std::clamp(std::round(length), 1.0, static_cast<double>(longest))));
  }
  return tokens;
}

std::vector<int> from_file(const std::string& file, int longest, CutOff* cut) {
  const std::string text = read_file(file);
  std::vector<int> all;
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++line;
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view word = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    while (!word.empty() && (word.back() == '\r' || word.back() == ' ' || word.back() == '\t'))
      word.remove_suffix(1);
    if (word.empty()) continue;
    const std::optional<std::int64_t> length = parse_whole(word);
    if (!length || *length < 1)
      throw UserError(file, line, fmt::format("'{}'", word.substr(0, 40)),
                      "expected a sequence's length in tokens");
    all.push_back(static_cast<int>(std::min<std::int64_t>(*length, longest)));
    if (cut != nullptr && *length > longest) ++cut->lengths;
  }
  if (cut != nullptr) cut->of = all.size();
  if (all.empty())
    throw UserError(file, 0, "no lengths", "expected a sequence's length in tokens on each line");
  std::sort(all.begin(), all.end());
  if (all.size() <= kQuantiles) return all;
  std::vector<int> tokens;
  for (std::size_t i = 0; i < kQuantiles; ++i)
    tokens.push_back(all[(2 * i + 1) * all.size() / (2 * kQuantiles)]);
  tokens.back() = all.back();
  return tokens;
}

// Coefficient of variation of what one micro-batch takes.
double variation(const SequenceLengths& lengths, int longest, const Division& division) {
  if (!lengths.packed) {
    const auto draws = static_cast<double>(division.micro_batch);
    const double mean = mean_of_longest(lengths.tokens, draws, [](double l) { return l; });
    const double squares = mean_of_longest(lengths.tokens, draws, square);
    return std::sqrt(std::max(0.0, squares - square(mean))) / mean;
  }
  // A row takes sequences until it is full: a renewal process, whose sum of squares varies as squares less
  // their share of the tokens do.
  const Extent row = content(lengths, longest);
  const double mean = mean_of(lengths.tokens, [](double l) { return l; });
  const double own = mean_of(lengths.tokens, [&](double l) { return square(l * l - row.attended * l); });
  const double in_row = longest / mean * own;
  const double all = row.attended * longest;
  return division.attention_share * std::sqrt(in_row / division.micro_batch) / all;
}

}  // namespace

SequenceLengths sequence_lengths_from(std::string_view said, int longest, CutOff* cut) {
  SequenceLengths lengths;
  lengths.tokens =
      said.starts_with(kLognormal) ? lognormal(said, longest) : from_file(std::string(said), longest, cut);
  return lengths;
}

Extent content(const SequenceLengths& lengths, int longest) {
  if (!lengths.any()) return {static_cast<double>(longest), static_cast<double>(longest)};
  const Extent one =
      extent_of(mean_of(lengths.tokens, [](double l) { return l; }), mean_of(lengths.tokens, square));
  return lengths.packed ? Extent{static_cast<double>(longest), one.attended} : one;
}

Extent computed(const SequenceLengths& lengths, int longest, int micro_batch) {
  if (!lengths.any() || lengths.packed) return content(lengths, longest);
  if (!lengths.balanced) {
    const auto draws = static_cast<double>(micro_batch);
    return extent_of(mean_of_longest(lengths.tokens, draws, [](double l) { return l; }),
                     mean_of_longest(lengths.tokens, draws, square));
  }
  return content(lengths, longest);  // neighbours in length: next to nothing is padded
}

int longest_of(const SequenceLengths& lengths, int longest) {
  return lengths.any() && !lengths.packed ? lengths.tokens.back() : longest;
}

std::string describe(const SequenceLengths& lengths) {
  return fmt::format("of {} to {} tokens, {:.0f} in the mean, {}{}", lengths.tokens.front(),
                     lengths.tokens.back(), mean_of(lengths.tokens, [](double l) { return l; }),
                     lengths.packed ? "packed" : "padded", lengths.balanced ? " and balanced" : "");
}

double wait_for_longest(const SequenceLengths& lengths, int longest, const Division& division) {
  if (!lengths.any() || lengths.balanced || !lengths.waits) return 1;
  const double own = variation(lengths, longest, division);
  const auto replicas = static_cast<double>(division.replicas);
  const auto count = lengths.samples_each > 0
                         ? static_cast<double>(lengths.samples_each) / division.micro_batch
                         : static_cast<double>(division.micro_batches);
  // The largest of so many micro-batches, by their mean: of padded ones it is known.
  const auto largest = [&](double micro_batches) {
    if (lengths.packed) return 1 + expected_largest(micro_batches) * own;
    const auto tokens = [](double l) { return l; };
    const auto draws = static_cast<double>(division.micro_batch);
    return mean_of_longest(lengths.tokens, draws * micro_batches, tokens) /
           mean_of_longest(lengths.tokens, draws, tokens);
  };
  const double each = largest(replicas);
  const double slowest =
      division.at_each ? each : std::min(each, 1 + expected_largest(replicas) * own / std::sqrt(count));
  const double fill = division.stages - 1;
  return std::max(1.0, (count * slowest + fill * largest(count * replicas)) / (count + fill));
}

}  // namespace orrery
