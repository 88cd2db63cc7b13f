// The errors that are committed are the errors that this tree has.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "evidence/report.h"
#include "evidence/validate.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::evidence;

namespace {

namespace fs = std::filesystem;

using Cells = std::vector<std::vector<std::string>>;

Cells cells(const std::string& page) {
  Cells rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> row;
    std::istringstream fields(line.substr(2));
    for (std::string field; std::getline(fields, field, '|');) {
      field.erase(0, field.find_first_not_of(' '));
      field.erase(field.find_last_not_of(' ') + 1);
      row.push_back(field);
    }
    rows.push_back(row);
  }
  return rows;
}

// Counts and names are equal; figures are within ten units of their last digit (percentages: 0.1 point) or
// 0.1%.
bool agree(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a);
  const double y = std::strtod(b.c_str(), &end_b);
  if (*end_a != 0 || *end_b != 0 || a.empty() || b.empty()) return false;
  const auto point = std::max(a.find('.') + 1, b.find('.') + 1);  // 0: a count
  if (point == 0) return false;
  const std::string& longer = a.find('.') == std::string::npos ? b : a;
  const double units = std::pow(10, 1 - static_cast<double>(longer.size() - longer.find('.') - 1));
  return std::abs(x - y) <= std::max(units * (1 + 1e-9), 1e-3 * std::abs(y));
}

// The rows that the tables determine: of their own sources (cells "source" and "source:line"), and of all of
// them only where all that the golden was written from are here.
Cells determined(const Cells& page, const test::PublishedTables& tables) {
  Cells rows;
  for (const std::vector<std::string>& row : page) {
    const std::string source = row.front().substr(0, row.front().find(':'));
    const bool heading = source == "source" || source == "row";
    if (heading || (source == "all" ? tables.whole : tables.has(source))) rows.push_back(row);
  }
  return rows;
}

// What of the page that the tables give is not as the golden page has it.
std::vector<std::string> differences(const std::string& page, const std::string& golden,
                                     const test::PublishedTables& tables) {
  Cells now = determined(cells(page), tables);
  const Cells kept = determined(cells(golden), tables);
  // The worst rows end the page: without a table's, others move up that the golden does not have.
  if (!tables.whole) now.resize(std::min(now.size(), kept.size()));
  if (now.size() != kept.size()) return {fmt::format("{} rows, golden {}", now.size(), kept.size())};
  std::vector<std::string> found;
  for (std::size_t i = 0; i < now.size(); ++i)
    for (std::size_t j = 0; j < std::max(now[i].size(), kept[i].size()); ++j) {
      const std::string a = j < now[i].size() ? now[i][j] : "nothing";
      const std::string b = j < kept[i].size() ? kept[i][j] : "nothing";
      if (!agree(a, b)) found.push_back(fmt::format("{}, column {}: {}, golden {}", now[i].front(), j, a, b));
    }
  return found;
}

void record_tables() {
  std::string text =
      "# The published tables that goldens and thresholds are over: 64-bit FNV-1a of the content, path.\n"
      "# Written with the goldens: ORRERY_UPDATE_GOLDEN=1 build/release/bin/test_evidence \"[golden]\"\n";
  for (const char* under : {"collectives", "memory", "steps", "throughput"})
    for (const auto& [path, digest] : test::digests_of_tables(test::published_folder(), under))
      text += digest + "  " + path + "\n";
  write_file_atomically(test::golden_file("published_tables.txt"), text);
}

std::string page_of(const test::PublishedTables& tables) {
  return published_markdown(validate_published(tables.files));
}

}  // namespace

TEST_CASE("tests/golden/published.md is what validate --published prints, to 0.1 point", "[golden]") {
  const test::PublishedTables tables = test::published_tables("steps");
  if (tables.files.empty()) return;
  const std::string page = page_of(tables);
  const fs::path golden = test::golden_file("published.md");
  if (test::updates_golden()) {
    write_file_atomically(golden, page);
    record_tables();
  }
  CHECK(differences(page, read_file(golden), tables) == std::vector<std::string>());
}

TEST_CASE("a published table that is new or has changed is reported and decides nothing") {
  const fs::path folder = fs::temp_directory_path() / fmt::format("orrery_published_{}", ::getpid());
  fs::create_directories(folder / "steps");
  const std::string header =
      "source,framework,date,model,n_layers,hidden,n_heads,seq_len_tokens,gpu,n_gpus,gpus_per_node,"
      "precision,tp,pp,vp_interleave,dp,gbs_sequences,mbs_sequences,act_recompute,step_time_s,vocab\n";
  const std::string a = header +
                        "x,Megatron-LM,2022-05,GPT 175B,96,12288,96,2048,A100-80GB SXM,64,8,"
                        "fp16,8,8,3,1,64,1,full,18.13,51200\n";
  const std::string b = header +
                        "x,Megatron-LM,2022-05,GPT 22B,48,6144,64,2048,A100-80GB SXM,8,8,"
                        "fp16,8,1,,1,4,4,full,1.42,51200\n";
  std::string b_changed = b;
  b_changed[b.find("1.42")] = '9';
  const auto write = [&](const char* name, const std::string& text) {
    write_file_atomically(folder / "steps" / name, text);
  };
  write("a.csv", a);
  write("b.csv", b);
  const test::TableDigests recorded = test::digests_of_tables(folder, "steps");
  REQUIRE(recorded.size() == 2);
  const auto tables = [&] { return test::published_tables(folder, "steps", recorded); };
  const std::string golden = page_of(tables());
  REQUIRE(cells(golden).size() == 7);  // two headings; a, b and all; two worst rows
  using Names = std::vector<std::string>;
  const Names none;
  CHECK(tables().reported == none);

  SECTION("tables come: a changed copy, and one of no known kind") {
    write("b_changed.csv", b_changed);
    write("unknown.csv", "a,b\n1,2\n");
    CHECK(tables().reported == Names{"steps/b_changed.csv is new", "steps/unknown.csv is new"});
    CHECK(tables().whole);
    CHECK(page_of(tables()) == golden);  // totals and worst rows too
    CHECK(differences(page_of(tables()), golden, tables()) == none);
  }
  SECTION("one byte of a recorded table changes") {
    write("b.csv", b_changed);
    CHECK(tables().reported == Names{"steps/b.csv has changed"});
    CHECK_FALSE(tables().whole);
    CHECK(tables().find("b").empty());
    // The rest is judged as before, and by its own rows alone.
    write("c.csv", b_changed);
    CHECK(differences(page_of(tables()), golden, tables()) == none);
    fs::remove(folder / "steps/b.csv");
    fs::remove(folder / "steps/c.csv");
    CHECK(tables().reported == Names{"steps/b.csv is gone"});
    CHECK(differences(page_of(tables()), golden, tables()) == none);
  }
  SECTION("what a recorded table gives still fails where it is not the golden's") {
    std::string other = golden;
    other.replace(other.find("| a |"), 5, "| a | 7");
    CHECK_FALSE(differences(page_of(tables()), other, tables()).empty());
    write("b.csv", b_changed);
    CHECK_FALSE(differences(page_of(tables()), other, tables()).empty());
    write("b.csv", b);
    // A total that is not of the recorded tables alone.
    write("c.csv", b_changed);
    std::vector<std::string> all = tables().files;
    all.push_back((folder / "steps/c.csv").string());
    CHECK_FALSE(differences(published_markdown(validate_published(all)), golden, tables()).empty());
  }
  fs::remove_all(folder);
}
