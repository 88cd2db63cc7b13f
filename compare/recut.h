// A pipeline's layers cut anew while its stages' speeds change: who is busy for how long, step by step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "compare/trouble.h"
#include "compare/way.h"

namespace orrery::comparison {

enum class Cutting : std::uint8_t {
  even,      // as many layers for each stage
  by_speed,  // so that the slowest stage is fastest, by what was seen in the first step, for good
  dynamic,   // by what was seen in the step before
};
inline constexpr std::array kCuttings = {Cutting::even, Cutting::by_speed, Cutting::dynamic};
std::string_view name_of(Cutting cutting);

struct CutStep {
  std::vector<int> layers;     // of each stage
  std::vector<double> busy_s;  // of each stage
  double std_s = 0;            // of busy_s, of the population
  double max_over_mean = 0;
  double longest_s = 0;
  double step_s = 0;  // of m micro-batches m - 1 as long as on the slowest stage, one on each
  int moved = 0;      // layers that stood on another stage in the step before
};
struct Recut {
  Cutting cutting = Cutting::even;
  std::vector<CutStep> steps;
  // Means over the steps behind the first, which all cut evenly.
  double std_s = 0, max_over_mean = 0, longest_s = 0, step_s = 0;
  // Of the last cut on the cluster with what is always wrong with it, on SimGrid; none where nobody asked.
  std::optional<double> simulated_s;
};

// `layer_s`: of a step of one stage's samples, by layer, on a sound device; `speeds`: of each stage, of what
// is always there; `workers`: the ranks whose disturbances a stage meets, by stage: the slowest decides.
struct Pipeline {
  std::vector<double> layer_s;
  std::vector<int> cut;  // the first
  std::vector<double> speeds;
  std::vector<std::vector<int>> workers;
  int micro_batches = 1;
};
Recut recut(Cutting cutting, const Pipeline& pipeline, int steps, const std::vector<Trouble>& troubles,
            std::uint64_t seed);

// The job's model in so many stages, over the devices in order, cut in each of these ways through `steps`
// steps; each last cut simulated on the job's cluster with what is always wrong with it. Throws UserError
// where there is no such pipeline.
std::vector<Recut> recuts(const Base& base, int stages, int steps, const std::vector<Trouble>& troubles,
                          std::uint64_t seed);

// Layers that lie on other stages in the one cut than in the other.
int moved_layers(const std::vector<int>& before, const std::vector<int>& after);

}  // namespace orrery::comparison
