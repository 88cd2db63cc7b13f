// Megatron-LM core 0.20.0: one torchrun line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "handover/export_common.h"
#include "workloads/huggingface_config.h"

namespace orrery::planner {
namespace {

class Flags {
 public:
  void add(std::string flag) { lines_.push_back(std::move(flag)); }
  template <class Value>
  void add(std::string_view flag, const Value& value) {
    lines_.push_back(fmt::format("{} {}", flag, value));
  }
  std::string text() const {
    std::string out;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      out += "  " + lines_[i] + (i + 1 < lines_.size() ? " \\\n" : "\n");
    return out;
  }

 private:
  std::vector<std::string> lines_;
};

// "[0,1,0,1]": one a layer that has experts.
std::string layers_with_experts(const Transformer& m) {
  std::string list = "[";
  for (int layer = 0; layer < m.layers; ++layer)
    list += fmt::format("{}{}", layer > 0 ? "," : "", m.layer_has_experts(layer) ? 1 : 0);
  return list + "]";
}

void activation_flags(const Transformer& m, Flags& flags, std::vector<std::string>* notes) {
  if (is_clamped_quick_geglu(m)) {  // gate x sigmoid(1.702 gate) x (up + 1), both bounded
    flags.add("--quick-geglu");
    flags.add("--glu-linear-offset 1.0");
    flags.add("--activation-func-clamp-value", unexecuted_setting(m, "swiglu_limit").value_or("7"));
    return;
  }
  if (m.gated_ffn) flags.add("--swiglu");
  if (is_squared_relu(m)) {
    flags.add("--squared-relu");
    return;
  }
  // GELU's tanh form is the kernel that adds a bias, too (fused_bias_gelu.py); without biases, or without
  // that kernel, GELU is exact (arguments.py sets bias_gelu_fusion, mlp.py runs F.gelu).
  const bool biased = has_biases_everywhere(m);
  if (!m.gated_ffn && biased && m.activation == Activation::gelu_erf) {
    flags.add("--no-bias-gelu-fusion");
    notes->emplace_back(
        "--no-bias-gelu-fusion computes GELU exactly, as the model does, in kernels of its own: a little "
        "slower than planned");
    return;
  }
  const Activation runs = m.gated_ffn ? Activation::silu : biased ? Activation::gelu : Activation::gelu_erf;
  if (m.activation != runs)
    notes->push_back(
        fmt::format("the model's MLP is by {}, which no flag says; this runs {}: losses differ, times hardly",
                    m.activation == Activation::gelu ? "gelu's tanh form" : name_of(m.activation),
                    m.gated_ffn ? "SwiGLU"
                    : biased    ? "GELU's tanh form"
                                : "exact GELU"));
}

// Latent attention multiplies its scores by the square of what --mscale-all-dim stands for, and its turned
// positions by the ratio of both (multi_latent_attention.py).
void latent_scale_flags(const Transformer& m, Flags& flags) {
  const RotaryScaling& scaling = m.rotary_scaling;
  if (scaling.factor <= 1) return;
  const double of_all = m.attention_scale > 0 ? std::sqrt(m.attention_scale * std::sqrt(m.head_dim)) : 1;
  const auto add = [&](std::string_view flag, double amplitude) {
    flags.add(flag, fmt::format("{:.6g}", yarn_scale_of(scaling.factor, amplitude)));
  };
  add("--mscale", scaling.attention_factor * of_all);
  add("--mscale-all-dim", of_all);
}

void position_flags(const Transformer& m, int seq_len, Flags& flags, std::vector<std::string>* notes) {
  const RotaryScaling& scaling = m.rotary_scaling;
  const bool yarn = scaling.kind == RopeScaling::yarn;
  flags.add("--max-position-embeddings", std::max(m.max_positions, seq_len));
  flags.add("--position-embedding-type", has_no_positions(m)   ? "none"
                                         : m.learned_positions ? "learned_absolute"
                                         : yarn && !m.mla      ? "yarn"
                                                               : "rope");
  if (m.learned_positions || has_no_positions(m)) return;
  flags.add("--rotary-base", static_cast<long>(m.rope_theta));
  if (m.rotary_fraction != 1) flags.add("--rotary-percent", m.rotary_fraction);
  if (m.mla) {  // whose positions are scaled by 40 unless told otherwise
    flags.add("--rope-type", yarn ? "yarn" : "rope");
    if (!yarn) flags.add("--no-rope-fusion");  // it takes the scaled ones alone
  }
  if (yarn) {
    flags.add("--rotary-scaling-factor", scaling.factor);
    if (!m.mla) {
      flags.add("--yarn-original-max-position-embeddings", scaling.original_positions);
      flags.add("--yarn-beta-fast", scaling.beta_fast);
      flags.add("--yarn-beta-slow", scaling.beta_slow);
    } else if (scaling.original_positions != 4096 || scaling.beta_fast != 32 || scaling.beta_slow != 1) {
      notes->push_back(
          fmt::format("latent attention's positions are scaled from 4096 between 32 and 1 turns; the model's "
                      "from {} between {} and {}: losses differ, times do not",
                      scaling.original_positions, scaling.beta_fast, scaling.beta_slow));
    }
    // Of others it computes yarn_amplitude(factor, 1), where --mscale is not said.
    if (m.mla)
      latent_scale_flags(m, flags);
    else if (std::abs(scaling.attention_factor - yarn_amplitude(scaling.factor, 1)) > 1e-6)
      notes->push_back(fmt::format(
          "the model's scaled scores are {} times as large (--mscale): losses differ, times do not",
          scaling.attention_factor));
  }
  if (scaling.kind == RopeScaling::llama3) {
    flags.add("--use-rope-scaling");
    flags.add("--rope-scaling-factor", scaling.factor);
    if (scaling.original_positions != 8192 || scaling.low_frequency != 1 || scaling.high_frequency != 4)
      notes->push_back(
          fmt::format("Llama 3.1's positions are scaled from 8192 between 1 and 4 turns; the model's from {} "
                      "between {} and {}: losses differ, times do not",
                      scaling.original_positions, scaling.low_frequency, scaling.high_frequency));
  }
  if (scaling.kind == RopeScaling::linear) {
    const auto factor = static_cast<long>(std::lround(scaling.factor));
    flags.add("--rotary-seq-len-interpolation-factor", factor);
    if (static_cast<double>(factor) != scaling.factor)
      notes->push_back(fmt::format("positions are divided by {}; the model's by {}: losses differ", factor,
                                   scaling.factor));
  }
}

void model_flags(const Plan& plan, const Transformer& m, Flags& flags, std::vector<std::string>* notes) {
  const Training& t = plan.job->training;
  flags.add("--num-layers", m.layers);
  flags.add("--hidden-size", m.hidden);
  flags.add("--ffn-hidden-size", m.ffn_hidden);
  flags.add("--num-attention-heads", m.heads);
  if (m.kv_heads != m.heads && !m.mla) {
    flags.add("--group-query-attention");
    flags.add("--num-query-groups", m.kv_heads);
  }
  if (!m.mla && m.head_dim * m.heads != m.hidden) flags.add("--kv-channels", m.head_dim);
  flags.add("--seq-length", t.seq_len);
  position_flags(m, t.seq_len, flags, notes);
  flags.add("--normalization", m.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm");
  flags.add("--norm-epsilon", m.norm_epsilon);
  activation_flags(m, flags, notes);
  if (is_offset_norm(m)) flags.add("--apply-layernorm-1p");
  const bool biased = has_biases_everywhere(m);
  if (!biased) flags.add("--disable-bias-linear");
  if (m.qkv_bias && !biased) flags.add("--add-qkv-bias");
  if (biased && m.moe) {
    if (plan.choices.etp > 1)
      throw UserError(
          fmt::format("`etp` {}: experts with biases cannot be exported to Megatron-LM, which splits no such "
                      "experts",
                      plan.choices.etp),
          "expected `etp` 1");
    flags.add("--no-bias-dropout-fusion");  // its grouped experts assert so
  }
  if (!m.tied_embeddings) flags.add("--untie-embeddings-and-output-weights");
  flags.add("--vocab-size", m.vocab);
  if (const int multiple = 128 * plan.choices.tp; m.vocab % multiple != 0)
    notes->push_back(fmt::format(
        "Megatron-LM fills the vocabulary of {} up to {} (--make-vocab-size-divisible-by): so much "
        "more of embedding and head",
        m.vocab, (m.vocab + multiple - 1) / multiple * multiple));
  // 0.1 each unless said.
  flags.add("--attention-dropout", m.dropouts.attention);
  flags.add("--hidden-dropout", m.dropouts.attention_out);
  if (m.dropouts.embedding != m.dropouts.attention_out || m.dropouts.mlp_out != m.dropouts.attention_out)
    notes->push_back(fmt::format(
        "one --hidden-dropout stands for embeddings, attention and MLP; the model's are {}, {} and {}",
        m.dropouts.embedding, m.dropouts.attention_out, m.dropouts.mlp_out));
  if (m.sliding_window > 0) flags.add(fmt::format("--window-size '({},0)'", m.sliding_window));
  if (m.sliding_window > 0 && m.full_attention_period > 1 && m.attention_pattern.empty())
    flags.add("--window-attn-skip-freq", m.full_attention_period);
  if (m.attention_sinks) flags.add("--softmax-type learnable");
  // Of latent attention: the norms behind its narrow products.
  if (m.mla || (m.qk_norm && !m.qk_norm_whole && !m.qk_norm_absent_weights)) flags.add("--qk-layernorm");
  if (m.multi_token_layers > 0) flags.add("--mtp-num-layers", m.multi_token_layers);
  if (m.mla) {
    flags.add("--multi-latent-attention");
    if (m.mla->q_lora_rank > 0) flags.add("--q-lora-rank", m.mla->q_lora_rank);
    flags.add("--kv-lora-rank", m.mla->kv_lora_rank);
    flags.add("--qk-head-dim", m.mla->qk_nope_head_dim);
    flags.add("--qk-pos-emb-head-dim", m.mla->qk_rope_head_dim);
    flags.add("--v-head-dim", m.mla->v_head_dim);
  }
  if (!m.moe) return;
  flags.add("--num-experts", m.moe->experts);
  flags.add("--moe-router-topk", m.moe->experts_per_token);
  flags.add("--moe-ffn-hidden-size", m.moe->expert_ffn_hidden);
  if (m.moe->shared_ffn_hidden > 0)
    flags.add("--moe-shared-expert-intermediate-size", m.moe->shared_ffn_hidden);
  if (m.moe->shared_gate) flags.add("--moe-shared-expert-gate");
  if (m.moe->latent > 0) flags.add("--moe-latent-size", m.moe->latent);
  if (m.moe->first_dense_layers > 0)
    flags.add(fmt::format("--moe-layer-freq '([0]*{}+[1]*{})'", m.moe->first_dense_layers,
                          m.layers - m.moe->first_dense_layers));
  else if (m.moe->layer_offset > 0)
    flags.add(fmt::format("--moe-layer-freq '{}'", layers_with_experts(m)));
  else if (m.moe->layer_period > 1)
    flags.add("--moe-layer-freq", m.moe->layer_period);
  if (has_sigmoid_router(m)) flags.add("--moe-router-score-function sigmoid");
  if (m.moe->selection_bias) {
    flags.add("--moe-router-enable-expert-bias");
    flags.add("--moe-router-load-balancing-type none");
  } else if (m.moe->auxiliary_loss > 0) {
    flags.add("--moe-router-load-balancing-type aux_loss");
    flags.add("--moe-aux-loss-coeff", m.moe->auxiliary_loss);
  }
  if (const auto groups = router_groups(m)) {
    flags.add("--moe-router-num-groups", groups->first);
    flags.add("--moe-router-group-topk", groups->second);
  } else if (unexecuted_setting(m, "n_group")) {  // in plans from before topk_group was kept
    notes->emplace_back(
        "the router looks at all experts; the model's at groups of them: say --moe-router-num-groups and "
        "--moe-router-group-topk");
  }
  if (const auto factor = unexecuted_setting(m, "routed_scaling_factor"))
    flags.add("--moe-router-topk-scaling-factor", *factor);
  if (!m.moe->scaled_weights) flags.add("--moe-router-pre-softmax");
  flags.add("--moe-token-dispatcher-type alltoall");
  flags.add("--moe-grouped-gemm");
  if (plan.choices.capacity_factor > 0)
    flags.add("--moe-expert-capacity-factor", plan.choices.capacity_factor);
}

void pipeline_flags(const Plan& plan, Flags& flags) {
  const Choices& c = plan.choices;
  flags.add("--pipeline-model-parallel-size", c.pp);
  if (c.pp == 1) return;
  const std::vector<int> layers = layers_by_part(plan);
  const bool even = std::all_of(layers.begin(), layers.end(), [&](int n) { return n == layers.front(); });
  if (!even)
    flags.add(fmt::format("--pipeline-model-parallel-layout '{}'", megatron_layout(plan)));
  else if (c.interleave > 1)
    flags.add("--num-virtual-stages-per-pipeline-rank", c.interleave);
}

void sharding_flags(const Plan& plan, Flags& flags) {
  const Choices& c = plan.choices;
  if (c.zero >= 2) {
    flags.add("--use-megatron-fsdp");
    flags.add("--data-parallel-sharding-strategy", c.zero == 2 ? "optim_grads" : "optim_grads_params");
    flags.add("--ckpt-format fsdp_dtensor");
  }
  if (c.zero >= 1) flags.add("--use-distributed-optimizer");
  if (c.zero >= 1 && c.hybrid())
    flags.add("--num-distributed-optimizer-instances", c.dp * c.cp / c.shard_group);
  if (c.overlap_grad_reduce) flags.add("--overlap-grad-reduce");
  if (c.zero >= 1 && c.overlap_grad_reduce && plan.job->runtime.overlap_param_gather)
    flags.add("--overlap-param-gather");
  const double bucket_bytes = plan.bucket_bytes();
  const int width = bytes_of(plan.gradient_type());
  if (bucket_bytes > 0) flags.add("--ddp-bucket-size", std::llround(bucket_bytes / width));  // in elements
  if (plan.job->runtime.fp32_gradients)
    flags.add("--accumulate-allreduce-grads-in-fp32");
  else if (plan.job->training.precision == DType::bf16 || is_narrow(plan.job->training.precision))
    flags.add("--grad-reduce-in-bf16");
}

// Unless told otherwise its products add weight gradients up themselves, also under FSDP
// (mcore_fsdp_adapter.py asserts the version).
void accumulation_flags(const Plan& plan, Flags& flags, std::vector<std::string>* notes) {
  if (!plan.job->runtime.fused_gradient_accumulation)
    flags.add("--no-gradient-accumulation-fusion");
  else if (plan.choices.zero >= 2)
    notes->emplace_back(
        "products add weight gradients up themselves: under Megatron-FSDP that is Transformer Engine from "
        "2.10 on; "
        "before, say --no-gradient-accumulation-fusion, which is a little slower");
}

void recompute_flags(const Plan& plan, Flags& flags, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  if (c.recompute == Recompute::selective) {
    flags.add("--recompute-granularity selective");
    flags.add(
        fmt::format("--recompute-modules {}", fmt::join(modules_of_megatron(plan, "Megatron-LM"), " ")));
  }
  if (c.recompute != Recompute::full) return;
  flags.add("--recompute-granularity full");
  flags.add("--recompute-method", c.recompute_layers > 0 ? "block" : "uniform");
  flags.add("--recompute-num-layers", recomputed_layers_of_chunk(plan, notes));
}

// What waits in the host's memory; notes_on_rare_choices has what no flag says.
void host_flags(const Plan& plan, Flags& flags) {
  const RuntimeProfile& runtime = plan.job->runtime;
  if (offload_of(runtime) == Offload::optimizer && plan.choices.zero == 1) {
    flags.add("--use-precision-aware-optimizer");  // which it rests on
    flags.add("--optimizer-cpu-offload");
    flags.add("--optimizer-offload-fraction", runtime.host_states);
  }
}

void precision_flags(const Plan& plan, Flags& flags, std::vector<std::string>* notes) {
  const Training& t = plan.job->training;
  if (t.precision == DType::bf16) flags.add("--bf16");
  if (t.precision == DType::fp16) flags.add("--fp16");
  if (t.precision == DType::fp8) {
    flags.add("--bf16");
    flags.add("--fp8-format hybrid");
    if (wants_current_scaling(plan)) {
      flags.add("--fp8-recipe tensorwise");
      notes->push_back(note_on_current_scaling("--fp8-recipe tensorwise"));
    }
  }
  if (t.precision == DType::fp4) {
    flags.add("--bf16");
    flags.add("--fp4-format e2m1");
  }
}

}  // namespace

std::string megatron_layout(const Plan& plan) {
  const std::vector<int> layers = layers_by_part(plan);
  std::string layout;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) layout += '|';
    if (i == 0) layout += 'E';
    if (layers[i] > 1)
      layout += fmt::format("t*{}", layers[i]);
    else
      layout += std::string(static_cast<std::size_t>(layers[i]), 't');
    // Modules that predict further tokens lie in front of the loss.
    const int further = plan.job->workload.transformer->multi_token_layers;
    if (i + 1 == layers.size()) layout += std::string(static_cast<std::size_t>(further), 'm') + 'L';
  }
  return layout;
}

