#include "cost/compute_cost.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.h"
#include "tests/support/gpt_layer.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

namespace {

DeviceProfile device() {
  DeviceProfile d;
  d.name = "test";
  d.peak_flops_per_s[static_cast<int>(DType::fp32)] = 20e12;
  d.peak_flops_per_s[static_cast<int>(DType::bf16)] = 300e12;
  d.memory_bandwidth_bytes_per_s = 2e12;
  d.memory_efficiency = 0.9;
  d.multiprocessors = 100;
  for (MatmulModel& m : d.matmul) m = {0.8, 100, 128, 256, 2e-6};
  for (auto& pair : d.attention)
    for (AttentionModel& a : pair) a = {0.6, 0.5, 512};
  return d;
}

Plan plan_of(std::vector<Operator> ops, const RuntimeProfile& runtime) {
  auto job = std::make_shared<Job>();
  job->workload.operators = std::move(ops);
  job->runtime = runtime;
  job->training.global_batch = 8;
  job->training.seq_len = 1024;
  job->training.precision = DType::bf16;
  Plan plan;
  plan.job = job;
  plan.choices.micro_batch = 2;
  return plan;
}

}  // namespace

TEST_CASE("no device computes faster than the peak that MFU divides by, whatever the precision") {
  for (const CatalogEntry& entry : catalog_devices()) {
    const DeviceProfile device = catalog_device(entry.name);
    for (std::size_t i = 0; i < kDTypeCount; ++i) {
      const auto type = static_cast<DType>(i);
      CAPTURE(entry.name, name_of(type));
      for (const double side : {512.0, 4096.0, 16384.0})
        CHECK(product_seconds({side, side, side}, type, device) >=
              2 * side * side * side / device.peak(type));
      for (const bool backward : {false, true})
        CHECK(attention_seconds(1e15, 131072, 1e6, type, true, backward, device, 128) >=
              1e15 / device.peak(type));
    }
  }
}

TEST_CASE("bf16 without bf16 units takes as long as fp32 with as many bytes") {
  const DeviceProfile v100 = catalog_device("v100-sxm2-32g");
  CHECK(product_seconds({4096, 4096, 4096}, DType::bf16, v100) ==
        product_seconds({4096, 4096, 4096}, DType::fp32, v100));
  CHECK(product_seconds({4096, 4096, 4096}, DType::bf16, v100) >
        3 * product_seconds({4096, 4096, 4096}, DType::fp16, v100));
}

TEST_CASE("a product takes whole waves of whole tiles") {
  const DeviceProfile d = device();
  // 10 x 10 tiles fill 100 multiprocessors once: 2 * 1280 * 2560 * (4096 + 100) / (0.8 * 300e12) + 2 us.
  const double one_wave = 2.0 * 1280 * 2560 * (4096 + 100) / (0.8 * 300e12) + 2e-6;
  CHECK(product_seconds({1280, 2560, 4096}, DType::bf16, d) == Approx(one_wave));
  // One row more is a second wave.
  CHECK(product_seconds({1281, 2560, 4096}, DType::bf16, d) == Approx(2 * one_wave - 2e-6));
}

TEST_CASE("a thin product is bound by memory") {
  DeviceProfile d = device();
  for (MatmulModel& m : d.matmul) m.tile_m = 16;
  const double bytes = 2.0 * (1.0 * 65536 + 65536.0 * 16384 + 16384);
  CHECK(product_seconds({1, 16384, 65536}, DType::bf16, d) == Approx(bytes / 1.8e12 + 2e-6));
}

TEST_CASE("operands that the cache holds are read faster") {
  DeviceProfile d = device();
  for (MatmulModel& m : d.matmul) m.tile_m = 16;
  const Product p{1, 16384, 65536};
  const double bytes = 2.0 * (1.0 * 65536 + 65536.0 * 16384 + 16384);
  const double cold = product_seconds(p, DType::bf16, d);
  for (MatmulModel& m : d.matmul) {
    m.cached_bytes = 4 * bytes;
    m.cached_gain = 2;
  }
  CHECK(product_seconds(p, DType::bf16, d) - 2e-6 == Approx((cold - 2e-6) / 2).epsilon(1e-6));
  for (MatmulModel& m : d.matmul) m.cached_bytes = bytes / 4;
  CHECK(product_seconds(p, DType::bf16, d) == Approx(cold).epsilon(1e-6));
}

