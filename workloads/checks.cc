#include "workloads/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::internal {
namespace {

// In doubles, before anything is multiplied in integers.
double parameters_at_most(const Transformer& t) {
  const double h = t.hidden;
  const double q = static_cast<double>(t.heads) * t.head_dim;
  double layer = h * (3 * q + 2.0 * t.kv_heads * t.head_dim) + 3 * h * t.ffn_hidden;
  if (t.mla) {
    const LatentAttention& a = *t.mla;
    const double heads = t.heads;
    layer += heads * (a.qk_nope_head_dim + static_cast<double>(a.qk_rope_head_dim)) *
             std::max<double>(a.q_lora_rank, h);
    layer += heads * (a.qk_nope_head_dim + static_cast<double>(a.v_head_dim)) * a.kv_lora_rank;
    layer += (static_cast<double>(a.index_heads) * a.index_head_dim) * a.q_lora_rank;
    layer += h * (static_cast<double>(a.index_heads) + a.index_head_dim);
    layer += heads * a.v_head_dim * h + h * (static_cast<double>(a.q_lora_rank) + a.kv_lora_rank);
  }
  if (t.moe)
    layer += 3 * h *
             (static_cast<double>(t.moe->experts) * t.moe->expert_ffn_hidden + t.moe->shared_ffn_hidden +
              t.moe->experts + t.moe->latent);
  if (t.state_space)
    layer +=
        h * (3.0 * static_cast<double>(t.state_space->inner()) +
             2.0 * t.state_space->groups * t.state_space->state + 2.0 * t.state_space->heads) +
        static_cast<double>(t.state_space->inner()) * (t.state_space->step_rank + 3.0 * t.state_space->state);
  const double layers = static_cast<double>(t.layers) + t.multi_token_layers;
  return layer * layers + h * (2.0 * t.vocab + t.max_positions);
}

}  // namespace

namespace {

void check_pattern(const Transformer& t, const Fail& fail) {
  const std::string all = t.layer_pattern + t.multi_token_pattern;
  if (const auto at = all.find_first_not_of("M*A-E "); at != std::string::npos)
    fail("layer_pattern", fmt::format("'{}' is no kind of layer", all[at]),
         "expected M (state space), * or A (attention), - (MLP) or E (experts)");
  const std::vector<std::string> layers = layers_of_pattern(t.layer_pattern);
  const bool words = t.layer_pattern.find(' ') != std::string::npos;
  if (static_cast<int>(layers.size()) != t.layers)
    fail("layer_pattern",
         fmt::format("has {} {} for {} layers", layers.size(), words ? "words" : "letters", t.layers),
         words ? "expected a word a layer" : "expected a letter a layer");
  if (std::any_of(layers.begin(), layers.end(), [](const std::string& word) { return word.size() > 2; }))
    fail("layer_pattern", "has a layer of more than two letters",
         "expected what mixes tokens, then an MLP or experts");
  if (all.find('M') != std::string::npos && !t.state_space)
    fail("layer_pattern", "has state-space layers", "expected state_space, their dimensions");
  if (all.find('E') != std::string::npos && !t.moe)
    fail("layer_pattern", "has layers of experts", "expected moe, their dimensions");
  if (all.find('-') != std::string::npos && t.ffn_hidden == 0)
    fail("ffn_hidden", "0", "expected the width of the MLP");
  if (t.multi_token_layers > 0 && t.multi_token_pattern.empty())
    fail("multi_token_pattern", "missing", "expected the letters of one multi-token prediction module");
  if (t.mla || t.post_norm || t.parallel_residual || t.learned_positions || t.branch_norms)
    fail("layer_pattern",
         "with latent attention, post-norm, norms of branches, parallel residuals or learned positions",
         "expected none of these");
  if (t.state_space && t.state_space->heads % t.state_space->groups != 0)
    fail("state_space",
         fmt::format("{} groups do not divide {} heads", t.state_space->groups, t.state_space->heads),
         "expected a divisor");
}

}  // namespace

void check_transformer(const Transformer& t, const Fail& fail) {
  if (!t.layer_pattern.empty())
    check_pattern(t, fail);
  else if (t.state_space || !t.multi_token_pattern.empty())
    fail("layer_pattern", "missing", "expected a letter a layer, of a model with state-space layers");
  if (t.layer_pattern.empty() && t.moe && t.moe->latent > 0)
    fail("moe", "has experts of a latent width", "expected a layer_pattern");
  if (!t.attention_pattern.empty()) {
    if (t.attention_pattern.find_first_not_of("fwc") != std::string::npos ||
        static_cast<int>(t.attention_pattern.size()) != t.layers || !t.layer_pattern.empty())
      fail("attention_pattern", fmt::format("'{:.40}'", t.attention_pattern),
           "expected f, w or c for each layer, and no layer_pattern");
    if (t.attention_pattern.find_first_of("wc") != std::string::npos && t.sliding_window == 0)
      fail("sliding_window", "0 with layers that have one", "expected its tokens");
  }
  if (t.branch_norms && (t.post_norm || t.parallel_residual || (t.moe && t.moe->shared_ffn_hidden > 0)))
    fail("branch_norms", "with post-norm, parallel residuals or shared experts", "expected none of these");
  if (t.no_input_norms && !t.branch_norms)
    fail("no_input_norms", "true without branch_norms", "expected branch_norms: true");
  if (t.mla && t.mla->index_heads > 0 && t.mla->q_lora_rank == 0)
    fail("mla", "has an indexer without a low rank of queries", "expected q_lora_rank");
  bool dense = false;
  for (int layer = 0; layer < t.layers && t.layer_pattern.empty(); ++layer)
    dense = dense || !t.layer_has_experts(layer);
  if (dense && t.ffn_hidden == 0) fail("ffn_hidden", "0", "expected the width of the MLP");
  if (t.single_norm && !t.parallel_residual)
    fail("single_norm", "true without parallel_residual", "expected parallel_residual: true");
  if (t.post_norm && t.parallel_residual)
    fail("post_norm", "true with parallel_residual", "expected at most one of the two");
  if (t.mla && t.qk_norm) fail("qk_norm", "true with mla", "expected at most one of the two");
  if (t.multi_token_layers > 0 && (t.bidirectional || t.post_norm))
    fail("multi_token_layers", "of a bidirectional or post-norm model", "expected 0");
  const double parameters = parameters_at_most(t);
  if (!(parameters <= kMaxParameters))
    fail("layers", fmt::format("{} makes {:.3g} parameters", t.layers, parameters),
         fmt::format("expected at most {:.0g}", kMaxParameters));
}

}  // namespace orrery::internal
