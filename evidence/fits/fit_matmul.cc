// Fits the MatmulModel of each GPU and element type to measured matrix products, and says how far it is off
// on shapes that were left out of the fit.
//
//   fit_matmul PUBLISHED/operators/gemm_aiconfigurator.csv [DEVICES_FOLDER]
//
// Shapes (n, k) are dealt into five folds; each fold is predicted by a fit to the other four. With
// DEVICES_FOLDER the fit to all shapes is written into the devices' files, between their "# fitted" marks.
// Deterministic: Nelder and Mead's simplex (NLopt) from fixed starts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/csv.h"
#include "base/file.h"
#include "cost/compute_cost.h"
#include "evidence/fits/minimise.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

constexpr int kFolds = 5;
// efficiency, tile_penalty, half_k, kernel_overhead_s, memory_efficiency, sharpness, wave_overlap,
// split_overhead_s, cached_bytes, cached_gain; of fp8 also the rate of the quantisation that the source times
// along, of bf16 the device's power_loss and power_ramp_s (fp8's fit takes them over).
constexpr int kParameters = 13;
constexpr int kQuantise = 10, kPowerLoss = 11, kPowerRamp = 12;
using Parameters = std::array<double, kParameters>;

struct Row {
  Product product;
  double seconds = 0;
  int fold = 0;
};

struct Series {
  std::string gpu;  // as the table names it
  std::string device;
  DType type = DType::bf16;
  std::vector<Row> rows;
};

const std::map<std::string, std::vector<std::string>> kDevices = {
    {"NVIDIA A100-SXM4-80GB", {"a100-sxm-80g", "a100-sxm-40g", "a100-pcie-80g"}},
    {"NVIDIA H100 80GB HBM3", {"h100-sxm-80g", "h100-pcie-80g"}},
    {"NVIDIA H200", {"h200-sxm-141g"}},
    {"NVIDIA B200", {"b200-sxm-180g"}},
    {"NVIDIA GB200", {"gb200-186g"}},
    {"NVIDIA L40S", {"l40s"}},
};

MatmulModel model_of(const Parameters& p) {
  MatmulModel m;
  m.tile_choice = true;
  m.efficiency = p[0];
  m.tile_penalty = p[1];
  m.half_k = p[2];
  m.kernel_overhead_s = p[3];
  m.memory_efficiency = p[4];
  m.sharpness = p[5];
  m.wave_overlap = p[6];
  m.split_overhead_s = p[7];
  m.cached_bytes = p[8];
  m.cached_gain = p[9];
  return m;
}

void set_model(const Parameters& p, DType type, DeviceProfile* device) {
  device->matmul[static_cast<int>(type)] = model_of(p);
  device->power_loss = p[kPowerLoss];
  device->power_ramp_s = p[kPowerRamp];
}

double predict(const Parameters& p, const Row& row, DType type, const DeviceProfile& device) {
  double seconds = benchmark_product_seconds(row.product, type, device);
  if (type == DType::fp8)  // bf16 read, fp8 written
    seconds += 3 * row.product.m * row.product.k / (p[kQuantise] * device.memory_bandwidth_bytes_per_s);
  return seconds;
}

// Parameters are searched by their logarithm; these bounds are physical.
std::vector<Range> ranges_of(const std::vector<int>& free) {
  std::array<double, kParameters> most;
  most.fill(HUGE_VAL);
  most[0] = most[4] = most[6] = 1;
  most[2] = 2000;
  most[3] = 1e-4;
  most[5] = 20;
  most[8] = 4e8;
  most[9] = 8;
  most[kQuantise] = 4;
  most[kPowerLoss] = 1;
  most[kPowerRamp] = 0.1;
  std::vector<Range> ranges;
  for (const int i : free) ranges.push_back({i == 9 ? 0 : -HUGE_VAL, std::log(most[i])});
  return ranges;
}

