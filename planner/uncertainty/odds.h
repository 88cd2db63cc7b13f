// Plans of one job beside one another in common draws of what is not known: what choosing each is expected to
// lose, and how likely it is the fastest.
//
// Factors of mechanisms, of the site and of the model are drawn once for all plans, so that what scales two
// plans alike does not part them. What no mechanism explains of a plan (Spread::own) is drawn by what was
// chosen: each of its dimensions (tp, pp, …, kind of recomputation) has a share, alike in all plans that have
// the same value of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/uncertainty/outlook.h"

namespace orrery::planner {

inline constexpr std::size_t kChoiceDimensions = 9;
// What stands for the values that were chosen, dimension by dimension, and at last for all of them: equal
// where plans chose the same. Details that move a step by little (buckets, how many layers are recomputed,
// cuts) are no dimensions: plans that differ in them err alike.
std::array<std::uint64_t, kChoiceDimensions> chosen(const Choices& choices);

struct Contender {
  Choices choices;
  double step_s = 0;  // as predicted
  Response response;
};

struct Odds {
  // By what share it is slower than each world's fastest, in the mean, of the least step that is predicted: a
  // world in which everything takes long counts no more than another.
  double regret_s = 0;
  double probability_fastest = 0;
};

// One for each contender; the probabilities add up to 1.
std::vector<Odds> odds_of(std::span<const Contender> contenders, const Spread& spread);

// What a plan's step is expected to be beside its estimate where `reference`'s is as estimated: the mean of
// the quotients of their drawn factors, of the mechanisms alone.
double mean_factor(const Response& response, const Response& reference, const Spread& spread);

}  // namespace orrery::planner
