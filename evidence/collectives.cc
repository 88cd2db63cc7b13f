#include "evidence/collectives.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>

#include "base/csv.h"
#include "base/error.h"
#include "evidence/words/collective_machines.h"
#include "evidence/words/rules.h"
#include "proto/evidence.pb.h"

namespace orrery::evidence {
namespace {

constexpr double kLeastTime_s = 1e-8, kMostTime_s = 1e5;

struct Row {
  std::string file;
  int line = 0;
  std::string source;
  std::string collective;
  std::optional<CollectiveKind> kind;
  StatedMachine machine;
  std::optional<Algorithm> forced;
  double size_bytes = 0;
  double measured_s = 0;
  std::string skipped;      // never predicted
  std::string implausible;  // predicted, but not counted
};

std::optional<CollectiveKind> kind_from(const std::string& name) {
  static const std::map<std::string, CollectiveKind, std::less<>> known = {
      {"all_reduce", CollectiveKind::all_reduce},         {"all_gather", CollectiveKind::all_gather},
      {"reduce_scatter", CollectiveKind::reduce_scatter}, {"all_to_all", CollectiveKind::all_to_all},
      {"broadcast", CollectiveKind::broadcast},           {"reduce", CollectiveKind::reduce}};
  const auto found = known.find(name);
  return found != known.end() ? std::optional(found->second) : std::nullopt;
}

// Tables of nccl-tests (sizes in bytes, microseconds) and profiles of a framework's collectives (mebibytes,
// milliseconds). What words mean, and why: evidence/data/collectives.textproto.
Row read_row(const CsvTable& table, const CsvRow& line) {
  Fields fields(table, line);
  const Findings findings = apply_rules(rules("collectives"), &fields);
  const proto::Reading& reading = *findings.reading;
  Row row;
  row.file = std::filesystem::path(table.file).filename().string();
  row.line = fields.line();
  row.source = fields.text("source");
  row.collective = fields.text("collective");
  row.kind = kind_from(fields.text("kind"));
  row.machine = {fields.text("gpu"),        fields.count("n_gpus"),
                 fields.count("n_nodes"),   fields.count("gpus_per_node"),
                 fields.text("inter_link"), reading.intra_share()};
  if (reading.algorithm() == "ring") row.forced = Algorithm::ring;
  row.skipped = findings.skip;
  row.implausible = reading.implausible();
  if (table.column("size_bytes") < 0) {
    row.size_bytes = fields.real("size_MB") * 1024 * 1024;
    row.measured_s = fields.real("time_ms") * 1e-3;
    return row;
  }
  row.size_bytes = fields.real("size_bytes");
  row.measured_s = fields.real("oop_time_us") * 1e-6;
  if (row.measured_s <= 0 && row.kind && row.size_bytes > 0) {
    // Some sources print only the bus bandwidth.
    double bus = fields.real("oop_busbw_GBps") * 1e9;
    if (bus <= 0) bus = fields.real("ip_busbw_GBps") * 1e9;
    if (bus > 0) row.measured_s = row.size_bytes * bus_factor(*row.kind, row.machine.devices) / bus;
  }
  return row;
}

struct CollectivePrediction {
  double seconds = 0;
  CollectivePlan plan;
};

std::optional<CollectivePrediction> predict_collective(Row& row) {
  if (!row.skipped.empty()) return std::nullopt;
  if (!row.kind) {
    row.skipped = "no model of the collective '" + row.collective + "'";
  } else if (row.machine.devices < 2) {
    row.skipped = "fewer than two devices";
  } else if (row.size_bytes <= 0) {
    row.skipped = "no size stated";
  } else if (row.measured_s <= 0) {
    row.skipped = "no time and no bandwidth stated";
  } else if (row.measured_s < kLeastTime_s || row.measured_s > kMostTime_s) {
    row.skipped = "no collective takes so little or so much time";
  }
  if (!row.skipped.empty()) return std::nullopt;
  const auto cluster = collective_machine(row.machine, &row.skipped);
  if (!cluster) return std::nullopt;
  std::vector<int> devices;
  const int nodes = cluster->nodes();
  const int per_node = row.machine.devices / nodes;
  if (per_node < 1) {
    row.skipped = "fewer devices than nodes";
    return std::nullopt;
  }
  for (int node = 0; node < nodes; ++node) {
    for (int i = 0; i < per_node; ++i) devices.push_back(cluster->first_device(node) + i);
  }
  const Network network(*cluster);
  const GroupShape shape = group_shape(network, devices);
  CollectivePrediction p;
  p.plan = plan_collective(*row.kind, row.size_bytes, shape, *cluster, row.forced ? &*row.forced : nullptr);
  p.seconds = p.plan.seconds(row.size_bytes);
  return p;
}

// Signed relative errors.
struct Errors {
  std::vector<double> errors;
  int skipped = 0;

