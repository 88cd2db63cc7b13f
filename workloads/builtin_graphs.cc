#include "workloads/builtin_graphs.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "workloads/graph_workload.h"

namespace orrery::internal {
namespace {

// An image (or a vector, of size 1) and the operator that makes it.
struct Tensor {
  int op = -1;  // -1: the input
  std::int64_t channels = 0;
  std::int64_t size = 1;  // of a side
  std::int64_t elements() const { return channels * size * size; }
};

class GraphBuilder {
 public:
  int add(OperatorKind kind, std::string name, std::vector<int> inputs, std::int64_t out,
          double vector_elements) {
    Operator op;
    op.kind = kind;
    op.name = std::move(name);
    for (const int input : inputs)
      if (input >= 0) op.inputs.push_back(input);
    op.output_elements = out;
    op.vector_elements = vector_elements;
    operators_.push_back(std::move(op));
    return static_cast<int>(operators_.size()) - 1;
  }

  Tensor conv(const std::string& name, Tensor in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
              bool bias) {
    const std::int64_t side = (in.size + stride - 1) / stride;
    const Tensor result{add(OperatorKind::conv, name, {in.op}, out * side * side, 0), out, side};
    const std::int64_t k = in.channels * kernel * kernel;
    operators_.back().matmuls = {{static_cast<double>(side * side), out, k, 1}};
    parameter(name + ".weight", {out, in.channels, kernel, kernel});
    if (bias) parameter(name + ".bias", {out});
    return result;
  }

  Tensor batch_norm(const std::string& name, Tensor in) {
    in.op =
        add(OperatorKind::batch_norm, name, {in.op}, in.elements(), 3.0 * static_cast<double>(in.elements()));
    parameter(name + ".weight", {in.channels});
    parameter(name + ".bias", {in.channels});
    return in;
  }