double mean_error(const std::array<double, kParameters>& logs, const Series& series, DeviceProfile* device,
                  int without_fold) {
  Parameters p;
  for (int i = 0; i < kParameters; ++i) p[i] = std::exp(logs[i]);
  set_model(p, series.type, device);
  double sum = 0;
  int count = 0;
  for (const Row& row : series.rows) {
    if (row.fold == without_fold) continue;
    sum += std::abs(std::log(predict(p, row, series.type, *device) / row.seconds));
    ++count;
  }
  return sum / count;
}

// Of the parameters in `free`; the others stay as they begin.
template <typename Function>
Parameters fitted(Function&& f, Parameters start, const std::vector<int>& free, int evaluations) {
  std::vector<double> values;
  for (const int i : free) values.push_back(start[i]);
  const auto with = [&](const std::vector<double>& point) {
    for (std::size_t i = 0; i < free.size(); ++i) start[free[i]] = point[i];
    return start;
  };
  return with(minimise([&](const std::vector<double>& point) { return f(with(point)); }, values,
                       ranges_of(free), {.first_step = 0.25, .evaluations = evaluations}));
}

std::vector<Series> read_series(const std::string& file) {
  const CsvTable table = read_csv(file);
  std::map<std::pair<std::string, std::string>, Series> found;
  std::map<std::pair<std::string, std::string>, std::map<std::pair<double, double>, int>> shapes;
  for (const CsvRow& line : table.rows) {
    const auto number = [&](const char* column) { return std::stod(table.field(line, column)); };
    const auto key = std::pair(table.field(line, "gpu"), table.field(line, "dtype"));
    Row row;
    row.product = {number("m_tokens"), number("n"), number("k")};
    row.seconds = number("time_us") * 1e-6;
    Series& series = found[key];
    series.gpu = key.first;
    series.type = key.second == "fp8" ? DType::fp8 : DType::bf16;
    auto& known = shapes[key];
    const auto shape = std::pair(row.product.n, row.product.k);
    row.fold = known.emplace(shape, static_cast<int>(known.size() * 7919 % kFolds)).first->second;
    series.rows.push_back(row);
  }
  std::vector<Series> all;
  for (auto& [key, series] : found) all.push_back(std::move(series));
  return all;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

std::string textproto(DType type, const MatmulModel& m) {
  return fmt::format(
      "matmul {{ dtype: \"{}\" efficiency: {:.4f} half_k: {:.1f} kernel_overhead_s: {:.3g} tile_choice: true "
      "tile_penalty: {:.3g}\n         wave_overlap: {:.3f} split_overhead_s: {:.3g} sharpness: {:.2f} "
      "memory_efficiency: {:.3f} cached_bytes: {:.3g} cached_gain: {:.2f} }}\n",
      name_of(type), m.efficiency, m.half_k, m.kernel_overhead_s, m.tile_penalty, m.wave_overlap,
      m.split_overhead_s, m.sharpness, m.memory_efficiency, m.cached_bytes, m.cached_gain);
}

constexpr std::string_view kBegin = "# fitted by evidence/fits/fit_matmul: begin\n";
constexpr std::string_view kEnd = "# fitted by evidence/fits/fit_matmul: end\n";

void write_section(const std::string& file, const std::string& section) {
  std::string text = read_file(file);
  const auto begin = text.find(kBegin);
  if (begin != std::string::npos) text.erase(begin, text.find(kEnd) + kEnd.size() - begin);
  if (text.back() != '\n') text += '\n';
  write_file_atomically(file, text + std::string(kBegin) + section + std::string(kEnd));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: fit_matmul GEMM_CSV [DEVICES_FOLDER]\n");
    return 2;
  }
  std::map<std::string, std::string> sections;             // by GPU as the table names it
  std::map<std::string, double> overhead;                  // of a bf16 product, which fp8's takes over
  std::map<std::string, std::pair<double, double>> power;  // power_loss, power_ramp_s: likewise
  fmt::print("{:24} {:5} {:>5}  {:>8} {:>8} {:>8} {:>8}   of shapes left out of the fit\n", "device", "type",
             "rows", "median", "p90", "max", "bias");
  for (const Series& series : read_series(argv[1])) {
    const auto names = kDevices.find(series.gpu);
    if (names == kDevices.end()) continue;
    DeviceProfile device = catalog_device(names->second.front());
    const bool fp8 = series.type == DType::fp8;
    std::vector<int> free = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    if (fp8) {
      free.push_back(kQuantise);
    } else {
      free.push_back(kPowerLoss);
      free.push_back(kPowerRamp);
    }
    Parameters physical = {0.8, 3, 80, 3e-6, 0.8, 4, 0.3, 3e-6, 24e6, 1.5, 0.35, 0.1, 1e-3};
    if (fp8 && power.contains(series.gpu)) {
      physical[kPowerLoss] = power[series.gpu].first;
      physical[kPowerRamp] = power[series.gpu].second;
    }
    const auto error = [&](int without) {
      return [&, without](const Parameters& x) { return mean_error(x, series, &device, without); };
    };
    Parameters all{};
    double least = 1e9;
    for (const double cached : {12e6, 24e6, 48e6, 90e6}) {
      physical[8] = cached;
      Parameters start;
      for (int i = 0; i < kParameters; ++i) start[i] = std::log(physical[i]);
      const Parameters found = fitted(error(-1), fitted(error(-1), start, free, 900), free, 900);
      if (error(-1)(found) < least) {
        least = error(-1)(found);
        all = found;
      }
    }
    std::vector<double> errors, absolute;
    for (int fold = 0; fold < kFolds; ++fold) {
      const Parameters logs = fitted(error(fold), all, free, 600);
      Parameters p;
      for (int i = 0; i < kParameters; ++i) p[i] = std::exp(logs[i]);
      set_model(p, series.type, &device);
      for (const Row& row : series.rows) {
        if (row.fold != fold) continue;
        errors.push_back(predict(p, row, series.type, device) / row.seconds - 1);
        absolute.push_back(std::abs(errors.back()));
      }
    }
    const double bias =
        std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
    const std::string figures =
        fmt::format("median {:.1f}%, 90th percentile {:.1f}%, worst {:.0f}%, bias {:+.1f}%",
                    100 * quantile(absolute, 0.5), 100 * quantile(absolute, 0.9), 100 * quantile(absolute, 1),
                    100 * bias);
    fmt::print("{:24} {:5} {:5}  {:7.2f}% {:7.2f}% {:7.1f}% {:+7.2f}%\n", names->second.front(),
               name_of(series.type), series.rows.size(), 100 * quantile(absolute, 0.5),
               100 * quantile(absolute, 0.9), 100 * quantile(absolute, 1), 100 * bias);
    std::fflush(stdout);
    Parameters p;
    for (int i = 0; i < kParameters; ++i) p[i] = std::exp(all[i]);
    MatmulModel model = model_of(p);
    std::string& section = sections[series.gpu];
    if (section.empty())
      section =
          "# To ai-dynamo/aiconfigurator's measurements (gemm_perf.parquet @ 095f58a51c); errors are of "
          "shapes left out.\n";
    section += fmt::format("# {}: {} products; {}\n", name_of(series.type), series.rows.size(), figures);
    if (series.type == DType::fp8) {
      // The source times the quantisation of the input along: its launch is not the product's.
      model.kernel_overhead_s = overhead[series.gpu];
      section += textproto(series.type, model);
      section +=
          fmt::format("# casts that the source times along, by its own kernels: {:.4g} bytes a second\n",
                      p[kQuantise] * device.memory_bandwidth_bytes_per_s);
    } else {
      overhead[series.gpu] = model.kernel_overhead_s;
      power[series.gpu] = {p[kPowerLoss], p[kPowerRamp]};
      section += fmt::format("power_loss: {:.3f}\npower_ramp_s: {:.3g}\n", p[kPowerLoss], p[kPowerRamp]);
      section += textproto(series.type, model);
      section += textproto(DType::fp16, model);  // the same units and rate
    }
  }
  if (argc > 2) {
    for (const auto& [gpu, section] : sections)
      for (const std::string& name : kDevices.at(gpu))
        write_section(fmt::format("{}/{}.textproto", argv[2], name), section);
  }
  return 0;
}
