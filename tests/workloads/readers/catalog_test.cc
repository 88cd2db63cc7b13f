#include "workloads/readers/catalog.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"

namespace orrery {
namespace {

TEST_CASE("catalog: every workload that scripts rely on is there") {
  std::set<std::string> names;
  for (const WorkloadEntry& entry : catalog_workloads()) {
    names.insert(entry.name);
    CHECK_FALSE(entry.description.empty());
  }
  for (const char* name :
       {"gpt2", "gpt2-xl", "gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t", "bert-base",
        "bert-large", "llama2-7b", "llama2-70b", "llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b",
        "mixtral-8x22b", "deepseek-v3", "resnet50", "vgg16", "dlrm"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("catalog: parameter counts are the published ones to 0.5%") {
  for (const WorkloadEntry& entry : catalog_workloads()) {
    INFO(entry.name);
    const Workload workload = load_workload(entry.name);
    CHECK(workload.name == entry.name);
    CHECK_FALSE(workload.source.empty());
    if (workload.published_parameters == 0) continue;
    const double ratio =
        static_cast<double>(workload.parameters()) / static_cast<double>(workload.published_parameters);
    CHECK(std::abs(ratio - 1) < 0.005);
  }
}

TEST_CASE("catalog: counts that Hugging Face publishes are met exactly") {
  CHECK(load_workload("gpt2").parameters() == 124'439'808);
  CHECK(load_workload("gpt2-xl").parameters() == 1'557'611'200);
  CHECK(load_workload("llama2-7b").parameters() == 6'738'415'616);
  CHECK(load_workload("llama2-70b").parameters() == 68'976'648'192);
  CHECK(load_workload("llama3-8b").parameters() == 8'030'261'248);
  CHECK(load_workload("llama3-70b").parameters() == 70'553'706'496);
  CHECK(load_workload("llama3-405b").parameters() == 405'853'388'800);
  CHECK(load_workload("mixtral-8x7b").parameters() == 46'702'792'704);
  CHECK(load_workload("mixtral-8x22b").parameters() == 140'620'634'112);
}

TEST_CASE("catalog: convolutional networks have torchvision's parameters and the papers' multiply-adds") {
  const Workload resnet = load_workload("resnet50");
  CHECK(resnet.parameters() == 25'557'032);
  CHECK(resnet.forward_flops_per_sample(0) == Approx(2 * 4.089e9).epsilon(0.001));
  CHECK(resnet.layers == 18);  // stem, 16 blocks, classifier
  const Workload alexnet = load_workload("alexnet");
  CHECK(alexnet.parameters() == 61'100'840);
  CHECK(alexnet.forward_flops_per_sample(0) == Approx(2 * 0.7142e9).epsilon(0.001));
  CHECK(alexnet.layers == 8);
  const Workload vgg = load_workload("vgg16");
  CHECK(vgg.parameters() == 138'357'544);
  CHECK(vgg.forward_flops_per_sample(0) == Approx(2 * 15.47e9).epsilon(0.001));
  CHECK(vgg.layers == 16);
}

TEST_CASE("catalog: the recommender's tables hold Criteo's 33,762,577 categories") {
  const Workload dlrm = load_workload("dlrm");
  std::int64_t rows = 0;
  for (const Operator& op : dlrm.operators)
    if (op.kind == OperatorKind::embedding) rows += op.parameters.front().shape.front();
  CHECK(rows == 33'762'577);
}

TEST_CASE("catalog: the terabyte's recommender, parameters and FLOPs by hand") {
  const Workload w = load_workload("dlrm-terabyte");
  const std::int64_t bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128;
  // 27 features by pairs, 351, and the bottom's 128 again.
  const std::int64_t top = 479 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 257;
  CHECK(w.parameters() == std::int64_t{187'767'399} * 128 + bottom + top);
  CHECK(w.forward_flops_per_sample(0) == 2.0 * (13 * 512 + 512 * 256 + 256 * 128) + 2.0 * 27 * 27 * 128 +
                                             2.0 * (479 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256));
  for (const Operator& op : w.operators) CHECK(op.sparse.has_value() == (op.kind == OperatorKind::embedding));
}

TEST_CASE("load_workload: an unknown name lists the catalog, a missing file says so") {
  CHECK_THROWS_WITH(load_workload("gpt5"), Catch::Contains("unknown workload 'gpt5' (did you mean 'gpt2'"));
  CHECK_THROWS_WITH(load_workload("qwen2.9-72b"), Catch::Contains("unknown workload 'qwen2.9-72b'"));
  CHECK_THROWS_AS(load_workload("/no/such/file.json"), UserError);
  CHECK_THROWS_AS(load_workload("nowhere/config.json"), UserError);
}

}  // namespace
}  // namespace orrery