  // In place: the backward reads the output, which the next operator keeps.
  Tensor relu(const std::string& name, Tensor in) {
    in.op =
        add(OperatorKind::activation, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
    operators_.back().keeps_input = false;
    return in;
  }

  Tensor max_pool(const std::string& name, Tensor in, std::int64_t stride) {
    Tensor out{-1, in.channels, (in.size + stride - 1) / stride};
    out.op = add(OperatorKind::pool, name, {in.op}, out.elements(),
                 static_cast<double>(in.elements() + out.elements()));
    operators_.back().saved_elements = out.elements();  // where the maxima were
    return out;
  }

  Tensor average_pool(const std::string& name, Tensor in, std::int64_t side) {
    Tensor out{-1, in.channels, side};
    out.op = add(OperatorKind::pool, name, {in.op}, out.elements(),
                 static_cast<double>(in.elements() + out.elements()));
    operators_.back().keeps_input = false;
    return out;
  }

  Tensor addition(const std::string& name, Tensor a, const Tensor& b) {
    a.op = add(OperatorKind::elementwise, name, {a.op, b.op}, a.elements(),
               3.0 * static_cast<double>(a.elements()));
    operators_.back().keeps_input = false;
    return a;
  }

  Tensor linear(const std::string& name, const Tensor& in, std::int64_t out) {
    const Tensor result{add(OperatorKind::linear, name, {in.op}, out, 0), out, 1};
    operators_.back().matmuls = {{1, out, in.elements(), 1}};
    parameter(name + ".weight", {out, in.elements()});
    parameter(name + ".bias", {out});
    return result;
  }

  Tensor embedding(const std::string& name, std::int64_t rows, std::int64_t width) {
    const Tensor result{add(OperatorKind::embedding, name, {}, width, 2.0 * static_cast<double>(width)),
                        width, 1};
    parameter(name + ".weight", {rows, width});
    return result;
  }

  void loss(const Tensor& in) {
    add(OperatorKind::loss, "loss", {in.op}, 1, 2.0 * static_cast<double>(in.elements()));
  }

  Workload finish(std::string name, std::string source, std::int64_t published) {
    Workload workload;
    workload.name = std::move(name);
    workload.source = std::move(source);
    workload.published_parameters = published;
    workload.layers = assign_layers(&operators_);
    workload.operators = std::move(operators_);
    return workload;
  }

  void parameter(std::string name, std::vector<std::int64_t> shape) {
    ParameterTensor tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    operators_.back().parameters.push_back(std::move(tensor));
  }
  void product(const MatmulShape& shape) { operators_.back().matmuls = {shape}; }

 private:
  std::vector<Operator> operators_;
};

Tensor bottleneck(GraphBuilder& b, const std::string& p, const Tensor& in, std::int64_t width,
                  std::int64_t stride) {
  const std::int64_t out = 4 * width;
  Tensor x = b.relu(p + "relu1", b.batch_norm(p + "bn1", b.conv(p + "conv1", in, width, 1, 1, false)));
  x = b.relu(p + "relu2", b.batch_norm(p + "bn2", b.conv(p + "conv2", x, width, 3, stride, false)));
  x = b.batch_norm(p + "bn3", b.conv(p + "conv3", x, out, 1, 1, false));
  Tensor shortcut = in;
  if (stride != 1 || in.channels != out)
    shortcut = b.batch_norm(p + "downsample.1", b.conv(p + "downsample.0", in, out, 1, stride, false));
  return b.relu(p + "relu3", b.addition(p + "add", x, shortcut));
}

Workload resnet(std::string name, const std::array<int, 4>& blocks, std::int64_t published) {
  GraphBuilder b;
  Tensor x = b.relu("relu", b.batch_norm("bn1", b.conv("conv1", {-1, 3, 224}, 64, 7, 2, false)));
  x = b.max_pool("maxpool", x, 2);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[stage]; ++i)
      x = bottleneck(b, fmt::format("layer{}.{}.", stage + 1, i), x, std::int64_t{64} << stage,
                     stage > 0 && i == 0 ? 2 : 1);
  b.loss(b.linear("fc", b.average_pool("avgpool", x, 1), 1000));
  return b.finish(name, "arXiv 1512.03385; stride in the 3x3 convolution, as torchvision.models." + name,
                  published);
}

Workload resnet50() {
  return resnet("resnet50", {3, 4, 6, 3}, 25'557'032);
}

Workload resnet101() {
  return resnet("resnet101", {3, 4, 23, 3}, 44'549'160);
}

Workload resnet152() {
  return resnet("resnet152", {3, 8, 36, 3}, 60'192'808);
}

Workload vgg16() {
  GraphBuilder b;
  Tensor x{-1, 3, 224};
  int index = 0;  // torchvision counts every module of `features`
  for (const int width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == 0) {
      x = b.max_pool(fmt::format("features.{}", index++), x, 2);
      continue;
    }
    x = b.conv(fmt::format("features.{}", index), x, width, 3, 1, true);
    x = b.relu(fmt::format("features.{}", index + 1), x);
    index += 2;
  }
  x = b.relu("classifier.1", b.linear("classifier.0", x, 4096));
  x = b.relu("classifier.4", b.linear("classifier.3", x, 4096));
  b.loss(b.linear("classifier.6", x, 1000));
  return b.finish("vgg16", "arXiv 1409.1556, configuration D, as torchvision.models.vgg16", 138'357'544);
}

// Deep learning recommendation model, arXiv 1906.00091: dense features through an MLP, categories through
// tables, pairwise dot products of all of them through a second MLP.
Workload dlrm() {
  // Distinct values of Criteo's display advertising challenge's 26 categorical features.
  const std::int64_t rows[] = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                               93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                               2173,  4,    7046547,  18,      15,  286181, 105,     142572};
  constexpr std::int64_t kWidth = 16;
  GraphBuilder b;
  std::vector<int> features;
  int table = 0;
  for (const std::int64_t count : rows)
    features.push_back(b.embedding(fmt::format("emb_l.{}", table++), count, kWidth).op);
  Tensor x{-1, 13, 1};
  int index = 0;
  for (const std::int64_t width : {512, 256, 64, 16}) {
    x = b.relu(fmt::format("bot_l.{}", index + 1), b.linear(fmt::format("bot_l.{}", index), x, width));
    index += 2;
  }
  features.push_back(x.op);
  const auto count = static_cast<std::int64_t>(features.size());
  const std::int64_t pairs = count * (count - 1) / 2;
  Tensor z{b.add(OperatorKind::interaction, "interaction", features, pairs + kWidth,
                 static_cast<double>(count * kWidth + pairs + kWidth)),
           pairs + kWidth, 1};
  b.product({static_cast<double>(count), count, kWidth, 1});  // the whole square is multiplied
  index = 0;
  for (const std::int64_t width : {512, 256, 1}) {
    z = b.linear(fmt::format("top_l.{}", index), z, width);
    z = b.relu(fmt::format("top_l.{}", index + 1), z);  // the last is a sigmoid: the same traffic
    index += 2;
  }
  b.loss(z);
  return b.finish("dlrm", "arXiv 1906.00091; github.com/facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh",
                  540'000'000);
}

}  // namespace

const std::vector<BuiltinGraph>& builtin_graphs() {
  static const std::vector<BuiltinGraph> graphs = {
      {"dlrm", "Recommender on Criteo's display advertising data: 26 tables of width 16, 33.8M rows.", dlrm},
      {"resnet101", "ResNet-101 on images of 224 x 224.", resnet101},
      {"resnet152", "ResNet-152 on images of 224 x 224.", resnet152},
      {"resnet50", "ResNet-50 on images of 224 x 224.", resnet50},
      {"vgg16", "VGG-16 on images of 224 x 224.", vgg16},
  };
  return graphs;
}

}  // namespace orrery::internal
