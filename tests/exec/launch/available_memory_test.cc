#include "exec/launch/available_memory.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "base/file.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST_CASE("a control group's limit leaves what is not used of it, the least of all groups above") {
  const TemporaryFolder folder;
  const fs::path top = folder.path(), groups = top / "groups";
  put(groups, "0::/slurm/job_7/step_0\n");
  CHECK_FALSE(bytes_left_in_groups(groups, top));
  const auto group = [&](const std::string& path, const char* limit, const char* used, const char* files) {
    put(top / path / "memory.max", limit);
    put(top / path / "memory.current", used);
    put(top / path / "memory.stat", std::string("anon 5\ninactive_file ") + files + "\n");
  };
  group("slurm/job_7/step_0", "max\n", "100\n", "0");
  CHECK_FALSE(bytes_left_in_groups(groups, top));
  group("slurm/job_7", "4000\n", "1500\n", "500");
  CHECK(bytes_left_in_groups(groups, top) == 3000);
  group("slurm", "10000\n", "9000\n", "0");
  CHECK(bytes_left_in_groups(groups, top) == 1000);
  group("slurm", "10000\n", "11000\n", "0");
  CHECK(bytes_left_in_groups(groups, top) == 0);
}

TEST_CASE("in a container of the first version the groups' path is the host's, and the limit at the top") {
  const TemporaryFolder folder;
  const fs::path top = folder.path(), groups = top / "groups";
  put(groups, "5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n0::/docker/0123\n");
  put(top / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  put(top / "memory/memory.usage_in_bytes", "1000\n");
  CHECK_FALSE(bytes_left_in_groups(groups, top));
  put(top / "memory/memory.limit_in_bytes", "8000\n");
  put(top / "memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
  CHECK(bytes_left_in_groups(groups, top) == 7200);
}

}  // namespace
}  // namespace orrery
