#include "measurements/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "measurements/log_lines.h"
#include "tests/support/published.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using measurements::Context;
using measurements::Measurements;
using measurements::Source;

namespace {

Measurements read(const std::string& bytes, const std::string& cluster = "dgx-h100",
                  const std::string& runtime = "") {
  Measurements all;
  measurements::read(Source("file", bytes), {load_cluster(cluster), runtime}, &all);
  return all;
}

// As nccl-tests 2.13 prints it, without the test's name, among NCCL_DEBUG=INFO.
std::string old_nccl(const std::string& device, const std::string& rows) {
  std::string text = "# nThread 1 nGpus 4 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5\n";
  for (int rank = 0; rank < 4; ++rank)
    text += fmt::format("#  Rank  {} Group  0 Pid {} on node-a device  {} [0x{:02x}] {}\n", rank, 100 + rank,
                        rank, rank, device);
  return text +
         "node-a:100:112 [0] NCCL INFO Channel 00/24 :    0   1   2   3\n"
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   "
         "algbw   busbw #wrong\n"
         "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  "
         "(GB/s)  (GB/s)\n" +
         rows;
}
const std::string kRow =
    "     1048576        262144     float     sum      -1    20.00   52.43   78.64      0    20.10   52.17   "
    "78.25      0\n";

const std::string kHeader = "model,n_gpus,tp,gbs_sequences,seq_len_tokens,step_time_s";

}  // namespace

TEST_CASE("devices of one family are told apart by what their words name of form and memory") {
  const auto is_of = [](const std::string& words, const std::string& cluster) {
    try {
      measurements::check_device(words, {load_cluster(cluster), ""}, "s.csv", 2);
    } catch (const UserError& error) {
      CHECK_THAT(error.what(), Catch::StartsWith("s.csv:2: was measured on '" + words + "'"));
      return false;
    }
    return true;
  };
  for (const char* words :
       {"H100", "NVIDIA H100 80GB HBM3", "H100 SXM5", "H100-80GB SXM", "h100-sxm-80g", "8 x H100 NVLink"})
    CHECK(is_of(words, "dgx-h100"));
  for (const char* words : {"H100 PCIe", "NVIDIA H100 PCIe", "H100 80GB PCIe", "H100-PCI", "H100 NVL",
                            "NVIDIA H100 NVL", "h100-pcie-80g", "H100-96GB HBM2e SXM (500W)", "H200", "A100"})
    CHECK_FALSE(is_of(words, "dgx-h100"));
  CHECK(is_of("NVIDIA H200 NVL", "h200-nvl-4"));
  CHECK(is_of("NVIDIA H200", "h200-nvl-4"));
  CHECK_FALSE(is_of("NVIDIA H200 NVL", "dgx-h200"));
  CHECK(is_of("NVIDIA A100-SXM4-80GB", "dgx-a100"));
  CHECK_FALSE(is_of("NVIDIA A100 80GB PCIe", "dgx-a100"));
  CHECK_FALSE(is_of("NVIDIA A100-SXM4-40GB", "dgx-a100"));
  CHECK(is_of("NVIDIA A100-SXM4-40GB", "dgx-a100-40g"));
  CHECK_FALSE(is_of("Tesla V100-PCIE-32GB", "dgx-v100-32g"));
  CHECK_FALSE(is_of("Tesla V100-SXM2-16GB", "dgx-v100-32g"));
  CHECK_FALSE(is_of("NVIDIA H800 PCIe", "hgx-h800"));
  // A family of one device: its name says no memory.
  const TemporaryFolder folder;
  const std::string l40s = folder.path() + "/l40s.textproto";
  write_file_atomically(
      l40s,
      "name: \"l40s\" source: \"ours\" groups { count: 1 node { name: \"n\" device: \"l40s\"\n"
      "  devices: 8 intra { kind: PCIE bandwidth_bytes_per_s: 24e9 latency_s: 2e-6 } } }\n");
  CHECK(is_of("NVIDIA L40S", l40s));
  CHECK(is_of("L40S 48GB", l40s));
  CHECK(is_of("L40S-46GB", l40s));
  CHECK_FALSE(is_of("L40S 24GB", l40s));
  // The processor's memory; and a word that no device of the family has in its name.
  CHECK(is_of("NVIDIA GH200 480GB", "gh200-quad"));
  CHECK_FALSE(is_of("NVIDIA GH200 144G HBM3e", "gh200-quad"));
  CHECK(is_of("NVIDIA L40S PCIe", "pcie-l40s"));
  CHECK(is_of("NVIDIA GB200 NVL72", "gb200-nvl72"));
  CHECK(is_of("GeForce RTX 2080 Ti", "pcie-2080-ti"));
  CHECK_FALSE(is_of("GeForce RTX 2080 Ti", "pcie-2080"));
  CHECK_FALSE(is_of("GeForce RTX 2080", "pcie-2080-ti"));
}

TEST_CASE("nccl-tests: a test without a name is told by its operation, root and bus bandwidth") {
  const Measurements all =
      read(old_nccl("NVIDIA H100 80GB HBM3", kRow + "node-a:100:112 [0] NCCL INFO comm 0x55 done\n"));
  REQUIRE(all.collectives.size() == 1);
  const auto& row = all.collectives.front();
  CHECK(row.kind == CollectiveKind::all_reduce);
  CHECK(row.bytes == 1048576);
  CHECK(row.seconds == Approx(20e-6));
  CHECK(row.nodes == 1);
  CHECK(row.devices_per_node == 4);
  CHECK(row.line == 9);
  CHECK(all.files.front().collectives == 1);
}

TEST_CASE("nccl-tests: JSON says what the text of the same test says") {
  const auto file = [](const char* name) {
    return read_file(std::string(ORRERY_TEST_DATA) + "/measurements/" + name);
  };
  const Measurements text = read(file("all_reduce_perf.log"));
  const Measurements all = read(file("all_reduce_perf.json"));
  REQUIRE(all.collectives.size() == text.collectives.size());
  for (std::size_t i = 0; i < all.collectives.size(); ++i) {
    const auto &one = all.collectives[i], &other = text.collectives[i];
    CHECK((one.kind == other.kind && one.bytes == other.bytes && one.nodes == other.nodes));
    CHECK(one.seconds == Approx(other.seconds));
    CHECK(one.devices_per_node == 8);  // of which the JSON lists the process's first
  }
}

