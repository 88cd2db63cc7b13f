#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "base/error.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

Workload parse_workload(std::string_view text) {
  proto::Workload message;
  parse_textproto(text, "w.textproto", &message);
  return workload_from_proto(message, "w.textproto", text);
}

TEST_CASE("workload: every catalog entry survives its file form") {
  for (const WorkloadEntry& entry : catalog_workloads()) {
    INFO(entry.name);
    const Workload workload = load_workload(entry.name);
    proto::Workload message, again;
    to_proto(workload, &message);
    const std::string text = to_textproto(message);
    const Workload copy = parse_workload(text);
    to_proto(copy, &again);
    CHECK(to_textproto(again) == text);
    CHECK(copy.layers == workload.layers);
    CHECK(copy.parameters() == workload.parameters());
    CHECK(copy.forward_flops_per_sample(512) == workload.forward_flops_per_sample(512));
    REQUIRE(copy.operators.size() == workload.operators.size());
    for (std::size_t i = 0; i < copy.operators.size(); ++i) {
      CHECK(copy.operators[i].name == workload.operators[i].name);
      CHECK(copy.operators[i].vector_elements == workload.operators[i].vector_elements);
      CHECK(copy.operators[i].keeps_input == workload.operators[i].keeps_input);
      CHECK(copy.operators[i].layer == workload.operators[i].layer);
      CHECK(copy.operators[i].image == workload.operators[i].image);
    }
  }
}

TEST_CASE("workload: gpt-oss's router has a linear layer's bias, in files from before it had a name, too") {
  const auto read = [](const std::string& family, const std::string& bias) {
    const Workload workload =
        parse_workload("name: \"m\"\ntransformer { family: \"" + family +
                       "\" layers: 2 hidden: 64 vocab: 10 max_positions: 8 heads: 4 ffn_hidden: 8\n"
                       "moe { experts: 4 experts_per_token: 2 expert_ffn_hidden: 8 " +
                       bias + " } }");
    return std::tuple(workload.transformer->moe->selection_bias,
                      workload.transformer->moe->router_linear_bias, workload.parameters());
  };
  const std::int64_t without = std::get<2>(read("gpt_oss", ""));
  CHECK(read("gpt_oss", "router_bias: true") == std::tuple(false, true, without + 2 * 4));
  CHECK(read("gpt_oss", "router_linear_bias: true") == std::tuple(false, true, without + 2 * 4));
  CHECK(read("deepseek_v3", "router_bias: true") ==
        std::tuple(true, false, std::get<2>(read("deepseek_v3", "")) + 2 * 4));
}

TEST_CASE("workload: errors name file, line and field") {
  const std::string head =
      "name: \"m\"\ntransformer {\n  family: \"gpt2\"\n  layers: 2\n  hidden: 64\n  vocab: 10\n  "
      "max_positions: 8\n";
  const auto refused = [](const std::string& text, const std::string& start) {
    INFO(text);
    CHECK_THROWS_AS(parse_workload(text), UserError);
    CHECK_THROWS_WITH(parse_workload(text), Catch::StartsWith(start));
  };
  refused("", "w.textproto");
  refused("name: \"m\"", "w.textproto: has neither");
  refused(head + "  heads: 5\n  ffn_hidden: 8\n}",
          "w.textproto:8: transformer.heads: 5 does not divide hidden 64");
  refused(head + "  heads: 4\n}", "w.textproto:2: transformer.ffn_hidden: 0");
  refused(head + "  heads: -4\n}", "w.textproto:8: transformer.heads: -4");
  refused(head + "  heads: 4\n  kv_heads: 3\n  ffn_hidden: 8\n}", "w.textproto:9: transformer.kv_heads: 3");
  refused(head + "  heads: 4\n  ffn_hidden: 8\n  activation: \"cubic\"\n}",
          "w.textproto:10: transformer.activation");
  refused(head + "  heads: 4\n  ffn_hidden: 8\n  rope_theta: nan\n}",
          "w.textproto:10: transformer.rope_theta");
  refused(head + "  heads: 4\n  ffn_hidden: 8\n  frobnicate: 1\n}", "w.textproto:10:");
  refused(head + "  heads: 4\n  moe { experts: 2 experts_per_token: 3 expert_ffn_hidden: 4 }\n}",
          "w.textproto:9: transformer.moe.experts_per_token: 3");
  refused("name: \"m\"\ntransformer {\n  family: \"gpt9\"\n}", "w.textproto:3: transformer.family: 'gpt9'");
}

