// orrery collective: nccl-tests for a cluster that one does not have.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/training_options.h"
#include "cli/verbs.h"
#include "cost/collective_cost.h"
#include "sim/simulator.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string op, cluster, algorithm = "auto", detail = "flows";
  std::vector<std::string> bytes;
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
  std::vector<double> sizes;
  for (const auto& text : options.bytes) sizes.push_back(parse_bytes(text, "--bytes"));
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

}  // namespace

void add_collective(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("collective", "times a collective operation on a cluster");
  const auto options = std::make_shared<Options>();
  verb->add_option("OP", options->op,
                   "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather or scatter")
      ->required();
  verb->add_option("CLUSTER", options->cluster, "a .textproto, a SimGrid platform .xml or a catalog name")
      ->required();
  add_size_options(*verb, options->nodes, options->gpus);
  verb->add_option("--bytes", options->bytes,
                   "sizes as nccl-tests counts them, in bytes; K, M, G are binary (several: comma-separated)")
      ->required()
      ->delimiter(',')
      ->type_name("B[,B…]");
  verb->add_option("--algorithm", options->algorithm,
                   "auto, ring, tree, nvls, nvls_tree, pairwise, hierarchical, recursive_doubling or direct "
                   "(default: auto, what the library would choose)")
      ->type_name("NAME");
  add_detail_option(*verb, options->detail);
  options->output.add_option(*verb);
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
