// orrery collective: nccl-tests for a cluster that one does not have.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/training_options.h"
#include "cli/verbs.h"
#include "orrery/json.h"

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
  CollectiveRequest request;
  request.kind = parse_op(options.op);
  request.detail = parse_detail(options.detail);
  if (options.algorithm != "auto") request.algorithm = algorithm_from_name(options.algorithm);
  for (const auto& text : options.bytes) request.bytes.push_back(parse_bytes(text, "--bytes"));
  request.cluster = sized_cluster(options.cluster, options.nodes, options.gpus);
  request.progress = [](int done, int total) { show_progress("simulating", done, total); };
  const std::vector<CollectiveTime> times = collective(request);
  show_progress("", 0, 0);

  std::vector<std::vector<std::string>> rows;
  for (const CollectiveTime& time : times)
    rows.push_back({human_bytes(time.bytes), human_seconds(time.time_s), human_rate(time.algbw_bytes_per_s),
                    human_rate(time.busbw_bytes_per_s), std::string(name_of(time.algorithm)),
                    std::string(name_of(time.protocol))});
  options.output.write(to_json(request, times));
  options.output.print(fmt::format("{} over {} devices ({} nodes) of {}\n", name_of(request.kind),
                                   request.cluster.devices(), request.cluster.nodes(), request.cluster.name));
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
