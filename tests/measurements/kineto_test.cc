#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cost/compute_cost.h"
#include "measurements/calibration/calibrate.h"
#include "measurements/compare/step_kinds.h"
#include "measurements/compare/trace_diff.h"
#include "measurements/kinds.h"
#include "measurements/trace_events.h"
#include "planner/uncertainty/factors.h"
#include "program/runtime_profile.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::measurements;

namespace {

std::string event(const std::string& category, const std::string& name, double ts, double dur, int thread,
                  const std::string& args) {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
      category, name, thread, ts, dur, args);
}

// A rank's trace, written event by event. Calls are on thread 1, kernels on stream 7, collectives on 20.
class Trace {
 public:
  explicit Trace(int rank, int world, std::string device = "NVIDIA H100 80GB HBM3")
      : rank_(rank), world_(world), device_(std::move(device)) {}

  Trace& step(int number, double ts, double dur) {
    return add(event("user_annotation", fmt::format("ProfilerStep#{}", number), ts, dur, 1, ""));
  }
  Trace& kernel(const std::string& name, double ts, double dur, double launched_ts = -1, int thread = 1) {
    ++correlation_;
    if (launched_ts >= 0)
      add(event("cuda_runtime", "cudaLaunchKernel", launched_ts, 4, thread,
                fmt::format(R"("cbid": 211, "correlation": {})", correlation_)));
    return add(event("kernel", name, ts, dur, 7, fmt::format(R"("correlation": {})", correlation_)));
  }
  Trace& call(const std::string& name, double ts, double dur, const std::string& dims,
              const std::string& type, int thread = 1) {
    return add(
        event("cpu_op", name, ts, dur, thread,
              fmt::format(R"("Input Dims": {}, "Input type": ["{}", "{}", "{}"])", dims, type, type, type)));
  }
  Trace& collective(const std::string& name, double elements, int size, const std::string& ranks, double ts,
                    double dur) {
    return add(event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", ts, dur, 20,
                     fmt::format(R"("Collective name": "{}", "In msg nelems": {}, "Out msg nelems": {}, )"
                                 R"("Group size": {}, "dtype": "BFloat16", "In split size": "[]", )"
                                 R"("Process Group Ranks": "{}")",
                                 name, elements, elements, size, ranks)));
  }
  Trace& add(const std::string& one) {
    events_ += (events_.empty() ? "" : ",\n") + one;
    return *this;
  }
  std::string text() const {
    return fmt::format(R"({{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "{}"}}],
"distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": {}}}, "traceEvents": [
{}
], "traceName": "t.json"}})",
                       device_, rank_, world_, events_);
  }

 private:
  int rank_, world_, correlation_ = 100;
  std::string device_, events_;
};

Measurements read_kineto(const std::vector<std::string>& traces, const std::string& cluster = "dgx-h100",
                         const std::string& runtime = "") {
  const Context context{load_cluster(cluster), runtime};
  Measurements all;
  for (std::size_t i = 0; i < traces.size(); ++i)
    measurements::read(Source(fmt::format("rank{}.json", i), traces[i]), context, &all);
  conclude_traces(context, &all);
  return all;
}

const std::string kMm = "[[4096, 8192], [8192, 1024], []]";

// Products that take so many times as long as the catalog's H100 is predicted to.
Trace products(double times) {
  const Cluster cluster = load_cluster("dgx-h100");
  Trace trace(0, 1);
  double ts = 1000;
  for (const double n : {2048., 4096., 8192.})
    for (const double k : {4096., 6144., 8192.}) {
      const double us =
          1e6 * times * product_seconds({.m = 8192, .n = n, .k = k}, DType::bf16, cluster.profiles.front());
      trace.call("aten::mm", ts, 50, fmt::format("[[8192, {}], [{}, {}], []]", k, k, n), "c10::BFloat16");
      trace.kernel("nvjet_tst_128x256_64x4", ts + 40, us, ts + 10);
      ts += us + 100;
    }
  return trace;
}

}  // namespace

