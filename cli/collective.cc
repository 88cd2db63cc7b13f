// orrery collective: nccl-tests for a cluster that one does not have.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "base/parse.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"
#include "cost/collective_cost.h"
#include "request/request.h"
#include "sim/simulator.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string op, cluster, algorithm = "auto", detail = "flows";
  std::vector<double> sizes;
  std::optional<int> nodes, gpus;
  Output output;
};

CollectiveKind parse_op(std::string name) {
  std::string known;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::scatter); ++kind) {
    if (name_of(static_cast<CollectiveKind>(kind)) == name) return static_cast<CollectiveKind>(kind);
    known += fmt::format("{}{}", kind == 0 ? "" : ", ", name_of(static_cast<CollectiveKind>(kind)));
  }
  throw UserError(fmt::format("collective {} is unknown", name), "expected " + known);
}

int run(const Options& options) {
  const CollectiveKind kind = parse_op(options.op);
  const sim::Detail detail = parse_detail(options.detail);
  std::optional<Algorithm> forced;
  if (options.algorithm != "auto") forced = algorithm_from_name(options.algorithm);
  const std::vector<double>& sizes = options.sizes;
  const Cluster cluster = sized_cluster(options.cluster, options.nodes, options.gpus);
  const int devices = cluster.devices();

  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    show_progress("simulating", static_cast<int>(i), static_cast<int>(sizes.size()));
    const auto start = std::chrono::steady_clock::now();
    const auto result =
        sim::simulate_collective(kind, sizes[i], cluster, devices, detail, forced ? &*forced : nullptr);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    const double algbw = result.time_s > 0 ? sizes[i] / result.time_s : 0;
    const double busbw = algbw * bus_factor(kind, devices);
    results.push_back({{"bytes", sizes[i]},
                       {"time_s", result.time_s},
                       {"algbw_bytes_per_s", algbw},
                       {"busbw_bytes_per_s", busbw},
                       {"algorithm", name_of(result.plan.algorithm)},
                       {"protocol", name_of(result.plan.protocol)},
                       {"events", result.events},
                       {"wall_s", wall.count()}});
    rows.push_back({human_bytes(sizes[i]), human_seconds(result.time_s), human_rate(algbw), human_rate(busbw),
                    std::string(name_of(result.plan.algorithm)), std::string(name_of(result.plan.protocol))});
  }
  show_progress("", 0, 0);
  options.output.write({{"op", name_of(kind)},
                        {"cluster", cluster.name},
                        {"devices", devices},
                        {"nodes", cluster.nodes()},
                        {"detail", options.detail},
                        {"results", results}});
  options.output.print(fmt::format("{} over {} devices ({} nodes) of {}\n", name_of(kind), devices,
                                   cluster.nodes(), cluster.name));
  options.output.print(table({"size", "time", "algorithm bw", "bus bw", "algorithm", "protocol"}, rows));
  return 0;
}

Setting bytes_setting(std::vector<double>& sizes) {
  Option option = {
      .key = "bytes",
      .unit = "B[,B…]",
      .help = "sizes as nccl-tests counts them, in bytes; K, M, G are binary",
      .range = "numbers of bytes from 0, each with an optional K, M, G or T (binary), parted by commas"};
  option.required = option.many = true;
  return {std::move(option), [&sizes](const std::string& text) {
            for (const std::string& part : split(text)) {
              const auto bytes = parse_bytes(part);
              if (!bytes) return false;
              sizes.push_back(*bytes);
            }
            return true;
          }};
}

}  // namespace

Command collective_command() {
  const auto options = std::make_shared<Options>();
  Command command{
      "collective",
      "times a collective operation on a cluster",
      {text_option({.key = "op",
                    .help = "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, "
                            "gather or scatter",
                    .positional = true,
                    .required = true},
                   options->op),
       text_option({.key = "cluster",
                    .help = "a .textproto, a SimGrid platform .xml or a catalog name",
                    .positional = true,
                    .required = true},
                   options->cluster)},
      [options] { return run(*options); }};
  command.add(size_options(options->nodes, options->gpus));
  command.add(bytes_setting(options->sizes));
  command.add(
      text_option({.key = "algorithm",
                   .unit = "NAME",
                   .help = "auto, ring, tree, nvls, nvls_tree, pairwise, recursive_doubling or direct",
                   .fallback = "auto, what the library would choose"},
                  options->algorithm));
  command.add(detail_option(options->detail));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
