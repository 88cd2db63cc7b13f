#include "workloads/networks/builtin_graphs.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "workloads/networks/graph_builder.h"

namespace orrery::internal {
namespace {

using Tensor = GraphTensor;

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

Workload resnet(const std::string& name, const std::array<int, 4>& blocks, std::int64_t published) {
  GraphBuilder b;
  Tensor x = b.relu("relu", b.batch_norm("bn1", b.conv("conv1", {-1, 3, 224}, 64, 7, 2, false)));
  x = b.max_pool("maxpool", x, 3, 2);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[stage]; ++i)
      x = bottleneck(b, fmt::format("layer{}.{}.", stage + 1, i), x, std::int64_t{64} << stage,
                     stage > 0 && i == 0 ? 2 : 1);
  b.loss(b.linear("fc", b.average_pool("avgpool", x), 1000));
  return b.finish(name, "arXiv 1512.03385; stride in the 3x3 convolution, as torchvision.models." + name,
                  published);
}

// He et al., arXiv 1512.03385, section 4.2: three stages of n blocks of two 3x3 convolutions on CIFAR-10's
// 32 x 32 images. Shortcuts between stages are projections, where the paper pads with zeros.
Workload cifar_resnet(std::string name, int blocks) {
  GraphBuilder b;
  Tensor x = b.relu("relu", b.batch_norm("bn1", b.conv("conv1", {-1, 3, 32}, 16, 3, 1, false)));
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < blocks; ++i)
      x = b.basic_block(fmt::format("layer{}.{}.", stage + 1, i), x, std::int64_t{16} << stage,
                        stage > 0 && i == 0 ? 2 : 1);
  b.loss(b.linear("fc", b.average_pool("avgpool", x), 10));
  return b.finish(std::move(name), "arXiv 1512.03385, section 4.2, with projection shortcuts", 0);
}

Workload resnet20() {
  return cifar_resnet("resnet20", 3);
}