std::vector<ExportedFile> export_megatron(const Plan& plan) {
  const Transformer& model = transformer_for(plan, "Megatron-LM");
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::vector<std::string> notes = notes_on_rare_choices(plan, "Megatron-LM");
  refuse_v(plan, "Megatron-LM");
  if (model.state_space || !model.layer_pattern.empty() || model.bidirectional)
    throw UserError(
        fmt::format("{} cannot be exported to megatron: its pretrain_gpt.py builds no {}",
                    plan.job->workload.name, model.bidirectional ? "encoder" : "layers of several kinds"),
        "expected a decoder whose layers are attention and an MLP or experts");
  if (c.schedule == Schedule::gpipe && c.pp > 1)
    notes.emplace_back("Megatron-LM has no GPipe schedule; this runs 1F1B");
  if (c.schedule == Schedule::zero_bubble && c.pp > 1)
    notes.emplace_back("Megatron-LM core has no zero-bubble schedule; this runs 1F1B");
  if (model.moe && c.tp > 1 && !c.sequence_parallel)
    notes.emplace_back("Megatron-LM trains experts under tensor parallelism with --sequence-parallel only");
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("fp16 gradient compression is expressed as the reduction's type only");
  if (t.precision == DType::tf32)
    notes.emplace_back("tf32 is PyTorch's setting: torch.backends.cuda.matmul.allow_tf32 = True");

  Flags flags;
  flags.add("--tensor-model-parallel-size", c.tp);
  if (c.sequence_parallel && c.tp > 1) flags.add("--sequence-parallel");
  if (c.sequence_parallel && c.tp > 1 && plan.job->runtime.overlap_tensor) flags.add("--tp-comm-overlap");
  pipeline_flags(plan, flags);
  if (c.cp > 1) {
    flags.add("--context-parallel-size", c.cp);
    flags.add("--cp-comm-type p2p");
  }
  if (model.moe) {
    flags.add("--expert-model-parallel-size", c.ep);
    flags.add("--expert-tensor-parallel-size", c.etp);
    if (c.overlap_experts) flags.add("--overlap-moe-expert-parallel-comm");
  }
  constexpr std::array<Dimension, 5> kUsual = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                               Dimension::pp};
  constexpr std::array<Dimension, 5> kPipelineFirst = {Dimension::tp, Dimension::cp, Dimension::ep,
                                                       Dimension::pp, Dimension::dp};
  if (c.order == kPipelineFirst)
    flags.add("--use-tp-pp-dp-mapping");
  else if (c.order != kUsual)
    notes.emplace_back(
        "Megatron-LM offers the orders tp-cp-ep-dp-pp and tp-cp-ep-pp-dp; this takes the first");
  flags.add("--micro-batch-size", c.micro_batch);
  flags.add("--global-batch-size", t.global_batch);
  sharding_flags(plan, flags);
  accumulation_flags(plan, flags, &notes);
  recompute_flags(plan, flags, &notes);
  precision_flags(plan, flags, &notes);
  flags.add("--optimizer",
            t.optimizer == Optimizer::sgd || t.optimizer == Optimizer::momentum ? "sgd" : "adam");
  if (t.optimizer == Optimizer::sgd) flags.add("--sgd-momentum", 0);  // 0.9 unless said
  // Its Adam is AdamW, which decays weights by 0.01 unless told otherwise.
  if (t.optimizer == Optimizer::adam) flags.add("--weight-decay", 0);
  // FlashAttention has no sinks. Heads whose values are narrower than their keys (latent attention)
  // Transformer Engine keeps from FlashAttention 2 (up to 2.16: dot_product_attention/utils.py), and
  // FlashAttention 3 is Hopper's: it picks one.
  flags.add("--attention-backend", !t.fused_attention      ? "unfused"
                                   : model.attention_sinks ? "fused"
                                   : model.mla             ? "auto"
                                                           : "flash");
  model_flags(plan, model, flags, &notes);
  host_flags(plan, flags);
  flags.add("--clip-grad", plan.job->runtime.clip_gradients ? "1.0" : "0.0");
  flags.add("--log-throughput");
  flags.add("\"$@\"");  // data, tokenizer, learning rate, steps

  std::string script = script_head(plan, "Megatron-LM core 0.20.0", notes, ModelIs::by_flags);
  script += log_begins_with(
      {fmt::format("using world size: {}, data-parallel size: {}, context-parallel size: {}, hierarchical "
                   "context-parallel "
                   "sizes: None, tensor-model-parallel size: {}, pipeline-model-parallel size: {}",
                   c.world(), c.dp, c.cp, c.tp, c.pp)});
  script += hardware_queues(plan) + nccl_environment(plan);
  script +=
      "# Give data, tokenizer, learning rate and length of the run as arguments, e.g. --mock-data "
      "--train-iters 50 --lr 1e-4\n";
  script += torchrun_line(plan) + "  pretrain_gpt.py \\\n" + flags.text();
  return {{"launch.sh", script}};
}

}  // namespace orrery::planner
