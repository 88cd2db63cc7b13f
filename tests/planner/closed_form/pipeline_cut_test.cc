#include "planner/closed_form/pipeline_cut.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace orrery::planner {
namespace {

PipelineChain uniform_chain(const std::vector<double>& seconds, const std::vector<double>& crossing) {
  PipelineChain chain;
  chain.compute_s = {seconds};
  chain.crossing_s = {crossing};
  return chain;
}

TEST_CASE("layers of one size are cut evenly, of unlike size where the slowest stage is least") {
  // 1 2 3 | 4 takes 6 and 4; 1 2 | 3 4 takes 3 and 7.
  const auto cut = optimal_cut(uniform_chain({1, 2, 3, 4}, {0, 0, 0, 0, 0}), {{}, {}});
  REQUIRE(cut);
  CHECK(cut->layers == std::vector<int>{3, 1});
  CHECK(cut->slowest_s == 6);
  CHECK(cut->transfer_s == 0);
  CHECK(optimal_cut(uniform_chain({1, 1, 1, 1, 1, 1}, std::vector<double>(7, 0.0)), {{}, {}, {}})->layers ==
        std::vector<int>{2, 2, 2});
}

TEST_CASE("one stage takes all layers and sends nothing, and more stages than layers have no cut") {
  const auto chain = uniform_chain({1, 2, 3}, {9, 9, 9, 9});
  const auto cut = optimal_cut(chain, {{}});
  REQUIRE(cut);
  CHECK(cut->layers == std::vector<int>{3});
  CHECK(cut->slowest_s == 6);
  CHECK_FALSE(optimal_cut(chain, {{}, {}, {}, {}}));
  CHECK_FALSE(optimal_cut(chain, {}));
}

TEST_CASE("a wide tensor is not cut where a narrow one is near") {
  // Even: 4 | 4 with 5 to send. Uneven: 5 | 3 with nothing.
  const auto chain = uniform_chain({4, 1, 3}, {0, 5, 0, 0});
  CHECK(optimal_cut(chain, {{}, {}})->layers == std::vector<int>{2, 1});
  CHECK(slowest_stage_s(chain, {{}, {}}, {1, 2}) == 9);
}

TEST_CASE("where messages hide behind computation, only a message longer than it counts") {
  PipelineChain chain = uniform_chain({4, 1, 3}, {0, 5, 0, 0});
  chain.charged = 0;
  CHECK(optimal_cut(chain, {{}, {}})->slowest_s == 5);
  chain.crossing_s[0][1] = 4;  // behind the 4 of the first layer
  const auto cut = optimal_cut(chain, {{}, {}});
  CHECK(cut->layers == std::vector<int>{1, 2});
  CHECK(cut->slowest_s == 4);
}

TEST_CASE("the front trades the slowest stage for transfer, and the closed form chooses") {
  // 5 | 5 sends 4; 6 | 4 sends 1; 9 | 1 sends nothing.
  PipelineChain chain = uniform_chain({5, 1, 3, 1}, {0, 4, 1, 0, 0});
  chain.charged = 0;
  const auto front = cut_front(chain, {{}, {}});
  REQUIRE(front.size() == 3);
  CHECK(front[0].layers == std::vector<int>{1, 3});
  CHECK(front[1].layers == std::vector<int>{2, 2});
  CHECK(front[1].slowest_s == 6);
  CHECK(front[2].layers == std::vector<int>{3, 1});
  CHECK(front[2].transfer_s == 0);
  // Once through 10 + 2 x 4, then the loop of both stages, (10 + 8) / 2, for every further micro-batch.
  CHECK(pipeline_s(chain, {{}, {}}, {1, 3}, 1) == 18);
  CHECK(pipeline_s(chain, {{}, {}}, {1, 3}, 11) == 18 + 10 * 9);
  CHECK(pipeline_s(chain, {{}, {}}, {2, 2}, 11) == 12 + 10 * 6);
  CHECK(pipeline_s(chain, {{}, {}}, {3, 1}, 11) == 10 + 10 * 9);
}

TEST_CASE("of cuts with the same slowest stage the one with the least transfer is chosen") {
  // The last layer alone takes 10; the first two stages may be cut anywhere.
  const auto chain = uniform_chain({1, 1, 1, 1, 10}, {0, 3, 1, 2, 0, 0});
  const auto cut = optimal_cut(chain, {{}, {}, {}});
  REQUIRE(cut);
  CHECK(cut->layers == std::vector<int>{2, 2, 1});
  CHECK(cut->slowest_s == 10);
  CHECK(cut->transfer_s == 1);
}

TEST_CASE("a stage on a device half as fast gets half the layers") {
  PipelineChain chain = uniform_chain(std::vector<double>(6, 1.0), std::vector<double>(7, 0.0));
  chain.compute_s.push_back(std::vector<double>(6, 2.0));
  const auto cut = optimal_cut(chain, {{0, 0, 0, 1}, {1, 0, 0, 1}});
  REQUIRE(cut);
  CHECK(cut->layers == std::vector<int>{4, 2});
  CHECK(cut->slowest_s == 4);
}

TEST_CASE("a stage takes no more than fits in its memory, its micro-batches in flight counted") {
  PipelineChain chain = uniform_chain(std::vector<double>(4, 1.0), std::vector<double>(5, 0.0));
  chain.state_bytes = {1, 1, 1, 1};
  chain.kept_bytes = {2, 2, 2, 2};
  // A layer is 1 + 2 x 2 bytes on the first stage, 1 + 2 on the second: 1 layer fits in 9 bytes, 3 in 9.
  CHECK(optimal_cut(chain, {{0, 0, 9, 2}, {0, 0, 9, 1}})->layers == std::vector<int>{1, 3});
  CHECK(optimal_cut(chain, {{0, 0, 10, 2}, {0, 0, 9, 1}})->layers == std::vector<int>{2, 2});
  CHECK_FALSE(optimal_cut(chain, {{0, 0, 4, 2}, {0, 0, 9, 1}}));
}

// Every cut of `layers` layers into the stages.
void for_each_cut(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> cut(static_cast<std::size_t>(stages), 1);
  const std::function<void(int, int)> place = [&](int stage, int left) {
    if (stage == stages - 1) {
      cut[static_cast<std::size_t>(stage)] = left;
      visit(cut);
      return;
    }
    for (int own = 1; own <= left - (stages - 1 - stage); ++own) {
      cut[static_cast<std::size_t>(stage)] = own;
      place(stage + 1, left - own);
    }
  };
  if (layers >= stages) place(0, layers);
}

bool fits(const PipelineChain& chain, const std::vector<PipelineStage>& stages, const std::vector<int>& cut) {
  int layer = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    double bytes = 0;
    for (int i = 0; i < cut[stage]; ++i, ++layer)
      bytes += chain.state_bytes[layer] + stages[stage].in_flight * chain.kept_bytes[layer];
    if (bytes > stages[stage].memory_bytes) return false;
  }
  return true;
}

