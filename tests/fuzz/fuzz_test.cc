// What Orrery's own files and machines say, and what a run reads.
#include "tests/fuzz/run.h"

namespace orrery {
namespace {

TEST_CASE("fuzz: networks, plans and runtimes") {
  fuzz::run(fuzz::networks());
}
TEST_CASE("fuzz: clusters, devices and numbers") {
  fuzz::run(fuzz::clusters());
}
TEST_CASE("fuzz: what a run reads") {
  fuzz::run(fuzz::executor());
}

}  // namespace
}  // namespace orrery
