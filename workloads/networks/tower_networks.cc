#include "workloads/networks/tower_networks.h"

#include <fmt/format.h>

#include "workloads/networks/tower_builder.h"

namespace orrery::internal {
namespace {

constexpr std::int64_t kTimeWaves = 256;  // sines and cosines of the time

// Time, as waves through a perceptron, and class, of which one more means none.
TokenTensor condition(TowerBuilder& b, const std::string& p, std::int64_t width, std::int64_t classes) {
  TokenTensor time = b.project(p + "time.linear_1", {}, 1, kTimeWaves, width, true);
  time =
      b.project(p + "time.linear_2", b.activation(p + "time.activation", time, false), 1, width, width, true);
  const TokenTensor label = b.lookup(p + "class", classes + 1, width, 1);
  return b.elementwise(p + "condition", {time, label}, {-1, 1, width});
}

}  // namespace

Workload diffusion_transformer(const DiffusionTransformer& shape) {
  TowerBuilder b;
  TowerBlock block;
  block.heads = shape.heads;
  block.head_dim = shape.head_dim;
  const std::int64_t width = shape.heads * shape.head_dim, side = shape.side / shape.patch;
  const std::int64_t tokens = side * side, pixels = shape.patch * shape.patch;
  TokenTensor known;
  if (!shape.own_embedders) known = condition(b, "", width, shape.classes);
  TokenTensor x = b.project("patches", {}, tokens, pixels * shape.in, width, true);
  x = b.elementwise("positions", {x}, x);  // sines and cosines
  TokenTensor of_first = known;
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    if (i > 0) b.next_layer();
    const std::string p = fmt::format("blocks.{}.", i);
    if (shape.own_embedders) known = condition(b, p, width, shape.classes);
    if (i == 0) of_first = known;
    const TokenTensor modulation = b.project(
        p + "modulation", b.activation(p + "modulation_act", known, false), 1, width, 6 * width, true);
    const auto shifted = [&](const char* name) {
      return b.elementwise(p + name + "_shift", {b.plain_norm(p + name, x), modulation}, x);
    };
    TokenTensor branch = shifted("norm1");
    branch = b.attention(p + "attn.", block, branch, branch, false);
    x = b.elementwise(p + "add1", {branch, modulation, x}, x);
    branch = b.project(p + "mlp.fc1", shifted("norm2"), tokens, width, 4 * width, true);
    branch =
        b.project(p + "mlp.fc2", b.activation(p + "mlp.act", branch, false), tokens, 4 * width, width, true);
    x = b.elementwise(p + "add2", {branch, modulation, x}, x);
  }
  const TokenTensor modulation =
      b.project("final.modulation", b.activation("final.act", of_first, false), 1, width, 2 * width, true);
  x = b.elementwise("final.shift", {b.plain_norm("final.norm", x), modulation}, x);
  b.loss({b.project("final.linear", x, tokens, width, pixels * shape.out, true)});
  Workload made;
  b.finish(&made);
  return made;
}

Workload deberta(const Deberta& shape) {
  TowerBuilder b;
  const std::int64_t h = shape.hidden;
  TokenTensor x = b.lookup("embeddings.word", shape.vocab, h, shape.tokens);
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> rows;
  if (shape.positions > 0) rows.push_back({"embeddings.position.weight", {shape.positions, h}});
  if (shape.types > 0) rows.push_back({"embeddings.type.weight", {shape.types, h}});
  if (!rows.empty()) x = b.trained_rows("embeddings.sum", x, shape.tokens, std::move(rows));
  x = b.norm("embeddings.norm", x, true);
  b.parameter("relative.weight", {shape.distances, h});
  if (shape.distance_norm) {
    b.parameter("relative_norm.weight", {h});
    b.parameter("relative_norm.bias", {h});
  }
  TowerBlock block;
  block.heads = shape.heads;
  block.head_dim = h / shape.heads;
  block.ffn = shape.ffn;
  block.post_norm = true;
  block.key_bias = !shape.fused_projections;
  block.distances = shape.distances;
  block.distance_products = shape.position_products;
  block.distance_matrices = !shape.shared_projections;
  const TokenTensor embedded = x;
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    if (i > 0) b.next_layer();
    x = b.block(fmt::format("layers.{}.", i), block, x, false);
    if (i > 0 || shape.convolution == 0) continue;
    TokenTensor beside = b.project("conv.conv", embedded, shape.tokens, shape.convolution * h, h, true);
    beside = b.activation("conv.act", beside, false);
    x = b.norm("conv.norm", b.elementwise("conv.add", {x, beside}, x), true);
  }
  b.loss({x});
  Workload made;
  b.finish(&made);
  return made;
}

}  // namespace orrery::internal
