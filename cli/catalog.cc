// orrery catalog: what Orrery knows by name, and what people compare of it.
#include <fmt/format.h>

#include <memory>

#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

using Row = std::vector<std::string>;

std::string words_of(const CatalogEntry& entry) {
  return entry.rests_on.empty() ? entry.description
                                : fmt::format("{} ({})", entry.description, entry.rests_on);
}

std::string price_of(double usd_per_hour) {
  return usd_per_hour > 0 ? fmt::format("${:.2f}/h", usd_per_hour) : "-";
}

// A table under the kind's name; what each entry is stands on a line of its own.
template <typename Entry, typename Figures>
std::string section(std::string_view kind, Row head, const std::vector<Entry>& entries, Figures figures) {
  std::vector<Row> rows;
  for (const Entry& entry : entries) {
    Row row = figures(entry);
    row.insert(row.begin(), entry.name);
    rows.push_back(std::move(row));
  }
  head.insert(head.begin(), std::string(kind));
  // A narrow place has no room for all figures of a cluster.
  const std::string figures_text = table(head, rows, {.optional = {"links"}});
  std::string text;
  std::size_t begin = 0, line = 0;
  while (begin < figures_text.size()) {
    const std::size_t end = figures_text.find('\n', begin);
    text += figures_text.substr(begin, end - begin) + "\n";
    if (line > 0 && line <= entries.size()) text += "    " + words_of(entries[line - 1]) + "\n";
    ++line;
    begin = end + 1;
  }
  return text + "\n";
}

Row figures_of(const CatalogWorkload& workload) {
  return {human_count(static_cast<double>(workload.parameters)),
          workload.active_parameters == workload.parameters
              ? "all"
              : human_count(static_cast<double>(workload.active_parameters)),
          std::to_string(workload.layers), workload.seq_len > 0 ? std::to_string(workload.seq_len) : "-"};
}

Row figures_of(const CatalogCluster& cluster) {
  if (cluster.device.empty()) return {"", "", "", "", ""};
  return {fmt::format("{} {}", cluster.devices, cluster.device), human_bytes(cluster.memory_bytes),
          human_rate(cluster.link_bytes_per_s), human_rate(cluster.network_bytes_per_s),
          price_of(cluster.price_usd_per_device_hour)};
}

Row figures_of(const CatalogDevice& device) {
  double dense = 0;  // in 16 bits, or what there is
  for (const auto& [type, peak] : device.peak_flops_per_s)
    if (dense == 0 || type == DType::fp16 || type == DType::bf16) dense = peak;
  return {human_bytes(device.memory_bytes), human_rate(device.memory_bandwidth_bytes_per_s),
          human_flops_rate(dense), price_of(device.price_usd_per_hour)};
}

std::string prices_text(const Catalog& all) {
  std::string text = "list prices, to be edited:\n";
  for (const CatalogDevice& device : all.devices)
    if (device.price_usd_per_hour > 0) text += fmt::format("  {}: {}\n", device.name, device.price_as_of);
  return text;
}

int run_catalog(const Output& output) {
  const Catalog all = catalog();
  output.write(to_json(all));
  const auto figures = [](const auto& entry) { return figures_of(entry); };
  const auto none = [](const CatalogEntry&) { return Row{}; };
  output.print(section("workloads", {"parameters", "active", "layers", "tokens"}, all.workloads, figures));
  output.print(
      section("clusters", {"a node", "memory", "links", "network", "a device"}, all.clusters, figures));
  output.print(section("networks", {}, all.networks, none));
  output.print(section("devices", {"memory", "bandwidth", "16-bit peak", "price"}, all.devices, figures));
  output.print(section("links", {}, all.links, none));
  output.print(section("runtimes", {}, all.runtimes, none));
  output.print_more(prices_text(all));
  return 0;
}

}  // namespace

Command catalog_command() {
  const auto output = std::make_shared<Output>();
  return {"catalog",
          "lists the workloads, clusters, networks, devices, kinds of links and runtimes known by name",
          {output->setting()},
          [output] { return run_catalog(*output); }};
}

}  // namespace orrery::cli