TEST_CASE("nccl-tests: JSON of what says nothing of links is ignored or refused with a reason") {
  const Json whole = read_json(std::string(ORRERY_TEST_DATA) + "/measurements/all_reduce_perf.json");
  const auto changed = [&](const auto& change) {
    Json other = whole;
    change(other);
    return other.dump();
  };
  const auto why = [&](const auto& change) {
    const Measurements all = read(changed(change));
    CHECK(all.collectives.empty());
    return all.ignored.empty() ? std::string() : all.ignored.front().why;
  };
  CHECK_THAT(why([](Json& test) { test["args"][0] = "./sendrecv_perf"; }), Catch::Contains("sendrecv_perf"));
  CHECK_THAT(why([](Json& test) {
               for (Json& row : test["results"]) row["in_place"]["nwrong"] = 3.0;
             }),
             Catch::Contains("found wrong"));
  CHECK_THAT(why([](Json& test) {
               for (Json& row : test["results"])
                 row["out_of_place"]["cpu_time"] = row["out_of_place"]["time"];
             }),
             Catch::Contains("processors' calls"));
  CHECK_THAT(why([](Json& test) { test["config"]["devices"] = Json::array(); }),
             Catch::Contains("fewer than two devices"));
  CHECK_THROWS_WITH(read(changed([](Json& test) { test["results"] = Json::array(); })),
                    Catch::Contains("holds no time of a collective"));
  CHECK_THROWS_WITH(read(changed([](Json& test) { test["config"]["ngpus"] = 1e9; })),
                    Catch::Contains("more than a million"));
  CHECK_THROWS_WITH(read(changed([](Json& test) { test.erase("config"); })),
                    Catch::Contains("has no `config`"));
  CHECK_THROWS_WITH(read(changed([](Json& test) {
                      test["config"]["devices"][0]["device_info"] = "NVIDIA A100-SXM4-80GB";
                    })),
                    Catch::Contains("NVIDIA A100-SXM4-80GB"));
}

TEST_CASE("nccl-tests: lines that mpirun tags read as the others do") {
  std::string tagged;
  const std::string text = old_nccl("NVIDIA H100 80GB HBM3", kRow);
  for (const measurements::LogLine& line : measurements::lines_of(text))
    tagged += "[1,0]<stdout>:" + std::string(line.text) + "\r\n";
  CHECK(read(tagged).collectives.size() == 1);
}

TEST_CASE("nccl-tests: the line above the rows says what their columns are") {
  const std::string text = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/all_reduce_perf.log");
  const auto rows_with = [&](const std::string& header, const auto& row_of) {
    std::string other;
    for (const measurements::LogLine& line : measurements::lines_of(text)) {
      std::istringstream words{std::string(line.text)};
      std::vector<std::string> found;
      for (std::string word; words >> word;) found.push_back(word);
      if (line.text.find("algbw") != std::string_view::npos)
        other += header + "\n";
      else if (found.size() == 13 && found[2] == "float")
        other += row_of(found) + "\n";
      else
        other += std::string(line.text) + "\n";
    }
    return read(other);
  };
  const auto fields = [](const std::vector<std::string>& w, const std::string& words,
                         const std::string& wrong, const std::string& more = "") {
    return fmt::format("{} {} float {} {} {} {} {} {} {} {} {} {} {}", w[0], w[1], words, w[5], w[6], w[7],
                       wrong, more, w[5], w[6], w[7], wrong, more);
  };
  // Until 2022: no root, and the largest error in place of a count.
  const std::string old = "# size count type redop time algbw busbw error time algbw busbw error";
  const auto old_row = [&](const auto& w) { return fields(w, "sum", "1e-06"); };
  CHECK(rows_with(old, old_row).collectives.size() == 6);
  CHECK(rows_with("# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
                  [&](const auto& w) { return fields(w, "sum -1", "0") + " 2026-01-11 20:13:40"; })
            .collectives.size() == 6);
  const Measurements each = rows_with(
      "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw "
      "#wrong i_min i_max i_p99 i_cv%",
      [&](const auto& w) { return fields(w, "sum -1", "0", "1.00 900.00 800.00 3.10"); });
  REQUIRE(each.collectives.size() == 6);
  CHECK(each.collectives.back().seconds == Approx(155.8e-6));
  const Measurements calls =
      rows_with("# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong",
                [&](const auto& w) { return fields(w, "sum -1", "0"); });
  CHECK(calls.collectives.empty());
  CHECK_THAT(calls.ignored.at(0).why, Catch::Contains("cputime"));
  // Wrong results are counted behind old rows.
  std::string failed = text;
  failed.replace(failed.find("#wrong"), 6, "error ").replace(failed.find(": 0 OK"), 6, ": 3 FAILED");
  CHECK(read(failed).collectives.empty());
}

TEST_CASE("nccl-tests: a log that lost lines of its ranks is of nobody knows how many devices") {
  std::string text = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/all_reduce_perf.log");
  const std::size_t at = text.find("#  Rank  5");
  text.erase(at, text.find('\n', at) + 1 - at);
  const Measurements all = read(text);
  CHECK(all.collectives.empty());
  CHECK(all.ignored.at(0).why == "a test that lists 7 of its 8 ranks");
  // One that failed before its first row lists them, too.
  const std::string whole = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/all_reduce_perf.log");
  const Measurements second = read(whole.substr(0, whole.find("        1024 ")) + whole);
  REQUIRE(second.collectives.size() == 6);
  CHECK(second.collectives.front().devices_per_node == 8);
}