TEST_CASE("brute force over all cuts of random chains finds nothing better") {
  int infeasible = 0, limited = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const CounterRandom random(3, seed);
    std::uint64_t draw = 0;
    // Small whole numbers, so that sums are exact and ties are frequent.
    const auto number = [&](std::uint64_t below) { return static_cast<double>(random.bits(draw++) % below); };
    const int layers = 1 + static_cast<int>(number(10));
    const int count = 1 + static_cast<int>(number(5));
    PipelineChain chain;
    for (int kind = 0; kind < 2; ++kind) {
      chain.compute_s.emplace_back();
      for (int i = 0; i < layers; ++i) chain.compute_s.back().push_back(number(20));
      chain.crossing_s.emplace_back();
      for (int i = 0; i <= layers; ++i) chain.crossing_s.back().push_back(number(8));
    }
    for (int i = 0; i < layers; ++i) {
      chain.state_bytes.push_back(number(10));
      chain.kept_bytes.push_back(number(4));
    }
    chain.charged = number(3) / 2;
    std::vector<PipelineStage> stages;
    for (int stage = 0; stage < count; ++stage)
      stages.push_back({static_cast<int>(number(2)), static_cast<int>(number(2)), 8 + number(60),
                        static_cast<double>(count - stage)});
    double best = std::numeric_limits<double>::infinity(), unlimited = best, least = best;
    for_each_cut(layers, count, [&](const std::vector<int>& cut) {
      const double slowest = slowest_stage_s(chain, stages, cut);
      unlimited = std::min(unlimited, slowest);
      if (!fits(chain, stages, cut)) return;
      double transfer = 0;
      int position = 0;
      for (int stage = 0; stage + 1 < count; ++stage) {
        position += cut[static_cast<std::size_t>(stage)];
        transfer += chain.crossing_s[stages[static_cast<std::size_t>(stage)].way][position];
      }
      if (slowest < best || (slowest == best && transfer < least)) least = transfer;
      best = std::min(best, slowest);
    });
    const auto found = optimal_cut(chain, stages);
    INFO("seed " << seed << ": " << layers << " layers, " << count << " stages");
    REQUIRE(found.has_value() == (best < std::numeric_limits<double>::infinity()));
    if (!found) {
      ++infeasible;
      continue;
    }
    limited += best > unlimited;
    CHECK(found->slowest_s == best);
    CHECK(found->transfer_s == least);
    CHECK(fits(chain, stages, found->layers));
    CHECK(slowest_stage_s(chain, stages, found->layers) == best);
    CHECK(std::accumulate(found->layers.begin(), found->layers.end(), 0) == layers);
    const auto front = cut_front(chain, stages);
    CHECK(front.front().layers == found->layers);
    for (std::size_t i = 1; i < front.size(); ++i) {
      CHECK(front[i].transfer_s < front[i - 1].transfer_s);
      CHECK(front[i].slowest_s > front[i - 1].slowest_s);
      CHECK(fits(chain, stages, front[i].layers));
    }
  }
  // The draws reach all branches.
  CHECK(infeasible > 20);
  CHECK(limited > 20);
}

}  // namespace
}  // namespace orrery::planner
