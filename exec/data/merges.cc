#include "exec/data/merges.h"

#include <functional>
#include <queue>
#include <tuple>

namespace orrery::exec {
namespace {

std::uint64_t pair_of(std::int32_t first, std::int32_t second) {
  return static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint32_t>(second);
}

}  // namespace

void Merges::add(std::int32_t first, std::int32_t second, std::int32_t token) {
  merges_.try_emplace(pair_of(first, second), Merge{static_cast<int>(merges_.size()), token});
}

std::vector<std::int32_t> Merges::merged(const std::vector<std::int32_t>& word) const {
  struct Part {
    std::int32_t token = 0;
    std::size_t before = 0, after = 0;  // its neighbours' places; the word's length: none
    bool merged = false;                // into the one before it
  };
  using Candidate = std::tuple<int, std::size_t, std::int32_t, std::int32_t>;  // rank, place, both tokens
  const std::size_t none = word.size();
  std::vector<Part> parts(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::size_t at) {
    if (at == none || parts[at].after == none) return;
    const std::int32_t first = parts[at].token;
    const std::int32_t second = parts[parts[at].after].token;
    const auto merge = merges_.find(pair_of(first, second));
    if (merge != merges_.end()) candidates.emplace(merge->second.rank, at, first, second);
  };
  for (std::size_t i = 0; i < word.size(); ++i) parts[i] = {word[i], i > 0 ? i - 1 : none, i + 1, false};
  for (std::size_t i = 0; i + 1 < word.size(); ++i) consider(i);
  std::vector<std::size_t> changed;
  while (!candidates.empty()) {
    const int rank = std::get<0>(candidates.top());
    changed.clear();
    while (!candidates.empty() && std::get<0>(candidates.top()) == rank) {
      const auto [its_rank, at, first, second] = candidates.top();
      candidates.pop();
      Part& part = parts[at];
      if (part.merged || part.token != first || part.after == none || parts[part.after].token != second)
        continue;
      Part& next = parts[part.after];
      part.token = merges_.at(pair_of(first, second)).token;
      next.merged = true;
      part.after = next.after;
      if (part.after != none) parts[part.after].before = at;
      changed.push_back(at);
    }
    for (const std::size_t at : changed) {
      if (parts[at].merged) continue;
      consider(at);
      consider(parts[at].before);
    }
  }
  std::vector<std::int32_t> tokens;
  for (std::size_t at = 0; at < none; at = parts[at].after) tokens.push_back(parts[at].token);
  return tokens;
}

}  // namespace orrery::exec
