#include "topologies/readers/nvidia_smi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/gpu_node.h"
#include "topologies/readers/nvidia_gpus.h"

namespace orrery {
namespace {

constexpr std::size_t kMaxColumns = 256;
constexpr std::size_t kMaxMatrixBytes = 1 << 20;

// Without the escape sequences that underline the header.
std::string plain(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && !(text[i] >= '@' && text[i] <= '~')) ++i;
      continue;
    }
    result += text[i] == '\r' ? ' ' : text[i];
  }
  return result;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word && result.size() <= 2 * kMaxColumns;) result.push_back(std::move(word));
  return result;
}

bool is_gpu(std::string_view name) {
  return name.size() > 3 && name.substr(0, 3) == "GPU" &&
         std::all_of(name.begin() + 3, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The better, the smaller; nothing for a cell that is none of nvidia-smi's.
std::optional<int> distance_of(std::string_view cell) {
  constexpr std::array<std::string_view, 6> kOrder = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
  const auto at = std::find(kOrder.begin(), kOrder.end(), cell);
  if (at == kOrder.end()) return std::nullopt;
  return static_cast<int>(at - kOrder.begin());
}
constexpr int kSys = 5;

std::optional<int> nvlinks_in(std::string_view cell) {
  if (cell.substr(0, 2) != "NV") return std::nullopt;
  int links = 0;
  const auto [end, error] = std::from_chars(cell.data() + 2, cell.data() + cell.size(), links);
  if (error != std::errc() || end != cell.data() + cell.size() || links < 1 || links > 100)
    return std::nullopt;
  return links;
}

struct Matrix {
  std::vector<std::string> columns;             // GPUs first as printed, then adapters
  std::vector<std::vector<std::string>> cells;  // by row in the order of columns
  std::vector<int> lines;                       // by row
};

Matrix read_matrix(std::string_view text, std::string_view file) {
  if (text.size() > kMaxMatrixBytes) throw UserError(file, 0, "is too large", "expected at most 1 MiB");
  std::istringstream in(plain(text));
  Matrix matrix;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::vector<std::string> row = words(line);
    if (row.empty()) continue;
    if (matrix.columns.empty()) {
      if (!is_gpu(row[0])) continue;  // a prompt or a banner
      for (const std::string& word : row) {
        if (word == "CPU" || word == "NUMA") break;
        matrix.columns.push_back(word);
      }
      if (matrix.columns.size() > kMaxColumns)
        throw UserError(file, number, "too many columns", fmt::format("expected at most {}", kMaxColumns));
      continue;
    }
    if (matrix.cells.size() == matrix.columns.size() || row[0] == "Legend:") break;
    const std::string& wanted = matrix.columns[matrix.cells.size()];
    if (row[0] != wanted || row.size() < matrix.columns.size() + 1)
      throw UserError(file, number, fmt::format("a row '{}' with {} cells", row[0], row.size() - 1),
                      fmt::format("expected row '{}' with one cell for each of the {} columns", wanted,
                                  matrix.columns.size()));
    matrix.cells.emplace_back(row.begin() + 1,
                              row.begin() + 1 + static_cast<std::ptrdiff_t>(matrix.columns.size()));
    matrix.lines.push_back(number);
  }
  if (matrix.columns.empty())
    throw UserError(file, number, "no matrix of `nvidia-smi topo -m`",
                    "expected a header row of GPU0, GPU1, …");
  if (matrix.cells.size() != matrix.columns.size())
    throw UserError(file, number,
                    fmt::format("{} rows for {} columns", matrix.cells.size(), matrix.columns.size()),
                    "expected a square matrix");
  return matrix;
}

}  // namespace

Cluster cluster_from_nvidia_smi(std::string_view text, std::string_view file, const NvidiaSmiFacts& facts) {
  const Matrix matrix = read_matrix(text, file);
  const std::string device = catalog_device(facts.device).name;
  const NvidiaGpu* known = nvidia_gpu(device);
  if (known == nullptr)
    throw UserError(fmt::format("`device` {}", device), "expected one of NVIDIA's: `orrery catalog`");
  const auto gpus = static_cast<int>(std::find_if_not(matrix.columns.begin(), matrix.columns.end(), is_gpu) -
                                     matrix.columns.begin());
  const auto columns = static_cast<int>(matrix.columns.size());
  GpuNode node;
  node.device = device;
  node.devices = gpus;
  node.pcie_bytes_per_s = facts.pcie_bytes_per_s;
  if (node.pcie_bytes_per_s == 0) {
    node.pcie_bytes_per_s = pcie_bytes_per_s(known->pcie_generation, 0);
    node.assumed.push_back(
        fmt::format("each device is assumed to have {}", pcie_in_words(known->pcie_generation, 0)));
  }
  node.bridge_bytes_per_s = facts.bridge_bytes_per_s;
  node.port_bytes_per_s = facts.port_bytes_per_s;
  node.direct = true;
  node.infiniband = true;
  std::vector<int> links(static_cast<std::size_t>(gpus) * gpus, 0);
  for (int a = 0; a < gpus; ++a) {
    std::vector<int> distances;
    int bridge = a;
    for (int b = 0; b < columns; ++b) {
      const std::string& cell = matrix.cells[a][b];
      const auto nvlinks = b < gpus && a != b ? nvlinks_in(cell) : std::nullopt;
      const auto distance = distance_of(cell);
      if (!nvlinks && !distance)
        throw UserError(file, matrix.lines[a], fmt::format("an unknown cell '{}'", cell),
                        "expected X, NV#, PIX, PXB, PHB, NODE or SYS");
      if ((a == b) != (cell == "X"))
        throw UserError(file, matrix.lines[a], fmt::format("'{}' in column {}", cell, matrix.columns[b]),
                        "expected X on the diagonal and nowhere else");
      if (b < gpus && matrix.cells[b][a] != cell)
        throw UserError(file, matrix.lines[a],
                        fmt::format("rows {} and {} disagree", matrix.columns[a], matrix.columns[b]),
                        "expected a symmetric matrix");
      if (nvlinks) links[static_cast<std::size_t>(a) * gpus + b] = *nvlinks;
      if (b < a && distance && *distance < kSys) bridge = std::min(bridge, node.host_bridge[b]);
      if (b >= gpus) distances.push_back(*distance);
    }
    node.host_bridge.push_back(bridge);
    node.distance.push_back(std::move(distances));
  }
  const int all = known->switch_links;
  const auto is_full = [&](int a, int b) {
    return a == b || links[static_cast<std::size_t>(a) * gpus + b] == all;
  };
  bool switched = gpus > 1 && all > 0;
  for (int a = 0; a < gpus && switched; ++a) {
    for (int b = 0; b < gpus && switched; ++b) switched = is_full(a, b);
  }
  if (switched) {
    node.switch_links = all;
  } else if (std::any_of(links.begin(), links.end(), [](int n) { return n > 0; })) {
    node.mesh_links = std::move(links);
  }
  return cluster_of_gpus(node, "nvidia-smi", fmt::format("nvidia-smi topo -m, {}", file), file);
}

}  // namespace orrery
