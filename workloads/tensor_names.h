// How each family of models names its tensors (as in Hugging Face's checkpoints).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::internal {

// Names without ".weight" or ".bias". Those of a layer go behind `layer` with its number in place of `{}`.
// Where `qkv` is not empty queries, keys and values are one tensor; `gate_up` alike.
struct TensorNames {
  std::string layer;
  std::string tokens, positions, types, embedding_norm, final_norm, head;
  std::string norm1, norm2;
  std::string norm1_after, norm2_after;  // of what attention and MLP put out
  std::string qkv, q, k, v, q_norm, k_norm, proj, sinks;
  int qkv_parts = 3;        // of the fused tensor: q|k|v side by side; 1: by head
  bool transposed = false;  // weights stand [in, out] (GPT-2's Conv1D)
  std::string gate, up, down;
  std::string router, router_bias, expert, expert_gate, expert_up, expert_down, shared, shared_gate;
  std::string latent_down, latent_up;  // around experts of a width of their own
  std::string state_space;             // prefix of a state-space layer's tensors
};

// Names of an unknown family are Llama's.
const TensorNames& tensor_names(std::string_view family);
std::vector<std::string_view> known_families();  // sorted

}  // namespace orrery::internal
