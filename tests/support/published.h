// The published tables that lie outside the project and are read in place, and which of them tests judge by:
// those whose content tests/golden/published_tables.txt records. A table that is not recorded, or has changed
// since, is reported and decides nothing: neither totals nor thresholds nor whether a test passes. After a
// look at what is new, `ORRERY_UPDATE_GOLDEN=1 build/release/bin/test_evidence "[golden]"` records what lies
// there, and the figures.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace orrery::test {

inline bool updates_golden() {
  return std::getenv("ORRERY_UPDATE_GOLDEN") != nullptr;
}

inline std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/golden" / name;
}

// $ORRERY_PUBLISHED, or the folder beside the checkout; empty where this machine has none. No test knows
// another place.
inline std::filesystem::path published_folder() {
  if (const char* folder = std::getenv("ORRERY_PUBLISHED")) return folder;
  const auto beside = std::filesystem::path(ORRERY_SOURCE_DIR) / "../shared/published";
  return std::filesystem::exists(beside) ? beside : std::filesystem::path();
}

// 64-bit FNV-1a of the file's bytes, in hexadecimal. Each byte's step is a bijection: a change of one byte
// shows.
inline std::string digest_of_file(const std::filesystem::path& file) {
  return fmt::format("{:016x}", fnv_of(read_file(file)));
}

using TableDigests = std::map<std::string, std::string>;  // by path in the folder, such as steps/x.csv

// Of the CSV files of the folder's sub-folder `under`, which may be missing.
inline TableDigests digests_of_tables(const std::filesystem::path& folder, const std::string& under) {
  TableDigests digests;
  if (std::filesystem::exists(folder / under))
    for (const auto& entry : std::filesystem::directory_iterator(folder / under))
      if (entry.path().extension() == ".csv")
        digests[under + "/" + entry.path().filename().string()] = digest_of_file(entry.path());
  return digests;
}

// Of lines "digest  path", as sha256sum prints them.
inline TableDigests read_table_digests(const std::filesystem::path& file) {
  TableDigests digests;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t gap = line.find("  ");
    if (!line.starts_with('#') && gap != std::string::npos)
      digests[line.substr(gap + 2)] = line.substr(0, gap);
  }
  return digests;
}

struct PublishedTables {
  std::vector<std::string> files;     // recorded and unchanged, sorted
  std::vector<std::string> reported;  // "steps/x.csv is new" (or has changed, or is gone)
  bool whole = true;                  // every recorded table is among `files`: totals are comparable

  // The file of the table whose name without extension is `source`, as `validate --published` calls it; else
  // empty.
  std::string find(const std::string& source) const {
    for (const std::string& file : files)
      if (std::filesystem::path(file).stem() == source) return file;
    return {};
  }
  bool has(const std::string& source) const { return !find(source).empty(); }
};

inline PublishedTables published_tables(const std::filesystem::path& folder, const std::string& under,
                                        const TableDigests& recorded) {
  PublishedTables tables;
  const TableDigests present = digests_of_tables(folder, under);
  for (const auto& [path, digest] : present) {
    const auto record = recorded.find(path);
    if (record != recorded.end() && record->second == digest)
      tables.files.push_back((folder / path).string());
    else
      tables.reported.push_back(path + (record == recorded.end() ? " is new" : " has changed"));
  }
  for (const auto& [path, digest] : recorded) {
    if (!path.starts_with(under + "/")) continue;
    if (!present.contains(path)) tables.reported.push_back(path + " is gone");
    if (!present.contains(path) || present.at(path) != digest) tables.whole = false;
  }
  return tables;
}

// Those of the published folder by the record that is committed (while that is updated: all that lie there),
// with what is to be reported as a warning; no files and a warning where this machine has no tables.
inline PublishedTables published_tables(const std::string& under) {
  const std::filesystem::path folder = published_folder();
  if (folder.empty()) {
    WARN("skipped: no published tables here (ORRERY_PUBLISHED)");
    return {};
  }
  REQUIRE(std::filesystem::exists(folder));
  PublishedTables tables =
      published_tables(folder, under,
                       updates_golden() ? digests_of_tables(folder, under)
                                        : read_table_digests(golden_file("published_tables.txt")));
  for (const std::string& line : tables.reported)
    WARN(line << ": it decides nothing until it is recorded (tests/support/published.h)");
  if (!tables.whole)
    WARN(under << ": totals are not compared, as not all tables are here that they were over");
  return tables;
}

}  // namespace orrery::test
