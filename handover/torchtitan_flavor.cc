#include "handover/torchtitan_flavor.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "handover/export_common.h"
#include "workloads/huggingface_config.h"

namespace orrery::planner {
namespace {

// What no family of torchtitan's has; empty: nothing.
std::string part_without_flavor(const Transformer& m) {
  if (!m.layer_pattern.empty() || m.state_space) return "layers of several kinds";
  if (!m.attention_pattern.empty() || m.sliding_window > 0) return "attention within a window";
  if (m.bidirectional || m.mlm_head || m.pooler || m.token_types > 0) return "an encoder";
  if (m.learned_positions) return "learned positions";
  if (m.norm != NormKind::rms_norm || m.post_norm || m.branch_norms || m.no_input_norms ||
      m.first_norm_absent || m.embedding_norm || !m.final_norm)
    return "other norms than RMS norms before attention and MLP";
  if (!m.gated_ffn || m.activation != Activation::silu) return "an MLP that is not SwiGLU";
  if (m.qkv_bias || m.linear_bias || m.proj_bias || m.mlp_bias || m.head_bias) return "biases";
  if (m.parallel_residual) return "attention beside the MLP";
  if (m.rotary_fraction != 1) return "rotary positions of a part of each head";
  if (m.qk_norm && (m.qk_norm_whole || m.qk_norm_absent_weights)) return "norms over all queries and keys";
  if (m.attention_gate || m.attention_sinks) return "gates or sinks of attention";
  if (m.multi_token_layers > 0) return "prediction of several tokens";
  if (!m.moe) return "";
  if (m.moe->layer_period > 1 || m.moe->layer_offset > 0) return "experts in some layers only";
  if (m.moe->shared_gate || m.moe->latent > 0) return "experts of another kind";
  if (m.moe->expert_bias || m.moe->expert_up_bias || m.moe->router_linear_bias) return "experts with biases";
  return "";
}

std::string boolean(bool value) {
  return value ? "True" : "False";
}

// The router of a model with experts: a group has at least two, by whose best it is chosen
// (models/moe/moe.py).
std::string experts(const Transformer& m, std::vector<std::string>* notes) {
  const MixtureOfExperts& moe = *m.moe;
  const int shared = moe.expert_ffn_hidden > 0 ? moe.shared_ffn_hidden / moe.expert_ffn_hidden : 0;
  std::string more;
  if (const auto factor = unexecuted_setting(m, "routed_scaling_factor"))
    more += fmt::format(", route_scale={}", *factor);
  if (const auto groups = router_groups(m);
      groups && moe.experts % groups->first == 0 && moe.experts / groups->first > 1)
    more += fmt::format(", num_expert_groups={}, num_limited_groups={}", groups->first, groups->second);
  else if (unexecuted_setting(m, "n_group"))
    notes->emplace_back(
        "the router looks at all experts; the model's at groups of them: say num_expert_groups and "
        "num_limited_groups in flavor.py");
  return fmt::format(
      "MoEArgs(num_experts={}, num_shared_experts={}, top_k={}, score_func=\"{}\", route_norm={}, "
      "score_before_experts=False{})",
      moe.experts, shared, moe.experts_per_token, has_sigmoid_router(m) ? "sigmoid" : "softmax",
      boolean(moe.scaled_weights), more);
}

std::string module(std::string_view family, std::string_view table, std::string_view arguments_class,
                   const std::string& arguments, bool moe, std::string_view more = "") {
  std::string text =
      fmt::format("# The plan's model, as a flavor of torchtitan's {}: written by orrery export.\n", family);
  text += fmt::format("from torchtitan.models.{} import {}, {}\n", family, arguments_class, table);
  if (moe) text += "from torchtitan.models.moe import MoEArgs\n";
  text += more;
  return text + fmt::format("\n{}[\"orrery\"] = {}(\n{})\n", table, arguments_class, arguments);
}

void scaled_positions_note(const Transformer& m, std::vector<std::string>* notes) {
  if (m.rotary_scaling.kind != RopeScaling::none)
    notes->emplace_back(
        "its rotary positions are scaled otherwise in torchtitan: losses differ, times do not");
}

TorchtitanFlavor llama3(const Transformer& m) {
  TorchtitanFlavor flavor{.family = "llama3", .python = "", .notes = {}};
  const RotaryScaling& rope = m.rotary_scaling;
  const bool scaled = rope.kind == RopeScaling::llama3;
  if (!scaled) scaled_positions_note(m, &flavor.notes);
  // The width of the MLP is int(multiplier x int(8 dim / 3)), rounded up to the multiple.
  const int base = 8 * m.hidden / 3;
  flavor.python = module(
      "llama3", "llama3_args", "TransformerModelArgs",
      fmt::format("    dim={}, n_layers={}, n_heads={}, n_kv_heads={}, vocab_size={},\n"
                  "    ffn_dim_multiplier={} / {}, multiple_of=1,  # {} wide\n"
                  "    norm_eps={}, rope_theta={:.0f},\n"
                  "    rope_scaling_args=RoPEScalingArgs(scaling_factor={}, low_freq_factor={}, "
                  "high_freq_factor={},\n"
                  "                                      original_max_position_embeddings={}),\n",
                  m.hidden, m.layers, m.heads, m.kv_heads, m.vocab, m.ffn_hidden + 0.5, base, m.ffn_hidden,
                  m.norm_epsilon, m.rope_theta, scaled ? rope.factor : 1.0, scaled ? rope.low_frequency : 1.0,
                  scaled ? rope.high_frequency : 4.0, scaled ? rope.original_positions : 8192),
      false, "from torchtitan.models.llama3.model.args import RoPEScalingArgs\n");
  return flavor;
}

TorchtitanFlavor qwen3(const Transformer& m) {
  TorchtitanFlavor flavor{.family = "qwen3", .python = "", .notes = {}};
  scaled_positions_note(m, &flavor.notes);
  std::string arguments = fmt::format(
      "    dim={}, n_layers={}, n_heads={}, n_kv_heads={}, head_dim={}, hidden_dim={}, vocab_size={},\n"
      "    qk_norm={}, norm_eps={}, rope_theta={:.0f}, enable_weight_tying={},\n",
      m.hidden, m.layers, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden, m.vocab, boolean(m.qk_norm),
      m.norm_epsilon, m.rope_theta, boolean(m.tied_embeddings));
  if (m.moe)
    arguments += fmt::format("    moe_enabled=True, moe_inter_dim={},\n    moe_args={},\n",
                             m.moe->expert_ffn_hidden, experts(m, &flavor.notes));
  flavor.python = module("qwen3", "qwen3_args", "Qwen3ModelArgs", arguments, m.moe.has_value());
  return flavor;
}

// What it multiplies scores by: the square of an amplitude, and nothing where no sequence is longer than
// those that positions were scaled from (models/deepseek_v3/model/model.py).
double amplitude_of_scores(const Transformer& m, int seq_len, std::vector<std::string>* notes) {
  const RotaryScaling& rope = m.rotary_scaling;
  if (rope.kind != RopeScaling::yarn || rope.factor <= 1) return 0;
  if (seq_len <= rope.original_positions)
    notes->push_back(
        fmt::format("positions and scores are scaled in longer sequences than {} alone, the model's in all: "
                    "losses differ, times do not",
                    rope.original_positions));
  if (std::abs(rope.attention_factor - 1) > 1e-6)
    notes->push_back(
        fmt::format("the model's turned positions are {} times as large: losses differ, times do not",
                    rope.attention_factor));
  if (m.attention_scale <= 0) return 0;
  return yarn_scale_of(rope.factor, std::sqrt(m.attention_scale * std::sqrt(m.head_dim)));
}

TorchtitanFlavor deepseek_v3(const Transformer& m, int seq_len) {
  TorchtitanFlavor flavor{.family = "deepseek_v3", .python = "", .notes = {}};
  const LatentAttention& mla = *m.mla;
  const RotaryScaling& rope = m.rotary_scaling;
  const bool yarn = rope.kind == RopeScaling::yarn;
  if (!yarn) scaled_positions_note(m, &flavor.notes);
  const double amplitude = amplitude_of_scores(m, seq_len, &flavor.notes);
  flavor.python = module(
      "deepseek_v3", "deepseekv3_args", "DeepSeekV3ModelArgs",
      fmt::format(
          "    dim={}, n_layers={}, n_dense_layers={}, n_heads={}, inter_dim={}, moe_inter_dim={}, "
          "vocab_size={},\n"
          "    q_lora_rank={}, kv_lora_rank={}, qk_nope_head_dim={}, qk_rope_head_dim={}, v_head_dim={},\n"
          "    norm_eps={}, rope_theta={:.0f}, rope_factor={}, original_seq_len={}{},\n"
          "    moe_args={},\n",
          m.hidden, m.layers, m.moe->first_dense_layers, m.heads, m.ffn_hidden, m.moe->expert_ffn_hidden,
          m.vocab, mla.q_lora_rank, mla.kv_lora_rank, mla.qk_nope_head_dim, mla.qk_rope_head_dim,
          mla.v_head_dim, m.norm_epsilon, m.rope_theta, yarn ? rope.factor : 1.0,
          yarn ? rope.original_positions : m.max_positions,
          yarn ? fmt::format(", mscale={:.6g}, beta_fast={:.0f}, beta_slow={:.0f}", amplitude, rope.beta_fast,
                             rope.beta_slow)
               : "",
          experts(m, &flavor.notes)),
      true);
  return flavor;
}

}  // namespace

TorchtitanFlavor torchtitan_flavor(const Plan& plan) {
  const Transformer& m = transformer_for(plan, "torchtitan");
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("{} cannot be exported to torchtitan: {}", plan.job->workload.name, why),
                    "expected a model as its llama3, qwen3 or deepseek_v3 are (v0.2.2)");
  };
  if (const std::string part = part_without_flavor(m); !part.empty())
    refuse("none of its models has " + part);
  if (m.mla) {
    if (!m.moe) refuse("its deepseek_v3 has experts");
    if (m.mla->index_heads > 0) refuse("none of its models has sparse attention");
    if (m.tied_embeddings) refuse("its deepseek_v3 ties no embeddings");
    return deepseek_v3(m, plan.job->training.seq_len);
  }
  const bool plain = !m.moe && !m.qk_norm && !m.tied_embeddings && m.head_dim * m.heads == m.hidden;
  if (plain) return llama3(m);
  if (m.moe && (m.moe->shared_ffn_hidden > 0 || m.moe->first_dense_layers > 0 || m.moe->selection_bias))
    refuse("its qwen3 has no shared experts, dense first layers or router biases");
  if (plan.choices.pp > 1) refuse("its qwen3, which the model would be, has no pipeline; plan with --pp 1");
  return qwen3(m);
}

}  // namespace orrery::planner
