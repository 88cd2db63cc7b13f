// Bytes to begin with.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::fuzz {

constexpr std::size_t kMostSeedBytes = 48 << 10;  // the smaller, the more often it is tried

// Of tests/data, tests/fuzz/seeds or another folder of the sources, whole.
std::string data_file(const std::string& name);
std::string own_seed(const std::string& name);
std::vector<std::string> folder_of(const std::string& folder, std::string_view ending = {});
// Published files (tests/support/published.h) whose path in `folder` begins with `begin`, unpacked; none
// where this machine has none. Of long ones the beginning and a part of the middle by whole lines, or a share
// of a trace's events.
std::vector<std::string> published_texts(const std::string& folder, std::string_view begin);
std::vector<std::string> published_traces();
// The first rows of published tables.
std::vector<std::string> published_tables(const std::string& folder);

// A file with these bytes, for what reads files alone; the next call's takes its place.
std::string as_file(std::string_view bytes, const std::string& name);

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second);

}  // namespace orrery::fuzz