TEST_CASE("a benchmark warms the device up, while in a training run the sustained clock counts instead") {
  DeviceProfile d = device();
  const Product p{1280, 2560, 4096};
  const double cool = product_seconds(p, DType::bf16, d);
  CHECK(benchmark_product_seconds(p, DType::bf16, d) == Approx(cool));
  d.power_loss = 0.5;
  d.power_ramp_s = cool;  // half of the way
  d.sustained_clock = 0.8;
  CHECK(benchmark_product_seconds(p, DType::bf16, d) == Approx(1.25 * cool));
  CHECK(product_seconds(p, DType::bf16, d) - 2e-6 == Approx((cool - 2e-6) / 0.8));
}

TEST_CASE("fp8 on a device without it computes in bf16") {
  const DeviceProfile d = device();
  const Product p{4096, 4096, 4096};
  CHECK(product_seconds(p, DType::fp8, d) == product_seconds(p, DType::bf16, d));
}

TEST_CASE("attention ramps up with the sequence") {
  const DeviceProfile d = device();
  CHECK(attention_seconds(1e12, 512, 0, DType::bf16, true, false, d) == Approx(1e12 / (0.6 * 0.5 * 300e12)));
  CHECK(attention_seconds(1e12, 512, 0, DType::bf16, true, true, d) == Approx(1e12 / (0.5 * 0.5 * 300e12)));
  DeviceProfile wide = d;
  wide.attention[static_cast<int>(DType::bf16)][1].half_queries = 1000;
  CHECK(attention_seconds(1e12, 512, 1000, DType::bf16, true, false, wide) ==
        Approx(2e12 / (0.6 * 0.5 * 300e12)));
  CHECK(attention_seconds(0, 512, 0, DType::bf16, true, true, d) == 0);
}

TEST_CASE("memory-bound operators go by their own measured rate where there is one") {
  DeviceProfile d = device();
  CHECK(vector_seconds(1.8e9, OperatorKind::norm, false, d) == Approx(1e-3));
  d.vector.push_back({"norm", 1.8e11, 0.9e11});
  CHECK(vector_seconds(1.8e9, OperatorKind::norm, false, d) == Approx(1e-2));
  CHECK(vector_seconds(1.8e9, OperatorKind::norm, true, d) == Approx(2e-2));
}

TEST_CASE("laws: no faster than peak or bandwidth, and monotone in every dimension") {
  const DeviceProfile d = device();
  const CounterRandom random(3, 1);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const auto size = [&](std::uint64_t j) { return std::floor(std::exp(random.uniform(4 * i + j) * 12)); };
    const Product p{size(0), size(1), size(2), 1 + std::floor(8 * random.uniform(4 * i + 3))};
    const double t = product_seconds(p, DType::bf16, d);
    const double flops = 2 * p.m * p.n * p.k * p.count;
    const double bytes = 2 * p.count * (p.m * p.k + p.k * p.n + p.m * p.n);
    REQUIRE(std::isfinite(t));
    REQUIRE(t >= flops / 300e12);
    REQUIRE(t >= bytes / 2e12);
    // A stride that becomes aligned is faster: by 8 or 64 more, the alignment stays as it is.
    for (const Product& larger : {Product{p.m + 64, p.n, p.k, p.count}, Product{p.m, p.n + 64, p.k, p.count},
                                  Product{p.m, p.n, p.k + 8, p.count}, Product{p.m, p.n, p.k, p.count + 1}})
      REQUIRE(product_seconds(larger, DType::bf16, d) >= t * (1 - 1e-12));
  }
  CHECK(product_seconds({0, 5, 5}, DType::bf16, d) == 0);
}

