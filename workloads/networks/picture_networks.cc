#include "workloads/networks/picture_networks.h"

#include <fmt/format.h>

#include <algorithm>

#include "workloads/networks/graph_builder.h"

namespace orrery::internal {
namespace {

GraphTensor convnext_layer(GraphBuilder& b, const std::string& p, const GraphTensor& in,
                           const ConvNext& shape) {
  GraphTensor x = b.grouped_conv(p + "dwconv", in, in.channels, 7, 1, in.channels, true);
  x = b.pointwise(p + "pwconv1", b.norm(p + "norm", x), 4 * in.channels, true);
  x = b.smooth(p + "act", x);
  if (shape.response_norm) x = b.response_norm(p + "grn", x);
  x = b.pointwise(p + "pwconv2", x, in.channels, true);
  if (shape.layer_scale) x = b.trained_scale(p + "layer_scale", x);
  return b.addition(p + "add", x, in);
}

GraphTensor inverted_bottleneck(GraphBuilder& b, const std::string& p, const GraphTensor& in,
                                const EfficientNet::Stage& stage, std::int64_t squeezed) {
  const auto normalised = [&](const std::string& name, const GraphTensor& x, bool activation) {
    const GraphTensor y = b.batch_norm(p + name + "_bn", x);
    return activation ? b.smooth(p + name + "_act", y) : y;
  };
  GraphTensor x = in;
  const std::int64_t wide = in.channels * stage.expansion;
  if (stage.expansion != 1) x = normalised("expand", b.conv(p + "expand_conv", in, wide, 1, 1, false), true);
  x = normalised("depthwise",
                 b.grouped_conv(p + "depthwise_conv", x, wide, stage.kernel, stage.stride, wide, false),
                 true);
  GraphTensor by = b.average_pool(p + "squeeze", x);
  by = b.smooth(p + "reduce_act", b.pointwise(p + "reduce", by, squeezed, true));
  by = b.smooth(p + "sigmoid", b.pointwise(p + "expand", by, wide, true));
  x = b.scaled(p + "excite", x, by);
  x = normalised("project", b.conv(p + "project_conv", x, stage.out, 1, 1, false), false);
  return stage.stride == 1 && in.channels == stage.out ? b.addition(p + "add", x, in) : x;
}

}  // namespace

Workload convnext(const ConvNext& shape) {
  GraphBuilder b;
  GraphTensor x = b.grouped_conv("stem.conv", {-1, shape.channels, shape.side}, shape.widths.front(),
                                 shape.patch, shape.patch, 1, true, 0);
  x = b.norm("stem.norm", x);
  for (std::size_t stage = 0; stage < shape.widths.size(); ++stage) {
    const std::string p = fmt::format("stages.{}.", stage);
    if (stage > 0) {
      x = b.norm(p + "downsample.norm", x);
      x = b.grouped_conv(p + "downsample.conv", x, shape.widths[stage], 2, 2, 1, true, 0);
    }
    for (std::int64_t i = 0; i < shape.depths[stage]; ++i)
      x = convnext_layer(b, fmt::format("{}layers.{}.", p, i), x, shape);
  }
  x = b.norm("norm", b.average_pool("pool", x));
  b.loss(b.linear("classifier", x, shape.classes));
  return b.finish("convnext", "", 0);
}

Workload efficientnet(const EfficientNet& shape) {
  GraphBuilder b;
  GraphTensor x = b.conv("stem.conv", {-1, shape.channels, shape.side}, shape.stem, 3, 2, false);
  x = b.smooth("stem.act", b.batch_norm("stem.bn", x));
  int number = 0;
  for (const EfficientNet::Stage& stage : shape.stages)
    for (int i = 0; i < stage.repeats; ++i) {
      EfficientNet::Stage block = stage;
      if (i > 0) {
        block.in = stage.out;
        block.stride = 1;
      }
      const auto squeezed =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(block.in) * shape.squeeze));
      x = inverted_bottleneck(b, fmt::format("blocks.{}.", number++), x, block, squeezed);
    }
  x = b.smooth("top.act", b.batch_norm("top.bn", b.conv("top.conv", x, shape.top, 1, 1, false)));
  b.loss(b.linear("classifier", b.average_pool("pool", x), shape.classes));
  return b.finish("efficientnet", "", 0);
}

}  // namespace orrery::internal
