#include "workloads/readers/onnx.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/workloads/readers/onnx_models.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

using test::OnnxBuilder;

TEST_CASE("onnx: ResNet-50 is the catalog's") {
  const Workload onnx = workload_from_onnx(test::resnet50_onnx(), "resnet50.onnx");
  const Workload ours = load_workload("resnet50");
  CHECK(onnx.name == "resnet50");
  CHECK(onnx.parameters() == 25'557'032);
  CHECK(onnx.forward_flops_per_sample(0) == ours.forward_flops_per_sample(0));
  CHECK(onnx.layers == ours.layers);
  REQUIRE(onnx.operators.size() == ours.operators.size());
  double outputs[2] = {0, 0};
  for (const Operator& op : onnx.operators) outputs[0] += static_cast<double>(op.output_elements);
  for (const Operator& op : ours.operators) outputs[1] += static_cast<double>(op.output_elements);
  CHECK(outputs[0] == outputs[1]);
  // What can be executed of the one can be of the other.
  for (std::size_t i = 0; i < ours.operators.size(); ++i) {
    INFO(ours.operators[i].name);
    REQUIRE(onnx.operators[i].image);
    CHECK(onnx.operators[i].image == ours.operators[i].image);
  }
}

TEST_CASE("onnx: what an operator computes is known, or said not to be") {
  OnnxBuilder b;
  b.input("x", {3, 9, 9});
  auto* strange = b.node("Conv", {"x", b.weight("w", {4, 3, 3, 3})}, "c");
  OnnxBuilder::attribute(strange, "kernel_shape", std::vector<std::int64_t>{3, 3});
  OnnxBuilder::attribute(strange, "pads", std::vector<std::int64_t>{1, 0, 2, 1});
  OnnxBuilder::attribute(strange, "strides", std::vector<std::int64_t>{2, 2});
  b.node("Sigmoid", {b.relu("c")}, "s");
  b.node("Flatten", {"s"}, "f");
  b.node("MatMul", {"f", b.weight("m", {80, 5})}, "y");
  b.output("y", 2);
  const Workload w = workload_from_onnx(b.bytes(), "o.onnx");
  REQUIRE(w.operators.size() == 5);  // convolution, ReLU, sigmoid, product, loss
  REQUIRE(w.operators[0].image);
  CHECK(w.operators[0].image->output == ImageShape{4, 5, 4});
  CHECK(w.operators[0].image->padding == std::array<int, 2>{1, 0});
  CHECK(w.operators[1].image);
  CHECK(!w.operators[2].image);
  REQUIRE(w.operators[3].image);
  CHECK(w.operators[3].image->weight_in_out);
}

TEST_CASE("onnx: a fixed batch is divided out, a grouped convolution costs a group's channels") {
  OnnxBuilder b;
  b.input("x", {4, 8, 10, 10}, "");
  b.conv("y", "x", 8, 16, 3, 1, 4);
  b.output("y", 4);
  const Workload w = workload_from_onnx(b.bytes(), "g.onnx");
  CHECK(w.forward_flops_per_sample(0) == 2.0 * 100 * 16 * (2 * 9));
  CHECK(w.operators.front().output_elements == 1600);
  CHECK(w.parameters() == 16 * 2 * 9);
}

TEST_CASE("onnx: products of activations, a shared weight, an embedding") {
  OnnxBuilder b;
  b.input("ids", {7});
  b.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  b.weight("table", {50, 12});
  b.node("Gather", {"table", "ids"}, "e");
  b.node("MatMul", {"e", b.weight("w", {12, 12})}, "q");
  b.node("MatMul", {"q", "w"}, "k");
  OnnxBuilder::attribute(b.node("Transpose", {"k"}, "kt"), "perm", std::vector<std::int64_t>{0, 2, 1});
  b.node("MatMul", {"q", "kt"}, "scores");
  b.node("Softmax", {"scores"}, "p");
  b.output("p", 3);
  const Workload w = workload_from_onnx(b.bytes(), "a.onnx");
  CHECK(w.parameters() == 50 * 12 + 12 * 12);
  CHECK(w.forward_flops_per_sample(0) == 2.0 * (2 * 7 * 12 * 12 + 7 * 7 * 12));
}

