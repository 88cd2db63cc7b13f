// orrery collective: nccl-tests for a cluster that one does not have.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "base/parse.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct CollectiveOptions {
  std::string op, cluster, algorithm = "auto", detail = "flows";
  std::vector<double> sizes;
  std::optional<NodeCounts> nodes;
  std::optional<int> gpus;
  Output output;
};

int run_collective(const CollectiveOptions& options) {
  CollectiveRequest request;
  request.kind = collective_from_name(options.op);
  request.detail = detail_from_name(options.detail);
  if (lower_case(options.algorithm) != "auto") request.algorithm = algorithm_from_name(options.algorithm);
  request.bytes = options.sizes;
  request.cluster = sized_cluster(options.cluster, options.nodes, options.gpus);
  begin_progress("simulating");
  request.progress = [](int done, int total) { show_progress("simulating", done, total); };
  const std::vector<CollectiveTime> times = collective(request);
  end_progress();

  std::vector<std::vector<std::string>> rows;
  for (const CollectiveTime& time : times)
    rows.push_back({human_bytes(time.bytes), human_seconds(time.time_s), human_rate(time.algbw_bytes_per_s),
                    human_rate(time.busbw_bytes_per_s), std::string(name_of(time.algorithm)),
                    std::string(name_of(time.protocol))});
  options.output.write(to_json(request, times));
  options.output.print(fmt::format("{} over {}, {}, of {}\n", name_of(request.kind),
                                   counted(request.cluster.devices(), "device"),
                                   nodes_in_words(request.cluster), request.cluster.name));
  options.output.print(fmt::format("This rests on: network {}.\n",
                                   planner::what_it_rests_on(planner::network_foundation(request.cluster))));
  options.output.print(
      table({"size", "time", "algorithm bandwidth", "bus bandwidth", "algorithm", "protocol"}, rows));
  return 0;
}

Setting bytes_setting(std::vector<double>& sizes) {
  Option option = {
      .key = "bytes",
      .unit = "B[,B...]",
      .help = "sizes as nccl-tests counts them, in bytes; K, M, G are binary",
      .range = "numbers of bytes from 0, each with an optional K, M, G or T (binary), separated by commas"};
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
  const auto options = std::make_shared<CollectiveOptions>();
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
      [options] { return run_collective(*options); }};
  command.add(size_options(options->nodes, options->gpus));
  command.add(bytes_setting(options->sizes));
  command.add(
      text_option({.key = "algorithm",
                   .unit = "NAME",
                   .help = "auto, ring, tree, nvls, nvls-tree, pairwise, recursive-doubling or direct",
                   .fallback = "auto, what the library would choose"},
                  options->algorithm));
  command.add(detail_option(options->detail));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
