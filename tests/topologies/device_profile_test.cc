#include "topologies/device_profile.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/device_profile.pb.h"
#include "proto/textproto.h"
#include "tests/support/filled_message.h"
#include "tests/support/fuzz.h"

using namespace orrery;

namespace {

const std::string kSoundDevice = R"(name: "d"
kind: "gpu"
peak { dtype: "fp32" flops_per_s: 10e12 }
peak { dtype: "bf16" flops_per_s: 100e12 }
memory_bytes: 40e9
memory_bandwidth_bytes_per_s: 1e12
memory_efficiency: 0.9
multiprocessors: 100
launch_overhead_s: 4e-6
context_bytes: 1e9
idle_power_w: 50
peak_power_w: 400
matmul { dtype: "bf16" efficiency: 0.7 half_k: 32 tile_m: 128 tile_n: 256 kernel_overhead_s: 2e-6 }
vector { operator: "norm" forward_bytes_per_s: 8e11 }
attention { dtype: "bf16" fused: true forward_efficiency: 0.6 backward_efficiency: 0.5 half_sequence: 256 }
concurrency_scale: [1, 0.9]
overlap_slowdown: 0.1
reference_s: 0.05
price_usd_per_hour: 2
)";

DeviceProfile read_device(const std::string& text) {
  proto::DeviceProfile message;
  parse_textproto(text, "d.textproto", &message);
  return device_profile_from_proto(message, "d.textproto", text);
}

std::string replaced_in_device(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a profile keeps what it says and gets defaults for the rest") {
  const DeviceProfile device = read_device(kSoundDevice);
  const auto bf16 = static_cast<std::size_t>(DType::bf16);
  const auto fp32 = static_cast<std::size_t>(DType::fp32);
  CHECK(device.matmul[bf16].efficiency == 0.7);
  CHECK(device.matmul[fp32].efficiency == default_matmul(DeviceKind::gpu, DType::fp32).efficiency);
  CHECK(device.attention[bf16][1].forward_efficiency == 0.6);
  CHECK(device.attention[bf16][0].forward_efficiency ==
        default_attention(DeviceKind::gpu, false).forward_efficiency);
  CHECK(device.vector[0].backward_bytes_per_s == 8e11);  // as forward
  CHECK(read_device(replaced_in_device(kSoundDevice, "memory_efficiency: 0.9", "")).memory_efficiency ==
        0.85);
}

TEST_CASE("a type that a device has not falls back to the next wider") {
  const DeviceProfile device = read_device(kSoundDevice);
  CHECK(device.compute_type(DType::fp8) == DType::bf16);
  CHECK(device.compute_type(DType::fp4) == DType::bf16);
  CHECK(device.compute_type(DType::fp16) == DType::bf16);
  CHECK(device.compute_type(DType::tf32) == DType::fp32);
  CHECK(device.peak(DType::fp8) == 100e12);
  CHECK(device.peak(DType::int8) == 10e12);
}

TEST_CASE("a profile survives the way through its file unchanged") {
  proto::DeviceProfile once;
  to_proto(read_device(kSoundDevice), &once);
  const std::string text = to_textproto(once);
  proto::DeviceProfile twice;
  to_proto(read_device(text), &twice);
  CHECK(to_textproto(twice) == text);
}

TEST_CASE("every field of a device profile survives its file form") {
  proto::DeviceProfile message;
  message.set_kind("cpu");
  message.set_memory_bytes(1);
  message.set_memory_bandwidth_bytes_per_s(1e9);
  testing::fill(&message);
  message.clear_like();  // read_device with what it names, and written without it
  message.add_concurrency_scale(0.5);
  message.add_peak()->set_dtype("fp32");
  message.mutable_peak(0)->set_flops_per_s(1e12);
  testing::fill(message.mutable_peak(0));
  message.add_matmul()->set_dtype("fp32");
  message.mutable_matmul(0)->set_cached_gain(2);
  testing::fill(message.mutable_matmul(0));
  testing::fill(message.add_vector());
  for (const bool fused : {false, true}) {
    proto::AttentionModel* attention = message.add_attention();
    attention->set_dtype("fp32");
    testing::fill(attention);
    attention->set_fused(fused);
  }
  proto::DeviceProfile again;
  to_proto(device_profile_from_proto(message, "x", ""), &again);
  CHECK(again.ShortDebugString() == message.ShortDebugString());
}

