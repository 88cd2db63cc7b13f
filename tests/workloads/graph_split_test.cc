#include "workloads/graph_split.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/linear_order.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

Workload graph_of(const std::string& operators) {
  const std::string text = "name: \"test\" graph { " + operators + " }";
  proto::Workload message;
  parse_textproto(text, "test.textproto", &message);
  return workload_from_proto(message, "test.textproto", text);
}

// a (4 -> 8), relu, b (8 -> 8), c (8 -> 2).
std::string mlp(const std::string& a, const std::string& b, const std::string& c) {
  const auto linear = [](const char* name, const char* input, int k, int n, const std::string& split) {
    return "operators { name: \"" + std::string(name) + "\" kind: \"linear\" " + input +
           " rows: 1 n: " + std::to_string(n) + " k: " + std::to_string(k) +
           " output_elements: " + std::to_string(n) + " parameters { name: \"" + name +
           ".weight\" shape: " + std::to_string(n) + " shape: " + std::to_string(k) +
           " } parameters { name: \"" + name + ".bias\" shape: " + std::to_string(n) + " } " +
           (split.empty() ? "" : "split: \"" + split + "\"") + " } ";
  };
  return linear("a", "", 4, 8, a) +
         "operators { name: \"relu\" kind: \"activation\" inputs: 0 output_elements: 8 } " +
         linear("b", "inputs: 1", 8, 8, b) + linear("c", "inputs: 2", 8, 2, c);
}

TEST_CASE("a pair of splits keeps features apart from the first to the second product") {
  const Workload w = graph_of(mlp("column", "row", ""));
  CHECK(w.operators[0].split == TensorSplit::column);
  CHECK(w.operators[0].parameters[0].split_dim == 0);
  CHECK(w.operators[0].parameters[1].split_dim == 0);
  CHECK(w.operators[1].split == TensorSplit::column);
  CHECK_FALSE(features_return(w.operators, 0));
  CHECK_FALSE(features_return(w.operators, 1));
  CHECK(w.operators[2].parameters[0].split_dim == 1);
  CHECK(w.operators[2].parameters[1].split_dim == -1);  // the bias is added once, after the sum
  CHECK(split_operators(w) == std::vector<int>{0, 2});
}

TEST_CASE("a column split that another product reads returns to its samples") {
  const Workload w = graph_of(mlp("column", "column", ""));
  CHECK(w.operators[1].split == TensorSplit::replicated);
  CHECK(features_return(w.operators, 0));
  CHECK(features_return(w.operators, 2));
}

TEST_CASE("attention is split by heads with what makes its queries, keys and values, and only so") {
  const Workload vit =
      load_workload(std::string(ORRERY_TEST_DATA) + "/huggingface/vit-base-patch16-224.json");
  const auto at = [&](const std::string& name) {
    for (std::size_t i = 0; i < vit.operators.size(); ++i)
      if (vit.operators[i].name == name) return static_cast<int>(i);
    FAIL(name);
    return -1;
  };
  const int qkv = at("vision.0.qkv"), attention = at("vision.0.attention"), proj = at("vision.0.proj");
  CHECK(can_be_split(vit.operators[static_cast<std::size_t>(qkv)], TensorSplit::column));
  CHECK_FALSE(can_be_split(vit.operators[static_cast<std::size_t>(qkv)], TensorSplit::row));
  CHECK_FALSE(can_be_split(vit.operators[static_cast<std::size_t>(attention)]));
  CHECK(parts_to_share(vit.operators[static_cast<std::size_t>(qkv)], TensorSplit::column) == 12);
  for (const bool taken : {true, false}) {
    std::vector<Operator> operators = vit.operators;
    set_split(&operators[static_cast<std::size_t>(qkv)], TensorSplit::column);
    if (taken) set_split(&operators[static_cast<std::size_t>(proj)], TensorSplit::row);
    REQUIRE(complete_splits(&operators) == -1);
    CHECK(operators[static_cast<std::size_t>(attention)].split == TensorSplit::column);
    // Side by side, each rank's queries, keys and values would come back in another order.
    CHECK_FALSE(features_return(operators, qkv));
    CHECK(features_return(operators, attention) == !taken);
    for (const ParameterTensor& tensor : operators[static_cast<std::size_t>(qkv)].parameters)
      CHECK(tensor.split_dim == 0);
  }
}

