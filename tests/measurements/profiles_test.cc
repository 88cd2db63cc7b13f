// Traces of other profilers than PyTorch's: Nsight Systems' exports, Chakra's execution traces.
#include <sqlite3.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "measurements/compare/step_kinds.h"
#include "measurements/kinds.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::measurements;

namespace {

std::string profile_data(const std::string& name) {
  return std::string(ORRERY_TEST_DATA) + "/measurements/" + name;
}

std::vector<RankTrace> traces_in(const Source& source, const std::string& cluster = "dgx-h100") {
  Measurements all;
  read(source, {load_cluster(cluster), ""}, &all);
  return all.traces;
}

// The fixture after some SQL.
std::string edited(const TemporaryFolder& folder, const std::string& sql) {
  std::string file = folder.path() + "/edited.sqlite";
  write_file_atomically(file, read_file(profile_data("nsys.sqlite")));
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &db) == SQLITE_OK);
  REQUIRE(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
  return file;
}

}  // namespace

TEST_CASE("nsys: a trace of each device, its steps by ranges, its kernels by name and stream") {
  const std::string bytes = read_file(profile_data("nsys.sqlite"));
  for (const Source& source :
       {Source(std::filesystem::path(profile_data("nsys.sqlite"))), Source("memory", bytes)}) {
    const std::vector<RankTrace> traces = traces_in(source);
    REQUIRE(traces.size() == 2);
    CHECK(traces[0].device == "NVIDIA H100 80GB HBM3");
    CHECK(traces[1].rank == 1);
    REQUIRE(traces[1].steps.size() == 3);
    CHECK(traces[1].steps_s[0] == Approx(2e-3));
    std::map<std::string, const Activity*> by_kind;
    for (const Activity& one : traces[1].steps[1].activities) by_kind[one.stream + "|" + one.kind] = &one;
    CHECK(by_kind.at("stream 7|products")->seconds == Approx(1.1e-3));
    CHECK(by_kind.at("stream 7|attention")->seconds == Approx(0.2e-3));
    CHECK(by_kind.at("stream 7|optimizer")->count == 1);
    CHECK(by_kind.at("stream 7|copies")->seconds == Approx(10e-6));
    CHECK(by_kind.at("stream 13|all_reduce")->communication);
    // Rank 0 comes early and waits for rank 1.
    const StepKinds step = measured_step({&traces[0], &traces[1]});
    CHECK(step.kinds.at("all_reduce").seconds == Approx(0.3e-3));
    CHECK(step.waited_s == Approx(0.05e-3));
  }
}

TEST_CASE("nsys: another device, another schema and damage are refused") {
  const Source source(std::filesystem::path(profile_data("nsys.sqlite")));
  CHECK_THROWS_WITH(traces_in(source, "dgx-a100"), Catch::Contains("H100"));
  const TemporaryFolder folder;
  const auto read_edited = [&](const std::string& sql) {
    return traces_in(Source(std::filesystem::path(edited(folder, sql))));
  };
  CHECK_THROWS_WITH(read_edited("DROP TABLE StringIds"), Catch::Contains("no table of kernels"));
  CHECK_THROWS_WITH(read_edited("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"), Catch::Contains("no kernel"));
  // A view in a table's place could be anything, without end.
  CHECK_THROWS_WITH(read_edited("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO k;"
                                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM k a, k b, k c"),
                    Catch::Contains("no table of kernels"));
  // Exports without launches, ranges or copies say less, and are read.
  const auto less = read_edited(
      "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE NVTX_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid");
  REQUIRE(less.size() == 2);
  CHECK_FALSE(less[0].marked);
  CHECK(less[0].steps.size() == 1);
  const std::string bytes = read_file(profile_data("nsys.sqlite"));
  CHECK_THROWS_AS(traces_in(Source("half", bytes.substr(0, 3000))), UserError);
}

TEST_CASE("chakra: nodes without starts begin when what they depend on has ended") {
  const std::vector<RankTrace> traces = traces_in(Source(std::filesystem::path(profile_data("chakra.0.et"))));
  REQUIRE(traces.size() == 1);
  CHECK(traces[0].rank == 0);
  REQUIRE(traces[0].steps.size() == 1);
  const TracedStep& step = traces[0].steps[0];
  CHECK(step.seconds == Approx(1.7e-3));  // 1000 + 600 + 100 us
  CHECK(step.idle_s == Approx(0).margin(1e-9));
  const StepKinds kinds = measured_step({&traces[0]});
  CHECK(kinds.kinds.at("products").seconds == Approx(1e-3));
  CHECK(kinds.kinds.at("all_reduce").seconds == Approx(0.6e-3));
  CHECK(kinds.kinds.at("attention").seconds == Approx(0.4e-3));
  CHECK(kinds.at_once_s() == Approx(0.4e-3));
}

TEST_CASE("chakra: what is cut off, too long or without times is refused") {
  const std::string bytes = read_file(profile_data("chakra.0.et"));
  CHECK_THROWS_WITH(traces_in(Source("a", bytes.substr(0, bytes.size() - 3))),
                    Catch::Contains("in the middle"));
  CHECK_THROWS_WITH(traces_in(Source("a", bytes.substr(0, 8) + "\xff\xff\xff\x7f" + bytes)),
                    Catch::Contains("16 MiB"));
  CHECK_THROWS_WITH(traces_in(Source("a", bytes.substr(0, 8))), Catch::Contains("no node"));
  CHECK_THROWS_WITH(traces_in(Source("a", R"({"schema": "1.1.0-chakra.0.0.4", "nodes": []})")),
                    Catch::Contains("without a device's times"));
}
