#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/random.h"
#include "base/vectors/draws.h"

using namespace orrery;

TEST_CASE("element types have names and sizes") {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    CHECK(dtype_from_name(name_of(type)) == type);
  }
  CHECK(bytes_of(DType::tf32) == 4);
  CHECK(bytes_of(DType::bf16) == 2);
  CHECK(bytes_of(DType::fp8) == 1);
  CHECK(packed_bytes_of(DType::fp4) == 0.5625);  // 4 bits, and 8 of scale for sixteen
  CHECK(packed_bytes_of(DType::bf16) == 2);
  CHECK_THROWS_AS(dtype_from_name("fp64"), UserError);
}

TEST_CASE("an error is one line with file, line, what and what was expected") {
  CHECK(std::string(UserError("f", 3, "is bad", "expected good").what()) == "f:3: is bad (expected good)");
  CHECK(std::string(UserError("f", 0, "is bad", "").what()) == "f: is bad");
  CHECK(std::string(UserError("two\nlines").what()) == "two lines");
  CHECK_THROWS_AS(ORRERY_CHECK(1 > 2, "detail"), InternalError);
}

TEST_CASE("SplitMix64 draws its published sequence") {
  // Vigna's splitmix64.c from the state 1234567.
  CHECK(splitmix64(1234567 + kSplitmix64Step) == 6457827717110365317ULL);
  CHECK(splitmix64(1234567 + 2 * kSplitmix64Step) == 3203168211198807973ULL);
  CHECK(splitmix64(1234567 + 3 * kSplitmix64Step) == 9817491932198370423ULL);
}

TEST_CASE("a rank draws just its slice of what the whole would be") {
  const CounterRandom a(42, 1);
  const CounterRandom b(42, 1);
  CHECK(a.bits(1'000'000) == b.bits(1'000'000));
  CHECK(a.bits(0) != CounterRandom(42, 2).bits(0));
  CHECK(a.bits(0) != CounterRandom(43, 1).bits(0));
}

TEST_CASE("many draws at once are those one by one, bit for bit") {
  const CounterRandom random(7, 9);
  constexpr std::uint64_t kFirst = 123'456'789;
  std::vector<float> many(300'001);
  const auto same = [&](auto one) {
    for (std::size_t i = 0; i < many.size(); ++i)
      if (std::bit_cast<std::uint32_t>(many[i]) != std::bit_cast<std::uint32_t>(one(i))) return false;
    return true;
  };
  draw_normal(random, kFirst, 0.02, many);
  CHECK(same([&](std::size_t i) { return static_cast<float>(0.02 * random.normal(kFirst + i)); }));
  draw_symmetric(random, kFirst, 0.013, many);
  CHECK(
      same([&](std::size_t i) { return static_cast<float>(0.013 * (2 * random.uniform(kFirst + i) - 1)); }));
  const Wave wave{0.3, -2.7, 1.9, 2.4};
  draw_wave(random, kFirst, wave, many);
  const auto width = static_cast<double>(many.size());
  CHECK(same([&](std::size_t i) {
    const double turns = wave.phase + wave.across * static_cast<double>(i) / width + wave.down;
    return static_cast<float>(std::sin(2 * std::numbers::pi * turns) +
                              wave.noise * (random.uniform(kFirst + i) - 0.5));
  }));
}

TEST_CASE("uniform and normal draws have their moments") {
  const CounterRandom random(7, 0);
  double mean = 0;
  double square = 0;
  double uniform = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    REQUIRE(std::isfinite(x));
    mean += x / kDraws;
    square += x * x / kDraws;
    const double u = random.uniform(static_cast<std::uint64_t>(i));
    REQUIRE((u >= 0 && u < 1));
    uniform += u / kDraws;
  }
  CHECK(mean == Approx(0).margin(0.015));  // five standard errors
  CHECK(square == Approx(1).margin(0.025));
  CHECK(uniform == Approx(0.5).margin(0.005));
}