TEST_CASE("kineto: a product's time is that of the kernels that its call launched, by its shape") {
  Trace trace(0, 1);
  trace.call("aten::mm", 100, 50, kMm, "c10::BFloat16");
  trace.kernel("ampere_bf16_s16816gemm_128x128", 200, 70, 110).kernel("splitKreduce_kernel", 270, 10, 120);
  // Another thread's, and one behind the call.
  trace.kernel("elementwise_kernel", 280, 5, 115, 2).kernel("elementwise_kernel", 285, 5, 160);
  trace.call("aten::mm", 400, 50, kMm, "c10::BFloat16").kernel("ampere_bf16_s16816gemm", 500, 90, 410);
  trace.call("aten::addmm", 600, 50, "[[512], [64, 128], [128, 512]]", "float");
  trace.kernel("cutlass_80_tensorop_s1688gemm_64x64", 700, 9, 610);
  trace.call("aten::bmm", 800, 50, "[[16, 64, 128], [16, 128, 32]]", "c10::Half");
  trace.kernel("volta_h884gemm", 900, 9, 810);
  // Shapes that do not fit each other, and a call that multiplies nothing.
  trace.call("aten::mm", 1000, 50, "[[4, 5], [6, 7]]", "float").kernel("sgemm", 1010, 9, 1005);
  trace.call("aten::mm", 1100, 50, "[[4, 5], [5, 7]]", "float").kernel("fill_kernel", 1110, 9, 1105);
  // Traces merged into one: whose kernel it is nobody knows.
  const auto launch = [](double ts) {
    return event("cuda_runtime", "cudaLaunchKernel", ts, 4, 1, R"("correlation": 7)");
  };
  trace.call("aten::mm", 1200, 50, "[[4, 5], [5, 9]]", "float")
      .call("aten::mm", 1300, 50, "[[4, 5], [5, 9]]", "float");
  trace.add(launch(1210)).add(launch(1310)).add(event("kernel", "sgemm", 1400, 9, 7, R"("correlation": 7)"));
  const Measurements all = read_kineto({trace.text()});
  REQUIRE(all.products.size() == 3);
  CHECK(all.files.front().products == 3);
  const MeasuredProduct& batched = all.products[0];
  CHECK(batched.m == 64);
  CHECK(batched.count == 16);
  CHECK(batched.precision == DType::fp16);
  CHECK(all.products[1].precision == DType::tf32);  // by its kernel's name
  CHECK(all.products[1].n == 512);
  const MeasuredProduct& large = all.products[2];
  CHECK(large.m == 4096);
  CHECK(large.n == 1024);
  CHECK(large.k == 8192);
  CHECK(large.precision == DType::bf16);
  CHECK(large.seconds == Approx(85e-6));  // of 80 and 90
}

TEST_CASE("kineto: steps, kernels by class, and what the device did within the steps") {
  Trace trace(0, 1);
  trace.step(3, 0, 900).step(4, 1000, 950).step(5, 2000, 1000);
  trace.kernel("flash_fwd_kernel", 100, 500, 50).kernel("layer_norm_kernel", 600, 100, 70);
  trace.kernel("ncclDevKernel_AllGather", 500, 400).kernel("multi_tensor_apply_kernel<Adam>", 2000, 300);
  trace.add(event("gpu_memcpy", "Memcpy HtoD", 2300, 100, 7, R"("bytes": 10)"));
  trace.add(event("gpu_user_annotation", "ProfilerStep#4", 1, 2, 7, ""));
  const RankTrace one = read_kineto({trace.text()}).traces.front();
  CHECK(one.steps_s == std::vector<double>{1000e-6, 1000e-6});
  CHECK(one.kernels[static_cast<std::size_t>(KernelClass::attention)].seconds == Approx(500e-6));
  CHECK(one.kernels[static_cast<std::size_t>(KernelClass::norm)].kernels == 1);
  CHECK(one.kernels[static_cast<std::size_t>(KernelClass::optimizer)].seconds == Approx(300e-6));
  CHECK(one.kernels[static_cast<std::size_t>(KernelClass::copy)].seconds == Approx(100e-6));
  CHECK(one.window_s == Approx(3000e-6));
  CHECK(one.compute_s == Approx(1000e-6));
  CHECK(one.collective_s == Approx(400e-6));
  CHECK(one.both_s == Approx(200e-6));
  CHECK(one.idle_s == Approx(1800e-6));
  CHECK(one.rank == 0);
  CHECK(one.device == "NVIDIA H100 80GB HBM3");
}

TEST_CASE("kineto: launches are timed where the device waits for the host") {
  Trace trace(0, 1);
  for (int i = 0; i < 5; ++i) trace.kernel("k", 100 + 10 * i, 2, 94 + 10 * i);  // started at once
  for (int i = 0; i < 5; ++i) trace.kernel("k", 900 + 10 * i, 9, 200 + 3 * i);  // queued
  CHECK(read_kineto({trace.text()}).traces.front().launch_s == Approx(10e-6));
}

