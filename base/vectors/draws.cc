// Logarithms, sines and cosines are computed here a vector at a time, to some 50 bits, beside the C library's
// one by one. What is wanted are floats: where a value is so close to the middle between two floats that the
// difference could be seen (one in a million), it is computed again as the C library does. So neither the
// instruction set nor this file's polynomials (fdlibm's: e_log.c, k_sin.c, k_cos.c) can be seen in what is
// drawn. Compiled without contraction: the C library rounds its arguments, too.
#include "base/vectors/draws.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/vectors/clones.h"

namespace orrery {
namespace {

constexpr std::size_t kBlock = 512;                      // draws whose doubts are looked at together
constexpr double kRelative = 0x1p-45;                    // more than what a value here is off
constexpr double kAbsolute = 1e-22;                      // and where a cosine is next to zero
constexpr double kSineError = 0x1p-44;                   // of a sum with a sine
constexpr double kMagic = 0x1.8p52;                      // added, it leaves an integer in the low bits
constexpr std::uint64_t kTwo52 = 0x4330000000000000ULL;  // bits of 2^52: an integer below it can be set in

// A 53 bit integer as a double, which vectors have no instruction for before AVX-512.
ORRERY_INLINE double as_double(std::uint64_t integer) {
  const double low = std::bit_cast<double>((integer & 0xFFFFFFFFULL) | kTwo52) - 0x1p52;
  const double high = std::bit_cast<double>((integer >> 32) | kTwo52) - 0x1p52;
  return high * 0x1p32 + low;
}

// CounterRandom::uniform.
ORRERY_INLINE double uniform_of(const CounterRandom& random, std::uint64_t index) {
  return as_double(random.bits(index) >> 11) * 0x1.0p-53;
}

// Of what is in (0, 1].
ORRERY_INLINE double logarithm(double u) {
  constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCDULL;
  constexpr std::uint64_t kOne = 0x3FF0000000000000ULL;
  const std::uint64_t shifted = std::bit_cast<std::uint64_t>(u) + (kOne - kRootHalf);
  const double exponent = std::bit_cast<double>((shifted >> 52) | kTwo52) - (0x1p52 + 1023);
  const double f = std::bit_cast<double>((shifted & 0xFFFFFFFFFFFFFULL) + kRootHalf) - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double r = 1.479819860511658591e-01;
  r = r * z + 1.531383769920937332e-01;
  r = r * z + 1.818357216161805012e-01;
  r = r * z + 2.222219843214978396e-01;
  r = r * z + 2.857142874366239149e-01;
  r = r * z + 3.999999999940941908e-01;
  r = r * z + 6.666666666666735130e-01;
  return exponent * std::numbers::ln2 + (2 * s + s * (r * z));
}

// The sine of x, or of x + pi / 2 (`quarter` 1), where |x| is below some thousands.
ORRERY_INLINE double sine(double x, std::uint64_t quarter) {
  const double turned = x * (2 / std::numbers::pi) + kMagic;
  const std::uint64_t q = std::bit_cast<std::uint64_t>(turned) + quarter;
  const double n = turned - kMagic;
  const double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) -
                   n * 2.02226624879595063154e-21;
  const double z = r * r;
  double s = 1.58969099521155010221e-10;
  s = s * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = r + r * (z * s);
  double c = -1.13596475577881948265e-11;
  c = c * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = 1 - 0.5 * z + z * (z * c);
  const double value = (q & 1) != 0 ? c : s;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ ((q & 2) << 62));
}

// How many of a block may be rounded otherwise than the C library's; they are where `doubts` is not 0.
ORRERY_CLONES std::uint64_t normal_block(const CounterRandom& random, std::uint64_t first, double deviation,
                                         std::size_t count, float* out, std::uint64_t* doubts) {
  std::uint64_t all = 0;
#pragma omp simd reduction(+ : all)
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = first + i;
    const double u = 1.0 - uniform_of(random, 2 * index);
    const double v = uniform_of(random, 2 * index + 1);
    const double value = deviation * (std::sqrt(-2.0 * logarithm(u)) * sine(2.0 * std::numbers::pi * v, 1));
    const double error = std::abs(value) * kRelative + kAbsolute;
    out[i] = static_cast<float>(value);
    doubts[i] = static_cast<float>(value - error) == static_cast<float>(value + error) ? 0 : 1;
    all += doubts[i];
  }
  return all;
}

ORRERY_CLONES void symmetric_block(const CounterRandom& random, std::uint64_t first, double bound,
                                   std::size_t count, float* out) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(bound * (2 * uniform_of(random, first + i) - 1));
}

// `number`: of the first in its row of `width`.
ORRERY_CLONES std::uint64_t wave_block(const CounterRandom& random, std::uint64_t first, const Wave& wave,
                                       std::uint64_t number, double width, std::size_t count, float* out,
                                       std::uint64_t* doubts) {
  std::uint64_t all = 0;
#pragma omp simd reduction(+ : all)
  for (std::size_t i = 0; i < count; ++i) {
    const double turns = wave.phase + wave.across * as_double(number + i) / width + wave.down;
    const double value =
        sine(2.0 * std::numbers::pi * turns, 0) + wave.noise * (uniform_of(random, first + i) - 0.5);
    out[i] = static_cast<float>(value);
    doubts[i] = static_cast<float>(value - kSineError) == static_cast<float>(value + kSineError) ? 0 : 1;
    all += doubts[i];
  }
  return all;
}

// `fast` draws a block and says how many it doubts; `slow` draws one.
template <class Fast, class Slow>
void in_blocks(std::span<float> out, Fast fast, Slow slow) {
  std::array<std::uint64_t, kBlock> doubts;
  for (std::size_t at = 0; at < out.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, out.size() - at);
    if (fast(at, count, out.data() + at, doubts.data()) == 0) continue;
    for (std::size_t i = 0; i < count; ++i)
      if (doubts[i] != 0) out[at + i] = slow(at + i);
  }
}

}  // namespace

void draw_normal(const CounterRandom& random, std::uint64_t first, double deviation, std::span<float> out) {
  in_blocks(
      out,
      [&](std::size_t at, std::size_t count, float* to, std::uint64_t* doubts) {
        return normal_block(random, first + at, deviation, count, to, doubts);
      },
      [&](std::size_t i) { return static_cast<float>(deviation * random.normal(first + i)); });
}

void draw_symmetric(const CounterRandom& random, std::uint64_t first, double bound, std::span<float> out) {
  symmetric_block(random, first, bound, out.size(), out.data());
}

void draw_wave(const CounterRandom& random, std::uint64_t first, const Wave& wave, std::span<float> out) {
  const auto width = static_cast<double>(out.size());
  in_blocks(
      out,
      [&](std::size_t at, std::size_t count, float* to, std::uint64_t* doubts) {
        return wave_block(random, first + at, wave, at, width, count, to, doubts);
      },
      [&](std::size_t i) {
        const double turns = wave.phase + wave.across * static_cast<double>(i) / width + wave.down;
        return static_cast<float>(std::sin(2 * std::numbers::pi * turns) +
                                  wave.noise * (random.uniform(first + i) - 0.5));
      });
}

}  // namespace orrery