TEST_CASE("costs of a range are the sum of its operators, and its launches are the host's") {
  DeviceProfile d = device();
  d.launch_overhead_s = 4e-6;
  RuntimeProfile runtime = catalog_runtime("megatron-core");
  runtime.kernel_launch_s = 1e-9;
  const Plan plan = plan_of(test::gpt_operators({4096, 32, 50304, 2}), runtime);
  const ComputeCost cost(plan, d);
  double sum = 0;
  for (int op = 1; op < 11; ++op) sum += cost.operator_seconds(op, ComputeKind::backward);
  CHECK(cost.range_seconds(1, 11, ComputeKind::backward) == Approx(sum));
  CHECK(cost.range_seconds(1, 1, ComputeKind::backward) == 0);

  runtime.kernel_launch_s = 1;
  const Plan slow = plan_of(test::gpt_operators({4096, 32, 50304, 2}), runtime);
  const ComputeCost launch_bound(slow, d);
  double kernels = 0;
  for (int op = 1; op < 11; ++op) kernels += launch_bound.operator_kernels(op, ComputeKind::backward);
  CHECK(launch_bound.range_seconds(1, 11, ComputeKind::backward) == Approx(sum));
  Instruction instruction;
  instruction.compute = ComputeKind::backward;
  instruction.op_begin = 1;
  instruction.op_end = 11;
  CHECK(launch_bound.host_seconds(instruction) == Approx(kernels));
  instruction.op = Op::collective;
  CHECK(launch_bound.host_seconds(instruction) == 1);

  // The backward's launches may be quicker than the forward's.
  runtime.backward_launch_share = 0.25;
  const Plan autograd = plan_of(test::gpt_operators({4096, 32, 50304, 2}), runtime);
  const ComputeCost quick(autograd, d);
  instruction.op = Op::compute;
  CHECK(quick.host_seconds(instruction) == Approx(kernels / 4));
  instruction.compute = ComputeKind::forward;
  CHECK(quick.host_seconds(instruction) == Approx(launch_bound.host_seconds(instruction)));

  // One whose steps are one compiled program launches nothing, whatever its software does elsewhere.
  d.launch_overhead_s = 0;
  CHECK(ComputeCost(slow, d).host_seconds(instruction) == 0);
}

TEST_CASE("strides that 16 bytes do not divide slow a product on tensor units") {
  DeviceProfile d = device();
  d.kind = DeviceKind::gpu;
  // GPT-2's 50,257 tokens against 50,264, the next multiple of 8 (of 2 bytes).
  const double odd = product_seconds({4096, 2048, 50257}, DType::bf16, d);
  const double aligned = product_seconds({4096, 2048, 50264}, DType::bf16, d);
  CHECK(odd > 2.5 * aligned);
  CHECK(odd < 3.5 * aligned);
  // Rows are no stride.
  CHECK(product_seconds({4095, 2048, 2048}, DType::bf16, d) <=
        product_seconds({4096, 2048, 2048}, DType::bf16, d));
}

TEST_CASE("an optimizer instruction updates this rank's share under ZeRO") {
  const DeviceProfile d = device();
  RuntimeProfile runtime = catalog_runtime("megatron-core");
  runtime.kernel_launch_s = 0;
  runtime.memory_bound_efficiency = 1;
  Plan plan = plan_of(test::gpt_operators({64, 4, 1000, 1}), runtime);
  plan.choices.dp = 4;
  Program program;
  program.groups.push_back({GroupKind::data, {0, 1, 2, 3}});
  Bucket bucket;
  bucket.elements = 1 << 24;
  bucket.group = 0;
  program.buckets = {bucket};
  Instruction update;
  update.compute = ComputeKind::optimizer;
  update.op_end = 1;
  const double whole = 30.0 * (1 << 24) / 1.8e12;
  CHECK(ComputeCost(plan, d).seconds(program, update) == Approx(whole));
  plan.choices.zero = 1;
  CHECK(ComputeCost(plan, d).seconds(program, update) == Approx(whole / 4));
}

TEST_CASE("cores that are busy together slow each other by the measured factor") {
  DeviceProfile d = device();
  d.kind = DeviceKind::cpu;
  d.concurrency_scale = {1, 0.5};
  auto job = std::make_shared<Job>();
  job->workload.operators = test::gpt_operators({256, 4, 1000, 1});
  job->runtime = catalog_runtime("orrery");
  job->training.seq_len = 128;
  job->training.precision = DType::fp32;
  job->training.fused_attention = false;
  NodeGroup group;
  group.node.devices = 8;
  group.node.shared_cores = 2;
  group.count = 1;
  job->cluster.groups = {group};
  Plan plan;
  plan.job = job;
  const double alone = ComputeCost(plan, d).range_seconds(1, 11, ComputeKind::forward);
  plan.choices.dp = 4;
  CHECK(ComputeCost(plan, d).range_seconds(1, 11, ComputeKind::forward) == Approx(2 * alone));
}

TEST_CASE("narrow heads wait for exponentials, and the model is as measured at a width of 128") {
  DeviceProfile d = device();
  for (auto& pair : d.attention)
    for (AttentionModel& a : pair) a.half_head_dim = 64;
  const auto seconds = [&](double width) {
    return attention_seconds(1e12, 512, 0, DType::bf16, true, false, d, width);
  };
  CHECK(seconds(128) == Approx(attention_seconds(1e12, 512, 0, DType::bf16, true, false, d)));
  CHECK(seconds(64) == Approx(seconds(128) * 2 / 1.5));
  CHECK(seconds(256) == Approx(seconds(128) * 1.25 / 1.5));
}

