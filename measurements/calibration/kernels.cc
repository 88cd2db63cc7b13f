#include "measurements/calibration/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/statistics.h"
#include "cost/compute_cost.h"
#include "evidence/words/fields.h"
#include "measurements/calibration/posterior.h"
#include "measurements/doubts.h"
#include "planner/uncertainty/spread.h"

namespace orrery::measurements {
namespace {

using planner::Factor;

// What the model of products gets wrong of one shape, and by what clocks in a short profile differ from those
// of a warm job.
constexpr double kShapeSd = 0.12;
// Of a bound on what a launch takes.
constexpr double kHostSd = 0.3;
// Shorter products are a kernel's start and end; thin ones, that reach less of the peak, are as fast as a
// library's choice of kernels happens to be (0.2 to 3 times as predicted in traces of recommendation models,
// where those above are within a fifth).
constexpr double kLeastSeconds = 50e-6, kLeastShareOfPeak = 0.4;
// Clocks above the nominal ones, and a clock of a profiler's microseconds.
constexpr double kMostOfPeak = 1.1;

enum KernelParameter : std::size_t { kClock, kMatmul, kHost, kKernelParameters };
constexpr std::array<Factor, kKernelParameters> kKernelFactors = {Factor::clock, Factor::matmul,
                                                                  Factor::host};

struct Row {
  double predicted_s = 0, measured_s = 0;
  Seen seen;
};

// `efficiency`: of the framework whose product it is.
double predicted_seconds(const MeasuredProduct& product, const DeviceProfile& device, double efficiency) {
  Product shape;
  shape.m = product.m;
  shape.n = product.n;
  shape.k = product.k;
  shape.count = product.count;
  shape.batched = product.count > 1;
  return product_seconds(shape, product.precision, device) / efficiency;
}

void check_plausible(const MeasuredProduct& product, const DeviceProfile& device) {
  // Products of fp32 may have run in TF32, whatever their kernel is called.
  const DType type = product.precision == DType::fp32 ? DType::tf32 : product.precision;
  const double peak = std::max(device.peak(type), device.peak(product.precision));
  const double rate = 2 * product.m * product.n * product.k * product.count / product.seconds;
  if (rate > kMostOfPeak * peak)
    throw NoAnswer(
        fmt::format("{}: a product of {:.0f} x {:.0f} x {:.0f} in {:.3g} s would be {:.0f}% of the "
                    "device's peak",
                    product.file, product.m, product.n, product.k, product.seconds, 100 * rate / peak));
}

// Of the products that say how fast the device is.
std::vector<Row> rows_of(const std::vector<MeasuredProduct>& products, const DeviceProfile& device,
                         double efficiency) {
  constexpr double kStep = 0.04;
  DeviceProfile slower = device;
  slower.training_speed /= std::exp(kStep);
  std::vector<Row> rows;
  for (const MeasuredProduct& product : products) {
    check_plausible(product, device);
    const double predicted_s = predicted_seconds(product, device, efficiency);
    const double flops = 2 * product.m * product.n * product.k * product.count;
    if (predicted_s < kLeastSeconds ||
        flops < kLeastShareOfPeak * device.peak(product.precision) * predicted_s * efficiency)
      continue;
    const double slope = std::log(predicted_seconds(product, slower, efficiency) / predicted_s) / kStep;
    rows.push_back({predicted_s,
                    product.seconds,
                    {{slope, slope, 0}, std::log(product.seconds / predicted_s), kShapeSd, 1}});
  }
  return rows;
}

// Of another unit, or of a device that did something else besides.
void check_near(const std::vector<Row>& rows, const std::string& file) {
  if (rows.empty()) return;
  std::vector<double> times;
  for (const Row& row : rows) times.push_back(row.measured_s / row.predicted_s);
  const double middle = median(std::move(times));
  if (middle > kFarthest || middle < 1 / kFarthest)
    throw NoAnswer(fmt::format("{}: {}: the median takes {} (expected at most {:.0f} times)", file,
                               counted(static_cast<std::int64_t>(rows.size()), "product"),
                               times_predicted(middle), kFarthest));
}

HeldOut held_out_of(const std::vector<Effect>& effects, const std::vector<Row>& rows) {
  Errors errors;
  const std::vector<int> folds = folds_of(rows.size());
  for (int fold = 0; fold < number_of_folds(rows.size()); ++fold) {
    std::vector<Seen> others;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (folds[i] != fold) others.push_back(rows[i].seen);
    const Posterior posterior = posterior_of(effects, others, kNoiseFreedom);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (folds[i] != fold) continue;
      const Row& row = rows[i];
      errors.add(row.predicted_s, row.predicted_s * std::exp(posterior.mean_of(row.seen.slopes)),
                 std::sqrt(posterior.variance_of(row.seen.slopes) + posterior.scale * kShapeSd * kShapeSd),
                 row.measured_s);
    }
  }
  return errors.sum();
}

}  // namespace

Kernels learn_kernels(const Cluster& cluster, const Measurements& measured) {
  Job job;
  job.cluster = cluster;
  const bool named = !measured.runtime.empty();
  job.runtime = named ? load_runtime(measured.runtime) : default_runtime(RuntimeUse::gpu);
  const planner::Spread spread = planner::spread_of(job);
  const DeviceProfile& device =
      cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)];

  std::vector<Effect> effects;
  for (const Factor factor : kKernelFactors)
    effects.push_back({std::string(planner::name_of(factor)),
                       std::max(0.01, spread.factor[static_cast<std::size_t>(factor)])});
  const std::vector<Row> rows = rows_of(measured.products, device, named ? job.runtime.matmul_efficiency : 1);
  if (!measured.products.empty()) check_near(rows, measured.products.front().file);
  std::vector<Seen> seen;
  for (const Row& row : rows) seen.push_back(row.seen);
  const HeldOut held_out = held_out_of(effects, rows);

  std::vector<double> launches;
  for (const RankTrace& trace : measured.traces)
    if (trace.launch_s > 0) launches.push_back(trace.launch_s);
  const double launch_s =
      job.runtime.kernel_launch_s > 0 ? job.runtime.kernel_launch_s : device.launch_overhead_s;
  // The profiler slows the host that it looks at: what is seen is an upper bound.
  const bool launched =
      named && device.launch_overhead_s > 0 && !launches.empty() && median(launches) < launch_s;
  if (launched) seen.push_back({{0, 0, 1}, std::log(median(launches) / launch_s), kHostSd, 1});

  Kernels kernels;
  kernels.products = static_cast<int>(rows.size());
  kernels.small = static_cast<int>(measured.products.size() - rows.size());
  kernels.held_out = held_out;
  if (named) kernels.runtime = job.runtime.name;
  if (seen.empty()) return kernels;
  const Posterior posterior = posterior_of(effects, seen, kNoiseFreedom);
  const auto learn = [&](KernelParameter p, Foundation before, const std::string& source) {
    kernels.learned.push_back({effects[p].name, posterior.mean[p], std::sqrt(posterior.covariance_of(p, p)),
                               effects[p].sd, std::string(name_of(before)),
                               posterior.said[p] ? source : kNotMeasured});
  };
  const std::string products = counted(static_cast<std::int64_t>(rows.size()), "product");
  if (!rows.empty()) learn(kClock, spread.rests_on.device, products);
  if (!rows.empty() && named) learn(kMatmul, spread.rests_on.runtime, products);
  if (launched)
    learn(kHost, spread.rests_on.runtime,
          "launches of " + counted(static_cast<std::int64_t>(launches.size()), "trace"));
  return kernels;
}

}  // namespace orrery::measurements
