#include "serve/question.h"

#include <catch2/catch.hpp>
#include <set>

#include "base/error.h"

using namespace orrery;
using namespace orrery::serve;

namespace {

const Query kAsked = {{"workload", "gpt2"}, {"cluster", "dgx-a100"}, {"gpus", "8"}, {"global_batch", "64"}};

Query with(std::string key, std::string value, Query query = kAsked) {
  for (auto& [known, old] : query)
    if (known == key) {
      old = value;
      return query;
    }
  query.emplace_back(std::move(key), std::move(value));
  return query;
}

}  // namespace

TEST_CASE("a live question is read into the job that it says") {
  const LiveQuestion live = read_question(with("seq_len", "512"));
  const Job& job = *live.question.job;
  CHECK(job.workload.name == "gpt2");
  CHECK(job.cluster.devices() == 8);
  CHECK(job.training.global_batch == 64);
  CHECK(job.training.seq_len == 512);
  CHECK_FALSE(live.run);
}

TEST_CASE("hardware is asked for as a multiple, and another device stands in the nodes") {
  const Query sixteen = with("gpus", "16");
  const double own = read_question(sixteen).question.job->cluster.groups[0].node.nic.bandwidth_bytes_per_s;
  const Job twice = *read_question(with("network", "2", sixteen)).question.job;
  CHECK(twice.cluster.groups[0].node.nic.bandwidth_bytes_per_s == Approx(2 * own));
  const Job other = *read_question(with("device", "h200-sxm-141g")).question.job;
  CHECK(other.cluster.profile_of(0).name == "h200-sxm-141g");
  CHECK(other.cluster.groups[0].node.price_usd_per_device_hour ==
        other.cluster.profile_of(0).price_usd_per_hour);
  CHECK(other.cluster.groups[0].node.intra.bandwidth_bytes_per_s ==
        read_question(kAsked).question.job->cluster.groups[0].node.intra.bandwidth_bytes_per_s);
  // V100 has no bf16: what precision is meant follows the device that is there.
  CHECK(read_question(with("device", "v100-sxm2-32g")).question.job->training.precision == DType::fp16);
  CHECK_THROWS_WITH(read_question(with("device", "mi300x-192g")), Catch::Contains("another make"));
}

TEST_CASE("a live question names catalogs, never files") {
  for (const char* key : {"workload", "cluster", "device", "runtime"})
    for (const char* value :
         {"/etc/passwd", "../../etc/passwd", "model.textproto", "/tmp/config.json", "", "."}) {
      INFO(key << " " << value);
      CHECK_THROWS_WITH(read_question(with(key, value)), Catch::Contains("is not in the catalog"));
    }
  CHECK_THROWS_WITH(read_question(with("cluster", "localhost")), Catch::Contains("is not in the catalog"));
  CHECK_THROWS_WITH(read_question(with("network", "/etc/passwd")), Catch::Contains("expected a number"));
  const std::vector<std::string> keys = choices_json().at("keys");
  const std::set<std::string> known(keys.begin(), keys.end());
  // Every option of a request that reads a file, and every other that the page has not.
  Request request;
  for (const Setting& setting : request_options(request)) {
    const bool file = setting.option.unit.find("FILE") != std::string::npos ||
                      setting.option.unit == "FLAGS" || setting.option.unit == "LIST";
    if (file && setting.option.key != "runtime") CHECK_FALSE(known.contains(setting.option.key));
    if (known.contains(setting.option.key)) continue;
    INFO(setting.option.key);
    CHECK_THROWS_WITH(check_keys(with(setting.option.key, "x")), Catch::Contains("unknown key"));
  }
}

TEST_CASE("a key that is not known is named, as far as it can be shown") {
  CHECK_THROWS_WITH(check_keys(with("devices", "8")),
                    Catch::StartsWith("unknown key `devices` in the question"));
  CHECK_THROWS_WITH(check_keys(with("<b>\xff", "8")),
                    Catch::StartsWith("unknown key `?b??` in the question"));
  CHECK_THROWS_WITH(check_keys(with(std::string(99, 'k'), "8")),
                    Catch::StartsWith("unknown key `" + std::string(32, 'k') + "...` in the question"));
}

TEST_CASE("sizes of live questions are bounded") {
  CHECK_THROWS_WITH(read_question(with("gpus", "16384")), Catch::Contains("at most 8192"));
  CHECK_THROWS_WITH(read_question(with("global_batch", "1000000")), Catch::Contains("at most 131072"));
  CHECK_THROWS_WITH(read_question(with("seq_len", "16000000")), Catch::Contains("at most 1048576"));
  CHECK_THROWS_WITH(read_question(with("gpus", "-1")), Catch::Contains("from 1 to 8192"));
  CHECK_THROWS_WITH(read_question(with("global_batch", "0")), Catch::Contains("from 1 to 131072"));
  CHECK_THROWS_WITH(read_question(with("network", "1e9")), Catch::Contains("from 0.01 to 100"));
  CHECK_THROWS_WITH(read_question(with("mtbf_device_hours", "0")), Catch::Contains("from 1"));
  CHECK_THROWS_WITH(read_question(with("amount", "1e10")), Catch::Contains("without `mtbf_device_hours`"));
  CHECK_THROWS_WITH(check_keys(with("workload", std::string(65, 'x'))), Catch::Contains("too long"));
  Query twice = kAsked;
  twice.push_back(twice.front());
  CHECK_THROWS_WITH(check_keys(twice), Catch::Contains("twice"));
}

TEST_CASE("the order of a question's keys says nothing") {
  Query other(kAsked.rbegin(), kAsked.rend());
  CHECK(canonical(other) == canonical(kAsked));
  CHECK(canonical(with("gpus", "4")) != canonical(kAsked));
}

TEST_CASE("a query is decoded, and refused where it cannot be") {
  Query query;
  REQUIRE(parse_query("a=1%2C2&b=x+y&c&&d=", query));
  CHECK(query == Query{{"a", "1,2"}, {"b", "x y"}, {"c", ""}, {"d", ""}});
  for (const char* bad : {"a=%", "a=%4", "a=%zz", "a=%00", "a=%0a"}) {
    Query ignored;
    CHECK_FALSE(parse_query(bad, ignored));
  }
}
