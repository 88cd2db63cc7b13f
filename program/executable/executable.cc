#include "program/executable/executable.h"

#include <fmt/format.h>

#include <algorithm>

#include "workloads/image_operator.h"

namespace orrery {
bool interleaves_heads(const Operator& op) {
  const std::vector<ParameterTensor>& own = op.frozen.empty() ? op.parameters : op.frozen;
  const auto matrices =
      std::count_if(own.begin(), own.end(), [](const ParameterTensor& p) { return p.shape.size() == 2; });
  const bool feeds_attention = op.kind == OperatorKind::linear && op.name.size() >= 3 &&
                               op.name.compare(op.name.size() - 3, 3, "qkv") == 0;
  return feeds_attention && matrices == 1 && own.front().split_parts == 1;
}

namespace {

using Refusal = std::optional<std::string>;

Refusal refused(const std::string& what, const std::string& expected) {
  return what + " (expected " + expected + ")";
}

// A network on images: a chain or graph of operators that all say what they compute, from images to classes.
std::string unknown_on_images(const Workload& workload) {
  int losses = 0;
  if (workload.frozen_layers > 0) return "its first layers are frozen";
  if (reads_sequences(workload) && !workload.ignored_keys.empty())
    return "its configuration says '" + workload.ignored_keys.front() + "', which is not executed";
  for (const Operator& op : workload.operators) {
    if (!op.image)
      return fmt::format("there is no mathematics for its operator '{}' ({})", op.name, name_of(op.kind));
    if (op.kind == OperatorKind::loss) ++losses;
    const bool reads_images = op.kind == OperatorKind::conv || op.kind == OperatorKind::linear;
    if (op.inputs.empty() && !reads_images)
      return fmt::format("its operator '{}' reads images and has no weight", op.name);
    for (const ParameterTensor& tensor : op.parameters)
      if (!tensor.tied_to.empty()) return fmt::format("its operator '{}' shares a weight", op.name);
  }
  if (losses != 1 || workload.operators.back().kind != OperatorKind::loss)
    return "it does not end in one loss";
  ImageShape images;
  for (const Operator& op : workload.operators) {
    if (!op.inputs.empty()) continue;
    if (images.channels > 0 && !(images == op.image->input)) return "it reads images of several shapes";
    images = op.image->input;
  }
  return {};
}

// The model's peculiarity that there is no mathematics for; empty where there is none.
std::string unknown_in(const Workload& workload, const Training& training) {
  if (!workload.transformer) return unknown_on_images(workload);
  const Transformer& t = *workload.transformer;
  if (!t.unexecuted.empty()) return "its configuration says " + t.unexecuted.front();
  if (!workload.ignored_keys.empty())
    return "its configuration says '" + workload.ignored_keys.front() + "', which is not understood";
  if (!t.learned_positions && t.head_dim > 256) return "its heads are wider than 256";
  if (t.state_space) return "it has state-space layers";
  if (!t.layer_pattern.empty()) return "its layers are not all attention and MLP";
  if (t.moe && t.moe->latent > 0) return "its experts have a width of their own";
  if (t.moe && (t.moe->shared_gate || t.moe->selection_bias || t.moe->router_linear_bias))
    return "its router has a bias or gates the shared experts";
  if (t.moe && (t.moe->expert_bias || t.moe->expert_up_bias)) return "its experts have biases";
  if (t.moe && t.fine_tuning.any()) return "it has experts, and weights that are not trained";
  if (t.masked_share > 0) return "its head sees a share of the tokens";
  if (t.mla) return "it has latent attention";
  if (t.pooler) return "it predicts the next sentence, too";
  if (t.bidirectional && !t.mlm_head) return "it sees the tokens that it would predict";
  if (t.branch_norms && (t.linear_bias || t.proj_bias || t.mlp_bias))
    return "what attention and MLP put out has biases, and is normalised";
  if (t.no_input_norms && (!t.branch_norms || t.moe || t.fine_tuning.any()))
    return "its products read the stream without norms, beside experts or weights that are not trained";
  if (t.first_norm_absent || t.embedding_norm || t.unbiased_norm || t.unbiased_transform)
    return "its norms are not where, or not what, the executor has them";
  if (t.attention_gate || t.attention_sinks) return "its attention has a gate or sinks";
  if (t.parallel_residual && t.single_norm) return "attention and MLP are branches behind one norm";
  if (t.qk_norm && t.norm != NormKind::rms_norm) return "queries and keys are normalised, not by RMS norms";
  if (t.qk_norm && t.qk_norm_absent_weights) return "queries and keys are normalised without weights";
  if (t.attention_pattern.find('c') != std::string::npos) return "its attention stays within chunks";
  const bool interleaved =
      std::any_of(workload.operators.begin(), workload.operators.end(), interleaves_heads);
  if (interleaved && (t.kv_heads != t.heads || t.fine_tuning.any()))
    return "its queries, keys and values are interleaved in one tensor, in groups or beside adapters";
  if (t.branch_norms && (t.dropouts.attention_out > 0 || t.dropouts.mlp_out > 0))
    return "it drops out what attention and MLP put out, and normalises it";
  if (t.norms_offset && t.norm != NormKind::rms_norm)
    return "its layer norms multiply by one more than their weights";
  if (t.multi_token_layers > 0) return "it predicts several tokens";
  if (t.bidirectional && t.sliding_window > 0 && t.sliding_window < training.seq_len)
    return "its attention has a window that looks both ways";
  if (!t.final_norm && !t.post_norm) return "it has no final norm";
  return {};
}

Refusal refuses_fine_tuning(const Plan& plan) {
  if (!plan.job->workload.transformer) return {};
  const FineTuning& tuning = plan.job->workload.transformer->fine_tuning;
  const std::vector<Operator>& operators = plan.job->workload.operators;
  const bool split = std::any_of(operators.begin(), operators.end(), [](const Operator& op) {
    return !op.adapters.empty() && op.split == TensorSplit::row;
  });
  if (tuning.dora && plan.choices.tp > 1 && split)
    return refused("`dora` with `tp` above 1 on o or down: the lengths of their columns are sums over ranks",
                   "`lora_targets` q,k,v,gate,up, or `tp` 1");
  if (tuning.base != BaseType::none && plan.choices.zero == 3)
    return refused("`quantize_base` with `zero` 3: the executor gathers weights in 16 and 32 bits",
                   "`zero` 2 or less");
  return {};
}

Refusal refuses_training(const Plan& plan) {
  const Training& training = plan.job->training;
  if (training.lengths.any())
    return refused("`lengths`: the executor trains sequences of one length", "no `lengths`");
  const DType type = training.precision;
  if (type != DType::fp32 && type != DType::tf32 && type != DType::bf16 && type != DType::fp16)
    return refused(fmt::format("`precision` {}: the executor has no arithmetic for it", name_of(type)),
                   "fp32, tf32, bf16 or fp16");
  if (training.precision == DType::fp16 && plan.choices.sync != Sync::all_reduce)
    return refused(fmt::format("`precision` fp16 with `sync` {}: loss scaling needs all ranks' agreement",
                               name_of(plan.choices.sync)),
                   "`precision` bf16 or `sync` all-reduce");
  if (plan.choices.asynchronous() && plan.job->runtime.clip_gradients)
    return refused(fmt::format("`sync` {} with `runtime` {}: it clips by the norm of all workers' gradients",
                               name_of(plan.choices.sync), plan.job->runtime.name),
                   "a runtime that does not clip, such as orrery");
  if (!plan.job->workload.transformer) return {};
  const Transformer& t = *plan.job->workload.transformer;
  if (plan.choices.cp > 1 && t.sliding_window > 0 && t.sliding_window < training.seq_len)
    return refused("`cp` above 1 with a sliding window shorter than the sequence", "`cp` 1");
  if (plan.choices.tp > 1 && t.qk_norm && t.qk_norm_whole)
    return refused("`tp` above 1 with norms over the queries of all heads, and over their keys", "`tp` 1");
  if (!t.has_positions_for(training.seq_len))
    return refused(fmt::format("`seq_len` {}: {} has {} positions", training.seq_len, plan.job->workload.name,
                               t.max_positions),
                   "at most that many tokens");
  return {};
}

}  // namespace

std::optional<std::string> why_not_executable(const Plan& plan) {
  const Workload& workload = plan.job->workload;
  if (const std::string unknown = unknown_in(workload, plan.job->training); !unknown.empty())
    return refused(
        fmt::format("cannot execute {}: {}", workload.name, unknown),
        "a GPT-2, Llama or BERT style transformer, a vision transformer that classifies, or a network of "
        "convolutions, batch norms, ReLU, pools, additions and linear layers; `orrery simulate` knows more");
  if (const Refusal refusal = refuses_fine_tuning(plan)) return refusal;
  return refuses_training(plan);
}

}  // namespace orrery