TEST_CASE("kineto: a collective took as long as on the rank that came last") {
  const double elements = 64 << 20;
  std::vector<std::string> traces;
  for (int rank = 0; rank < 8; ++rank) {
    Trace trace(rank, 8);
    // Rank 2 comes last to the first, rank 5 to the others.
    for (int i = 0; i < 3; ++i)
      trace.collective("allreduce", elements, 8, "[0, 1, 2, 3, 4, 5, 6, 7]", 10000 * i,
                       rank == (i == 0 ? 2 : 5) ? 700 + 10 * i : 5000);
    traces.push_back(trace.text());
  }
  const Measurements all = read_kineto(traces);
  REQUIRE(all.collectives.size() == 1);
  const MeasuredCollective& one = all.collectives.front();
  CHECK(one.kind == CollectiveKind::all_reduce);
  CHECK(one.bytes == 2 * elements);
  CHECK(one.nodes == 1);
  CHECK(one.devices_per_node == 8);
  CHECK(one.seconds == Approx(710e-6));
  // Some are missing: the shortest of three, where more than half are here.
  const std::vector<std::string> five(traces.begin() + 1, traces.begin() + 6);
  CHECK(read_kineto(five).collectives.front().seconds == Approx(700e-6));
  const std::vector<std::string> half(traces.begin() + 4, traces.end());
  CHECK(read_kineto(half).collectives.empty());
  CHECK_THAT(read_kineto(half).ignored.front().why, Catch::Contains("waiting"));
  std::vector<std::string> twice;
  for (int rank = 0; rank < 7; ++rank) {
    Trace trace(rank, 8);
    for (int i = 0; i < 2; ++i)
      trace.collective("allreduce", elements, 8, "[0, 1, 2, 3, 4, 5, 6, 7]", 10000 * i, 900);
    twice.push_back(trace.text());
  }
  CHECK(read_kineto(twice).collectives.empty());
}

TEST_CASE("kineto: groups lie on nodes by their ranks, of long ones only the first are printed") {
  std::vector<std::string> traces;
  for (const int rank : {0, 8, 16}) {
    Trace trace(rank, 32);
    for (int i = 0; i < 3; ++i) {
      trace.collective("_allgather_base", 1 << 20, 4, "[0, 8, 16, ...]", 1000 * i, 100);
      trace.collective("reduce_scatter_tensor_coalesced", 1 << 20, 3, "[0, 1, 8]", 1000 * i, 100);
      trace.collective("send", 1 << 20, 2, "[0, 8]", 1000 * i, 100);
      trace.collective("allreduce", 1 << 20, 16, "[0, 1, 5, ...]", 1000 * i, 100);
    }
    traces.push_back(trace.text());
  }
  const Measurements all = read_kineto(traces);
  REQUIRE(all.collectives.size() == 1);
  CHECK(all.collectives.front().kind == CollectiveKind::all_gather);
  CHECK(all.collectives.front().nodes == 4);
  CHECK(all.collectives.front().devices_per_node == 1);
  REQUIRE(all.ignored.size() == 7);  // two of each file, and the uneven group
  CHECK(all.ignored[0].why == "a collective without a model ('send' and others)");
  CHECK(all.ignored[0].rows == 3);
  CHECK_THAT(all.ignored[1].why, Catch::Contains("ranks"));
  CHECK_THAT(all.ignored[6].why, Catch::Contains("different numbers"));
}

