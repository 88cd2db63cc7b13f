// ONNX files made here: no real one is small enough to keep. Weights have a size and no values.
#pragma once

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace orrery::test {

class OnnxBuilder {
 public:
  OnnxBuilder() {
    model_.set_ir_version(8);
    model_.set_producer_name("test");
    auto* opset = model_.add_opset_import();
    opset->set_domain("");
    opset->set_version(13);
    graph().set_name("g");
  }
  onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  void input(const std::string& name, std::vector<std::int64_t> dims, const std::string& batch = "N") {
    auto* type = value(graph().add_input(), name);
    if (!batch.empty()) type->mutable_shape()->add_dim()->set_dim_param(batch);
    for (const auto size : dims) type->mutable_shape()->add_dim()->set_dim_value(size);
  }
  void output(const std::string& name, int rank) {
    auto* type = value(graph().add_output(), name);
    for (int d = 0; d < rank; ++d) type->mutable_shape()->add_dim()->set_dim_param("d" + std::to_string(d));
  }

  // A weight whose values lie in a file that nobody has.
  std::string weight(const std::string& name, std::vector<std::int64_t> dims) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (const auto size : dims) tensor->add_dims(size);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value("weights.bin");
    return name;
  }

  onnx::NodeProto* node(const std::string& type, std::vector<std::string> inputs, const std::string& output) {
    auto* n = graph().add_node();
    n->set_op_type(type);
    n->set_name(output);
    for (const auto& in : inputs) n->add_input(in);
    n->add_output(output);
    return n;
  }
  static void attribute(onnx::NodeProto* n, const std::string& name, std::int64_t i) {
    auto* a = n->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(i);
  }
  static void attribute(onnx::NodeProto* n, const std::string& name, std::vector<std::int64_t> list) {
    auto* a = n->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INTS);
    for (const auto i : list) a->add_ints(i);
  }

  std::string conv(const std::string& name, const std::string& in, std::int64_t cin, std::int64_t cout,
                   std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
    auto* n = node("Conv", {in, weight(name + ".w", {cout, cin / groups, kernel, kernel})}, name);
    attribute(n, "kernel_shape", std::vector<std::int64_t>{kernel, kernel});
    attribute(n, "strides", std::vector<std::int64_t>{stride, stride});
    attribute(n, "pads", std::vector<std::int64_t>(4, kernel / 2));
    attribute(n, "group", groups);
    return name;
  }
  std::string batch_norm(const std::string& in, std::int64_t channels) {
    const std::string name = in + ".bn";
    node("BatchNormalization",
         {in, weight(name + ".scale", {channels}), weight(name + ".bias", {channels}),
          weight(name + ".mean", {channels}), weight(name + ".var", {channels})},
         name);
    return name;
  }
  std::string relu(const std::string& in) {
    node("Relu", {in}, in + ".relu");
    return in + ".relu";
  }

  std::string bytes() const { return model_.SerializeAsString(); }
  onnx::ModelProto& model() { return model_; }

 private:
  static onnx::TypeProto::Tensor* value(onnx::ValueInfoProto* info, const std::string& name) {
    info->set_name(name);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    return type;
  }
  onnx::ModelProto model_;
};

inline std::string resnet50_onnx() {
  OnnxBuilder b;
  b.input("x", {3, 224, 224});
  std::string x = b.relu(b.batch_norm(b.conv("conv1", "x", 3, 64, 7, 2), 64));
  auto* pool = b.node("MaxPool", {x}, "maxpool");
  OnnxBuilder::attribute(pool, "kernel_shape", std::vector<std::int64_t>{3, 3});
  OnnxBuilder::attribute(pool, "strides", std::vector<std::int64_t>{2, 2});
  OnnxBuilder::attribute(pool, "pads", std::vector<std::int64_t>{1, 1, 1, 1});
  x = "maxpool";
  std::int64_t channels = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::string p = "l" + std::to_string(stage) + "." + std::to_string(i) + ".";
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      std::string y = b.relu(b.batch_norm(b.conv(p + "c1", x, channels, width, 1, 1), width));
      y = b.relu(b.batch_norm(b.conv(p + "c2", y, width, width, 3, stride), width));
      y = b.batch_norm(b.conv(p + "c3", y, width, 4 * width, 1, 1), 4 * width);
      std::string shortcut = x;
      if (i == 0) shortcut = b.batch_norm(b.conv(p + "down", x, channels, 4 * width, 1, stride), 4 * width);
      b.node("Add", {y, shortcut}, p + "add");
      x = b.relu(p + "add");
      channels = 4 * width;
    }
  }
  b.node("GlobalAveragePool", {x}, "gap");
  b.node("Flatten", {"gap"}, "flat");
  auto* fc = b.node("Gemm", {"flat", b.weight("fc.w", {1000, 2048}), b.weight("fc.b", {1000})}, "scores");
  OnnxBuilder::attribute(fc, "transB", 1);
  b.output("scores", 2);
  return b.bytes();
}

}  // namespace orrery::test
