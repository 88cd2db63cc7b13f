#include "exec/math/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery::exec {
namespace {

void choose(const float* scores, Routing* r) {
  const auto experts = static_cast<std::size_t>(r->experts);
  const auto k = static_cast<std::size_t>(r->per_token);
  const auto rows = static_cast<std::size_t>(r->rows);
  r->probabilities.resize(rows * experts);
  r->choice.resize(rows * k);
  r->weight.resize(rows * k);
  r->chosen.assign(experts, 0);
  std::vector<std::int32_t> order(experts);
  for (std::size_t t = 0; t < rows; ++t) {
    const float* score = scores + t * experts;
    float* p = r->probabilities.data() + t * experts;
    const float most = *std::max_element(score, score + experts);
    float sum = 0;
    for (std::size_t e = 0; e < experts; ++e) sum += p[e] = std::exp(score[e] - most);
    for (std::size_t e = 0; e < experts; ++e) p[e] /= sum;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                      [score](std::int32_t a, std::int32_t b) {
                        return score[a] != score[b] ? score[a] > score[b] : a < b;
                      });
    float of_chosen = 0;
    for (std::size_t j = 0; j < k; ++j) of_chosen += p[order[j]];
    for (std::size_t j = 0; j < k; ++j) {
      r->choice[t * k + j] = order[j];
      r->weight[t * k + j] = r->scaled ? p[order[j]] / of_chosen : p[order[j]];
      ++r->chosen[static_cast<std::size_t>(order[j])];
    }
  }
}

}  // namespace

void route(const float* scores, std::int64_t rows, int experts, int per_token, std::int64_t capacity,
           Routing* r) {
  r->experts = experts;
  r->per_token = per_token;
  r->rows = rows;
  choose(scores, r);
  const auto k = static_cast<std::size_t>(per_token);
  const auto tokens = static_cast<std::size_t>(rows);
  if (capacity > 0)
    r->sent.assign(static_cast<std::size_t>(experts), capacity);
  else
    r->sent = r->chosen;
  std::vector<std::int64_t> next(r->sent.size(), 0);
  std::exclusive_scan(r->sent.begin(), r->sent.end(), next.begin(), std::int64_t{0});
  const std::vector<std::int64_t> begin = next;
  const auto slots =
      static_cast<std::size_t>(std::accumulate(r->sent.begin(), r->sent.end(), std::int64_t{0}));
  r->slot.assign(tokens * k, -1);
  r->token_of_slot.assign(slots, -1);
  r->weight_of_slot.assign(slots, 0);
  const auto place = [&](std::size_t token, std::size_t j) {
    const std::size_t at = token * k + j;
    const auto expert = static_cast<std::size_t>(r->choice[at]);
    if (next[expert] == begin[expert] + r->sent[expert]) return;  // full
    const std::int64_t slot = next[expert]++;
    r->slot[at] = static_cast<std::int32_t>(slot);
    r->token_of_slot[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(token);
    r->weight_of_slot[static_cast<std::size_t>(slot)] = r->weight[at];
  };
  for (std::size_t j = 0; j < k; ++j)
    for (std::size_t token = 0; token < tokens; ++token) place(token, j);
}

RoutedRows rows_of(const Routing& r) {
  std::vector<double> of_expert;
  for (const ExpertRows& segment : r.segments) {
    of_expert.resize(std::max(of_expert.size(), static_cast<std::size_t>(segment.expert) + 1));
    of_expert[static_cast<std::size_t>(segment.expert)] += static_cast<double>(segment.rows);
  }
  RoutedRows sums;
  for (const double rows : of_expert) {
    sums.rows += rows;
    sums.squares += rows * rows;
  }
  return sums;
}

void lay_out_received(int senders, Routing* r) {
  lay_out_gathered(r->received, 1, senders, r);
}

void lay_out_gathered(std::span<const std::int64_t> received, int members, int senders, Routing* r) {
  const std::size_t of_member = received.size() / static_cast<std::size_t>(members);
  const std::size_t local = of_member / static_cast<std::size_t>(senders);
  r->segments.clear();
  r->member_rows = 0;
  for (std::size_t begin = 0; begin < received.size(); begin += of_member)
    r->member_rows = std::max(
        r->member_rows, std::accumulate(&received[begin], &received[begin] + of_member, std::int64_t{0}));
  r->received_rows = r->member_rows * members;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < received.size(); ++i) {
    if (i % of_member == 0) row = static_cast<std::int64_t>(i / of_member) * r->member_rows;
    if (received[i] > 0) r->segments.push_back({static_cast<int>(i % local), row, received[i]});
    row += received[i];
  }
}

void route_backward(const Routing& r, const float* dweight, double balance, float* dscores) {
  const auto experts = static_cast<std::size_t>(r.experts);
  const auto k = static_cast<std::size_t>(r.per_token);
  const auto rows = static_cast<std::size_t>(r.rows);
  std::vector<float> dp(experts);
  std::vector<float> of_balance(experts);
  for (std::size_t e = 0; e < experts; ++e)
    of_balance[e] = static_cast<float>(balance * static_cast<double>(experts) *
                                       static_cast<double>(r.chosen[e]) / static_cast<double>(rows * k));
  for (std::size_t t = 0; t < rows; ++t) {
    const float* p = r.probabilities.data() + t * experts;
    std::copy(of_balance.begin(), of_balance.end(), dp.begin());
    float of_chosen = 0;
    float mean = 0;
    for (std::size_t j = 0; j < k; ++j) {
      of_chosen += p[r.choice[t * k + j]];
      mean += dweight[t * k + j] * r.weight[t * k + j];
    }
    for (std::size_t j = 0; j < k; ++j)
      dp[static_cast<std::size_t>(r.choice[t * k + j])] +=
          r.scaled ? (dweight[t * k + j] - mean) / of_chosen : dweight[t * k + j];
    float product = 0;
    for (std::size_t e = 0; e < experts; ++e) product += p[e] * dp[e];
    for (std::size_t e = 0; e < experts; ++e) dscores[t * experts + e] = p[e] * (dp[e] - product);
  }
}

}  // namespace orrery::exec