TEST_CASE("nccl-tests: the row with most digits names a test without a name, and its small sizes with it") {
  const auto row = [](int bytes, double seconds, double bus, const std::string& words,
                      const std::string& in_place) {
    const double algorithm = bytes / seconds * 1e-9;
    return fmt::format("{} {} float {} {:.2f} {:.2f} {:.2f} 0 {:.2f} {:.2f} {:.2f} {}\n", bytes, bytes / 4,
                       words, seconds * 1e6, algorithm, algorithm * bus, seconds * 1e6, algorithm,
                       algorithm * bus, in_place);
  };
  const auto kinds = [&](double bus, const std::string& words, const std::string& in_place,
                         const std::string& file = "file") {
    Measurements all;
    measurements::read(Source(file, old_nccl("NVIDIA H100", row(8, 20e-6, bus, words, in_place) +
                                                                row(1 << 26, 300e-6, bus, words, in_place))),
                       {load_cluster("dgx-h100"), ""}, &all);
    std::vector<CollectiveKind> found;
    for (const auto& one : all.collectives) found.push_back(one.kind);
    return found;
  };
  using Kinds = std::vector<CollectiveKind>;
  CHECK(kinds(1.5, "sum -1", "0") == Kinds(2, CollectiveKind::all_reduce));
  CHECK(kinds(0.75, "sum -1", "0") == Kinds(2, CollectiveKind::reduce_scatter));
  CHECK(kinds(0.75, "none -1", "0") == Kinds(2, CollectiveKind::all_gather));
  CHECK(kinds(0.75, "none -1", "N/A") == Kinds(2, CollectiveKind::all_to_all));
  CHECK(kinds(1, "none 0", "0") == Kinds(2, CollectiveKind::broadcast));
  CHECK(kinds(1, "none -1", "N/A").empty());  // sendrecv
  // Where nothing has digits the file's name says it, unless it is another's.
  Measurements small;
  const std::string rows = row(8, 20e-6, 1.5, "sum -1", "0");
  measurements::read(Source("x/all_reduce_perf_4.log", old_nccl("NVIDIA H100", rows)),
                     {load_cluster("dgx-h100"), ""}, &small);
  CHECK(small.collectives.size() == 1);
  CHECK(read(old_nccl("NVIDIA H100", rows)).collectives.empty());
  CHECK(kinds(1.5, "sum -1", "0", "all_gather_perf.log") == Kinds(2, CollectiveKind::all_reduce));
}

TEST_CASE("nccl-tests: groups that share the links are not one group of all devices") {
  std::string text = old_nccl("NVIDIA H100 80GB HBM3", kRow);
  text.replace(text.find("Rank  3 Group  0"), 16, "Rank  3 Group  1");
  const Measurements all = read(text);
  CHECK(all.collectives.empty());
  CHECK_THAT(all.ignored.at(0).why, Catch::StartsWith("2 groups at once (NCCL_TESTS_SPLIT)"));
}

TEST_CASE("nccl-tests: a row whose results are wrong says nothing") {
  std::string wrong = kRow;
  wrong.replace(wrong.rfind(" 0\n"), 2, " 7");
  const Measurements all = read(old_nccl("NVIDIA H100 80GB HBM3", kRow + wrong));
  CHECK(all.collectives.size() == 1);
  CHECK_THAT(all.ignored.at(0).why, Catch::Contains("#wrong"));
}

TEST_CASE("nccl-tests: what has no model, or does not name its devices, is ignored with a reason") {
  std::string named = old_nccl("NVIDIA H100 80GB HBM3", kRow + kRow);
  named = "# Collective test starting: sendrecv_perf\n" + named;
  const Measurements sendrecv = read(named);
  CHECK(sendrecv.collectives.empty());
  REQUIRE(sendrecv.ignored.size() == 1);
  CHECK(sendrecv.ignored.front().why == "no model of sendrecv_perf");
  CHECK(sendrecv.ignored.front().rows == 2);
  const Measurements nobody = read("# nThread 1 nGpus 1 minBytes 1 busbw algbw\n" + kRow);
  CHECK(nobody.collectives.empty());
  REQUIRE(nobody.ignored.size() == 1);
  CHECK_THROWS_AS(read("# algbw busbw\nnothing\n"), UserError);
}

TEST_CASE("measurements of other devices than the cluster's are refused by file and line") {
  const std::string a100 = old_nccl("NVIDIA A100-SXM4-80GB", kRow);
  CHECK(read(a100, "dgx-a100").collectives.size() == 1);
  CHECK_THROWS_WITH(read(a100, "dgx-h100"), Catch::Contains("file:2:") && Catch::Contains("A100-SXM4-80GB"));
  CHECK_THROWS_WITH(read("model,gpu,n_gpus,gbs_sequences,step_time_s\nllama3-8b,A100,8,64,9\n"),
                    Catch::Contains("file:2:") && Catch::Contains("h100"));
  std::string nine;
  for (int i = 0; i < 9; ++i)
    nine += fmt::format("#  Rank  {} Group  0 Pid 1 on a device  {} [0x1] NVIDIA H100\n", i, i);
  CHECK_THROWS_WITH(
      read("# nGpus 9 minBytes 8\n" + nine + "# Collective test starting: all_reduce_perf\n" + kRow),
      Catch::Contains("9 devices on one node"));
}

TEST_CASE("a table of steps needs few columns: the cluster and the runtime say the rest") {
  const Measurements all =
      read(kHeader + ",loss\nllama3-8b,8,2,64,8192,11.5,2.1\nllama3-8b,8,2,64,8192,,2.0\n", "dgx-h100",
           "megatron-core");
  REQUIRE(all.steps.size() == 1);
  const Job& job = *all.steps.front().row.plan.job;
  CHECK(job.runtime.name == "megatron-core");
  CHECK(job.cluster.devices() == 8);
  CHECK(job.training.global_batch == 64);
  CHECK(all.steps.front().row.plan.choices.tp == 2);
  CHECK(all.steps.front().row.measured_s == 11.5);
  REQUIRE(all.ignored.size() == 2);
  CHECK(all.ignored[0].why == "the column 'loss', which is none of docs/measurements.md's");
  CHECK(all.ignored[1].line == 3);
}

