#include "sim/core_speed.h"

#include <catch2/catch.hpp>

namespace orrery::sim {
namespace {

TEST_CASE("core speed: ranks that are as many as the cores compute at full speed") {
  std::vector<AtWork> two = {{1, 2}};
  CHECK(core_speed({2, {}}, two, 1, 0) == 1);
}

TEST_CASE("core speed: three ranks on two cores have two thirds of one each") {
  std::vector<AtWork> three = {{1, 1}, {1, 2}};
  CHECK(core_speed({2, {}}, three, 1, 0) == Approx(2.0 / 3));
}

TEST_CASE("core speed: what a rank with a small share leaves is for the others") {
  // One may use a quarter of a core: the other two share 1.75 and none needs more than a whole one.
  std::vector<AtWork> mixed = {{1, 2}, {0.25, 1}};
  CHECK(core_speed({2, {}}, mixed, 1, 0) == Approx(1.75 / 2));
  CHECK(core_speed({2, {}}, mixed, 0.25, 0) == 1);
}

TEST_CASE("core speed: busy cores slow each other as the device profile says") {
  std::vector<AtWork> one = {{1, 1}};
  std::vector<AtWork> four = {{1, 4}};
  const NodeCores node{2, {1, 0.75}};
  CHECK(core_speed(node, one, 1, 0) == 1);
  CHECK(core_speed(node, four, 1, 0) == Approx(0.5 * 0.75));  // two at once
}

TEST_CASE("core speed: packets take of all cores alike but leave a tenth") {
  std::vector<AtWork> two = {{1, 2}};
  CHECK(core_speed({2, {}}, two, 1, 0.5) == Approx(0.75));
  CHECK(core_speed({2, {}}, two, 1, 100) == Approx(0.1));
}

TEST_CASE("core speed: devices that share no cores do not wait for each other") {
  std::vector<AtWork> eight = {{1, 8}};
  CHECK(core_speed({0, {}}, eight, 1, 0) == 1);
}

}  // namespace
}  // namespace orrery::sim
