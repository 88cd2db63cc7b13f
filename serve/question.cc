#include "serve/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "topologies/device_catalog.h"

namespace orrery::serve {
namespace {

constexpr std::size_t kLongestValue = 64;
constexpr std::size_t kLongestKey = 32;  // that is told of

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// What a browser sent, as an error may repeat it: letters, digits and what stands in keys.
std::string shown(std::string_view key) {
  std::string text(key.substr(0, kLongestKey));
  for (char& c : text)
    if (!is_word(c)) c = '?';
  return key.size() > kLongestKey ? text + "..." : text;
}

// Of a Request (request/request.h): none of them names a file, but what names_of() then holds to the
// catalogs.
constexpr std::array<std::string_view, 19> kRequestKeys = {
    "gpus",      "device",    "runtime",  "global_batch", "seq_len",  "precision", "optimizer",
    "attention", "tp",        "pp",       "dp",           "cp",       "ep",        "micro_batch",
    "zero",      "recompute", "schedule", "interleave",   "objective"};
// Of the hardware, times what it is (planner/evaluation/hardware.h).
constexpr std::array<std::string_view, 4> kTimesKeys = {"network", "intra-node", "device-memory",
                                                        "device-speed"};
constexpr std::array<std::string_view, 3> kRunKeys = {"amount", "mtbf_device_hours", "checkpoint_bandwidth"};
constexpr std::array<std::string_view, 2> kInputKeys = {"workload", "cluster"};

template <std::size_t N>
bool has(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  const auto add = [&](const auto& some) { keys.insert(keys.end(), some.begin(), some.end()); };
  add(kInputKeys);
  add(kRequestKeys);
  add(kTimesKeys);
  add(kRunKeys);
  return keys;
}

// The catalogs' names, read once: forks have them from their parent.
struct Names {
  std::vector<std::string> workloads, clusters, devices, runtimes;
};
const Names& names() {
  static const Names all = [] {
    Names names;
    for (const auto& entry : catalog_workloads()) names.workloads.push_back(entry.name);
    for (const auto& entry : catalog_clusters())
      if (!entry.name.starts_with("localhost")) names.clusters.push_back(entry.name);
    for (const auto& entry : catalog_devices()) names.devices.push_back(entry.name);
    names.runtimes = catalog_runtimes();
    return names;
  }();
  return all;
}

void check_name(std::string_view key, const std::string& name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw UserError(fmt::format("`{}` {} is not in the catalog", key, name), suggestion(name, known));
}

double number_of(std::string_view key, const std::string& text, double least, double most) {
  const auto number = parse_amount(text);
  const auto plain = number ? number : parse_number(text);
  if (!plain || !(*plain >= least && *plain <= most))
    throw UserError(fmt::format("`{}` {}", key, text),
                    fmt::format("expected a number from {:g} to {:g}", least, most));
  return *plain;
}

// The bound that holds here, where the option's own is another.
std::optional<std::int64_t> most_of(std::string_view key) {
  if (key == "gpus") return kMostDevices;
  if (key == "global_batch") return kMostBatch;
  if (key == "seq_len") return kMostTokens;
  return std::nullopt;
}

void set_bounded(Request& request, const std::string& key, const std::string& value) {
  const auto most = most_of(key);
  if (!most) return set(request, key, value);
  try {
    set(request, key, value);
  } catch (const UserError&) {
    throw UserError(fmt::format("`{}` {}", key, value),
                    fmt::format("expected a whole number from 1 to {}", *most));
  }
}

void check_sizes(const Request& request, const Job& job) {
  if (request.global_batch.value_or(1) > kMostBatch)
    throw UserError(fmt::format("`global_batch` {}", *request.global_batch),
                    fmt::format("expected at most {} here", kMostBatch));
  if (request.seq_len.value_or(1) > kMostTokens)
    throw UserError(fmt::format("`seq_len` {}", *request.seq_len),
                    fmt::format("expected at most {} here", kMostTokens));
  if (job.cluster.devices() > kMostDevices)
    throw UserError(fmt::format("{} devices", job.cluster.devices()),
                    fmt::format("expected at most {} here", kMostDevices));
}

std::optional<RunQuestion> run_of(const std::map<std::string, std::string>& values) {
  if (!values.contains("mtbf_device_hours")) {
    for (const std::string_view key : kRunKeys)
      if (values.contains(std::string(key)))
        throw UserError(fmt::format("`{}` without `mtbf_device_hours`", key),
                        "expected both: it is of a run whose devices fail");
    return std::nullopt;
  }
  RunQuestion run;
  run.mtbf_device_hours = number_of("mtbf_device_hours", values.at("mtbf_device_hours"), 1, 1e9);
  run.amount = values.contains("amount") ? number_of("amount", values.at("amount"), 1, 1e18) : 1e9;
  if (values.contains("checkpoint_bandwidth"))
    run.checkpoint_bandwidth_bytes_per_s =
        number_of("checkpoint_bandwidth", values.at("checkpoint_bandwidth"), 1e6, 1e15);
  return run;
}

}  // namespace

void check_workload(const std::string& name) {
  check_name("workload", name, names().workloads);
}

void check_cluster(const std::string& name) {
  check_name("cluster", name, names().clusters);
}

void check_keys(const Query& query) {
  static const std::vector<std::string> known = all_keys();
  std::map<std::string_view, int> seen;
  for (const auto& [key, value] : query) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UserError(fmt::format("unknown key `{}` in the question", shown(key)),
                      suggestion(key.substr(0, kLongestKey), known));
    if (++seen[key] > 1) throw UserError(fmt::format("`{}` twice", key));
    if (value.size() > kLongestValue)
      throw UserError(fmt::format("`{}` is too long", key), fmt::format("at most {} bytes", kLongestValue));
  }
}