TEST_CASE("the template is a table of steps that lacks only the time") {
  const std::string empty = measurements::step_table_template();
  CHECK(read(empty).steps.empty());
  const std::size_t at = empty.rfind(",none,");
  REQUIRE(at != std::string::npos);
  const Measurements all = read(empty.substr(0, at) + ",none,,20.5,,,\n");
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps.front().row.plan.job->runtime.name == "megatron-core");
  for (const char* column : {",trace,", ",model_file,"}) CHECK_THAT(empty, Catch::Contains(column));
}

TEST_CASE("Megatron-LM in a table is the software of the device's time, or of the row's date") {
  const auto runtime = [](const std::string& more, const std::string& cells, const std::string& cluster) {
    const Measurements all = read(
        "framework," + kHeader + more + "\nMegatron-LM,llama3-8b,8,2,64,8192,11.5" + cells + "\n", cluster);
    REQUIRE(all.steps.size() == 1);
    return all.steps.front().row.plan.job->runtime.name;
  };
  CHECK(runtime("", "", "dgx-h100") == "megatron-core");
  CHECK(runtime("", "", "dgx-b200") == "megatron-core");
  CHECK(runtime("", "", "pcie-l40s") == "megatron-core");  // Ada came with Hopper
  CHECK(runtime("", "", "dgx-a100") == "megatron-lm-2022");
  CHECK(runtime(",date", ",2024", "dgx-a100") == "megatron-core");
  CHECK(runtime(",date", ",2022", "dgx-h100") == "megatron-lm-2022");
}

TEST_CASE("a row that would not fit under the runtime that was taken is doubted") {
  const std::string rows = kHeader + ",mbs_sequences,act_recompute\nllama3-8b,8,2,128,8192,11.2,1,none\n";
  CHECK(read(rows, "dgx-h100", "megatron-core").doubts.empty());
  const Measurements all = read(rows, "dgx-h100", "megatron-lm-2022");
  CHECK(all.steps.size() == 1);
  REQUIRE(all.doubts.size() == 1);
  CHECK_THAT(all.doubts.front().text(),
             Catch::StartsWith("file:2: was measured") && Catch::Contains("79.1 GiB"));
}

TEST_CASE("what one's own row leaves out of its layout does not apply, and one that hardly fits is doubted") {
  const std::string columns =
      "framework,model,n_gpus,gbs_sequences,mbs_sequences,seq_len_tokens,act_recompute,step_time_s";
  const std::string cells = "hugging-face,llama3-8b,8,32,1,4096,full,5";
  const Measurements own = read(columns + "\n" + cells + "\n");
  REQUIRE(own.steps.size() == 1);
  CHECK(own.steps[0].row.plan.choices.dp == 8);
  REQUIRE(own.doubts.size() == 1);
  CHECK_THAT(own.doubts[0].text(),
             Catch::StartsWith("file:2: was measured, but under the runtime hugging-face"));
  // Of somebody else's nobody knows.
  const Measurements published = read(columns + ",source\n" + cells + ",a paper\n");
  CHECK(published.steps.empty());
  CHECK_THAT(published.ignored.at(0).why, Catch::StartsWith("the layout is not stated"));
}

TEST_CASE("numbers of a table: thousands with commas are read, what would be another number is refused") {
  const std::string tokens = "model,n_gpus,tp,gbs_sequences,seq_len_tokens,tokens_per_s_per_gpu\n";
  const Measurements all = read(tokens + "llama3-8b,8,2,64,\"8,192\",\"11,700.5\"\n");
  REQUIRE(all.steps.size() == 1);
  CHECK(all.steps[0].row.measured_s == Approx(64 * 8192 / (8 * 11700.5)));
  const auto refused = [&](const std::string& cell, const std::string& why) {
    CHECK_THROWS_WITH(read(kHeader + "\nllama3-8b,8,2,64,8192," + cell + "\n"),
                      Catch::Contains("file:2:") && Catch::Contains(why));
  };
  refused("\"11,2\"", "'11,2' in the column 'step_time_s'");
  refused("abc", "'abc' in the column 'step_time_s'");
  refused("-3", "'-3' in the column 'step_time_s'");
  CHECK_THROWS_WITH(read(tokens + "llama3-8b,8,2,\"6,4\",8192,11700\n"),
                    Catch::Contains("'6,4' in the column 'gbs_sequences'"));
  // As spreadsheets write it where a comma is a decimal point, and by tabs.
  std::string other = kHeader + "\nllama3-8b,8,2,64,8192,11.5\n";
  for (const char separator : {';', '\t'}) {
    std::replace(other.begin(), other.end(), ',', separator);
    CHECK(read(other).steps.at(0).row.measured_s == 11.5);
    std::replace(other.begin(), other.end(), separator, ',');
  }
  std::replace(other.begin(), other.end(), ',', ';');
  other.replace(other.find("11.5"), 4, "11,500");  // eleven and a half, or thousands
  CHECK_THROWS_WITH(read(other), Catch::Contains("'11,500'"));
}

TEST_CASE("words and broken numbers of one's own table are refused, published tables are read as they are") {
  const auto table = [](const std::string& column, const std::string& cell, const std::string& more = "",
                        const std::string& more_cell = "") {
    return kHeader + "," + column + more + "\nllama3-8b,8,,64,8192,11.5," + cell + more_cell + "\n";
  };
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"precision", "bf17"},   {"act_recompute", "partial"},
      {"dp_sharding", "FSDB"}, {"pp", "1.5"},
      {"pp", "two"},           {"cp", "-1"}};
  for (const auto& [column, cell] : wrong) {
    INFO(column << " " << cell);
    CHECK_THROWS_WITH(read(table(column, cell)),
                      Catch::Contains("file:2: '" + std::string(cell) + "' in the column '" + column + "'"));
    CHECK_NOTHROW(read(table(column, cell, ",source", ",a paper")));
  }
  for (const auto& [column, cell] :
       std::vector<std::pair<const char*, const char*>>{{"precision", "BF16-mixed"},
                                                        {"act_recompute", "Full"},
                                                        {"dp_sharding", "zero-2"},
                                                        {"pp", "1.0"},
                                                        {"pp", ""}})
    CHECK(read(table(column, cell)).steps.size() == 1);
  CHECK(read(table("dp_sharding", "none"), "dgx-h100", "megatron-core").steps.at(0).row.plan.choices.zero ==
        0);
}