  Figures figures() const { return error_figures(errors, skipped); }
};

// Those above a mebibyte stand by themselves too, by source and by machine.
struct CollectiveTallies {
  Errors all, above;
  std::map<std::string, Errors> files, files_above, machines_above;

  void skip(const CollectiveRow& row) {
    ++all.skipped;
    ++files[row.file].skipped;
  }
  void add(const CollectiveRow& row) {
    constexpr double kMebibyte = 1024.0 * 1024.0;
    const double error = row.seconds->error;
    all.errors.push_back(error);
    files[row.file].errors.push_back(error);
    if (row.size_bytes <= kMebibyte) return;
    above.errors.push_back(error);
    files_above[row.file].errors.push_back(error);
    machines_above[fmt::format("{}, {} {}, {}", row.device, row.nodes, row.nodes == 1 ? "node" : "nodes",
                               row.collective)]
        .errors.push_back(error);
  }
};

std::vector<Row> read_rows(const std::string& file) {
  const CsvTable table = read_csv(file);
  const bool nccl = table.column("size_bytes") >= 0 && table.column("oop_time_us") >= 0;
  const bool profile = table.column("size_MB") >= 0 && table.column("time_ms") >= 0;
  if ((!nccl && !profile) || table.column("collective") < 0 || table.column("gpu") < 0 ||
      table.column("n_gpus") < 0) {
    throw UserError(file, 1, "not a table of collectives",
                    "the columns collective, gpu, n_gpus and size_bytes, oop_time_us or size_MB, time_ms");
  }
  std::vector<Row> rows;
  for (const CsvRow& line : table.rows) rows.push_back(read_row(table, line));
  return rows;
}

}  // namespace

PublishedCollectives validate_published_collectives(const std::vector<std::string>& csv_files) {
  PublishedCollectives result;
  CollectiveTallies tallies;
  for (const std::string& file : csv_files) {
    for (Row& row : read_rows(file)) {
      const auto prediction = predict_collective(row);
      CollectiveRow& judged = result.rows.emplace_back();
      judged.file = row.file;
      judged.line = row.line;
      judged.source = row.source;
      judged.collective = row.collective;
      judged.device = row.machine.gpu;
      judged.devices = row.machine.devices;
      judged.nodes = row.machine.nodes;
      judged.size_bytes = row.size_bytes;
      judged.skipped = prediction ? row.implausible : row.skipped;
      if (prediction) {
        judged.seconds = {prediction->seconds, row.measured_s,
                          (prediction->seconds - row.measured_s) / row.measured_s};
        judged.algorithm = prediction->plan.algorithm;
        judged.protocol = prediction->plan.protocol;
      }
      if (!judged.skipped.empty())
        tallies.skip(judged);
      else
        tallies.add(judged);
    }
  }
  result.all = tallies.all.figures();
  result.above_1_mib = tallies.above.figures();
  for (const auto& [file, errors] : tallies.files)
    result.sources.push_back({file, errors.figures(), tallies.files_above[file].figures()});
  for (const auto& [machine, errors] : tallies.machines_above)
    result.machines.emplace_back(machine, errors.figures());
  return result;
}

}  // namespace orrery::evidence
