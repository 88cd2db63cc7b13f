#include "exec/calibration/calibration_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/statistics.h"
#include "cost/compute_cost.h"

namespace orrery::exec {
namespace {

constexpr auto kFp32 = static_cast<std::size_t>(DType::fp32);

// What an operator that does nothing takes: less than a clock can tell.
constexpr double kNothing = 1e-8;

double product_seconds_of(const Observation& o, const DeviceProfile& profile) {
  double seconds = 0;
  for (const Product& p : o.work.products) seconds += product_seconds(p, DType::fp32, profile);
  return seconds;
}

double product_error(const std::vector<const Observation*>& products, const DeviceProfile& profile) {
  double error = 0;
  for (const Observation* o : products)
    error += std::abs(std::log(product_seconds_of(*o, profile) / o->seconds));
  return error;
}

// Least sum of |log(predicted / measured)| over a grid of the model's shape parameters, the efficiency of
// each point being the one that makes the median ratio 1. On a processor the operands' traffic adds to the
// arithmetic (sharpness 1): BLAS packs them first, at a fraction of the memory's rate.
void fit_products(const std::vector<const Observation*>& products, DeviceProfile& profile) {
  if (products.empty()) return;
  MatmulModel best;
  double least = INFINITY;
  for (const double half_k : {0.0, 8.0, 32.0}) {
    for (const double tile : {1.0, 4.0, 8.0, 16.0}) {
      for (const double overhead : {0.0, 1e-6, 3e-6, 1e-5}) {
        for (const double sharpness : {1.0, 2.0, 4.0}) {
          for (const double memory : {1.0, 0.7, 0.5, 0.4, 0.3, 0.22, 0.16}) {
            MatmulModel& model = profile.matmul[kFp32];
            model = MatmulModel{};
            model.half_k = half_k;
            model.tile_m = model.tile_n = tile;
            model.kernel_overhead_s = overhead;
            model.sharpness = sharpness;
            model.memory_efficiency = memory;
            // The efficiency is one of two terms: a few rounds settle it.
            model.efficiency = 0.5;
            for (int round = 0; round < 6; ++round) {
              std::vector<double> ratios;
              for (const Observation* o : products)
                ratios.push_back(product_seconds_of(*o, profile) / o->seconds);
              model.efficiency = std::clamp(model.efficiency * upper_median(std::move(ratios)), 0.01, 1.0);
            }
            const double error = product_error(products, profile);
            if (error < least) {
              least = error;
              best = model;
            }
          }
        }
      }
    }
  }
  profile.matmul[kFp32] = best;
}

double attention_ratio(const Observation& o, const DeviceProfile& profile) {
  return attention_seconds(o.work.attention_flops, o.seq_len, o.work.attention_queries, DType::fp32, true,
                           o.backward, profile) /
         o.seconds;
}

void fit_attention(const std::vector<const Observation*>& attention, DeviceProfile& profile) {
  if (attention.empty()) return;
  AttentionModel best;
  double least = INFINITY;
  for (const double half : {0.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0}) {
    AttentionModel& model = profile.attention[kFp32][1];
    model = {1, 1, half};
    std::vector<double> forward;
    std::vector<double> backward;
    for (const Observation* o : attention)
      (o->backward ? backward : forward).push_back(attention_ratio(*o, profile));
    model.forward_efficiency = std::clamp(upper_median(std::move(forward)), 0.001, 1.0);
    model.backward_efficiency = std::clamp(upper_median(std::move(backward)), 0.001, 1.0);
    double error = 0;
    for (const Observation* o : attention) error += std::abs(std::log(attention_ratio(*o, profile)));
    if (error < least) {
      least = error;
      best = model;
    }
  }
  // The executor has one attention; a plan may call it fused or not.
  profile.attention[kFp32] = {best, best};
}

void set_rate(DeviceProfile& profile, const std::string& family, double forward, double backward) {
  auto found = std::find_if(profile.vector.begin(), profile.vector.end(),
                            [&](const VectorModel& model) { return model.operator_name == family; });
  if (found == profile.vector.end()) {
    profile.vector.emplace_back();
    found = std::prev(profile.vector.end());
    found->operator_name = family;
  }
  found->forward_bytes_per_s = forward;
  found->backward_bytes_per_s = backward;
}

struct Totals {
  double bytes[2] = {0, 0};  // forward, backward
  double seconds[2] = {0, 0};
};

void fit_families(const std::vector<const Observation*>& vectors, DeviceProfile& profile) {
  std::map<std::string, Totals> families;
  for (const Observation* o : vectors) {
    Totals& totals = families[std::string(vector_family(o->kind))];
    totals.bytes[o->backward ? 1 : 0] += o->work.vector_bytes;
    totals.seconds[o->backward ? 1 : 0] += std::max(o->seconds, kNothing);
  }
  for (const auto& [family, totals] : families) {
    const double forward = totals.bytes[0] > 0 ? totals.bytes[0] / totals.seconds[0] : 0;
    const double backward = totals.bytes[1] > 0 ? totals.bytes[1] / totals.seconds[1] : 0;
    if (forward > 0 || backward > 0) set_rate(profile, family, forward > 0 ? forward : backward, backward);
  }
}

struct Kinds {
  std::vector<const Observation*> products, attention, vectors;
};

// Of all observations, or of those of one model, or of all but it.
enum class Of { all, model, others };
Kinds kinds_of(const std::vector<Observation>& observations, Of which, int model) {
  Kinds kinds;
  for (const Observation& o : observations) {
    if (which != Of::all && (o.model == model) != (which == Of::model)) continue;
    if (!o.work.products.empty())
      kinds.products.push_back(&o);
    else if (o.kind == OperatorKind::attention)
      kinds.attention.push_back(&o);
    else
      kinds.vectors.push_back(&o);
  }
  return kinds;
}

void fit(const Kinds& kinds, DeviceProfile& profile) {
  fit_products(kinds.products, profile);
  fit_attention(kinds.attention, profile);
  fit_families(kinds.vectors, profile);
}

struct Errors {
  std::vector<double> products, attention, vectors;  // |predicted / measured - 1|
};

void add_errors(const Kinds& kinds, const DeviceProfile& profile, Errors& errors) {
  for (const Observation* o : kinds.products)
    errors.products.push_back(std::abs(product_seconds_of(*o, profile) / o->seconds - 1));
  for (const Observation* o : kinds.attention)
    errors.attention.push_back(std::abs(attention_ratio(*o, profile) - 1));
  for (const Observation* o : kinds.vectors)
    if (o->work.vector_bytes > 0 && o->seconds > kNothing)
      errors.vectors.push_back(
          std::abs(vector_seconds(o->work.vector_bytes, o->kind, o->backward, profile) / o->seconds - 1));
}

}  // namespace

FitQuality fit_device(const std::vector<Observation>& observations, DeviceProfile& profile) {
  std::set<int> models;
  for (const Observation& o : observations) models.insert(o.model);
  // A model that nothing else stands beside cannot be left out.
  Errors errors;
  for (const int model : models) {
    if (models.size() == 1) break;
    DeviceProfile without = profile;
    fit(kinds_of(observations, Of::others, model), without);
    add_errors(kinds_of(observations, Of::model, model), without, errors);
  }
  const Kinds all = kinds_of(observations, Of::all, 0);
  fit(all, profile);
  if (models.size() == 1) add_errors(all, profile, errors);
  FitQuality quality;
  quality.observations = static_cast<int>(observations.size());
  quality.matmul_median_error = upper_median(std::move(errors.products));
  quality.attention_median_error = upper_median(std::move(errors.attention));
  quality.vector_median_error = upper_median(std::move(errors.vectors));
  return quality;
}

}  // namespace orrery::exec