TEST_CASE("fused attention written before Hopper has 0.62 of Hopper's rate") {
  DeviceProfile d = device();
  RuntimeProfile runtime;
  OperatorWork work;
  work.attention_flops = 1e12;
  Shard shard;
  shard.seq_len = 512;
  const auto seconds = [&] {
    return work_seconds(work, OperatorKind::attention, ComputeKind::forward, shard, d, runtime);
  };
  const double before = seconds();
  runtime.portable_attention = true;
  CHECK(seconds() == before);
  d.generation = "hopper";
  CHECK(seconds() == Approx(before / 0.62));
}

TEST_CASE("FlashAttention in Triton takes at least 1.3 times as long as FlashAttention-2") {
  const DeviceProfile d = device();
  RuntimeProfile runtime;
  OperatorWork work;
  work.attention_flops = 1e12;
  Shard shard;
  shard.seq_len = 512;
  const auto seconds = [&](ComputeKind kind) {
    return work_seconds(work, OperatorKind::attention, kind, shard, d, runtime);
  };
  const double forward = seconds(ComputeKind::forward), backward = seconds(ComputeKind::backward);
  runtime.triton_attention = true;
  CHECK(seconds(ComputeKind::forward) / forward == Approx(1.3).epsilon(0.01));
  CHECK(seconds(ComputeKind::backward) / backward == Approx(seconds(ComputeKind::forward) / forward));
}

TEST_CASE("computation waits for each collective, and for what it does not hide of a communication") {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.form = Parallelism::tensor;
  instruction.collective = CollectiveKind::all_gather;
  RuntimeProfile runtime;
  runtime.collective_overhead_s = 1e-4;
  CHECK(waiting_seconds(instruction, 1, runtime) == 0);
  CHECK(waiting_seconds(instruction, 8, runtime) == 1e-4);
  runtime.expert_exposed = 0.3;
  runtime.shared_expert_traffic = 2;
  Plan plan = plan_of({}, runtime);
  GroupShape inside, between;
  inside.ranks = between.ranks = 4;
  between.nodes = 2;
  const auto shown = [&](double alone_s, double beside_s, const GroupShape& shape) {
    return shown_seconds(instruction, alone_s, beside_s, shape, plan.expert_exposed());
  };
  CHECK(shown(1, 0, inside) == 1);
  CHECK(shown(10e-3, 4e-3, inside) == Approx(7e-3));
  CHECK(shown(10e-3, 4e-3, between) == 10e-3);  // nobody writes into another node's memory
  instruction.form = Parallelism::data;
  CHECK(waiting_seconds(instruction, 8, runtime) == 0);
  instruction.form = Parallelism::expert;
  CHECK(shown(1, 0, inside) == 0.3);
  plan.choices.tp = plan.choices.etp = 2;
  CHECK(shown(1, 0, between) == 0.6);
}

TEST_CASE("of what travels beside a product, piece by piece, shows what is longer than all pieces but one") {
  CHECK(exposed_beside(10e-3, 4e-3, 4) == Approx(7e-3));
  CHECK(exposed_beside(1e-3, 4e-3, 4) == 0);
  CHECK(exposed_beside(1e-3, 4e-3, 1) == 1e-3);  // one piece: nothing comes before it
  CHECK(exposed_beside(1e-3, 0, 8) == 1e-3);
}

TEST_CASE("tokens sent once a node leave it less often than those sent once an expert") {
  RuntimeProfile runtime;
  runtime.experts_by_node = true;
  Plan plan = plan_of({}, runtime);
  auto job = std::make_shared<Job>(*plan.job);
  job->workload = load_workload("deepseek-v3");  // 8 of 256 experts a token
  job->cluster = with_nodes(load_cluster("dgx-h100"), 4);
  plan.job = job;
  plan.choices.ep = 8;
  CHECK(plan.expert_exposed() == 1);  // all in one node
  plan.choices.ep = 32;
  // Of 8 copies to four nodes 6 would leave; 3 (1 - (3/4)^8) do.
  CHECK(plan.expert_exposed() == Approx(3 * (1 - std::pow(0.75, 8)) / 6));
  job->runtime.experts_in_turn = true;  // neighbours: 1 + 7 * 4 / 256 nodes have some
  CHECK(plan.expert_exposed() == Approx((1 + 7 * 4.0 / 256) / 8));
  job->runtime.experts_by_node = false;
  CHECK(plan.expert_exposed() == 1);
}