std::string canonical(const Query& query) {
  const std::map<std::string, std::string> sorted(query.begin(), query.end());
  std::string text;
  for (const auto& [key, value] : sorted) text += fmt::format("{}={}&", key, value);
  return text;
}

LiveQuestion read_question(const Query& query) {
  check_keys(query);
  const std::map<std::string, std::string> values(query.begin(), query.end());
  for (const std::string_view key : kInputKeys)
    if (!values.contains(std::string(key)))
      throw UserError(fmt::format("no `{}`", key), "expected a name of the catalog");
  check_workload(values.at("workload"));
  check_cluster(values.at("cluster"));
  Request request;
  request.workload = values.at("workload");
  request.cluster = values.at("cluster");
  std::vector<planner::whatif::Varied> times;
  for (const auto& [key, value] : values) {
    if (key == "device") check_name(key, value, names().devices);
    if (key == "runtime") check_name(key, value, names().runtimes);
    if (has(kRequestKeys, key)) set_bounded(request, key, value);
    if (has(kTimesKeys, key)) times.push_back({key, {fmt::format("{}", number_of(key, value, 0.01, 100))}});
  }
  check_varied(times);
  Points points = points_of(request, times);
  planner::whatif::Point& point = points.points.front();
  check_sizes(request, *point.job);
  LiveQuestion live;
  live.question.job = std::move(point.job);
  live.question.pins = std::move(point.pins);
  live.question.search = std::move(point.options);
  live.run = run_of(values);
  return live;
}

Json choices_json() {
  const Catalog catalog = orrery::catalog();
  Json json = {{"keys", all_keys()},
               {"most", {{"devices", kMostDevices}, {"global_batch", kMostBatch}, {"seq_len", kMostTokens}}}};
  for (const CatalogWorkload& entry : catalog.workloads)
    json["workloads"].push_back({{"name", entry.name},
                                 {"description", entry.description},
                                 {"parameters", entry.parameters},
                                 {"seq_len", entry.seq_len}});
  for (const CatalogCluster& entry : catalog.clusters) {
    if (entry.device.empty()) continue;  // to be discovered
    const Cluster cluster = load_cluster(entry.name);
    json["clusters"].push_back(
        {{"name", entry.name},
         {"description", entry.description},
         {"device", entry.device},
         {"vendor", cluster.profiles.front().vendor},
         {"devices", entry.devices},
         {"nodes", cluster.nodes()},
         {"grows", cluster.groups.size() == 1 && cluster.groups.front().node.nic.count > 0},
         {"usd_per_device_hour", entry.price_usd_per_device_hour},
         {"storage", cluster.groups.front().node.storage_write_bytes_per_s > 0}});
  }
  for (const CatalogDevice& entry : catalog.devices) {
    const DeviceProfile device = catalog_device(entry.name);
    if (device.kind != DeviceKind::gpu) continue;
    json["devices"].push_back({{"name", entry.name},
                               {"description", entry.description},
                               {"vendor", device.vendor},
                               {"memory_bytes", entry.memory_bytes}});
  }
  for (const CatalogEntry& entry : catalog.runtimes)
    json["runtimes"].push_back({{"name", entry.name}, {"description", entry.description}});
  return json;
}

}  // namespace orrery::serve