TEST_CASE("workload: a graph's errors name the operator, a cycle its members") {
  const auto graph = [](const std::string& operators) {
    return "name: \"g\"\ngraph {\n" + operators + "}\n";
  };
  const auto refused = [](const std::string& text, const std::string& what) {
    INFO(text);
    CHECK_THROWS_AS(parse_workload(text), UserError);
    CHECK_THROWS_WITH(parse_workload(text), Catch::Contains(what));
  };
  const std::string a =
      "operators { name: \"a\" kind: \"linear\" n: 4 k: 2 output_elements: 4 parameters { name: \"w\" shape: "
      "4 shape: 2 } }\n";
  CHECK(parse_workload(graph(a)).parameters() == 8);
  CHECK(parse_workload(graph(a)).forward_flops_per_sample(0) == 16);
  refused(graph(""), "no operators");
  refused(graph(a + "operators { name: \"b\" kind: \"magic\" }\n"),
          "w.textproto:4: operator 1 'b' kind: 'magic'");
  refused(graph(a + "operators { name: \"b\" kind: \"pool\" inputs: 7 }\n"), "inputs: 7 is no operator");
  refused(graph("operators { name: \"a\" kind: \"pool\" inputs: 1 }\noperators { name: \"b\" kind: \"pool\" "
                "inputs: 0 }\n"),
          "is on a cycle: a -> b");
  refused(
      graph("operators { name: \"a\" kind: \"pool\" inputs: 1 }\noperators { name: \"b\" kind: \"pool\" }\n"),
      "stands after it");
  refused(graph("operators { name: \"a\" kind: \"pool\" inputs: 0 }\n"), "is on a cycle: a");
  refused(graph("operators { name: \"a\" kind: \"linear\" n: -4 k: 2 }\n"), "n: -4");
  refused(graph("operators { name: \"a\" kind: \"linear\" n: 1e14 k: 1e14 }\n"), "too large");
  refused(graph("operators { name: \"a\" kind: \"linear\" parameters { name: \"w\" shape: 0 } }\n"),
          "dimension 0");
}

TEST_CASE("workload: what an operator computes on images fits its inputs, window and parameters") {
  const auto graph = [](const std::string& image) {
    return "name: \"m\"\ngraph {\n  operators {\n    name: \"c\" kind: \"conv\" n: 4 k: 27 rows: 9 "
           "output_elements: 36\n"
           "    parameters { name: \"w\" shape: [4, 3, 3, 3] }\n    image { " +
           image + " }\n  }\n}\n";
  };
  const std::string window = "input: [3, 3, 3] output: [4, 3, 3] kernel: [3, 3] ";
  CHECK(parse_workload(graph(window + "padding: [1, 1]")).operators[0].image->stride ==
        std::array<int, 2>{1, 1});
  for (const std::string& wrong :
       {window + "padding: [3, 3]", window + "padding: [1, 1] stride: [2, 2]", window + "padding: [1]",
        window + "padding: [-1, 1]", window + "padding: [1, 1] dilation: [0, 1]",
        std::string("input: [3, 3] output: [4, 3, 3] kernel: [3, 3] padding: [1, 1]"),
        std::string("input: [3, 3, 3] output: [4, 3, 4] kernel: [3, 3] padding: [1, 1]"),
        std::string("input: [2, 3, 3] output: [4, 3, 3] kernel: [3, 3] padding: [1, 1]"),
        std::string("input: [3, 3, 3] output: [-4, -3, 3] kernel: [3, 3] padding: [1, 1]")}) {
    INFO(wrong);
    CHECK_THROWS_WITH(parse_workload(graph(wrong)), Catch::StartsWith("w.textproto:4: operator 0 'c'"));
  }
}

TEST_CASE("workload: operators on sequences of patches are held to what they read, make and hold") {
  const Workload vit =
      load_workload(std::string(ORRERY_TEST_DATA) + "/huggingface/vit-base-patch16-224.json");
  proto::Workload message;
  to_proto(vit, &message);
  // What becomes of the operator, and what is said of it.
  const auto wrong = [&](const std::string& name, auto change, const std::string& what) {
    proto::Workload changed = message;
    for (proto::GraphOperator& op : *changed.mutable_graph()->mutable_operators())
      if (op.name() == name) change(op);
    INFO(name << ": " << what);
    CHECK_THROWS_WITH(workload_from_proto(changed, "w.textproto", ""),
                      Catch::Contains("'" + name + "'") && Catch::Contains(what));
  };
  using Op = proto::GraphOperator;
  wrong(
      "vision.0.attention", [](Op& op) { op.mutable_image()->set_heads(7); }, "with 7 heads");
  wrong(
      "vision.0.attention", [](Op& op) { op.mutable_image()->set_heads(0); }, "neither weights nor heads");
  wrong(
      "vision.0.qkv", [](Op& op) { op.mutable_parameters()->RemoveLast(); }, "3 weights and 2 biases");
  wrong(
      "vision.0.qkv", [](Op& op) { op.mutable_image()->set_heads(5); }, "for 5 heads");
  wrong(
      "vision.positions", [](Op& op) { op.mutable_parameters(1)->set_shape(1, 196); }, "197 rows of 768");
  wrong(
      "vision.positions", [](Op& op) { op.mutable_parameters()->RemoveLast(); }, "1 parameters where 2");
  wrong(
      "vision.0.norm1", [](Op& op) { op.mutable_image()->set_epsilon(2); }, "epsilon 2");
  wrong(
      "vision.0.activation", [](Op& op) { op.mutable_image()->set_dropout(0.5); }, "drops out of a sequence");
  wrong(
      "vision.0.activation", [](Op& op) { op.mutable_image()->set_activation("tanh"); },
      "'tanh' is not known");
  wrong(
      "vision.0.mlp_up", [](Op& op) { op.mutable_image()->set_output(1, 5); }, "puts out");
}

}  // namespace
}  // namespace orrery