TEST_CASE("a column that is there twice is refused by its name") {
  CHECK_THROWS_WITH(read(kHeader + ",step_time_s\nllama3-8b,8,2,64,8192,11.5,12.5\n"),
                    Catch::StartsWith("file:1: the column 'step_time_s' is there twice"));
}

TEST_CASE("a row of one's own table that contradicts itself is named and left out") {
  const std::string header =
      "model,n_gpus,tp,seq_len_tokens,gbs_sequences,mbs_sequences,grad_accum,step_time_s,tokens_per_s\n";
  const auto why = [&](const std::string& cells) {
    const Measurements all = read(header + "llama3-8b,8,2,8192," + cells + "\n");
    return all.ignored.empty() ? fmt::format("{} steps", all.steps.size()) : all.ignored[0].why;
  };
  CHECK(why("64,2,8,11.5,") == "1 steps");
  CHECK(why("64,,8,11.5,45590") == "1 steps");
  CHECK(why("64,2,2,11.5,") ==
        "2 micro-batches (grad_accum) of 2 on dp 4 are 16 sequences, and gbs_sequences is 64");
  CHECK(why("66,2,,11.5,") == "a batch of 66 is no whole number of micro-batches of 2 on dp 4");
  CHECK(why("8,4,,11.5,") == "micro-batches of 4 where dp 4 has 2 sequences each");
  CHECK_THAT(why("64,2,8,11.5,100"),
             Catch::StartsWith("by step_time_s a step took 11.5 s, by tokens_per_s 5243 s"));
  const auto chunks = [&](const std::string& pp_and_chunks) {
    const Measurements all = read(
        "model,n_gpus,tp,seq_len_tokens,gbs_sequences,mbs_sequences,pp,vp_interleave,step_time_s\n"
        "llama3-8b,8,1,8192,8,1," +
        pp_and_chunks + ",3\n");
    return all.ignored.empty() ? fmt::format("{} steps", all.steps.size()) : all.ignored[0].why;
  };
  CHECK(chunks("2,4") == "1 steps");
  CHECK(chunks("1,1") == "1 steps");
  CHECK(chunks("1,4") == "4 model chunks a stage on pp 1");
  CHECK(chunks("8,2") == "1 steps");
  CHECK(chunks("8,8") == "8 model chunks on each of pp 8, of 32 layers");
}

TEST_CASE("a row's trace is a file that was given, of the same batch") {
  const TemporaryFolder folder;
  const std::string table = folder.path() + "/steps.csv", log = folder.path() + "/a.log";
  write_file_atomically(log,
                        "steps: 10 iter time (s): 20.0 global_step\nsteps: 20 iter time (s): 11.5\n"
                        "[config.py:964:print]   train_batch_size ............. 128\n");
  const auto why = [&](const std::string& batch, const std::string& trace) {
    write_file_atomically(table, "model,n_gpus,tp,seq_len_tokens,gbs_sequences,trace\nllama3-8b,8,2,8192," +
                                     batch + "," + trace + "\n");
    const Measurements all = measurements::read({table, log}, {load_cluster("dgx-h100"), ""});
    return all.ignored.empty() ? fmt::format("{} steps", all.steps.size()) : all.ignored[0].why;
  };
  CHECK(why("128", "a.log") == "1 steps");
  CHECK(why("64", "a.log") == "a batch of 64 (gbs_sequences), where a.log says 128");
  CHECK(why("64", "nosuch.log") == "no file 'nosuch.log' was given (column 'trace')");
  write_file_atomically(log, read_file(std::string(ORRERY_TEST_DATA) + "/measurements/torchtitan.log"));
  CHECK(why("128", "a.log") ==
        "'a.log' in the column 'trace' says its plan itself, and is read without a row");
}

TEST_CASE("public models are known by name, and one that is guessed by its size is doubted") {
  const auto read_model = [](const std::string& model, const std::string& more = "",
                             const std::string& cell = "") {
    return read("model,n_gpus,tp,gbs_sequences,seq_len_tokens,step_time_s" + more + "\n" + model +
                ",8,2,64,4096,5" + cell + "\n");
  };
  const std::map<std::string, std::int64_t> known = {{"meta-llama/Llama-3.2-1B", 1235814400},
                                                     {"Llama 3.2 3B", 3212749824},
                                                     {"Qwen2.5-0.5B", 494032768},
                                                     {"Qwen2.5-7B-Instruct", 7615616512},
                                                     {"Qwen/Qwen3-0.6B", 596049920},
                                                     {"qwen3-8b", 8190735360},
                                                     {"gemma-2-9b", 9241705984},
                                                     {"mistral-7b", 7248023552},
                                                     {"Mistral-NeMo-12B", 12247782400},
                                                     {"phi-4-mini", 3836021760}};
  for (const auto& [model, parameters] : known) {
    INFO(model);
    const Measurements all = read_model(model);
    for (const auto& one : all.ignored) UNSCOPED_INFO(one.why);
    REQUIRE(all.steps.size() == 1);
    CHECK(all.steps[0].row.plan.job->workload.parameters() == parameters);
    CHECK(all.doubts.empty());
  }
  for (const char* model : {"llama33-8b", "foo-13b", "Mistral-NeMo-Minitron-8B"}) {
    INFO(model);
    const Measurements all = read_model(model);
    CHECK(all.steps.size() == 1);
    REQUIRE(all.doubts.size() == 1);
    CHECK_THAT(all.doubts[0].text(),
               Catch::StartsWith("file:2: the model '" + std::string(model) + "' is not known") &&
                   Catch::Contains("model_file"));
    CHECK(read_model(model, ",source", ",a paper").doubts.empty());
  }
  // Published tables are read by their own list, whatever was fitted to them.
  CHECK(read_model("mistral-7b", ",source", ",a paper").steps.at(0).row.plan.job->workload.layers == 33);
}

