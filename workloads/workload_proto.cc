// Workload to and from its file form, with the checks that everything downstream relies on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "proto/field_check.h"
#include "proto/workload.pb.h"
#include "workloads/checks.h"
#include "workloads/graph_workload.h"
#include "workloads/tensor_names.h"
#include "workloads/workload.h"

namespace orrery {

using namespace internal;  // bounds

namespace {

// Reads fields of one message, each with its bounds and the line that it stands on.
class Reader {
 public:
  explicit Reader(FieldCheck at) : at_(std::move(at)) {}

  Reader inside(std::string_view field) const { return Reader(at_.inside(field)); }

  [[noreturn]] void fail(std::string_view field, std::string_view what, std::string_view expected) const {
    at_.fail(field, fmt::format("{}: {}", at_.full(field), what), expected);
  }

  int bounded(std::string_view field, std::int64_t value, int least, int most) const {
    if (value < least || value > most)
      fail(field, fmt::format("{}", value), fmt::format("expected {} to {}", least, most));
    return static_cast<int>(value);
  }

  double real(std::string_view field, double value, double least, double most) const {
    if (!(value >= least && value <= most))
      fail(field, fmt::format("{}", value), fmt::format("expected {} to {}", least, most));
    return value;
  }

 private:
  FieldCheck at_;
};

Activation activation_from(const std::string& name, const Reader& read) {
  if (name.empty() || name == "gelu") return Activation::gelu;
  if (name == "gelu_erf") return Activation::gelu_erf;
  if (name == "silu") return Activation::silu;
  if (name == "relu") return Activation::relu;
  read.fail("activation", fmt::format("'{}' is not known", name), "expected gelu, gelu_erf, silu or relu");
}

NormKind norm_from(const std::string& name, const Reader& read) {
  if (name.empty() || name == "layernorm") return NormKind::layer_norm;
  if (name == "rmsnorm") return NormKind::rms_norm;
  read.fail("norm", fmt::format("'{}' is not known", name), "expected layernorm or rmsnorm");
}

FineTuning read_fine_tuning(const proto::FineTuning& p, const Reader& read, int layers) {
  FineTuning f;
  f.rank = read.bounded("rank", p.rank(), 0, kMaxWidth);
  try {
    if (!p.targets().empty()) f.targets = projections_from(p.targets());
    if (!p.base().empty()) f.base = base_type_from_name(p.base());
  } catch (const UserError& wrong) {
    read.fail(f.targets == kAllProjections && p.base().empty() ? "targets" : "base", wrong.what(),
              "expected a known name");
  }
  f.alpha = read.real("alpha", p.alpha(), 0, 1e6);
  f.dora = p.dora();
  f.frozen_layers = read.bounded("frozen_layers", p.frozen_layers(), 0, layers);
  if (f.rank == 0 && (f.dora || f.base != BaseType::none))
    read.fail("rank", "0 beside dora or base", "expected adapters");
  return f;
}

MixtureOfExperts read_experts(const proto::MixtureOfExperts& p, std::string_view family, const Reader& read) {
  MixtureOfExperts m;
  m.experts = read.bounded("experts", p.experts(), 1, kMaxExperts);
  m.experts_per_token = read.bounded("experts_per_token", p.experts_per_token(), 1, m.experts);
  m.expert_ffn_hidden = read.bounded("expert_ffn_hidden", p.expert_ffn_hidden(), 1, kMaxWidth);
  m.shared_ffn_hidden = read.bounded("shared_ffn_hidden", p.shared_ffn_hidden(), 0, kMaxWidth);
  m.expert_bias = p.expert_bias();
  m.latent = read.bounded("latent", p.latent(), 0, kMaxWidth);
  m.first_dense_layers = read.bounded("first_dense_layers", p.first_dense_layers(), 0, kMaxLayers);
  m.layer_period = std::max(1, read.bounded("layer_period", p.layer_period(), 0, kMaxLayers));
  // Files from before the field: qwen2_moe's decoder_sparse_step counts layers from 1.
  const int offset = family.starts_with("qwen") ? m.layer_period - 1 : 0;
  m.layer_offset =
      p.has_layer_offset() ? read.bounded("layer_offset", p.layer_offset(), 0, m.layer_period - 1) : offset;
  m.expert_up_bias = p.expert_up_bias();
  m.shared_gate = p.shared_gate();
  // Files from before the field: gpt-oss's one bias was called as DeepSeek's is.
  const bool linear = family == "gpt_oss" && p.router_bias();
  m.selection_bias = p.router_bias() && !linear;
  m.router_linear_bias = p.router_linear_bias() || linear;
  m.scaled_weights = !p.unscaled_weights();
  m.auxiliary_loss = read.real("auxiliary_loss", p.auxiliary_loss(), 0, 1e3);
  return m;
}

LatentAttention read_latent(const proto::LatentAttention& p, const Reader& read) {
  LatentAttention a;
  a.q_lora_rank = read.bounded("q_lora_rank", p.q_lora_rank(), 0, kMaxWidth);
  a.kv_lora_rank = read.bounded("kv_lora_rank", p.kv_lora_rank(), 1, kMaxWidth);
  a.qk_nope_head_dim = read.bounded("qk_nope_head_dim", p.qk_nope_head_dim(), 1, kMaxHeads);
  a.qk_rope_head_dim = read.bounded("qk_rope_head_dim", p.qk_rope_head_dim(), 0, kMaxHeads);
  a.v_head_dim = read.bounded("v_head_dim", p.v_head_dim(), 1, kMaxHeads);
  a.index_heads = read.bounded("index_heads", p.index_heads(), 0, kMaxHeads);
  if (a.index_heads == 0) return a;
  a.index_head_dim = read.bounded("index_head_dim", p.index_head_dim(), 1, kMaxHeads);
  a.index_top_k = read.bounded("index_top_k", p.index_top_k(), 1, kMaxPositions);
  return a;
}

StateSpaceShape read_state_space(const proto::StateSpace& p, const Reader& read) {
  StateSpaceShape s;
  s.heads = read.bounded("heads", p.heads(), 1, kMaxHeads);
  s.head_dim = read.bounded("head_dim", p.head_dim(), 1, kMaxHeads);
  s.state = read.bounded("state", p.state(), 1, kMaxHeads);
  s.groups = std::max(1, read.bounded("groups", p.groups(), 0, kMaxHeads));
  bool known = p.kind().empty();
  for (const StateSpaceKind kind : {StateSpaceKind::mamba2, StateSpaceKind::mamba1,
                                    StateSpaceKind::gated_delta, StateSpaceKind::lightning}) {
    if (p.kind() != name_of(kind)) continue;
    s.kind = kind;
    known = true;
  }
  if (!known)
    read.fail("kind", fmt::format("'{}' is not known", p.kind()),
              "expected mamba2, mamba1, gated_delta or lightning");
  if (p.conv_kernel() != 0) s.conv_kernel = read.bounded("conv_kernel", p.conv_kernel(), 1, 1024);
  if (s.kind == StateSpaceKind::lightning) s.conv_kernel = 0;
  if (p.chunk() != 0) s.chunk = read.bounded("chunk", p.chunk(), 1, kMaxPositions);
  s.step_rank = read.bounded("step_rank", p.step_rank(), s.kind == StateSpaceKind::mamba1 ? 1 : 0, kMaxWidth);
  s.conv_bias = !p.unbiased_conv();
  s.proj_bias = p.proj_bias();
  s.inner_norms = p.inner_norms();
  return s;
}

Dropouts read_dropouts(const proto::Dropouts& p, const Reader& read) {
  return {read.real("embedding", p.embedding(), 0, kMostDropout),
          read.real("attention", p.attention(), 0, kMostDropout),
          read.real("attention_out", p.attention_out(), 0, kMostDropout),
          read.real("mlp_out", p.mlp_out(), 0, kMostDropout)};
}

RotaryScaling read_rotary_scaling(const proto::RotaryScaling& p, const Reader& read) {
  RotaryScaling scaling;
  for (const RopeScaling kind :
       {RopeScaling::linear, RopeScaling::dynamic, RopeScaling::llama3, RopeScaling::yarn})
    if (p.kind() == name_of(kind)) scaling.kind = kind;
  if (scaling.kind == RopeScaling::none)
    read.fail("kind", fmt::format("'{}' is not known", p.kind()), "expected linear, dynamic, llama3 or yarn");
  scaling.factor = read.real("factor", p.factor(), 1, 1e6);
  const bool stretched = scaling.kind == RopeScaling::llama3 || scaling.kind == RopeScaling::yarn;
  scaling.original_positions =
      read.bounded("original_positions", p.original_positions(), stretched ? 1 : 0, kMaxPositions);
  if (p.low_frequency() != 0)
    scaling.low_frequency = read.real("low_frequency", p.low_frequency(), 1e-6, 1e6);
  if (p.high_frequency() != 0)
    scaling.high_frequency = read.real("high_frequency", p.high_frequency(), 1e-6, 1e6);
  if (p.beta_fast() != 0) scaling.beta_fast = read.real("beta_fast", p.beta_fast(), 1e-6, 1e6);
  if (p.beta_slow() != 0) scaling.beta_slow = read.real("beta_slow", p.beta_slow(), 1e-6, 1e6);
  if (p.attention_factor() != 0)
    scaling.attention_factor = read.real("attention_factor", p.attention_factor(), 1e-6, 1e6);
  return scaling;
}

void read_dimensions(const proto::Transformer& p, const Reader& read, Transformer* t) {
  t->layers = read.bounded("layers", p.layers(), 1, kMaxLayers);
  t->hidden = read.bounded("hidden", p.hidden(), 1, kMaxWidth);
  t->heads = read.bounded("heads", p.heads(), 1, kMaxHeads);
  t->kv_heads = p.kv_heads() == 0 ? t->heads : read.bounded("kv_heads", p.kv_heads(), 1, t->heads);
  if (t->heads % t->kv_heads != 0)
    read.fail("kv_heads", fmt::format("{} does not divide the {} heads", t->kv_heads, t->heads),
              "expected a divisor of heads");
  if (p.head_dim() == 0 && !p.has_mla()) {
    if (t->hidden % t->heads != 0)
      read.fail("heads", fmt::format("{} does not divide hidden {}", t->heads, t->hidden),
                "expected a divisor of hidden, or head_dim");
    t->head_dim = t->hidden / t->heads;
  } else {
    t->head_dim = read.bounded("head_dim", p.head_dim(), 0, kMaxHeads);
  }
  t->ffn_hidden = read.bounded("ffn_hidden", p.ffn_hidden(), 0, kMaxWidth);
  t->vocab = read.bounded("vocab", p.vocab(), 1, kMaxVocab);
  t->max_positions = read.bounded("max_positions", p.max_positions(), 1, kMaxPositions);
  t->position_offset = read.bounded("position_offset", p.position_offset(), 0, 1024);
  t->sliding_window = read.bounded("sliding_window", p.sliding_window(), 0, kMaxPositions);
  t->sliding_window_from_layer =
      read.bounded("sliding_window_from_layer", p.sliding_window_from_layer(), 0, kMaxLayers);
  t->full_attention_period = read.bounded("full_attention_period", p.full_attention_period(), 0, kMaxLayers);
  t->token_types = read.bounded("token_types", p.token_types(), 0, 1024);
  t->multi_token_layers = read.bounded("multi_token_layers", p.multi_token_layers(), 0, 64);
}

Transformer read_transformer(const proto::Transformer& p, const Reader& read) {
  Transformer t;
  t.family = p.family();
  const auto families = internal::known_families();
  if (std::find(families.begin(), families.end(), t.family) == families.end())
    read.fail("family", fmt::format("'{}' is not known", t.family),
              fmt::format("expected one of {}", fmt::join(families, " ")));
  read_dimensions(p, read, &t);
  t.learned_positions = p.learned_positions();
  t.gated_ffn = p.gated_ffn();
  t.activation = activation_from(p.activation(), read);
  t.norm = norm_from(p.norm(), read);
  t.post_norm = p.post_norm();
  t.tied_embeddings = p.tied_embeddings();
  t.qkv_bias = p.qkv_bias();
  t.linear_bias = p.linear_bias();
  t.proj_bias = p.proj_bias();
  t.mlp_bias = p.mlp_bias();
  t.head_bias = p.head_bias();
  t.qk_norm = p.qk_norm();
  t.parallel_residual = p.parallel_residual();
  t.single_norm = p.single_norm();
  t.bidirectional = p.bidirectional();
  t.attention_pattern = p.attention_pattern();
  t.branch_norms = p.branch_norms();
  t.no_input_norms = p.no_input_norms();
  t.first_norm_absent = p.first_norm_absent();
  t.embedding_norm = p.embedding_norm();
  t.unbiased_norm = p.unbiased_norm();
  t.qk_norm_whole = p.qk_norm_whole();
  t.qk_norm_absent_weights = p.qk_norm_absent_weights();
  t.attention_gate = p.attention_gate();
  t.attention_sinks = p.attention_sinks();
  t.unbiased_transform = p.unbiased_transform();
  t.pooler = p.pooler();
  t.mlm_head = p.mlm_head();
  if (p.has_moe()) t.moe = read_experts(p.moe(), t.family, read.inside("moe"));
  t.layer_pattern = p.layer_pattern();
  t.multi_token_pattern = p.multi_token_pattern();
  if (p.has_state_space()) t.state_space = read_state_space(p.state_space(), read.inside("state_space"));
  if (p.has_mla()) t.mla = read_latent(p.mla(), read.inside("mla"));
  if (p.rope_theta() != 0) t.rope_theta = read.real("rope_theta", p.rope_theta(), 1, 1e12);
  if (p.norm_epsilon() != 0) t.norm_epsilon = read.real("norm_epsilon", p.norm_epsilon(), 1e-30, 1);
  t.rotary_fraction =
      p.rotary_fraction() == 0 ? 1 : read.real("rotary_fraction", p.rotary_fraction(), 1e-6, 1);
  if (p.has_rotary_scaling())
    t.rotary_scaling = read_rotary_scaling(p.rotary_scaling(), read.inside("rotary_scaling"));
  const double everywhere = read.real("dropout", p.dropout(), 0, kMostDropout);
  t.dropouts = {everywhere, everywhere, everywhere, everywhere};
  if (p.has_dropouts()) t.dropouts = read_dropouts(p.dropouts(), read.inside("dropouts"));
  t.attention_softcap = read.real("attention_softcap", p.attention_softcap(), 0, 1e6);
  t.final_softcap = read.real("final_softcap", p.final_softcap(), 0, 1e6);
  t.attention_scale = read.real("attention_scale", p.attention_scale(), 0, 1e6);
  if (p.embedding_scale() != 0)
    t.embedding_scale = read.real("embedding_scale", p.embedding_scale(), 1e-6, 1e6);
  t.norms_offset = p.norms_offset();
  t.unexecuted.assign(p.unexecuted().begin(), p.unexecuted().end());
  t.final_norm = !p.final_norm_absent();
  if (p.has_fine_tuning())
    t.fine_tuning = read_fine_tuning(p.fine_tuning(), read.inside("fine_tuning"), t.layers);
  t.masked_share = read.real("masked_share", p.masked_share(), 0, 1);
  return t;
}

void write_transformer(const Transformer& t, proto::Transformer* p) {
  p->set_family(t.family);
  p->set_layers(t.layers);
  p->set_hidden(t.hidden);
  p->set_heads(t.heads);
  p->set_kv_heads(t.kv_heads);
  p->set_head_dim(t.head_dim);
  p->set_ffn_hidden(t.ffn_hidden);
  p->set_vocab(t.vocab);
  p->set_max_positions(t.max_positions);
  p->set_position_offset(t.position_offset);
  p->set_learned_positions(t.learned_positions);
  p->set_gated_ffn(t.gated_ffn);
  p->set_activation(std::string(name_of(t.activation)));
  p->set_norm(std::string(name_of(t.norm)));
  p->set_post_norm(t.post_norm);
  p->set_tied_embeddings(t.tied_embeddings);
  p->set_qkv_bias(t.qkv_bias);
  p->set_linear_bias(t.linear_bias);
  p->set_proj_bias(t.proj_bias);
  p->set_mlp_bias(t.mlp_bias);
  p->set_head_bias(t.head_bias);
  p->set_qk_norm(t.qk_norm);
  p->set_parallel_residual(t.parallel_residual);
  p->set_single_norm(t.single_norm);
  p->set_bidirectional(t.bidirectional);
  p->set_sliding_window(t.sliding_window);
  p->set_sliding_window_from_layer(t.sliding_window_from_layer);
  p->set_full_attention_period(t.full_attention_period);
  p->set_attention_pattern(t.attention_pattern);
  p->set_branch_norms(t.branch_norms);
  p->set_no_input_norms(t.no_input_norms);
  p->set_first_norm_absent(t.first_norm_absent);
  p->set_embedding_norm(t.embedding_norm);
  p->set_unbiased_norm(t.unbiased_norm);
  p->set_qk_norm_whole(t.qk_norm_whole);
  p->set_qk_norm_absent_weights(t.qk_norm_absent_weights);
  p->set_attention_gate(t.attention_gate);
  p->set_attention_sinks(t.attention_sinks);
  p->set_unbiased_transform(t.unbiased_transform);
  p->set_token_types(t.token_types);
  p->set_pooler(t.pooler);
  p->set_mlm_head(t.mlm_head);
  p->set_multi_token_layers(t.multi_token_layers);
  p->set_rope_theta(t.rope_theta);
  p->set_norm_epsilon(t.norm_epsilon);
  p->set_rotary_fraction(t.rotary_fraction);
  if (t.rotary_scaling.kind != RopeScaling::none) {
    proto::RotaryScaling* r = p->mutable_rotary_scaling();
    r->set_kind(std::string(name_of(t.rotary_scaling.kind)));
    r->set_factor(t.rotary_scaling.factor);
    r->set_original_positions(t.rotary_scaling.original_positions);
    r->set_low_frequency(t.rotary_scaling.low_frequency);
    r->set_high_frequency(t.rotary_scaling.high_frequency);
    r->set_beta_fast(t.rotary_scaling.beta_fast);
    r->set_beta_slow(t.rotary_scaling.beta_slow);
    r->set_attention_factor(t.rotary_scaling.attention_factor);
  }
  if (t.dropouts.any()) {
    proto::Dropouts* d = p->mutable_dropouts();
    d->set_embedding(t.dropouts.embedding);
    d->set_attention(t.dropouts.attention);
    d->set_attention_out(t.dropouts.attention_out);
    d->set_mlp_out(t.dropouts.mlp_out);
  }
  p->set_attention_softcap(t.attention_softcap);
  p->set_final_softcap(t.final_softcap);
  p->set_attention_scale(t.attention_scale);
  if (t.embedding_scale != 1) p->set_embedding_scale(t.embedding_scale);
  p->set_norms_offset(t.norms_offset);
  for (const std::string& what : t.unexecuted) p->add_unexecuted(what);
  p->set_final_norm_absent(!t.final_norm);
  if (t.fine_tuning.any()) {
    proto::FineTuning* f = p->mutable_fine_tuning();
    f->set_rank(t.fine_tuning.rank);
    f->set_targets(names_of_projections(t.fine_tuning.targets));
    f->set_alpha(t.fine_tuning.alpha);
    f->set_dora(t.fine_tuning.dora);
    f->set_base(std::string(name_of(t.fine_tuning.base)));
    f->set_frozen_layers(t.fine_tuning.frozen_layers);
  }
  p->set_masked_share(t.masked_share);
  if (t.moe) {
    proto::MixtureOfExperts* m = p->mutable_moe();
    m->set_experts(t.moe->experts);
    m->set_experts_per_token(t.moe->experts_per_token);
    m->set_expert_ffn_hidden(t.moe->expert_ffn_hidden);
    m->set_shared_ffn_hidden(t.moe->shared_ffn_hidden);
    m->set_expert_bias(t.moe->expert_bias);
    m->set_latent(t.moe->latent);
    m->set_first_dense_layers(t.moe->first_dense_layers);
    m->set_layer_period(t.moe->layer_period);
    m->set_layer_offset(t.moe->layer_offset);
    m->set_expert_up_bias(t.moe->expert_up_bias);
    m->set_shared_gate(t.moe->shared_gate);
    m->set_unscaled_weights(!t.moe->scaled_weights);
    m->set_router_bias(t.moe->selection_bias);
    m->set_router_linear_bias(t.moe->router_linear_bias);
    m->set_auxiliary_loss(t.moe->auxiliary_loss);
  }
  p->set_layer_pattern(t.layer_pattern);
  p->set_multi_token_pattern(t.multi_token_pattern);
  if (t.state_space) {
    proto::StateSpace* s = p->mutable_state_space();
    s->set_heads(t.state_space->heads);
    s->set_head_dim(t.state_space->head_dim);
    s->set_state(t.state_space->state);
    s->set_groups(t.state_space->groups);
    s->set_conv_kernel(t.state_space->conv_kernel);
    s->set_chunk(t.state_space->chunk);
    s->set_kind(std::string(name_of(t.state_space->kind)));
    s->set_step_rank(t.state_space->step_rank);
    s->set_unbiased_conv(!t.state_space->conv_bias);
    s->set_proj_bias(t.state_space->proj_bias);
    s->set_inner_norms(t.state_space->inner_norms);
  }
  if (t.mla) {
    proto::LatentAttention* a = p->mutable_mla();
    a->set_q_lora_rank(t.mla->q_lora_rank);
    a->set_kv_lora_rank(t.mla->kv_lora_rank);
    a->set_qk_nope_head_dim(t.mla->qk_nope_head_dim);
    a->set_qk_rope_head_dim(t.mla->qk_rope_head_dim);
    a->set_v_head_dim(t.mla->v_head_dim);
    a->set_index_heads(t.mla->index_heads);
    a->set_index_head_dim(t.mla->index_head_dim);
    a->set_index_top_k(t.mla->index_top_k);
  }
}

}  // namespace

Workload workload_from_proto(const proto::Workload& message, std::string_view file, std::string_view text) {
  return workload_from_proto(message, FieldCheck(file, text, *proto::Workload::descriptor()));
}

Workload workload_from_proto(const proto::Workload& message, const FieldCheck& at) {
  const Reader read(at);
  Workload workload;
  workload.name = message.name();
  if (workload.name.empty()) read.fail("name", "missing", "expected the model's name");
  workload.source = message.source();
  workload.published_parameters = message.published_parameters();
  if (message.published_parameters() < 0)
    read.fail("published_parameters", fmt::format("{}", message.published_parameters()),
              "expected 0 (not published) or a count");
  workload.default_seq_len = read.bounded("default_seq_len", message.default_seq_len(), 0, kMaxPositions);
  workload.ignored_keys.assign(message.ignored_keys().begin(), message.ignored_keys().end());
  workload.notes.assign(message.notes().begin(), message.notes().end());
  switch (message.model_case()) {
    case proto::Workload::kTransformer: {
      const Reader inner = read.inside("transformer");
      workload.transformer = read_transformer(message.transformer(), inner);
      check_transformer(*workload.transformer,
                        [&](auto field, auto what, auto expected) { inner.fail(field, what, expected); });
      workload.layers = workload.transformer->layers;
      workload.operators = transformer_operators(*workload.transformer);
      if (workload.default_seq_len == 0)
        workload.default_seq_len = std::min(workload.transformer->max_positions, kMaxDefaultSeqLen);
      break;
    }
    case proto::Workload::kGraph:
      internal::read_graph(message.graph(), at.inside("graph"), &workload);
      break;
    case proto::Workload::MODEL_NOT_SET:
      throw UserError(at.file(), 0, "has neither a transformer nor a graph", "expected one of the two");
  }
  return workload;
}

void to_proto(const Workload& workload, proto::Workload* message) {
  message->Clear();
  message->set_name(workload.name);
  message->set_source(workload.source);
  message->set_published_parameters(workload.published_parameters);
  message->set_default_seq_len(workload.default_seq_len);
  for (const std::string& key : workload.ignored_keys) message->add_ignored_keys(key);
  for (const std::string& note : workload.notes) message->add_notes(note);
  if (workload.transformer) {
    write_transformer(*workload.transformer, message->mutable_transformer());
  } else {
    internal::write_graph(workload, message->mutable_graph());
  }
}

}  // namespace orrery
