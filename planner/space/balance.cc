#include "planner/space/balance.h"

#include <algorithm>
#include <numeric>

#include "planner/tables/layer_kinds.h"
#include "program/operator_work.h"

namespace orrery::planner {
namespace {

// Parts filled up to `most` each, the later ones keeping at least a layer; whether that suffices.
bool fill(const std::vector<double>& layers, int parts, double most, std::vector<int>* cut) {
  cut->assign(static_cast<std::size_t>(parts), 0);
  const int count = static_cast<int>(layers.size());
  int at = 0;
  for (int part = 0; part < parts; ++part) {
    double sum = 0;
    while (at < count && count - at > parts - 1 - part) {
      if ((*cut)[part] > 0 && sum + layers[at] > most) break;
      sum += layers[at++];
      ++(*cut)[part];
    }
    if (sum > most) return false;
  }
  return at == count;
}

}  // namespace

std::vector<int> even_cut(const Job& job, int parts) {
  std::vector<int> cut;
  for (int part = 0; part < parts; ++part)
    cut.push_back(job.workload.layers / parts + (part < job.workload.layers % parts ? 1 : 0));
  return cut;
}

std::vector<double> layer_weights(const std::shared_ptr<const Job>& job) {
  const LayerParts parts = layer_parts(job->workload);
  const Shard shard = shard_of({job, {}});
  std::vector<double> weights;
  for (int part = 0; part < parts.count(); ++part) {
    const int twin = parts.twin[part];
    if (twin < part) {
      weights.push_back(weights[twin]);
      continue;
    }
    double flops = 0;
    for (int op = parts.begin[part]; op < parts.begin[part + 1]; ++op)
      flops += operator_work(job->workload.operators[op], ComputeKind::forward, shard, job->runtime).flops;
    weights.push_back(flops);
  }
  std::vector<double> layers(weights.begin() + 1, weights.end() - 1);
  if (layers.empty()) return layers;
  layers.front() += weights.front();
  layers.back() += weights.back();
  return layers;
}

std::vector<int> balanced_cut(const std::vector<double>& layers, int parts) {
  if (static_cast<int>(layers.size()) < parts) return {};
  double low = *std::max_element(layers.begin(), layers.end());
  double high = 0;
  for (const double weight : layers) high += weight;
  std::vector<int> cut;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (fill(layers, parts, middle, &cut) ? high : low) = middle;
  }
  if (!fill(layers, parts, high * (1 + 1e-12), &cut)) return {};
  // Filled from the front, the last parts are short: layers move on while no part grows beyond the limit.
  const double most = high * (1 + 1e-9);
  for (int part = parts - 1; part > 0; --part) {
    while (cut[part - 1] > cut[part] + 1) {
      int end = 0;
      for (int i = 0; i <= part; ++i) end += cut[i];
      double sum = layers[end - cut[part] - 1];
      for (int i = end - cut[part]; i < end; ++i) sum += layers[i];
      if (sum > most) break;
      --cut[part - 1];
      ++cut[part];
    }
  }
  return cut;
}

double heaviest_part(const std::vector<double>& layers, const std::vector<int>& cut) {
  double heaviest = 0;
  auto at = layers.begin();
  for (const int count : cut) {
    heaviest = std::max(heaviest, std::accumulate(at, at + count, 0.0));
    at += count;
  }
  return heaviest;
}

std::vector<int> ends_count_cut(int layers, int parts, int embedding, int head) {
  const int count = layers + embedding + head;
  std::vector<int> cut;
  for (int part = 0; part < parts; ++part) cut.push_back(count / parts + (part < count % parts ? 1 : 0));
  if (cut.back() < 1) return {};
  cut.front() -= embedding;
  cut.back() -= head;
  return cut;
}

bool ends_fill_parts(int layers, int parts) {
  return parts > 2 && layers % parts != 0 && (layers + 2) % parts == 0;
}

}  // namespace orrery::planner
