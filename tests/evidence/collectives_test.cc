#include "evidence/collectives.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::evidence;
namespace fs = std::filesystem;

namespace {

fs::path write_table(const std::string& name, const std::string& text) {
  const fs::path file = fs::temp_directory_path() / name;
  std::ofstream(file) << text;
  return file;
}

constexpr const char* kCollectiveHeader =
    "source,collective,gpu,n_gpus,n_nodes,gpus_per_node,intra_link,inter_link,algo_note,size_bytes,"
    "oop_time_us,oop_busbw_GBps,ip_busbw_GBps\n";

}  // namespace

TEST_CASE("published collectives: the achieved errors hold") {
  const test::PublishedTables tables = test::published_tables("collectives");
  if (tables.files.empty()) return;
  const PublishedCollectives result = validate_published_collectives(tables.files);
  if (tables.whole) {
    CHECK(result.above_1_mib.rows > 2500);
    CHECK(result.above_1_mib.median_ape < 0.05);
    CHECK(result.all.median_ape < 0.065);
  }
  for (const CollectiveSource& source : result.sources) {
    INFO(source.name << " " << source.above_1_mib.median_ape);
    CHECK(source.above_1_mib.median_ape < 0.10);
  }
  // A row is predicted or says why it is not.
  for (const CollectiveRow& row : result.rows) REQUIRE((row.seconds || !row.skipped.empty()));
}

TEST_CASE("published collectives: a row is predicted, judged, or skipped with its reason") {
  const fs::path file =
      write_table("orrery_published_collectives.csv",
                  std::string(kCollectiveHeader) +
                      "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,1073741824,4000,,\n" +    // judged
                      "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,1073741824,,470,\n" +     // by its bus bandwidth
                      "s,all_reduce,H100 SXM,8,1,8,NVLink4,,,,4000,,\n" +              // no size
                      "s,all_reduce,Abacus,8,1,8,,,,1024,4000,,\n" +                   // no such device
                      "s,all_gather,NVIDIA L40S,8,1,8,PCIe Gen4,,,1073741824,4e6,,\n"  // implausible
      );
  const PublishedCollectives result = validate_published_collectives({file.string()});
  REQUIRE(result.rows.size() == 5);
  CHECK(result.all.rows == 2);
  CHECK(result.all.skipped == 3);
  CHECK(result.rows[0].seconds.value().error < 0.2);
  CHECK(result.rows[1].seconds.value().measured == Approx(1073741824 * 1.75 / 470e9));
  CHECK_THAT(result.rows[2].skipped, Catch::Contains("size"));
  CHECK_THAT(result.rows[3].skipped, Catch::Contains("Abacus"));
  CHECK(result.rows[4].seconds);
  CHECK_THAT(result.rows[4].skipped, Catch::Contains("implausibl"));
  fs::remove(file);
}

TEST_CASE("published collectives: what nobody has modelled or can be is skipped") {
  const fs::path file = write_table("orrery_odd_collectives.csv",
                                    "collective,kind,gpu,n_gpus,n_nodes,inter_link,size_bytes,oop_time_us\n"
                                    "scan,scan,H100 SXM,8,1,,1024,10\n"
                                    "all_reduce,,H100 SXM,4,8,4x200Gb HDR IB,1024,10\n"
                                    "all_reduce,,V100-SXM2-16GB,1000000,1,,1024,10\n"
                                    "all_reduce,,H100 SXM,1000000000,1,,1024,10\n");
  const PublishedCollectives result = validate_published_collectives({file.string()});
  REQUIRE(result.rows.size() == 4);
  CHECK(result.rows[0].skipped == "no model of the collective 'scan'");
  CHECK(result.rows[1].skipped == "fewer devices than nodes");
  CHECK(result.rows[2].skipped == "no node joins 1000000 devices by nvlink-mesh");
  CHECK(result.rows[3].skipped == "no machine has 1000000000 devices");
  fs::remove(file);
}

TEST_CASE("published collectives: another kind of table is refused") {
  const fs::path file = write_table("orrery_not_collectives.csv", "a,b\n1,2\n");
  CHECK_THROWS_AS(validate_published_collectives({file.string()}), UserError);
  CHECK_THROWS_AS(validate_published_collectives({"/no/such/file.csv"}), UserError);
  fs::remove(file);
}