TEST_CASE("of a long table some plans are drawn, and rows of one plan are read once and say what they say") {
  std::string table = kHeader + ",mbs_sequences,act_recompute\n";
  for (int i = 0; i < 60; ++i)
    table += fmt::format("llama3-8b,8,2,{},8192,{},1,none\n", 64 + 4 * (i % 30), 11.5 + i * 0.01);
  const Context all{load_cluster("dgx-h100"), "megatron-lm-2022"};
  Context few = all;
  few.most_plans = 10;
  Measurements whole, drawn, again;
  measurements::read(Source("file", table), all, &whole);
  measurements::read(Source("file", table), few, &drawn);
  measurements::read(Source("file", table), few, &again);
  REQUIRE(whole.steps.size() == 60);
  CHECK(whole.ignored.empty());
  CHECK(whole.steps[0].row.plan.job == whole.steps[30].row.plan.job);
  CHECK(whole.steps[30].row.measured_s == Approx(11.8));
  CHECK(whole.steps[30].row.line == 32);
  // One warning for all.
  REQUIRE(whole.doubts.size() == 1);
  CHECK_THAT(whole.doubts[0].text(),
             Catch::StartsWith("file:2: was measured") && Catch::EndsWith("(59 rows more alike)"));
  REQUIRE(drawn.steps.size() == 20);
  for (std::size_t i = 0; i < 20; ++i) CHECK(drawn.steps[i].line == again.steps[i].line);
  REQUIRE(drawn.ignored.size() == 1);
  CHECK(drawn.ignored[0].rows == 40);
  CHECK_THAT(drawn.ignored[0].why, Catch::StartsWith("of 30 plans of the table 10 were drawn"));
  // A rate in place of a time.
  const Measurements rates = read(
      "model,n_gpus,tp,gbs_sequences,seq_len_tokens,tokens_per_s\nllama3-8b,8,2,64,8192,45000\n"
      "llama3-8b,8,2,64,8192,46000\n");
  REQUIRE(rates.steps.size() == 2);
  CHECK(rates.steps[1].row.measured_s == Approx(64 * 8192 / 46000.0));
}

TEST_CASE("what is empty, 0 or beyond any count is called that") {
  for (const char* nothing : {"", "\n\n \n"})
    CHECK_THROWS_WITH(read(nothing), Catch::StartsWith("file: is empty (expected "));
  CHECK(read(kHeader + "\nllama3-8b,8,2,64,8192,0\n").ignored.at(0).why == "step_time_s is 0");
  CHECK(read(kHeader + "\nllama3-8b,8,2,64,8192,\n").ignored.at(0).why != "step_time_s is 0");
  CHECK_THROWS_WITH(
      read(kHeader + "\nllama3-8b,1e21,2,64,8192,11.5\n"),
      Catch::Contains("'1e21' in the column 'n_gpus' (expected a whole number up to 1000000000)") ||
          Catch::Contains("'1e21' in the column 'n_gpus' (a whole number up to 1000000000)"));
  CHECK_THROWS_WITH(read(kHeader + "\nllama3-8b,8,2,64,8192,1e-300\n"),
                    Catch::Contains("1e-300 s a step would be more than a million times the devices' peak"));
  CHECK_THROWS_WITH(read(kHeader + "\nllama3-8b,8,2,64,8192,1e308\n"),
                    Catch::Contains("1e+308 s a step is more than a million times what is predicted"));
}

TEST_CASE("numbers that no machine gives are refused as such") {
  CHECK_THROWS_AS(read(kHeader + "\nllama3-8b,8,2,64,8192,0.0115\n"), NoAnswer);
  CHECK_THROWS_AS(read(kHeader + "\nllama3-8b,8,2,64,8192,11500\n"), NoAnswer);
}

TEST_CASE("two times of one plan contradict each other") {
  const TemporaryFolder folder;
  const std::string a = folder.path() + "/a.csv", b = folder.path() + "/b.csv";
  const Context context{load_cluster("dgx-h100"), ""};
  write_file_atomically(a, kHeader + "\nllama3-8b,8,2,64,8192,11.5\n");
  write_file_atomically(b, kHeader + "\nllama3-8b,8,2,64,8192,12\n");
  CHECK(measurements::read({a, b}, context).steps.size() == 2);
  write_file_atomically(b, kHeader + "\nllama3-8b,8,2,64,8192,25\n");
  CHECK_THROWS_WITH(measurements::read({a, b}, context),
                    Catch::Contains("b.csv:2") && Catch::Contains("a.csv:2"));
  write_file_atomically(b, "nothing of the kind\n");
  CHECK_THROWS_WITH(measurements::read({b}, context), Catch::Contains("nccl-tests"));
}

TEST_CASE("what is given twice counts once, under whatever name") {
  const TemporaryFolder folder;
  const std::string a = folder.path() + "/a.csv", b = folder.path() + "/b.csv";
  const Context context{load_cluster("dgx-h100"), ""};
  write_file_atomically(a, kHeader + "\nllama3-8b,8,2,64,8192,11.5\n");
  write_file_atomically(b, read_file(a));
  for (const std::vector<std::string>& files : {std::vector{a, a}, {a, b}}) {
    const Measurements all = measurements::read(files, context);
    CHECK(all.steps.size() == 1);
    REQUIRE(all.ignored.size() == 1);
    CHECK(all.ignored[0].file == files[1]);
    CHECK_THAT(all.ignored[0].why, Catch::Contains("a.csv holds, which counts once"));
  }
}