TEST_CASE("onnx: a truncated, foreign or empty file is refused") {
  const std::string bytes = test::resnet50_onnx();
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1})
    CHECK_THROWS_AS(workload_from_onnx(std::string_view(bytes).substr(0, length), "t.onnx"), UserError);
  CHECK_THROWS_AS(workload_from_onnx("{\"model_type\": \"gpt2\"}", "t.onnx"), UserError);
  CHECK_THROWS_AS(workload_from_onnx(std::string(1000, '\xff'), "t.onnx"), UserError);
}

TEST_CASE("onnx: cycles, control flow, unknown operators, huge and unknown sizes are refused") {
  SECTION("cycle") {
    OnnxBuilder b;
    b.input("x", {4});
    b.node("Add", {"x", "b"}, "a");
    b.node("Relu", {"a"}, "b");
    b.output("b", 2);
    CHECK_THROWS_AS(workload_from_onnx(b.bytes(), "c.onnx"), UserError);
  }
  SECTION("control flow") {
    OnnxBuilder b;
    b.input("x", {4});
    auto* node = b.node("If", {"x"}, "y");
    auto* a = node->add_attribute();
    a->set_name("then_branch");
    a->set_type(onnx::AttributeProto::GRAPH);
    a->mutable_g()->set_name("then");
    b.output("y", 2);
    CHECK_THROWS_WITH(workload_from_onnx(b.bytes(), "c.onnx"), Catch::Contains("control flow"));
  }
  SECTION("what shapes are divided by") {  // a stride of 0 ended the process inside onnx
    for (const std::int64_t stride : {0LL, -1LL, 1LL << 40}) {
      OnnxBuilder b;
      b.input("x", {3, 8, 8});
      b.conv("y", "x", 3, 4, 3, stride);
      b.output("y", 4);
      CHECK_THROWS_WITH(workload_from_onnx(b.bytes(), "c.onnx"),
                        Catch::Contains("node 'y' (Conv) has `strides` " + std::to_string(stride)));
    }
  }
  SECTION("unknown operator") {
    OnnxBuilder b;
    b.input("x", {4});
    b.node("Frobnicate", {"x"}, "y");
    b.output("y", 2);
    CHECK_THROWS_AS(workload_from_onnx(b.bytes(), "c.onnx"), UserError);
  }
  SECTION("recurrent weights have no cost model") {
    OnnxBuilder b;
    b.input("x", {3, 10});
    b.node("LSTM", {"x", b.weight("w", {1, 80, 10}), b.weight("r", {1, 80, 20})}, "y");
    OnnxBuilder::attribute(b.graph().mutable_node(0), "hidden_size", 20);
    b.output("y", 4);
    CHECK_THROWS_WITH(workload_from_onnx(b.bytes(), "c.onnx"), Catch::Contains("no cost model"));
  }
  SECTION("huge") {
    OnnxBuilder b;
    b.input("x", {4});
    b.node("MatMul", {"x", b.weight("w", {4, 1LL << 60})}, "y");
    b.output("y", 2);
    CHECK_THROWS_WITH(workload_from_onnx(b.bytes(), "c.onnx"), Catch::Contains("elements"));
  }
  SECTION("a symbolic size behind the batch") {
    OnnxBuilder b;
    b.input("x", {3, 4});
    b.graph()
        .mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(1)
        ->set_dim_param("height");
    b.conv("y", "x", 3, 8, 3, 1);
    b.output("y", 4);
    CHECK_THROWS_WITH(workload_from_onnx(b.bytes(), "c.onnx"), Catch::Contains("height"));
  }
}

}  // namespace
}  // namespace orrery