// LeNet-300-100 (LeCun et al. 1998, section III.B.4) with ReLU: a plain perceptron on 28 x 28 digits.
Workload mlp() {
  GraphBuilder b;
  Tensor x = b.relu("relu1", b.linear("fc1", {-1, 1, 28}, 300));
  x = b.relu("relu2", b.linear("fc2", x, 100));
  b.loss(b.linear("fc3", x, 10));
  return b.finish("mlp-300-100", "LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition",
                  266'610);
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

// Krizhevsky, "One weird trick for parallelizing convolutional neural networks": one column of the network of
// 2012, without its normalisation of responses.
Workload alexnet() {
  GraphBuilder b;
  Tensor x = b.relu("features.1", b.conv("features.0", {-1, 3, 224}, 64, 11, 4, true, 2));
  x = b.max_pool("features.2", x, 3, 2, 0);
  x = b.relu("features.4", b.conv("features.3", x, 192, 5, 1, true));
  x = b.max_pool("features.5", x, 3, 2, 0);
  x = b.relu("features.7", b.conv("features.6", x, 384, 3, 1, true));
  x = b.relu("features.9", b.conv("features.8", x, 256, 3, 1, true));
  x = b.relu("features.11", b.conv("features.10", x, 256, 3, 1, true));
  x = b.max_pool("features.12", x, 3, 2, 0);
  b.drop_out(x, 0.5);
  x = b.relu("classifier.2", b.linear("classifier.1", x, 4096));
  b.drop_out(x, 0.5);
  x = b.relu("classifier.5", b.linear("classifier.4", x, 4096));
  b.loss(b.linear("classifier.6", x, 1000));
  return b.finish("alexnet", "arXiv 1404.5997, as torchvision.models.alexnet", 61'100'840);
}

Workload vgg16() {
  GraphBuilder b;
  Tensor x{-1, 3, 224};
  int index = 0;  // torchvision counts every module of `features`
  for (const int width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == 0) {
      x = b.max_pool(fmt::format("features.{}", index++), x, 2, 2);
      continue;
    }
    x = b.conv(fmt::format("features.{}", index), x, width, 3, 1, true);
    x = b.relu(fmt::format("features.{}", index + 1), x);
    index += 2;
  }
  x = b.relu("classifier.1", b.linear("classifier.0", x, 4096));
  b.drop_out(x, 0.5);
  x = b.relu("classifier.4", b.linear("classifier.3", x, 4096));
  b.drop_out(x, 0.5);
  b.loss(b.linear("classifier.6", x, 1000));
  return b.finish("vgg16", "arXiv 1409.1556, configuration D, as torchvision.models.vgg16", 138'357'544);
}

// Deep learning recommendation model, arXiv 1906.00091: dense features through an MLP, categories through
// tables, pairwise dot products of all of them through a second MLP.
struct Recommender {
  std::vector<std::int64_t> rows;  // of each table
  std::int64_t width = 16;
  std::vector<std::int64_t> bottom, top;  // widths of the MLPs' layers
  bool sparse = false;                    // gradients of tables are the rows that were looked up
};

Workload recommender(const Recommender& shape, std::string name, std::string source, std::int64_t published) {
  GraphBuilder b;
  std::vector<int> features;
  int table = 0;
  for (const std::int64_t count : shape.rows) {
    features.push_back(b.embedding(fmt::format("emb_l.{}", table++), count, shape.width).op);
    if (shape.sparse) b.sparse_gradient();
  }
  Tensor x{-1, 13, 1};
  int index = 0;
  for (const std::int64_t width : shape.bottom) {
    x = b.relu(fmt::format("bot_l.{}", index + 1), b.linear(fmt::format("bot_l.{}", index), x, width));
    index += 2;
  }
  features.push_back(x.op);
  const auto count = static_cast<std::int64_t>(features.size());
  const std::int64_t pairs = count * (count - 1) / 2;
  Tensor z{b.add(OperatorKind::interaction, "interaction", features, pairs + shape.width,
                 static_cast<double>(count * shape.width + pairs + shape.width)),
           pairs + shape.width, 1};
  b.product({static_cast<double>(count), count, shape.width, 1});  // the whole square is multiplied
  index = 0;
  for (const std::int64_t width : shape.top) {
    z = b.linear(fmt::format("top_l.{}", index), z, width);
    z = b.relu(fmt::format("top_l.{}", index + 1), z);  // the last is a sigmoid: the same traffic
    index += 2;
  }
  b.loss(z);
  return b.finish(std::move(name), std::move(source), published);
}

// Distinct values of the 26 categorical features of Criteo's display advertising challenge.
Recommender criteo_kaggle() {
  return {{1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
           27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572},
          16,
          {512, 256, 64, 16},
          {512, 256, 1}};
}

constexpr std::string_view kKaggle =
    "arXiv 1906.00091; github.com/facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh";

Workload dlrm() {
  return recommender(criteo_kaggle(), "dlrm", std::string(kKaggle), 540'000'000);
}

Workload dlrm_sparse() {
  Recommender shape = criteo_kaggle();
  shape.sparse = true;
  return recommender(shape, "dlrm-sparse", std::string(kKaggle), 540'000'000);
}

// Criteo's terabyte of clicks, categories hashed to at most 40 million: 187,767,399 rows.
Workload dlrm_terabyte() {
  Recommender shape;
  shape.rows = {39884406, 39043,    17289,    7420,     20263,  3,     7120, 1543, 63,
                38532951, 2953546,  403346,   10,       2208,   11938, 155,  4,    976,
                14,       39979771, 25641295, 39664984, 585935, 12972, 108,  36};
  shape.width = 128;
  shape.bottom = {512, 256, 128};
  shape.top = {1024, 1024, 512, 256, 1};
  shape.sparse = true;
  return recommender(
      shape, "dlrm-terabyte",
      "MLPerf Training v0.7; github.com/facebookresearch/dlrm, bench/dlrm_s_criteo_terabyte.sh "
      "with max_ind_range 40000000",
      0);
}

}  // namespace

const std::vector<BuiltinGraph>& builtin_graphs() {
  static const std::vector<BuiltinGraph> graphs = {
      {"alexnet", "AlexNet on images of 224 x 224.", alexnet},
      {"dlrm", "Recommender on Criteo's display advertising data: 26 tables of width 16, 33.8M rows.", dlrm},
      {"dlrm-sparse", "dlrm with sparse gradients: of its tables only the rows that were looked up.",
       dlrm_sparse},
      {"dlrm-terabyte", "Recommender on Criteo's terabyte of clicks: 26 tables of width 128, 187.8M rows.",
       dlrm_terabyte},
      {"mlp-300-100", "Perceptron with 300 and 100 hidden units on images of 28 x 28 (MNIST).", mlp},
      {"resnet101", "ResNet-101 on images of 224 x 224.", resnet101},
      {"resnet152", "ResNet-152 on images of 224 x 224.", resnet152},
      {"resnet20", "ResNet-20 on images of 32 x 32 (CIFAR-10).", resnet20},
      {"resnet50", "ResNet-50 on images of 224 x 224.", resnet50},
      {"vgg16", "VGG-16 on images of 224 x 224.", vgg16},
  };
  return graphs;
}

}  // namespace orrery::internal