TEST_CASE("Megatron's log: the median of the steady steps, with the arguments that it prints") {
  const std::string log = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/megatron.log");
  const Measurements all = read(log);
  CHECK(all.ignored.empty());
  REQUIRE(all.steps.size() == 1);
  const auto& step = all.steps.front();
  CHECK(step.row.measured_s == Approx(2.9005));  // of 64 sequences; the median is none of the slow ones
  CHECK(step.spread > 0);
  const Plan& plan = step.row.plan;
  const Choices& c = plan.choices;
  CHECK(c.tp == 4);
  CHECK(c.pp == 2);
  CHECK(c.dp == 2);
  CHECK(c.micro_batch == 2);
  CHECK(c.zero == 1);
  CHECK(c.recompute == Recompute::selective);
  CHECK(plan.job->training.global_batch == 64);
  CHECK(plan.job->training.seq_len == 2048);
  CHECK(plan.job->training.precision == DType::bf16);
  CHECK(plan.job->workload.layers == 32);
  CHECK(plan.job->workload.transformer->hidden == 4096);
  CHECK(plan.job->workload.transformer->vocab == 50688);
  CHECK(plan.job->runtime.name == "megatron-core");
  // Without arguments its steps wait for a table that names it.
  const Measurements nothing = read(log.substr(log.find(" > padded")));
  CHECK(nothing.steps.empty());
  REQUIRE(nothing.logs.size() == 1);
  CHECK(nothing.logs[0].steps_s.size() == 5);
  CHECK(read(log.substr(0, log.find(" [2025"))).ignored.front().why ==
        "a log without a time of an iteration");
}

TEST_CASE(
    "Megatron's log since mid-2024 does not print use_mcore_models: what it prints says Megatron-Core") {
  const std::string log = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/megatron.log");
  const std::string line = "  use_mcore_models ............................... True\n";
  const auto runtime = [&](const std::string& instead) {
    std::string other = log;
    other.replace(other.find(line), line.size(), instead);
    return read(other).steps.at(0).row.plan.job->runtime.name;
  };
  CHECK(runtime("") == "megatron-lm-2022");
  CHECK(runtime("  use_legacy_models .............. True\n") == "megatron-lm-2022");
  CHECK(runtime("  deprecated_use_mcore_models .... False\n  use_legacy_models .............. False\n") ==
        "megatron-core");
  CHECK(runtime("  transformer_impl ............... transformer_engine\n") == "megatron-core");
}

TEST_CASE(
    "the Trainer's log: what overrides the model's configuration counts, devices follow from the batch") {
  const std::string log = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/trainer.log");
  const Measurements all = read(log);
  for (const auto& one : all.ignored) UNSCOPED_INFO(one.why);
  REQUIRE(all.steps.size() == 1);
  const Plan& plan = all.steps.front().row.plan;
  CHECK(all.steps.front().row.measured_s == Approx(0.45));
  CHECK(plan.job->workload.layers == 24);
  CHECK(plan.job->workload.transformer->hidden == 2048);
  CHECK(plan.job->training.seq_len == 512);
  CHECK(plan.job->training.global_batch == 64);
  CHECK(plan.job->training.precision == DType::fp16);
  CHECK(plan.choices.dp == 8);
  CHECK(plan.choices.micro_batch == 4);
  CHECK(plan.choices.zero == 2);
  CHECK(plan.choices.recompute == Recompute::full);
  CHECK(plan.job->runtime.name == "deepspeed");
  // As transformers 4.28 and later print counts.
  std::string grouped = log;
  const std::string label = "Total optimization steps = ";
  const std::size_t count = grouped.find(label) + label.size();
  grouped.replace(count, grouped.find('\n', count) - count, "1,000");
  CHECK(read(grouped).steps.at(0).row.measured_s == Approx(0.09));
  std::string few = log;
  few.insert(few.rfind('\n', count) + 1, "Number of trainable parameters = 3,407,872\n");
  CHECK(read(few).steps.empty());
  CHECK_THAT(read(few).ignored.at(0).why, Catch::Contains("LoRA"));
  std::string fsdp = log;
  while (fsdp.find("zero_optimization_stage") != std::string::npos)
    fsdp.erase(fsdp.find("zero_optimization_stage"), 4);
  fsdp.insert(fsdp.rfind('\n', fsdp.find(label)) + 1,
              "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],\n");
  CHECK(read(fsdp).steps.at(0).row.plan.choices.zero == 3);
  CHECK(read(fsdp).steps.at(0).row.plan.job->runtime.name == "hugging-face");
  fsdp.replace(fsdp.find("FULL_SHARD"), 10, "HYBRID_SHARD");
  CHECK_THAT(read(fsdp).ignored.at(0).why, Catch::Contains("FSDP"));
  const std::string unfinished = log.substr(0, log.find("{'train_runtime"));
  CHECK(read(unfinished).ignored.front().why == "a log without train_runtime: it did not end");
}

TEST_CASE("logs of Megatron of real clusters are read, each as its plan") {
  const std::filesystem::path folder = test::published_folder() / "traces/logs";
  if (test::published_folder().empty() || !std::filesystem::exists(folder)) {
    WARN("skipped: no logs here (ORRERY_PUBLISHED)");
    return;
  }
  // Step times as the index of the samples has them.
  const std::map<std::string, double> known = {
      {"bigscience__meg_ds_3d_gpt2_perf_n16-ds-off.out.gz", 126.6406},
      {"bigscience__meg_ds_3d_gpt2_perf_n16-ds-on.out", 137.1384},
      {"bigscience__meg_gpt2_base_n32_dp1_tp4_pp32-1809620.out.gz", 4.2138},
      {"bigscience__meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out.gz", 1.3806},
      {"bigscience__meg_gpt2_base_n8_dp1_tp4_pp8-1809562.out.gz", 1.6172},
      {"bigscience__meg_gpt2_perf_n16-1999618.out.gz", 123.8963},
      {"bigscience__meg_gpt2_perf_n16.out", 129.0288}};
  for (const auto& [name, seconds] : known) {
    INFO(name);
    Measurements all;
    measurements::read(Source(folder / name), {load_cluster("dgx-v100-32g"), ""}, &all);
    for (const auto& one : all.ignored) UNSCOPED_INFO(one.why);
    REQUIRE(all.steps.size() == 1);
    CHECK(all.steps.front().row.measured_s == Approx(seconds).epsilon(0.02));
    CHECK(all.steps.front().row.plan.choices.tp == 4);
    CHECK(all.steps.front().row.plan.choices.recompute == Recompute::full);
  }
}

