#include "evidence/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/statistics.h"

namespace orrery::evidence {
namespace {

constexpr double kTie = 0.01;  // of measurements

struct PlanMean {
  double predicted = 0, measured = 0;
  int count = 0;
};

// Of all pairs of plans.
struct Order {
  int concordant = 0, discordant = 0;  // tied in neither
  int untied_predicted = 0, untied_measured = 0;
};

Order order_of(const std::vector<PlanMean>& plans) {
  Order order;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double dm = plans[i].measured - plans[j].measured;
      const double dp = plans[i].predicted - plans[j].predicted;
      const bool measured_tie = std::abs(dm) <= kTie * std::min(plans[i].measured, plans[j].measured);
      const bool predicted_tie = dp == 0;
      order.untied_measured += measured_tie ? 0 : 1;
      order.untied_predicted += predicted_tie ? 0 : 1;
      if (!measured_tie && !predicted_tie) ++((dm > 0) == (dp > 0) ? order.concordant : order.discordant);
    }
  }
  return order;
}

// tau-b: (concordant - discordant) / sqrt((pairs - ties in x) (pairs - ties in y)).
double tau_b(const Order& order) {
  const double scale = std::sqrt(static_cast<double>(order.untied_predicted) * order.untied_measured);
  return scale > 0 ? (order.concordant - order.discordant) / scale : 0;
}

std::optional<CellFigures> cell_figures(const std::vector<Judged>& rows) {
  struct Sum {
    double size = 0, bias = 0;
    int rows = 0;
  };
  std::map<std::string, Sum> cells;
  for (const Judged& row : rows) {
    if (row.cell.empty()) continue;
    const double error = (row.predicted - row.measured) / row.measured;
    Sum& sum = cells[row.cell];
    sum.size += std::abs(error);
    sum.bias += error;
    ++sum.rows;
  }
  if (cells.empty()) return std::nullopt;
  CellFigures figures;
  std::vector<double> sizes;
  for (const auto& [name, sum] : cells) {
    sizes.push_back(sum.size / sum.rows);
    figures.mape += sizes.back();
    figures.bias += sum.bias / sum.rows;
  }
  figures.cells = static_cast<int>(cells.size());
  figures.mape /= figures.cells;
  figures.bias /= figures.cells;
  figures.median_ape = median(sizes);
  return figures;
}

std::optional<double> coverage_of(const std::vector<Judged>& rows) {
  int inside = 0, all = 0;
  for (const Judged& row : rows) {
    if (row.high <= 0) continue;
    ++all;
    inside += row.low <= row.measured && row.measured <= row.high ? 1 : 0;
  }
  if (all == 0) return std::nullopt;
  return static_cast<double>(inside) / all;
}

}  // namespace

GroupFigures group_figures(const std::vector<Judged>& rows) {
  std::map<std::string, std::map<std::string, PlanMean>> groups;
  for (const Judged& row : rows) {
    PlanMean& plan = groups[row.group][row.plan];
    plan.predicted += row.predicted;
    plan.measured += row.measured;
    ++plan.count;
  }
  GroupFigures result;
  double taus = 0, regrets = 0;
  int ranked = 0;
  int in_order = 0, pairs = 0;
  for (const auto& [name, members] : groups) {
    if (members.size() < 2) continue;
    std::vector<PlanMean> plans;
    for (const auto& [key, plan] : members)
      plans.push_back({plan.predicted / plan.count, plan.measured / plan.count, 1});
    ++result.groups;
    double best = plans[0].measured, fastest = plans[0].predicted, picked = 0;
    for (const PlanMean& plan : plans) {
      best = std::min(best, plan.measured);
      fastest = std::min(fastest, plan.predicted);
    }
    for (const PlanMean& plan : plans)
      if (plan.predicted == fastest) picked = std::max(picked, plan.measured);
    const Order order = order_of(plans);
    in_order += order.concordant;
    pairs += order.untied_measured;
    const double regret = picked / best - 1;
    regrets += regret;
    result.regret_max = std::max(result.regret_max, regret);
    if (plans.size() < 3) continue;
    bool distinct = false;  // a group of measured ties has no order
    for (const PlanMean& plan : plans) distinct |= plan.measured > best * (1 + kTie);
    if (!distinct) continue;
    taus += tau_b(order);
    ++ranked;
  }
  if (result.groups > 0) result.regret_mean = regrets / result.groups;
  if (pairs > 0) result.pairs_in_order = static_cast<double>(in_order) / pairs;
  if (ranked > 0) result.kendall_tau = taus / ranked;
  return result;
}

Figures error_figures(const std::vector<double>& errors, int skipped) {
  Figures figures;
  figures.rows = static_cast<int>(errors.size());
  figures.skipped = skipped;
  if (errors.empty()) return figures;
  std::vector<double> sizes;
  double sum = 0, bias = 0;
  int close = 0;
  for (const double error : errors) {
    sizes.push_back(std::abs(error));
    sum += std::abs(error);
    bias += error;
    close += std::abs(error) <= 0.1 ? 1 : 0;
  }
  const auto count = static_cast<double>(errors.size());
  figures.mape = sum / count;
  figures.median_ape = median(sizes);
  figures.max_ape = *std::max_element(sizes.begin(), sizes.end());
  figures.bias = bias / count;
  figures.within_10_percent = close / count;
  return figures;
}

Figures figures(const std::vector<Judged>& rows, int skipped) {
  std::vector<double> errors;
  for (const Judged& row : rows) errors.push_back((row.predicted - row.measured) / row.measured);
  Figures figures = error_figures(errors, skipped);
  if (!rows.empty()) figures.groups = group_figures(rows);
  figures.by_cell = cell_figures(rows);
  std::vector<Judged> by_job;
  for (const Judged& row : rows) {
    if (row.job.empty()) continue;
    by_job.push_back(row);
    by_job.back().group = row.job;
    by_job.back().plan = row.software + " " + row.plan;
  }
  if (!by_job.empty()) figures.any_software = group_figures(by_job);
  figures.coverage = coverage_of(rows);
  return figures;
}

}  // namespace orrery::evidence
