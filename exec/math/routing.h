// Which experts a micro-batch's tokens go to (softmax over all experts, the k most likely; their weights
// scaled to add up to one, as in Mixtral, arXiv 2401.04088, or as they are, as in Qwen1.5-MoE), and where
// they stand on the way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orrery::exec {

// A run of rows of one of this rank's experts.
struct ExpertRows {
  int expert = 0;  // counted from the rank's first
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

struct Routing {
  int experts = 0;
  int per_token = 0;
  bool scaled = true;                // set before `route`
  std::int64_t rows = 0;             // tokens
  std::vector<float> probabilities;  // rows x experts
  std::vector<std::int32_t> choice;  // rows x per_token: expert
  std::vector<float> weight;         // rows x per_token
  std::vector<std::int64_t> chosen;  // by expert: tokens that chose it, before any are dropped
  // Rows as they leave, expert by expert.
  std::vector<std::int32_t> slot;           // rows x per_token: row, -1 where dropped
  std::vector<std::int32_t> token_of_slot;  // -1 for padding
  std::vector<float> weight_of_slot;
  std::vector<std::int64_t> sent;  // by expert: rows, padding included
  // Rows as they stand where their experts are.
  std::vector<std::int64_t> received;  // by sender and expert of this rank
  std::vector<ExpertRows> segments;
  std::int64_t received_rows = 0;
  std::int64_t member_rows = 0;  // of them, of each rank that shares the experts, with what is unused
};

// What the router of one layer gave this rank's experts of one micro-batch.
struct RoutedRows {
  double rows = 0;
  double squares = 0;  // sum over its experts of the squares of their rows
};
RoutedRows rows_of(const Routing& routing);  // once `received` is known

// From the router's scores (rows x experts). `capacity` 0: no token is dropped; else every expert gets so
// many rows, first choices before second ones, earlier tokens before later ones.
void route(const float* scores, std::int64_t rows, int experts, int per_token, std::int64_t capacity,
           Routing* routing);

// What `senders` ranks send to this one's experts, once `received` is known.
void lay_out_received(int senders, Routing* routing);

// What the `members` ranks that share these experts have received, gathered: their rows one behind the other,
// each as many as the most of them has, so that equal parts travel. What is beyond a member's own is unused.
// `received`: by member, sender and expert.
void lay_out_gathered(std::span<const std::int64_t> received, int members, int senders, Routing* routing);

// Gradient of the scores from that of the weights (rows x per_token); `balance` is the auxiliary loss's
// coefficient divided by the tokens of the global batch (Switch Transformer, arXiv 2101.03961, equation 4:
// experts x sum of fraction chosen x mean probability).
void route_backward(const Routing& routing, const float* dweight, double balance, float* dscores);

}  // namespace orrery::exec
