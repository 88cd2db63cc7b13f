#include <catch2/catch.hpp>
#include <cmath>

#include "exec/math/rotary_angles.h"
#include "workloads/readers/huggingface.h"

namespace orrery::exec {
namespace {

const Transformer& model_of(const Workload& workload) {
  return *workload.transformer;
}

Workload llama(const std::string& scaling) {
  return workload_from_huggingface(R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 128,
      "num_attention_heads": 1, "intermediate_size": 16, "vocab_size": 300, "max_position_embeddings": 8192,
      "rope_theta": 500000.0, "rope_scaling": )" +
                                       scaling + "}",
                                   "config.json");
}

double plain(int pair) {
  return std::pow(500000.0, -2.0 * pair / 128);
}

TEST_CASE("without scaling a pair turns by theta to its share of the head") {
  const Workload model = llama("null");
  const RotaryAngles angles = rotary_angles(model_of(model), 8192);
  CHECK(angles.pairs == 64);
  CHECK(angles.amplitude == 1);
  for (const std::size_t pair : {0, 1, 63})
    CHECK(angles.frequency[pair] == Approx(plain(static_cast<int>(pair))));
}

TEST_CASE("Llama 3.1's rotary scaling leaves short waves, stretches long ones and blends those between") {
  const Workload model = llama(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  const RotaryAngles angles = rotary_angles(model_of(model), 8192);
  const auto at = [&](int pair) { return angles.frequency[static_cast<std::size_t>(pair)]; };
  // Waves of 2 pi theta^(2i/128) tokens: below 2,048 of them up to pair 28, above 8,192 from 35 on.
  CHECK(at(0) == Approx(1));
  CHECK(at(28) == Approx(plain(28)));
  CHECK(at(35) == Approx(plain(35) / 8));
  CHECK(at(63) == Approx(plain(63) / 8));
  const double wave = 2 * M_PI / plain(31);
  REQUIRE(wave > 2048);
  REQUIRE(wave < 8192);
  const double share = (8192 / wave - 1) / 3;
  CHECK(at(31) == Approx(plain(31) * (share + (1 - share) / 8)));
}

TEST_CASE("linear and dynamic scaling, and yarn, turn as their papers say") {
  const Workload linear = llama(R"({"type": "linear", "factor": 4.0})");
  CHECK(rotary_angles(model_of(linear), 8192).frequency[5] == Approx(plain(5) / 4));

  const Workload dynamic = llama(R"({"type": "dynamic", "factor": 2.0})");
  CHECK(rotary_angles(model_of(dynamic), 8192).frequency[5] == Approx(plain(5)));
  // Twice as long: theta times (2 x 2 - 1)^(128 / 126).
  const double theta = 500000.0 * std::pow(3.0, 128.0 / 126);
  CHECK(rotary_angles(model_of(dynamic), 16384).frequency[5] == Approx(std::pow(theta, -10.0 / 128)));

  const Workload yarn =
      llama(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})");
  const RotaryAngles angles = rotary_angles(model_of(yarn), 8192);
  CHECK(angles.amplitude == Approx(0.1 * std::log(4.0) + 1));
  // 32 turns in 2,048 tokens: pair 64 ln(2048 / (64 pi)) / ln(theta) = 11.3; one turn: 28.2.
  CHECK(angles.frequency[11] == Approx(plain(11)));
  CHECK(angles.frequency[29] == Approx(plain(29) / 4));
  const double ramp = (20 - 11.0) / (29 - 11.0);
  CHECK(angles.frequency[20] == Approx(plain(20) * (ramp / 4 + 1 - ramp)));
}

TEST_CASE("a scaling that the executor does not know is planned and not executed") {
  // One factor for each pair of a head's 128 numbers.
  std::string factors = "[1.0";
  for (int pair = 1; pair < 64; ++pair) factors += ", 1.0";
  factors += "]";
  const Workload model = llama(R"({"rope_type": "longrope", "factor": 4.0, "short_factor": )" + factors +
                               R"(, "long_factor": )" + factors + "}");
  CHECK(model_of(model).unexecuted == std::vector<std::string>{"rope_scaling of the kind 'longrope'"});
  CHECK(model_of(llama(R"({"rope_type": "default"})")).unexecuted.empty());
}

}  // namespace
}  // namespace orrery::exec
