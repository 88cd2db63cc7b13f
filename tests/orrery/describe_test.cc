#include "orrery/describe.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

namespace {

template <typename Figure>
double sum_of(const std::vector<Part>& parts, Figure figure) {
  return std::accumulate(parts.begin(), parts.end(), 0.0, [&](double sum, const Part& part) {
    return sum + static_cast<double>(figure(part));
  });
}

}  // namespace

TEST_CASE("layers and kinds of operators each add up to the whole") {
  for (const WorkloadEntry& entry : catalog_workloads()) {
    INFO(entry.name);
    const Workload workload = load_workload(entry.name);
    const Description described = describe(workload);
    CHECK(described.parameters == workload.parameters());
    CHECK(described.forward_flops == Approx(workload.forward_flops_per_sample(workload.default_seq_len)));
    CHECK(described.model_flops == 3 * described.forward_flops);
    for (const auto& parts : {described.layers, described.operators}) {
      CHECK(sum_of(parts, [](const Part& p) { return p.parameters; }) == Approx(described.parameters));
      CHECK(sum_of(parts, [](const Part& p) { return p.forward_flops; }) == Approx(described.forward_flops));
      CHECK(sum_of(parts, [](const Part& p) { return p.output_bytes; }) == Approx(described.output_bytes));
    }
    CHECK(sum_of(described.operators, [](const Part& p) { return p.count; }) ==
          static_cast<double>(workload.operators.size()));
  }
}

TEST_CASE("gpt2 is an embedding, twelve alike layers and a head") {
  const Description described = describe(load_workload("gpt2"));
  REQUIRE(described.layers.size() == 3);
  CHECK(described.layers[0].name == "embedding");
  CHECK(described.layers[1].count == 12);
  CHECK(described.layers[1].parameters == 12 * 7'087'872);  // 12 h^2 + 13 h
  CHECK(described.layers[1].name == "linear, attention");
  CHECK(described.seq_len == 1024);
  CHECK(described.weight_bytes == 2.0 * 124'439'808);
  CHECK(described.active_parameters == described.parameters);
}

TEST_CASE("of experts those that a token meets are active") {
  const Description described = describe(load_workload("mixtral-8x7b"));
  CHECK(static_cast<double>(described.parameters) == Approx(46.7e9).epsilon(0.002));  // arXiv 2401.04088: 47B
  CHECK(static_cast<double>(described.active_parameters) == Approx(12.9e9).epsilon(0.005));  // and 13B
}

TEST_CASE("what is assumed is said, and what cannot be is refused") {
  const Description own = describe(load_workload("gpt2"));
  REQUIRE_FALSE(own.assumed.empty());
  CHECK_THAT(own.assumed.front(), Catch::Contains("1,024 tokens, the workload's own"));
  const Description given = describe(load_workload("gpt2"), 256, DType::fp32);
  CHECK_THAT(given.assumed.front(), Catch::Contains("256 tokens") && !Catch::Contains("own"));
  CHECK(given.weight_bytes == 2 * own.weight_bytes);
  CHECK(given.forward_flops < own.forward_flops / 4);  // attention's share falls with the length
  CHECK(describe(load_workload("gpt2"), 256, DType::fp8).precision == DType::bf16);
  CHECK_THROWS_AS(describe(load_workload("resnet50"), 128), UserError);
}