TEST_CASE("kineto: another device, half a file and what no parser should keep are refused by name") {
  const std::string a100 = Trace(0, 1, "NVIDIA A100-SXM4-80GB").kernel("k", 1, 2).text();
  CHECK_THROWS_WITH(read_kineto({a100}), Catch::Contains("rank0.json") && Catch::Contains("A100-SXM4-80GB"));
  CHECK(read_kineto({a100}, "dgx-a100").traces.size() == 1);
  const std::string whole = products(1).text();
  CHECK_THROWS_AS(read_kineto({whole.substr(0, whole.size() / 2)}), UserError);
  CHECK_THROWS_WITH(read_kineto({Trace(0, 1).text()}), Catch::Contains("no event"));
  const std::string begin = R"({"schemaVersion": 1, "traceEvents": [)";
  CHECK_THROWS_WITH(read_kineto({begin + std::string(1000, '[')}), Catch::Contains("nested"));
  CHECK_THROWS_WITH(read_kineto({begin + R"({"name": ")" + std::string(5 << 20, 'a')}),
                    Catch::Contains("4 MiB"));
  CHECK_THROWS_AS(read_kineto({begin + R"({"ph": "X", "ts": 1e999}]})"}), UserError);
}

TEST_CASE("kineto: products say how fast the devices are, and of a named runtime how fast its products") {
  const Cluster cluster = load_cluster("dgx-h100");
  const Measurements slow = read_kineto({products(1.2).text()});
  REQUIRE(slow.products.size() == 9);
  const Calibrated result = calibrate(cluster, slow);
  REQUIRE(result.factors.size() == 1);
  CHECK(result.factors.front().name == "clock");
  CHECK(result.factors.front().mean > 0.03);
  CHECK(result.factors.front().mean < std::log(1.2));
  CHECK(result.factors.front().sd < result.factors.front().sd_before);
  CHECK(result.cluster.profiles.front().training_speed ==
        Approx(cluster.profiles.front().training_speed * std::exp(-result.factors.front().mean)));
  REQUIRE(result.products);
  CHECK(result.products->rows == 9);
  CHECK(result.products->mape_before == Approx(1 - 1 / 1.2).margin(0.01));
  CHECK(result.products->mape_after < 0.05);
  const Calibrated named =
      calibrate(cluster, read_kineto({products(1.2).text()}, "dgx-h100", "megatron-core"));
  REQUIRE(named.factors.size() == 2);
  CHECK(named.factors[1].name == "matmul");
  // Of what that runtime's products take.
  const double expected = 1.2 * load_runtime("megatron-core").matmul_efficiency;
  CHECK(named.factors[0].mean + named.factors[1].mean == Approx(std::log(expected)).margin(0.04));
  CHECK(named.cluster.calibration->runtime == "megatron-core");
  CHECK_THROWS_AS(calibrate(cluster, read_kineto({products(0.2).text()})), NoAnswer);
  // Far slower than any device of the kind, and what no factor explains.
  CHECK_THROWS_WITH(
      calibrate(cluster, read_kineto({products(40).text()})),
      Catch::Contains("9 products: the median takes 4") && Catch::Contains("times what is predicted"));
  // Launches under a profiler are slower than without: only shorter ones than expected say something.
  for (const double us : {2., 200.}) {
    Trace trace = products(1);
    for (int i = 0; i < 50; ++i) trace.kernel("k", 1e6 + us * i, us / 2, 1e6 + us * i - 1);
    const Calibrated launched = calibrate(cluster, read_kineto({trace.text()}, "dgx-h100", "megatron-core"));
    REQUIRE(launched.factors.size() == (us < 3 ? 3 : 2));
    CHECK(launched.factors.back().name == (us < 3 ? "host" : "matmul"));
    if (us < 3) CHECK(launched.factors.back().mean < -0.1);
  }
  CHECK_THROWS_AS(calibrate(cluster, read_kineto({Trace(0, 1).step(1, 0, 9).kernel("k", 1, 2).text()})),
                  UserError);
}

TEST_CASE("kineto: kernels of PyTorch 2.11 on Hopper are told apart by their names") {
  const auto is = [](std::string_view name, KernelClass kernel) { CHECK(class_of(name) == kernel); };
  is("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", KernelClass::product);
  is("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(…)",
     KernelClass::product);
  is("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
     KernelClass::attention);
  is("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", KernelClass::attention);
  is("void cudnn::fusion::convert_dq_to_16bits<true>(void const*)", KernelClass::attention);
  is("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u>(…)",
     KernelClass::norm);
  is("void at::native::(anonymous "
     "namespace)::multi_tensor_apply_kernel<…FusedOptimizerTensorListMetadata<4>>(…)",
     KernelClass::optimizer);
  is("void lamb_update<float>(…)", KernelClass::optimizer);
  // C++ writes out its lambdas, and a conversion is no convolution.
  is("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(…)::{lambda()#3}>(…)",
     KernelClass::other);
  is("void convert_layout<float>(…)", KernelClass::other);
  is("void cutlass::Kernel2<cutlass::gemm::…, cutlass::NumericArrayConverter<…>>", KernelClass::product);
}

TEST_CASE("kineto: a row of a table takes its time from the trace that it names") {
  const TemporaryFolder folder;
  const std::string table = folder.path() + "/a.csv", trace = folder.path() + "/rank0.json";
  write_file_atomically(
      trace, Trace(0, 8).step(1, 0, 1).step(2, 11.4e6, 1).step(3, 23e6, 1).kernel("k", 1, 2).text());
  write_file_atomically(table,
                        "model,n_gpus,tp,gbs_sequences,seq_len_tokens,step_time_s,trace\n"
                        "llama3-8b,8,2,64,8192,,rank0.json\nllama3-8b,8,2,64,8192,,other.json\n");
  const Measurements all = measurements::read({table, trace}, {load_cluster("dgx-h100"), "megatron-core"});
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps.front().row.measured_s == Approx(11.5));
  CHECK(all.steps.front().spread == Approx(0.0087).margin(0.0002));
  REQUIRE(all.ignored.size() == 1);
  CHECK(all.ignored.front().line == 3);
}

