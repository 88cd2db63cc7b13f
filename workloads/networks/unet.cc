#include "workloads/networks/unet.h"

#include <fmt/format.h>

#include <utility>

#include "workloads/networks/graph_builder.h"

namespace orrery::internal {
namespace {

class UnetBuilder {
 public:
  explicit UnetBuilder(const Unet& shape) : shape_(shape), times_(4 * shape.levels.front().channels) {}
  Workload build();

 private:
  GraphTensor conv(const std::string& name, const GraphTensor& in, std::int64_t out, int stride = 1) {
    return b_.grouped_conv(name, in, out, 3, stride, 1, true);
  }
  GraphTensor perceptron(const std::string& p, std::int64_t in);
  GraphTensor pair(const std::string& p, const GraphTensor& in, std::int64_t out);
  GraphTensor attend(const std::string& p, const GraphTensor& in, bool crosswise);
  GraphTensor transformer(const std::string& p, const GraphTensor& in, int blocks);

  const Unet& shape_;
  const std::int64_t times_;  // width of what is known of the time
  GraphBuilder b_;
  GraphTensor time_;
};

// Of one row a sample.
GraphTensor UnetBuilder::perceptron(const std::string& p, std::int64_t in) {
  GraphTensor x = b_.product_of_rows(p + "linear_1", {}, 1, in, times_, true);
  return b_.pointwise(p + "linear_2", b_.smooth(p + "act", x), times_, true);
}

// Two convolutions, between them the time.
GraphTensor UnetBuilder::pair(const std::string& p, const GraphTensor& in, std::int64_t out) {
  GraphTensor x = conv(p + "conv1", b_.smooth(p + "act1", b_.norm(p + "norm1", in)), out);
  const GraphTensor shift = b_.pointwise(p + "time_emb_proj", b_.smooth(p + "time_act", time_), out, true);
  x = b_.addition(p + "time", x, shift);
  x = conv(p + "conv2", b_.smooth(p + "act2", b_.norm(p + "norm2", x)), out);
  const GraphTensor beside = in.channels == out ? in : b_.pointwise(p + "conv_shortcut", in, out, true);
  return b_.addition(p + "add", x, beside);
}

GraphTensor UnetBuilder::attend(const std::string& p, const GraphTensor& in, bool crosswise) {
  const std::int64_t c = in.channels, own = in.size * in.size;
  const GraphTensor q = b_.pointwise(p + "to_q", in, crosswise ? c : 3 * c, false);
  GraphTensor queries{q.op, c, in.size};
  GraphTensor kv = queries;
  if (crosswise)
    kv = b_.product_of_rows(p + "to_kv", {}, shape_.context_tokens, shape_.context, 2 * c, false);
  const GraphTensor x = b_.attention(p + "attention", queries, kv, crosswise ? shape_.context_tokens : own);
  return b_.pointwise(p + "to_out", x, c, true);
}

GraphTensor UnetBuilder::transformer(const std::string& p, const GraphTensor& in, int blocks) {
  const std::int64_t c = in.channels;
  GraphTensor x = b_.pointwise(p + "proj_in", b_.norm(p + "norm", in), c, true);
  for (int i = 0; i < blocks; ++i) {
    const std::string q = fmt::format("{}transformer_blocks.{}.", p, i);
    x = b_.addition(q + "add1", attend(q + "attn1.", b_.norm(q + "norm1", x), false), x);
    x = b_.addition(q + "add2", attend(q + "attn2.", b_.norm(q + "norm2", x), true), x);
    const GraphTensor up = b_.pointwise(q + "ff.proj", b_.norm(q + "norm3", x), 8 * c, true);
    x = b_.addition(q + "add3", b_.pointwise(q + "ff.out", b_.gated(q + "ff.geglu", up), c, true), x);
  }
  return b_.addition(p + "add", b_.pointwise(p + "proj_out", x, c, true), in);
}

Workload UnetBuilder::build() {
  const auto levels = shape_.levels.size();
  const std::int64_t first = shape_.levels.front().channels;
  time_ = perceptron("time_embedding.", first);
  if (shape_.added > 0)
    time_ = b_.addition("time_and_more", time_, perceptron("add_embedding.", shape_.added));
  GraphTensor x = conv("conv_in", {-1, shape_.in, shape_.side}, first);
  std::vector<GraphTensor> kept = {x};
  for (std::size_t l = 0; l < levels; ++l) {
    const Unet::Level& level = shape_.levels[l];
    for (int i = 0; i < level.layers; ++i) {
      b_.next_layer();
      x = pair(fmt::format("down_blocks.{}.resnets.{}.", l, i), x, level.channels);
      if (level.transformers > 0)
        x = transformer(fmt::format("down_blocks.{}.attentions.{}.", l, i), x, level.transformers);
      kept.push_back(x);
    }
    if (l + 1 == levels) continue;
    x = conv(fmt::format("down_blocks.{}.downsample", l), x, level.channels, 2);
    kept.push_back(x);
  }
  b_.next_layer();
  const std::int64_t deepest = shape_.levels.back().channels;
  x = pair("mid_block.resnets.0.", x, deepest);
  if (shape_.middle_transformers > 0)
    x = transformer("mid_block.attentions.0.", x, shape_.middle_transformers);
  x = pair("mid_block.resnets.1.", x, deepest);
  for (std::size_t l = levels; l-- > 0;) {
    const Unet::Level& level = shape_.levels[l];
    const std::size_t number = levels - 1 - l;
    for (int i = 0; i <= level.layers; ++i) {
      b_.next_layer();
      x = b_.joined(fmt::format("up_blocks.{}.skip.{}", number, i), x, kept.back());
      kept.pop_back();
      x = pair(fmt::format("up_blocks.{}.resnets.{}.", number, i), x, level.channels);
      if (level.up_transformers > 0)
        x = transformer(fmt::format("up_blocks.{}.attentions.{}.", number, i), x, level.up_transformers);
    }
    if (l > 0)
      x = conv(fmt::format("up_blocks.{}.upsample", number),
               b_.upsampled(fmt::format("up_blocks.{}.interpolate", number), x), level.channels);
  }
  x = b_.smooth("conv_act", b_.norm("conv_norm_out", x));
  b_.loss(conv("conv_out", x, shape_.out));
  return b_.finish("unet", "", 0);
}

}  // namespace

Workload unet(const Unet& shape) {
  return UnetBuilder(shape).build();
}

}  // namespace orrery::internal
