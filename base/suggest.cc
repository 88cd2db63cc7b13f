#include "base/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace orrery {
namespace {

constexpr std::size_t kMaxSuggestions = 3;
constexpr std::size_t kMaxCompared = 64;  // longer names are no misspelling of ours

std::string lower(std::string_view text) {
  std::string result(text.substr(0, kMaxCompared));
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substituted, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  struct Near {
    std::size_t distance;
    std::string name;
  };
  const std::string wanted = lower(name);
  std::vector<Near> near;
  for (const std::string& candidate : known) {
    const std::string other = lower(candidate);
    const bool inside = wanted.size() >= 3 && other.size() >= 3 &&
                        (other.find(wanted) != std::string::npos || wanted.find(other) != std::string::npos);
    const std::size_t distance = edits_between(wanted, other);
    // Of one letter another is no misspelling.
    const bool like = distance < std::max(wanted.size(), other.size());
    if (inside || (like && distance <= std::max<std::size_t>(1, wanted.size() / 3)))
      near.push_back({distance, candidate});
  }
  if (near.empty()) return fmt::format("expected one of {}", fmt::join(known, ", "));
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.distance < b.distance; });
  std::string text = "did you mean ";
  const std::size_t shown = std::min(near.size(), kMaxSuggestions);
  for (std::size_t i = 0; i < shown; ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == shown ? " or " : ", ", near[i].name);
  return text + "?";
}

}  // namespace orrery