TEST_CASE("splits are written and read back") {
  for (const auto& text : {mlp("column", "row", ""), mlp("", "column", "row"),
                           mlp("column", "column", "column"), mlp("", "", "")}) {
    const Workload w = graph_of(text);
    proto::Workload message;
    to_proto(w, &message);
    const Workload again = workload_from_proto(message, "again", "");
    for (std::size_t i = 0; i < w.operators.size(); ++i) {
      CHECK(again.operators[i].split == w.operators[i].split);
      for (std::size_t p = 0; p < w.operators[i].parameters.size(); ++p)
        CHECK(again.operators[i].parameters[p].split_dim == w.operators[i].parameters[p].split_dim);
    }
  }
}

TEST_CASE("impossible splits in a file are refused by name and line") {
  CHECK_THROWS_WITH(graph_of("\n" + mlp("", "", "") + "\noperators { name: \"relu\" split: \"row\" }"),
                    Catch::StartsWith("test.textproto:3: "));  // of the second that is called relu
  CHECK_THROWS_WITH(graph_of(mlp("", "row", "")), Catch::Contains("'b' split: row, of whole features"));
  CHECK_THROWS_WITH(graph_of(mlp("row", "", "")), Catch::Contains("'a' split: row"));
  CHECK_THROWS_WITH(graph_of(mlp("diagonal", "", "")), Catch::Contains("'diagonal'"));
  CHECK_THROWS_WITH(
      graph_of("operators { name: \"r\" kind: \"activation\" output_elements: 8 split: \"column\" }"),
      Catch::Contains("of a activation"));
}

std::string table(const std::string& name, std::int64_t rows, std::int64_t width, const std::string& more) {
  return "operators { name: \"" + name + "\" kind: \"embedding\" output_elements: " + std::to_string(width) +
         " vector_bytes_factor: 2 " + "parameters { name: \"" + name +
         ".weight\" shape: " + std::to_string(rows) + " shape: " + std::to_string(width) + " } " + more +
         " } ";
}

TEST_CASE("tables are split by column or row, or dealt out whole, as a file says, and written so") {
  const Workload w = graph_of(table("a", 1000, 16, "split: \"column\"") +
                              table("b", 1000, 16, "split: \"row\" sparse { share: 0.1 }") +
                              table("c", 1000, 16, "split: \"table\" sparse { rows_per_sample: 3 }") +
                              table("d", 10, 16, "sparse { }"));
  CHECK(w.operators[0].parameters[0].split_dim == 1);
  CHECK(w.operators[1].parameters[0].split_dim == 0);
  CHECK(w.operators[2].parameters[0].dealt_out);
  CHECK(features_return(w.operators, 0));
  CHECK_FALSE(features_return(w.operators, 1));
  CHECK(features_return(w.operators, 2));
  CHECK(split_operators(w) == std::vector<int>{0, 1, 2});
  CHECK_FALSE(w.operators[0].sparse.has_value());
  CHECK(w.operators[1].sparse->share == 0.1);
  CHECK(w.operators[2].sparse->rows_per_sample == 3);
  CHECK(w.operators[3].sparse->rows_per_sample == 1);
  proto::Workload message;
  to_proto(w, &message);
  const Workload again = workload_from_proto(message, "again", "");
  for (std::size_t i = 0; i < w.operators.size(); ++i) {
    CHECK(again.operators[i].split == w.operators[i].split);
    CHECK(again.operators[i].sparse == w.operators[i].sparse);
    CHECK(again.operators[i].parameters[0].dealt_out == w.operators[i].parameters[0].dealt_out);
  }
}

