#include "workloads/tensor_names.h"

#include <map>

namespace orrery::internal {
namespace {

TensorNames llama() {
  TensorNames n;
  n.layer = "model.layers.{}.";
  n.tokens = "model.embed_tokens";
  n.positions = "model.embed_positions";
  n.types = "model.token_type_embeddings";
  n.embedding_norm = "model.embed_layernorm";
  n.final_norm = "model.norm";
  n.head = "lm_head";
  n.norm1 = "input_layernorm";
  n.norm2 = "post_attention_layernorm";
  n.q = "self_attn.q_proj";
  n.k = "self_attn.k_proj";
  n.v = "self_attn.v_proj";
  n.q_norm = "self_attn.q_norm";
  n.k_norm = "self_attn.k_norm";
  n.proj = "self_attn.o_proj";
  n.sinks = "self_attn.sinks";
  n.norm1_after = "post_self_attn_layernorm";
  n.norm2_after = "post_mlp_layernorm";
  n.gate = "mlp.gate_proj";
  n.up = "mlp.up_proj";
  n.down = "mlp.down_proj";
  n.router = "mlp.gate";
  n.router_bias = "mlp.gate.e_score_correction_bias";
  n.expert = "mlp.experts.*.";
  n.expert_gate = "gate_proj";
  n.expert_up = "up_proj";
  n.expert_down = "down_proj";
  n.shared = "mlp.shared_experts.";
  n.shared_gate = "mlp.shared_expert_gate";
  return n;
}

TensorNames qwen_moe() {
  TensorNames n = llama();
  n.shared = "mlp.shared_expert.";
  return n;
}

TensorNames mixtral() {
  TensorNames n = llama();
  n.router = "block_sparse_moe.gate";
  n.expert = "block_sparse_moe.experts.*.";
  n.expert_gate = "w1";
  n.expert_up = "w3";
  n.expert_down = "w2";
  return n;
}

TensorNames gpt2() {
  TensorNames n = llama();
  n.layer = "transformer.h.{}.";
  n.tokens = "transformer.wte";
  n.positions = "transformer.wpe";
  n.final_norm = "transformer.ln_f";
  n.norm1 = "ln_1";
  n.norm2 = "ln_2";
  n.qkv = "attn.c_attn";
  n.proj = "attn.c_proj";
  n.up = "mlp.c_fc";
  n.down = "mlp.c_proj";
  n.transposed = true;
  return n;
}

TensorNames gpt_neox() {
  TensorNames n = llama();
  n.layer = "gpt_neox.layers.{}.";
  n.tokens = "gpt_neox.embed_in";
  n.final_norm = "gpt_neox.final_layer_norm";
  n.head = "embed_out";
  n.qkv = "attention.query_key_value";
  n.qkv_parts = 1;
  n.proj = "attention.dense";
  n.up = "mlp.dense_h_to_4h";
  n.down = "mlp.dense_4h_to_h";
  return n;
}

TensorNames bert() {
  TensorNames n = llama();
  n.layer = "bert.encoder.layer.{}.";
  n.tokens = "bert.embeddings.word_embeddings";
  n.positions = "bert.embeddings.position_embeddings";
  n.types = "bert.embeddings.token_type_embeddings";
  n.embedding_norm = "bert.embeddings.LayerNorm";
  n.head = "cls.predictions.decoder";
  n.norm1 = "attention.output.LayerNorm";
  n.norm2 = "output.LayerNorm";
  n.q = "attention.self.query";
  n.k = "attention.self.key";
  n.v = "attention.self.value";
  n.proj = "attention.output.dense";
  n.up = "intermediate.dense";
  n.down = "output.dense";
  return n;
}

TensorNames opt() {
  TensorNames n = llama();
  n.layer = "model.decoder.layers.{}.";
  n.tokens = "model.decoder.embed_tokens";
  n.positions = "model.decoder.embed_positions";
  n.final_norm = "model.decoder.final_layer_norm";
  n.norm1 = "self_attn_layer_norm";
  n.norm2 = "final_layer_norm";
  n.proj = "self_attn.out_proj";
  n.up = "fc1";
  n.down = "fc2";
  return n;
}

TensorNames falcon() {
  TensorNames n = llama();
  n.layer = "transformer.h.{}.";
  n.tokens = "transformer.word_embeddings";
  n.final_norm = "transformer.ln_f";
  n.qkv = "self_attention.query_key_value";
  n.qkv_parts = 1;
  n.proj = "self_attention.dense";
  n.up = "mlp.dense_h_to_4h";
  n.down = "mlp.dense_4h_to_h";
  return n;
}

TensorNames bloom() {
  TensorNames n = falcon();
  n.embedding_norm = "transformer.word_embeddings_layernorm";
  return n;
}

TensorNames mpt() {
  TensorNames n = llama();
  n.layer = "transformer.blocks.{}.";
  n.tokens = "transformer.wte";
  n.final_norm = "transformer.norm_f";
  n.norm1 = "norm_1";
  n.norm2 = "norm_2";
  n.qkv = "attn.Wqkv";
  n.proj = "attn.out_proj";
  n.up = "ffn.up_proj";
  n.down = "ffn.down_proj";
  return n;
}

// Falcon-40B and 180B: two norms in parallel.
TensorNames falcon_new() {
  TensorNames n = falcon();
  n.norm1 = "ln_attn";
  n.norm2 = "ln_mlp";
  return n;
}

TensorNames phi() {
  TensorNames n = llama();
  n.final_norm = "model.final_layernorm";
  n.proj = "self_attn.dense";
  n.up = "mlp.fc1";
  n.down = "mlp.fc2";
  return n;
}

// Megatron-Core's own names: queries, keys and values of one group of heads stand together.
TensorNames megatron() {
  TensorNames n = llama();
  n.layer = "decoder.layers.{}.";
  n.tokens = "embedding.word_embeddings";
  n.positions = "embedding.position_embeddings";
  n.types = "embedding.tokentype_embeddings";
  n.final_norm = "decoder.final_layernorm";
  n.head = "output_layer";
  n.norm2 = "pre_mlp_layernorm";
  n.qkv = "self_attention.linear_qkv";
  n.qkv_parts = 1;
  n.q_norm = "self_attention.q_layernorm";
  n.k_norm = "self_attention.k_layernorm";
  n.proj = "self_attention.linear_proj";
  n.gate = "mlp.linear_fc1_gate";
  n.up = "mlp.linear_fc1";
  n.down = "mlp.linear_fc2";
  n.router = "mlp.router";
  n.router_bias = "mlp.router.expert_bias";
  n.expert = "mlp.experts.local_experts.*.";
  n.expert_gate = "linear_fc1_gate";
  n.expert_up = "linear_fc1";
  n.expert_down = "linear_fc2";
  return n;
}

TensorNames nemotron_h() {
  TensorNames n = llama();
  n.layer = "backbone.layers.{}.";
  n.tokens = "backbone.embeddings";
  n.final_norm = "backbone.norm_f";
  n.norm1 = "norm";
  n.q = "mixer.q_proj";
  n.k = "mixer.k_proj";
  n.v = "mixer.v_proj";
  n.proj = "mixer.o_proj";
  n.up = "mixer.up_proj";
  n.down = "mixer.down_proj";
  n.router = "mixer.gate";
  n.router_bias = "mixer.gate.e_score_correction_bias";
  n.expert = "mixer.experts.*.";
  n.shared = "mixer.shared_experts.";
  n.latent_down = "mixer.fc1_latent_proj";
  n.latent_up = "mixer.fc2_latent_proj";
  n.state_space = "mixer.";
  return n;
}

TensorNames gemma2() {
  TensorNames n = llama();
  n.norm1_after = "post_attention_layernorm";
  n.norm2 = "pre_feedforward_layernorm";
  n.norm2_after = "post_feedforward_layernorm";
  return n;
}

TensorNames olmo2() {
  TensorNames n = llama();
  n.norm1_after = "post_attention_layernorm";
  n.norm2_after = "post_feedforward_layernorm";
  return n;
}

TensorNames phi3() {
  TensorNames n = llama();
  n.qkv = "self_attn.qkv_proj";
  return n;
}

TensorNames gpt_oss() {
  TensorNames n = llama();
  n.router = "mlp.router";
  return n;
}

TensorNames llama4() {
  TensorNames n = llama();
  n.gate = "feed_forward.gate_proj";
  n.up = "feed_forward.up_proj";
  n.down = "feed_forward.down_proj";
  n.router = "feed_forward.router";
  n.expert = "feed_forward.experts.*.";
  n.shared = "feed_forward.shared_expert.";
  return n;
}

TensorNames starcoder2() {
  TensorNames n = llama();
  n.up = "mlp.c_fc";
  n.down = "mlp.c_proj";
  return n;
}

TensorNames qwen3_next() {
  TensorNames n = qwen_moe();
  n.state_space = "linear_attn.";
  return n;
}

TensorNames minimax() {
  TensorNames n = mixtral();
  n.state_space = "self_attn.";
  return n;
}

TensorNames jamba() {
  TensorNames n = llama4();
  n.final_norm = "model.final_layernorm";
  n.norm2 = "pre_ff_layernorm";
  n.state_space = "mamba.";
  return n;
}

TensorNames roberta() {
  TensorNames n = bert();
  for (std::string* name : {&n.layer, &n.tokens, &n.positions, &n.types, &n.embedding_norm})
    name->replace(0, 4, "roberta");
  n.head = "lm_head.decoder";
  return n;
}

TensorNames modernbert() {
  TensorNames n = llama();
  n.tokens = "model.embeddings.tok_embeddings";
  n.embedding_norm = "model.embeddings.norm";
  n.final_norm = "model.final_norm";
  n.head = "decoder";
  n.norm1 = "attn_norm";
  n.norm2 = "mlp_norm";
  n.qkv = "attn.Wqkv";
  n.proj = "attn.Wo";
  n.gate = "mlp.Wi_gate";
  n.up = "mlp.Wi";
  n.down = "mlp.Wo";
  return n;
}

const std::map<std::string_view, TensorNames>& table() {
  static const std::map<std::string_view, TensorNames> names = {
      {"bert", bert()},
      {"bloom", bloom()},
      {"cohere", llama()},
      {"cohere2", llama()},
      {"deepseek_v2", llama()},
      {"deepseek_v3", llama()},
      {"deepseek_v32", llama()},
      {"falcon", falcon()},
      {"falcon_new", falcon_new()},
      {"gemma", llama()},
      {"gemma2", gemma2()},
      {"glm4", llama()},
      {"glm4_moe", llama()},
      {"gpt2", gpt2()},
      {"gpt_neox", gpt_neox()},
      {"gpt_oss", gpt_oss()},
      {"granite", llama()},
      {"jamba", jamba()},
      {"llama", llama()},
      {"llama4_text", llama4()},
      {"mamba", nemotron_h()},
      {"mamba2", nemotron_h()},
      {"megatron", megatron()},
      {"minimax", minimax()},
      {"mpt", mpt()},
      {"minimax_m2", mixtral()},
      {"ministral", llama()},
      {"mistral", llama()},
      {"mixtral", mixtral()},
      {"modernbert", modernbert()},
      {"nemotron_h", nemotron_h()},
      {"olmo2", olmo2()},
      {"opt", opt()},
      {"phi", phi()},
      {"phi3", phi3()},
      {"phimoe", mixtral()},
      {"qwen2", llama()},
      {"qwen2_moe", qwen_moe()},
      {"qwen3", llama()},
      {"qwen3_moe", qwen_moe()},
      {"qwen3_next", qwen3_next()},
      {"roberta", roberta()},
      {"stablelm", llama()},
      {"starcoder2", starcoder2()},
  };
  return names;
}

}  // namespace

const TensorNames& tensor_names(std::string_view family) {
  const auto at = table().find(family);
  return at != table().end() ? at->second : table().at("llama");
}

std::vector<std::string_view> known_families() {
  std::vector<std::string_view> families;
  for (const auto& [family, names] : table()) families.push_back(family);
  return families;
}

}  // namespace orrery::internal
