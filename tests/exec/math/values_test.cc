// What a step's values hold, by what the device holds activations as.
#include "exec/math/values.h"

#include <catch2/catch.hpp>
#include <vector>

#include "exec/device/device.h"

namespace orrery::exec {
namespace {

Key key(TensorKind kind, int index) {
  return {kind, index, 0, Form::whole};
}

}  // namespace

TEST_CASE("activations and their gradients take two bytes where the device holds them so") {
  std::size_t bytes[2];
  for (const DType type : {DType::fp32, DType::bf16}) {
    Values values(type);
    const auto x = values.define(key(TensorKind::activation, 0), 1024);
    const auto dx = values.define(key(TensorKind::activation_gradient, 0), 1024);
    const auto keys = values.define(key(TensorKind::key_value, 0), 1024);
    const auto statistics = values.define(key(TensorKind::saved, 0), 64);
    const auto weights = values.define(key(TensorKind::gradients, 0), 64);
    const auto scores = values.define_as(DType::fp32, key(TensorKind::activation, 1), 64);
    for (const auto id : {x, dx, keys}) CHECK(values.type(id) == type);
    for (const auto id : {statistics, weights, scores}) CHECK(values.type(id) == DType::fp32);
    bytes[type == DType::fp32 ? 0 : 1] = values.plan();
  }
  CHECK(bytes[0] == 3 * 4096 + 3 * 256);
  CHECK(bytes[1] == 3 * 2048 + 3 * 256);
}

// What an interpreter rounds are a value's floats.
TEST_CASE("a value of two bytes is not rounded again, or otherwise taken for fp32 words") {
  Values values(DType::bf16);
  const auto x = values.define(key(TensorKind::activation, 0), 64);
  std::vector<float> arena(64, 1.001F);
  values.plan();
  values.bind(arena.data());
  const auto device = make_cpu_device();
  CHECK_THROWS(device->round_to(DType::bf16, values.floats(x), 32));
  CHECK_THROWS(device->add(values.numbers(x), values.numbers(x), 32));
  CHECK(arena == std::vector<float>(64, 1.001F));
  CHECK((values.numbers(x) + 3).data() == reinterpret_cast<std::byte*>(arena.data()) + 6);
}

}  // namespace orrery::exec