TEST_CASE("every bad figure of a profile is refused with its line") {
  struct Fault {
    std::string from;
    std::string to;
    int line;
    std::string what;
  };
  const std::vector<Fault> faults = {
      {"name: \"d\"", "", 0, "name is missing"},
      {"\"gpu\"", "\"tpu\"", 2, "unknown device kind 'tpu'"},
      {"\"fp32\"", "\"fp31\"", 3, "unknown element type 'fp31'"},
      {"\"fp32\"", "\"int64\"", 3, "unknown element type 'int64'"},
      {"\"fp32\"", "\"fp16\"", 3, "no fp32 peak"},
      {"10e12", "-1", 3, "flops_per_s is -1"},
      {"dtype: \"bf16\" flops", "dtype: \"fp32\" flops", 4, "given twice"},
      {"40e9", "0", 5, "memory_bytes is 0"},
      {"1e12\n", "inf\n", 6, "is inf"},
      {"1e12\n", "1000\n", 6, "memory_bandwidth_bytes_per_s is 1000"},
      {"10e12", "19.5", 3, "flops_per_s is 19.5"},
      {"0.9\nm", "1.1\nm", 7, "memory_efficiency is 1.1"},
      {"0.9\nm", "1e-308\nm", 7, "expected a fraction from 1e-06 to 1"},
      {"multiprocessors: 100", "multiprocessors: -1", 8, "multiprocessors is -1"},
      {"4e-6", "-4e-6", 9, "launch_overhead_s"},
      {"1e9\n", "41e9\n", 10, "takes all of the memory"},
      {"idle_power_w: 50", "idle_power_w: -50", 11, "idle_power_w is -50"},
      {"peak_power_w: 400", "peak_power_w: 40", 12, "below the idle power"},
      {"efficiency: 0.7", "efficiency: 0", 13, "matmul[0].efficiency is 0"},
      {"matmul { dtype: \"bf16\"", "matmul { dtype: \"fp8\"", 13, "of which there is no peak"},
      {"tile_m: 128", "tile_m: -128", 13, "tile_m is -128"},
      {"half_k: 32", "half_k: nan", 13, "half_k is nan"},
      {"operator: \"norm\"", "", 14, "operator is missing"},
      {"8e11", "0", 14, "forward_bytes_per_s is 0"},
      {"forward_efficiency: 0.6", "forward_efficiency: 2", 15, "forward_efficiency is 2"},
      {"[1, 0.9]", "[1, 0]", 16, "concurrency_scale is 0"},
      {"overlap_slowdown: 0.1", "overlap_slowdown: -0.1", 17, "overlap_slowdown"},
      {"reference_s: 0.05", "reference_s: -1", 18, "reference_s is -1"},
      {"price_usd_per_hour: 2", "price_usd_per_hour: nan", 19, "is nan"},
      {"kind: \"gpu\"", "like: \"h10\"", 2, "unknown device 'h10'"},
      {"kind: \"gpu\"", "like: \"h800-sxm-80g\"", 2, "is itself like another device"},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.from, fault.to);
    const std::string start = fault.line > 0 ? fmt::format("d.textproto:{}: ", fault.line) : "d.textproto: ";
    CHECK_THROWS_WITH(read_device(replaced_in_device(kSoundDevice, fault.from, fault.to)),
                      Catch::StartsWith(start) && Catch::Contains(fault.what));
  }
}

TEST_CASE("damaged device files are refused, never worse") {
  CHECK(testing::survive(kSoundDevice, 2000, [](const std::string& text) { read_device(text); }) > 500);
}
