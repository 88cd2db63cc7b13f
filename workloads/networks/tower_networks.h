// Networks over tokens by their dimensions: what TowerBuilder's blocks alone do not make.
#pragma once

#include <cstdint>

#include "workloads/workload.h"

namespace orrery::internal {

// Peebles and Xie, arXiv 2212.09748: blocks whose norms a vector of time and class shifts, scales and gates.
struct DiffusionTransformer {
  std::int64_t layers = 28, heads = 16, head_dim = 72;
  std::int64_t in = 4, out = 8, side = 32, patch = 2;  // of the latents
  std::int64_t classes = 1000;
  bool own_embedders = false;  // each block has its own of time and class (diffusers), else one for all
};
Workload diffusion_transformer(const DiffusionTransformer& shape);

// He et al., arXiv 2006.03654: scores are sums of products of contents and of positions relative to each
// other.
struct Deberta {
  std::int64_t layers = 12, hidden = 768, heads = 12, ffn = 3072, vocab = 128100, tokens = 512;
  std::int64_t distances = 512;    // rows of the table of relative positions
  int position_products = 2;       // of queries with positions, of positions with keys
  std::int64_t positions = 0;      // rows of a table of absolute ones
  std::int64_t types = 0;          // of tokens
  int convolution = 0;             // kernel, beside the first layer
  bool shared_projections = true;  // positions go through the matrices of queries and keys
  bool fused_projections = false;  // first version: one matrix for three, biases of queries and values alone
  bool distance_norm = true;
};
Workload deberta(const Deberta& shape);

}  // namespace orrery::internal
