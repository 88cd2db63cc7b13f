#include "evidence/published_collectives.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "base/csv.h"
#include "base/error.h"
#include "cost/collective_cost.h"
#include "evidence/published_machines.h"
#include "evidence/published_statistics.h"

namespace orrery::planner {
namespace {

struct Row {
  std::string file;
  int line = 0;
  std::string source;
  std::string collective;
  PublishedMachine machine;
  std::string note;  // that forces an algorithm
  double size_bytes = 0;
  double measured_s = 0;
  std::string skipped;      // never predicted
  std::string implausible;  // predicted, but not counted
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// 0 where the field is empty or no number.
double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::isfinite(value) ? value : 0;
}

std::optional<CollectiveKind> kind_from(const std::string& name) {
  if (has(name, "not all_reduce")) return std::nullopt;
  if (has(name, "all_reduce")) return CollectiveKind::all_reduce;
  if (has(name, "all_gather")) return CollectiveKind::all_gather;
  if (has(name, "reduce_scatter")) return CollectiveKind::reduce_scatter;
  if (has(name, "alltoall") || has(name, "all_to_all")) return CollectiveKind::all_to_all;
  if (has(name, "broadcast")) return CollectiveKind::broadcast;
  if (name == "reduce") return CollectiveKind::reduce;
  return std::nullopt;
}

// nccl-tests tables.
Row nccl_row(const CsvTable& table, const CsvRow& fields) {
  const auto text = [&](std::string_view column) { return table.field(fields, column); };
  Row row;
  row.source = text("source");
  row.collective = text("collective");
  row.machine = {text("gpu"),
                 static_cast<int>(number(text("n_gpus"))),
                 static_cast<int>(number(text("n_nodes"))),
                 static_cast<int>(number(text("gpus_per_node"))),
                 text("intra_link"),
                 text("inter_link")};
  row.note = text("algo_note");
  row.size_bytes = number(text("size_bytes"));
  row.measured_s = number(text("oop_time_us")) * 1e-6;
  const auto kind = kind_from(row.collective);
  if (row.measured_s <= 0 && kind && row.size_bytes > 0) {
    // Some sources print only the bus bandwidth.
    double bus = number(text("oop_busbw_GBps")) * 1e9;
    if (bus <= 0) bus = number(text("ip_busbw_GBps")) * 1e9;
    if (bus > 0) row.measured_s = row.size_bytes * bus_factor(*kind, row.machine.devices) / bus;
  }
  if (has(row.machine.gpu, "L40S") && row.machine.devices >= 4) {
    row.implausible = "implausibly slow: 4 and 8 L40S move a tenth to a hundredth of what 2 do";
  }
  return row;
}

// Profiles of PyTorch's collectives (Aceso, Sailor).
Row profile_row(const CsvTable& table, const CsvRow& fields) {
  const auto text = [&](std::string_view column) { return table.field(fields, column); };
  Row row;
  row.source = text("source");
  row.collective = text("collective");
  row.machine.gpu = text("gpu");
  row.machine.devices = static_cast<int>(number(text("n_gpus")));
  row.machine.nodes = 1;
  row.machine.devices_per_node = has(row.machine.gpu, "GH-96") || has(row.machine.gpu, "A100") ? 4 : 8;
  row.machine.intra_link = text("link");
  row.size_bytes = number(text("size_MB")) * 1024 * 1024;
  row.measured_s = number(text("time_ms")) * 1e-3;
  if (row.measured_s > 1e5) row.skipped = "a placeholder of 1e9 ms, not a measurement";
  if (has(row.collective, "p2p")) row.skipped = "a bandwidth, not a time";
  if (has(row.machine.gpu, "RTX") || has(row.machine.gpu, "2080") || has(row.machine.gpu, "3090")) {
    row.skipped = "consumer cards whose links the source does not state";
  } else if (row.skipped.empty() && !has(row.collective, "all_reduce")) {
    row.skipped = "PyTorch's list form copies every part once more, and the size's meaning is not stated";
  }
  return row;
}

std::optional<Algorithm> forced_by(const std::string& note) {
  if (has(note, "NVLS_ENABLE=0") || has(note, "TREE_THRESHOLD=0") || has(note, "Ring"))
    return Algorithm::ring;
  return std::nullopt;
}

struct Prediction {
  double seconds = 0;
  CollectivePlan plan;
};

std::optional<Prediction> predict(Row& row) {
  if (!row.skipped.empty()) return std::nullopt;
  const auto kind = kind_from(row.collective);
  if (!kind) {
    row.skipped = "not a collective that is modelled: '" + row.collective + "'";
  } else if (has(row.collective, "RCCL")) {
    row.skipped = "RCCL, not NCCL";
  } else if (row.machine.devices < 2) {
    row.skipped = "fewer than two devices";
  } else if (row.size_bytes <= 0) {
    row.skipped = "no size stated";
  } else if (row.measured_s <= 0) {
    row.skipped = "no time and no bandwidth stated";
  }
  if (!row.skipped.empty()) return std::nullopt;
  const auto cluster = published_machine(row.machine, &row.skipped);
  if (!cluster) return std::nullopt;
  std::vector<int> devices;
  const int nodes = cluster->nodes();
  const int per_node = row.machine.devices / nodes;
  for (int node = 0; node < nodes; ++node) {
    for (int i = 0; i < per_node; ++i) devices.push_back(cluster->first_device(node) + i);
  }
  const Network network(*cluster);
  const GroupShape shape = group_shape(network, devices);
  const auto forced = forced_by(row.note);
  Prediction p;
  p.plan = plan_collective(*kind, row.size_bytes, shape, *cluster, forced ? &*forced : nullptr);
  p.seconds = p.plan.seconds(row.size_bytes);
  return p;
}

// Statistics over signed relative errors; the contract's names.
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
  for (const CsvRow& fields : table.rows) {
    Row row = nccl ? nccl_row(table, fields) : profile_row(table, fields);
    row.file = std::filesystem::path(file).filename().string();
    row.line = fields.line;
    rows.push_back(std::move(row));
  }
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

}  // namespace orrery::planner