TEST_CASE("kernels of no length, with no step marked, are no step") {
  TraceEvents events;
  events.add_kernel({1e3, 0}, KernelClass::copy, -1, false, "7");
  events.add_kernel({1e3, 0}, KernelClass::copy, -1, false, "7");
  RankTrace trace;
  events.finish(&trace);
  CHECK(trace.steps.empty());
  TraceEvents late;  // so late that the length is lost beside the beginning
  late.add_kernel({1e18, 1}, KernelClass::copy, -1, false, "7");
  RankTrace of_late;
  late.finish(&of_late);
  CHECK(of_late.steps.empty());
}

TEST_CASE("events of a trace beyond what is kept are counted") {
  TraceEvents events;
  for (std::size_t i = 0; i < kMostEvents / 64 + 5; ++i)
    events.add_collective({1.0 * static_cast<double>(i), 1}, {CollectiveKind::all_reduce, 4, {0, 1}, {}});
  CHECK(events.left_out() == 5);
  TraceEvents wide;  // of groups so large that they fill the memory
  std::vector<int> ranks(1 << 18);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  for (int i = 0; i < 70; ++i) wide.add_collective({1.0 * i, 1}, {CollectiveKind::all_reduce, 4, ranks, {}});
  CHECK(wide.left_out() == 70 - static_cast<int>(kMostGroupMembers / ranks.size()));
  RankTrace trace;
  events.finish(&trace);
  CHECK(trace.collectives.front().seconds.size() == kMostEvents / 64);
}

TEST_CASE("a trace that some tool wrote with its events alone, or first, is a profiler's") {
  const std::string whole = Trace(0, 8).call("aten::mm", 0, 10, "[[64, 64], [64, 64]]", "float").text();
  const std::size_t begin = whole.find("\"traceEvents\""), end = whole.find(", \"traceName\"");
  const std::string events = "{" + whole.substr(begin, end - begin) + "}";
  CHECK(is_kineto(whole));
  CHECK(is_kineto(events));
  CHECK_FALSE(is_kineto(R"({"traceEvents": [{"ph": "X", "cat": "GC", "name": "V8"}]})"));
}

TEST_CASE("a trace without marked steps beside one with them is said to count as one step") {
  const auto trace = [](bool marked) {
    Trace one(0, 1);
    for (int i = 0; i < 3; ++i) {
      if (marked) one.step(i, 1000.0 * i, 1000);
      one.kernel("nvjet_gemm", 1000.0 * i + 100, 800);
    }
    return read_kineto({one.text()}).traces;
  };
  const TraceDiff diff = diff_of(trace(true), trace(false));
  CHECK(diff.b_s == Approx(2800e-6));
  REQUIRE(diff.left_out.size() == 2);
  CHECK(diff.left_out[1] == "rank0.json: no step is marked in it, and all of it counts as one");
  CHECK(diff_of(trace(true), trace(true)).left_out.empty());
  // Nothing runs beside it: not even what adding up leaves.
  const std::vector<RankTrace> marked = trace(true);
  CHECK(measured_step({&marked[0]}).at_once_s() == 0);
}

TEST_CASE("why nothing is learned from a trace alone is said") {
  const auto why = [](const Trace& trace) {
    try {
      calibrate(load_cluster("dgx-h100"), read_kineto({trace.text()}));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("learned");
  };
  CHECK_THAT(why(Trace(0, 1).call("aten::mm", 0, 10, "[[64, 64], [64, 64]]", "float")),
             Catch::Contains("rank0.json: holds no kernel"));
  CHECK_THAT(why(Trace(0, 1).kernel("nvjet_gemm", 20, 100, 5)), Catch::Contains("record_shapes=True"));
  CHECK_THAT(why(Trace(0, 1)
                     .call("aten::mm", 0, 10, "[[64, 64], [64, 64]]", "float")
                     .kernel("nvjet_gemm", 20, 10, 5)),
             Catch::Contains("too short"));
}
