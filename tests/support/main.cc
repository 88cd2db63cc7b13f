#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>

int main(int argc, char** argv) {
  // No calibration of the machine that runs the tests may reach them.
  setenv("ORRERY_DATA_DIR", "/nonexistent/orrery", 1);
  setenv("RC_PARAMS", "seed=1", 0);  // rapidcheck draws the same cases each time
  return Catch::Session().run(argc, argv);
}