TEST_CASE("sparse gradients that cannot be are refused by name") {
  CHECK_THROWS_WITH(graph_of(table("a", 10, 4, "sparse { share: 1.5 }")),
                    Catch::Contains("sparse.share: 1.5"));
  CHECK_THROWS_WITH(graph_of(table("a", 10, 4, "sparse { rows_per_sample: -1 }")),
                    Catch::Contains("sparse.rows_per_sample: -1"));
  CHECK_THROWS_WITH(graph_of("operators { name: \"r\" kind: \"activation\" output_elements: 8 sparse { } }"),
                    Catch::Contains("sparse, of a activation"));
  CHECK_THROWS_WITH(
      graph_of("operators { name: \"r\" kind: \"activation\" output_elements: 8 split: \"table\" }"),
      Catch::Contains("split: table, of a activation"));
}

TEST_CASE("different rows that are looked up: as many as drawing with replacement finds") {
  const SparseGradient one;
  CHECK(touched_rows(one, 1000, 1, 1) == Approx(1));
  CHECK(touched_rows(one, 1000, 2, 1) ==
        Approx(2 - 1.0 / 1000));  // the second is the first's in one of 1,000
  CHECK(touched_rows(one, 4, 1e6, 1) == Approx(4));
  CHECK(touched_rows(one, 1000, 500, 4) == Approx(touched_rows(one, 1000, 2000, 1)));
  SparseGradient tenth;
  tenth.share = 0.1;
  CHECK(touched_rows(tenth, 1000, 7, 1) == Approx(100));
  CHECK(touched_rows(tenth, 1000, 7, 2) == Approx(1000 * (1 - 0.9 * 0.9)));
}

// Two towers of three products each on two inputs, joined at the end; the file lists them in turn.
Workload towers() {
  std::string text;
  const auto linear = [&](const std::string& name, const std::string& inputs, int width) {
    text += "operators { name: \"" + name + "\" kind: \"linear\" " + inputs +
            " rows: 1 n: " + std::to_string(width) + " k: " + std::to_string(width) +
            " output_elements: " + std::to_string(width) + " parameters { name: \"" + name +
            ".w\" shape: " + std::to_string(width) + " shape: " + std::to_string(width) + " } } ";
  };
  linear("a0", "", 64);
  linear("b0", "", 64);
  linear("a1", "inputs: 0", 64);
  linear("b1", "inputs: 1", 64);
  linear("a2", "inputs: 2", 64);
  linear("b2", "inputs: 3", 64);
  text += "operators { name: \"join\" kind: \"elementwise\" inputs: 4 inputs: 5 output_elements: 64 } ";
  linear("head", "inputs: 6", 64);
  return graph_of(text);
}

TEST_CASE("a block with most of the work is cut before each of its products") {
  const Workload w = towers();
  CHECK(w.layers == 2);  // both towers, head
  const auto refined = [](const Workload& workload) {
    return in_order(workload, linear_orders(workload)[0]);
  };
  CHECK(refined(w).layers == 7);  // a0 | b0 | a1 | b1 | a2 | b2 join | head
  CHECK(has_parallel_branches(refined(w)));
  for (const char* name : {"resnet50", "vgg16"}) {
    CHECK(refined(load_workload(name)).layers == load_workload(name).layers);
    CHECK_FALSE(has_parallel_branches(refined(load_workload(name))));
  }
  CHECK(has_parallel_branches(refined(load_workload("dlrm"))));
}

TEST_CASE("orders are topological, whole and unlike, and depth first runs through a branch at once") {
  for (const Workload& w : {towers(), load_workload("dlrm"), load_workload("resnet50")}) {
    const auto orders = linear_orders(w);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      const Workload moved = in_order(w, orders[i]);
      for (std::size_t v = 0; v < moved.operators.size(); ++v)
        for (const int input : moved.operators[v].inputs) CHECK(input < static_cast<int>(v));
      CHECK(moved.parameters() == w.parameters());
      CHECK(moved.forward_flops_per_sample(0) == Approx(w.forward_flops_per_sample(0)));
      for (std::size_t j = 0; j < i; ++j) CHECK(orders[i] != orders[j]);
    }
  }
  bool whole_branch = false;
  for (const auto& order : linear_orders(towers()))
    whole_branch = whole_branch || (order[0] % 2 == order[1] % 2 && order[1] % 2 == order[2] % 2);
  CHECK(whole_branch);
}

}  // namespace
}  // namespace orrery