TEST_CASE("the Trainer's logs of runs that offload to the host are named as such") {
  const std::filesystem::path folder = test::published_folder() / "traces/logs";
  if (test::published_folder().empty() || !std::filesystem::exists(folder)) {
    WARN("skipped: no logs here (ORRERY_PUBLISHED)");
    return;
  }
  for (const char* name :
       {"bigscience__hf_ds_gpt2_base_n4-1832555.out.gz", "bigscience__hf_ds_gpt2_base_n8-1832573.out.gz"}) {
    INFO(name);
    Measurements all;
    measurements::read(Source(folder / name), {load_cluster("dgx-v100-32g"), ""}, &all);
    CHECK(all.steps.empty());
    REQUIRE(all.ignored.size() == 1);
    CHECK(all.ignored.front().why == "a run that offloads to the host");
  }
}

TEST_CASE("outputs of nccl-tests of real clusters are read whole") {
  const std::filesystem::path folder = test::published_folder() / "traces/nccl";
  if (test::published_folder().empty() || !std::filesystem::exists(folder)) {
    WARN("skipped: no outputs of nccl-tests here (ORRERY_PUBLISHED)");
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    INFO(entry.path());
    Measurements all;
    measurements::read(Source(entry.path()), {load_cluster("dgx-h100"), ""}, &all);
    CHECK(all.collectives.size() + all.ignored.size() > 0);
    for (const auto& one : all.ignored) CHECK(one.why == "no model of sendrecv_perf");
  }
}

TEST_CASE("a file of no kind is named for what it is, where people have it in place of one") {
  const auto refused = [](const std::string& name, const std::string& bytes) {
    try {
      Measurements all;
      measurements::read(Source(name, bytes), {load_cluster("dgx-h100"), ""}, &all);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  for (const auto& [name, bytes, what] :
       {std::tuple{"a.csv", std::string("\xFF\xFEm\0o\0", 6), "UTF-16"},
        {"a.xlsx", std::string("PK\x03\x04zzz"), "spreadsheet as CSV"},
        {"a.json.zst", std::string("\x28\xB5\x2F\xFDzzz"), "gzip"},
        {"a.nsys-rep", std::string("zzz"), "as SQLite, by nsys export"},
        {"events.out.tfevents.17.node", std::string("zzz"), "TensorBoard"},
        {"a.json", std::string(R"([{"ph": "X", "name": "aten::mm"}])"), "list of events"},
        {"a.csv", std::string("model,gpu,step_time_s\nllama3-8b,H100,5.9\n"),
         "a.csv:1: is a table without a column 'n_gpus'"},
        {"a.csv", std::string("model;n_gpus;tps\nllama3-8b;8;900\n"),
         "a.csv:1: is a table without a column of times"},
        {"a.md", std::string("| model | n_gpus | step_time_s |\n|---|---|---|\n"), "neither commas"},
        {"a.txt", std::string("model\n"), "no known kind"},
        {"a.txt", std::string(" \n"), "is empty"}})
    CHECK_THAT(refused(name, bytes), Catch::Contains(what));
}

TEST_CASE("a table of steps is read as spreadsheets write it") {
  const std::string rest = "llama3-8b,8,2,1,64,1,4096,bf16,none,";
  const std::string header =
      "model,n_gpus,tp,pp,gbs_sequences,mbs_sequences,seq_len_tokens,precision,act_recompute,";
  const Measurements plain = read(header + "step_time_s\n" + rest + "5.9\n");
  REQUIRE(plain.steps.size() == 1);
  const auto same = [&](const std::string& text, int line) {
    const Measurements all = read(text);
    REQUIRE(all.steps.size() == 1);
    CHECK(all.steps[0].row.measured_s == Approx(5.9));
    CHECK(all.steps[0].row.label == plain.steps[0].row.label);
    CHECK(all.steps[0].line == line);
    CHECK(all.ignored.empty());
    CHECK(all.doubts.empty());
  };
  same(header + "step_time_ms\n" + rest + "\"5,900\"\n", 2);
  same("\xEF\xBB\xBFsep=,\r\n# November\r\n\r\n" + header + "step_time_s\r\n" + rest + "5.9\r\n,,,,,,,,,\r\n",
       5);
  std::string spaced = header + "Step_Time_S\n" + rest + "5.9\n";
  for (std::size_t at = spaced.find(','); at != std::string::npos; at = spaced.find(',', at + 2))
    spaced.replace(at, 1, ", ");
  same(spaced, 2);
  CHECK_THROWS_WITH(read(header + "step_time_s,step_time_ms\n" + rest + "5.9,5900\n"),
                    Catch::Contains("one of them"));
  CHECK_THROWS_WITH(read("# mine\n" + header + "step_time_ms\n" + rest + "abc\n"),
                    Catch::Contains("file:3: 'abc'"));
  // Sequences that nobody said are doubted.
  std::string shorter = header + "step_time_s\n" + rest + "5.9\n";
  shorter.replace(shorter.find("seq_len_tokens,"), 15, "").replace(shorter.find("4096,"), 5, "");
  const Measurements assumed = read(shorter);
  REQUIRE(assumed.doubts.size() == 1);
  CHECK_THAT(assumed.doubts[0].text(), Catch::Contains("sequences of 8192 tokens were assumed"));
}

TEST_CASE("a job's log may hold a test of its links and the training behind it") {
  const std::string folder = std::string(ORRERY_TEST_DATA) + "/measurements/";
  const Measurements all =
      read(read_file(folder + "all_reduce_perf.log") + read_file(folder + "torchtitan.log"));
  CHECK(all.collectives.size() == 6);
  CHECK(all.steps.size() == 1);
  REQUIRE(all.files.size() == 2);
  CHECK(all.files[1].kind == "a log of torchtitan");
  CHECK(all.files[1].collectives == 0);
  // DeepSpeed's log of its communication is no such test.
  const std::string deepspeed = read_file(folder + "deepspeed.log");
  const Measurements steps =
      read(deepspeed + "comm op: all_reduce | algbw (Gbps): 35.0 | busbw (Gbps): 52.1\n");
  REQUIRE(steps.logs.size() == 1);
}
