#include "evidence/collectives.h"

#include <filesystem>
#include <map>
#include <optional>

#include "base/csv.h"
#include "base/error.h"
#include "cost/collective_cost.h"
#include "evidence/collective_machines.h"
#include "evidence/rules.h"
#include "evidence/statistics.h"
#include "proto/evidence.pb.h"

namespace orrery::evidence {
namespace {

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

struct Prediction {
  double seconds = 0;
  CollectivePlan plan;
};

std::optional<Prediction> predict(Row& row) {
  if (!row.skipped.empty()) return std::nullopt;
  if (!row.kind) {
    row.skipped = "no model of the collective '" + row.collective + "'";
  } else if (row.machine.devices < 2) {
    row.skipped = "fewer than two devices";
  } else if (row.size_bytes <= 0) {
    row.skipped = "no size stated";
  } else if (row.measured_s <= 0) {
    row.skipped = "no time and no bandwidth stated";
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
  Prediction p;
  p.plan = plan_collective(*row.kind, row.size_bytes, shape, *cluster, row.forced ? &*row.forced : nullptr);
  p.seconds = p.plan.seconds(row.size_bytes);
  return p;
}

// Statistics over signed relative errors.
struct Statistics {
  std::vector<double> errors;
  int skipped = 0;

  Json json() const { return error_figures(errors, skipped); }
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

Json validate_published_collectives(const std::vector<std::string>& csv_files) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  Json list = Json::array();
  Statistics all;
  Statistics above;
  std::map<std::string, Statistics> files;
  std::map<std::string, Statistics> files_above;
  std::map<std::string, Statistics> machines_above;
  for (const std::string& file : csv_files) {
    for (Row& row : read_rows(file)) {
      const auto prediction = predict(row);
      Json out;
      out["file"] = row.file;
      out["line"] = row.line;
      out["source"] = row.source;
      out["collective"] = row.collective;
      out["gpu"] = row.machine.gpu;
      out["n_gpus"] = row.machine.devices;
      out["n_nodes"] = row.machine.nodes;
      out["size_bytes"] = row.size_bytes;
      if (prediction) {
        const double error = (prediction->seconds - row.measured_s) / row.measured_s;
        out["predicted_s"] = prediction->seconds;
        out["measured_s"] = row.measured_s;
        out["relative_error"] = error;
        out["algorithm"] = name_of(prediction->plan.algorithm);
        out["protocol"] = name_of(prediction->plan.protocol);
        if (row.implausible.empty()) {
          all.errors.push_back(error);
          files[row.file].errors.push_back(error);
          if (row.size_bytes > kMebibyte) {
            above.errors.push_back(error);
            files_above[row.file].errors.push_back(error);
            machines_above[row.machine.gpu + ", " + std::to_string(row.machine.nodes) +
                           (row.machine.nodes == 1 ? " node, " : " nodes, ") + row.collective]
                .errors.push_back(error);
          }
        }
      }
      const std::string& reason = prediction ? row.implausible : row.skipped;
      if (!reason.empty()) {
        out["skipped"] = reason;
        ++all.skipped;
        ++files[row.file].skipped;
      }
      list.push_back(std::move(out));
    }
  }
  Json result;
  result["all"] = all.json();
  result["above_1_mib"] = above.json();
  for (const auto& [file, statistics] : files) {
    result["sources"][file] = statistics.json();
    result["sources"][file]["above_1_mib"] = files_above[file].json();
  }
  for (const auto& [machine, statistics] : machines_above) result["machines"][machine] = statistics.json();
  result["rows"] = std::move(list);
  return result;
}

}  // namespace orrery::evidence
