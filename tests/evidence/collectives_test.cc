#include "evidence/collectives.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/published.h"

using namespace orrery;
using evidence::validate_published_collectives;
namespace fs = std::filesystem;

namespace {

fs::path write_table(const std::string& name, const std::string& text) {
  const fs::path file = fs::temp_directory_path() / name;
  std::ofstream(file) << text;
  return file;
}

constexpr const char* kHeader =
    "source,collective,gpu,n_gpus,n_nodes,gpus_per_node,intra_link,inter_link,algo_note,size_bytes,"
    "oop_time_us,oop_busbw_GBps,ip_busbw_GBps\n";

}  // namespace

TEST_CASE("published collectives: the achieved errors hold") {
  const test::PublishedTables tables = test::published_tables("collectives");
  if (tables.files.empty()) return;
  const Json result = validate_published_collectives(tables.files);
  if (tables.whole) {
    CHECK(result["above_1_mib"]["rows"].get<int>() > 2500);
    CHECK(result["above_1_mib"]["median_ape"].get<double>() < 0.05);
    CHECK(result["all"]["median_ape"].get<double>() < 0.065);
  }
  for (const auto& [file, statistics] : result["sources"].items()) {
    INFO(file << " " << statistics.dump());
    CHECK(statistics["above_1_mib"]["median_ape"].get<double>() < 0.10);
  }
  // A row is predicted or says why it is not.
  for (const Json& row : result["rows"]) {
    REQUIRE((row.contains("predicted_s") || !row["skipped"].get<std::string>().empty()));
  }
}

TEST_CASE("published collectives: a row is predicted, judged, or skipped with its reason") {
  const fs::path file = write_table(
      "orrery_published_collectives.csv",
      std::string(kHeader) + "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,1073741824,4000,,\n" +  // judged
          "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,1073741824,,470,\n" +     // by its bus bandwidth
          "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,,4000,,\n" +              // no size
          "s,all_reduce,Abacus,8,1,8,,,,1024,4000,,\n" +                   // no such device
          "s,all_gather,NVIDIA L40S,8,1,8,PCIe Gen4,,,1073741824,4e6,,\n"  // implausible
  );
  const Json result = validate_published_collectives({file.string()});
  REQUIRE(result["rows"].size() == 5);
  CHECK(result["all"]["rows"] == 2);
  CHECK(result["all"]["skipped"] == 3);
  CHECK(result["rows"][0]["relative_error"].get<double>() < 0.2);
  CHECK(result["rows"][1]["measured_s"].get<double>() == Approx(1073741824 * 1.75 / 470e9));
  CHECK(result["rows"][2]["skipped"].get<std::string>().find("size") != std::string::npos);
  CHECK(result["rows"][3]["skipped"].get<std::string>().find("Abacus") != std::string::npos);
  CHECK(result["rows"][4].contains("predicted_s"));
  CHECK(result["rows"][4]["skipped"].get<std::string>().find("implausibl") != std::string::npos);
  fs::remove(file);
}

TEST_CASE("published collectives: what nobody has modelled or can be is skipped") {
  const fs::path file = write_table("orrery_odd_collectives.csv",
                                    "collective,kind,gpu,n_gpus,n_nodes,inter_link,size_bytes,oop_time_us\n"
                                    "scan,scan,H100 SXM,8,1,,1024,10\n"
                                    "all_reduce,,H100 SXM,4,8,4x200Gb HDR IB,1024,10\n");
  const Json result = validate_published_collectives({file.string()});
  REQUIRE(result["rows"].size() == 2);
  CHECK(result["rows"][0]["skipped"] == "no model of the collective 'scan'");
  CHECK(result["rows"][1]["skipped"] == "fewer devices than nodes");
  fs::remove(file);
}

TEST_CASE("published collectives: another kind of table is refused") {
  const fs::path file = write_table("orrery_not_collectives.csv", "a,b\n1,2\n");
  CHECK_THROWS_AS(validate_published_collectives({file.string()}), UserError);
  CHECK_THROWS_AS(validate_published_collectives({"/no/such/file.csv"}), UserError);
  fs::remove(file);
}
