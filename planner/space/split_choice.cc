#include "planner/space/split_choice.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "cost/compute_cost.h"
#include "planner/space/space.h"
#include "planner/tables/geometry.h"
#include "planner/tables/layer_times.h"
#include "program/buckets.h"
#include "program/operator_work.h"
#include "workloads/graph_split.h"

namespace orrery::planner {
namespace {

// A product or table, by itself or with the product that takes its features.
struct Candidate {
  int column = -1;
  int row = -1;  // -1: features go back to their samples
  double gain_s = 0;
  TensorSplit way = TensorSplit::column;  // of `column`; a table's may be another
};

class SplitCosts {
 public:
  SplitCosts(const std::shared_ptr<const Job>& job, int tp)
      : job_(*job), tp_(tp), world_(job->cluster.devices()), geometries_(job) {
    Choices split;
    split.tp = tp;
    split.dp = world_ / tp;
    split.sequence_parallel = true;
    shapes_ = geometries_.of(split).shapes;
    Choices whole;
    whole.dp = world_;
    data_ = geometries_.of(whole).shapes;
    parameters_ = static_cast<double>(job_.workload.parameters());
    for (const Operator& op : job_.workload.operators)
      if (op.kind == OperatorKind::embedding) tables_ += static_cast<double>(op.output_elements);
    samples_ = static_cast<double>(job_.training.global_batch) * tp / world_;
    element_ = bytes_of(Plan{job, {}}.activation_type());
    gradient_ = bytes_of(Plan{job, {}}.gradient_type());
    update_ = optimizer_traffic_per_parameter(job_.training.optimizer, job_.training.precision, job_.runtime);
  }

  double gain_s(const Operator& column, const Operator* row) const {
    double weights = static_cast<double>(column.parameter_count());
    if (row != nullptr) weights += static_cast<double>(row->parameter_count());
    const double in =
        column.inputs.empty()
            ? 0
            : samples_ * element_ *
                  static_cast<double>(job_.workload.operators[static_cast<std::size_t>(column.inputs.front())]
                                          .output_elements);
    double paid = 2 * tensor_s(CollectiveKind::all_gather, in) + tensor_s(CollectiveKind::reduce_scatter, in);
    if (row == nullptr) {
      const double out = samples_ * element_ * static_cast<double>(column.output_elements) / tp_;
      paid += 2 * tensor_s(CollectiveKind::all_to_all, out);
    } else {
      const double out = samples_ * element_ * static_cast<double>(row->output_elements);
      paid += tensor_s(CollectiveKind::reduce_scatter, out) + tensor_s(CollectiveKind::all_gather, out);
    }
    return reduce_s(weights, data_) - reduce_s(weights / tp_, shapes_) + update_s(weights * (1 - 1.0 / tp_)) -
           paid;
  }

  // Of a table. Tables go in one exchange: each pays for its bytes alone.
  double table_gain_s(const Operator& table, TensorSplit way) const {
    const auto weights = static_cast<double>(table.parameter_count());
    const double out = samples_ * element_ * static_cast<double>(table.output_elements);
    const double beside = samples_ * element_ * tables_;
    const auto more = [&](CollectiveKind kind, double part) {
      return tensor_s(kind, (beside + out) * part) - tensor_s(kind, beside * part);
    };
    const double paid = way == TensorSplit::row
                            ? more(CollectiveKind::reduce_scatter, 1) + more(CollectiveKind::all_gather, 1)
                            : 2 * more(CollectiveKind::all_to_all, 1.0 / tp_);
    return whole_s(table) - table_s(table, weights / tp_, way) - paid;
  }

  // Of tables that are dealt out, what the fullest rank has deciding.
  double dealt_gain_s(const std::vector<const Operator*>& tables) const {
    double gain = 0, all = 0;
    for (const Operator* table : tables) {
      gain += whole_s(*table);
      all += static_cast<double>(table->parameter_count());
    }
    DealtRank fullest;
    for (const DealtRank& rank : deal_tables(tables, tp_)) {
      fullest.elements = std::max(fullest.elements, rank.elements);
      fullest.outputs = std::max(fullest.outputs, rank.outputs);
    }
    for (const Operator* table : tables)
      gain -= table_s(*table, static_cast<double>(table->parameter_count()) * fullest.elements / all,
                      TensorSplit::table);
    return gain - 2 * tensor_s(CollectiveKind::all_to_all, samples_ * element_ * fullest.outputs);
  }

 private:
  double seconds(CollectiveKind kind, double bytes, GroupKind group, const GroupShapes& shapes) const {
    const auto shape = shapes.find(group);
    if (shape == shapes.end() || bytes <= 0) return 0;
    return collective_s(kind, bytes, shape->second, job_);
  }
  double tensor_s(CollectiveKind kind, double bytes) const {
    return seconds(kind, bytes, GroupKind::tensor, shapes_);
  }
  double update_s(double elements) const {
    return optimizer_seconds(elements * update_,
                             job_.cluster.profiles[job_.cluster.groups.front().node.profile]);
  }
  // Reduction and update of a table, held whole by everyone, or so many elements of it split that way.
  double whole_s(const Operator& table) const {
    return synchronized_s(table, static_cast<double>(table.parameter_count()), world_, 1, data_);
  }
  double table_s(const Operator& table, double elements, TensorSplit way) const {
    return synchronized_s(table, elements, world_ / tp_, way == TensorSplit::column ? tp_ : 1, shapes_);
  }
  double synchronized_s(const Operator& table, double elements, int replicas, int columns,
                        const GroupShapes& shapes) const {
    if (!table.sparse) return reduce_s(elements, shapes) + update_s(elements);
    const SparseRows rows =
        sparse_rows(table, elements, columns, job_.training.global_batch, replicas, gradient_);
    return seconds(CollectiveKind::all_gather, rows.payload_bytes * replicas, GroupKind::data, shapes) +
           update_s(rows.touched);
  }
  // Beside all other gradients, with which it shares buckets and their latency.
  double reduce_s(double elements, const GroupShapes& shapes) const {
    const double all = parameters_ * gradient_;
    return seconds(CollectiveKind::all_reduce, all, GroupKind::data, shapes) -
           seconds(CollectiveKind::all_reduce, all - elements * gradient_, GroupKind::data, shapes);
  }

  const Job& job_;
  int tp_;
  int world_;
  Geometries geometries_;
  GroupShapes shapes_, data_;
  double samples_ = 0, element_ = 0, gradient_ = 0, update_ = 0;
  double parameters_ = 0;  // of the model
  double tables_ = 0;      // elements that all tables put out for a sample
};

// What splitting must save of the arithmetic's time: less is not known so surely, and fewer systems do it.
constexpr double kLeastSavedOfArithmetic = 0.01;

bool divides(const Operator& op, TensorSplit split, int tp) {
  return parts_to_share(op, split) % tp == 0;
}

// The only product that takes the features of `column`, through operators that keep them apart; -1: none.
int follower(const std::vector<Operator>& operators, const std::vector<std::vector<int>>& readers,
             int column) {
  int at = column;
  while (readers[static_cast<std::size_t>(at)].size() == 1) {
    at = readers[static_cast<std::size_t>(at)].front();
    const Operator& op = operators[static_cast<std::size_t>(at)];
    if (can_be_split(op)) return op.kind == OperatorKind::embedding ? -1 : at;
    if (!keeps_features_apart(op) || op.inputs.size() != 1) return -1;
  }
  return -1;
}

// Tables that are worth it. By columns, or by rows where these do not divide; or dealt out, all of them or
// those that are no more than a rank's share, where there are enough. `best`: the best single one, if better
// than it is.
std::vector<Candidate> chosen_tables(const std::vector<Operator>& operators, const SplitCosts& costs, int tp,
                                     Candidate* best) {
  std::vector<Candidate> own;
  double elements = 0;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators[i];
    if (op.kind != OperatorKind::embedding || !can_be_split(op)) continue;
    const TensorSplit way = divides(op, TensorSplit::column, tp) ? TensorSplit::column : TensorSplit::row;
    const Candidate one{static_cast<int>(i), -1, costs.table_gain_s(op, way), way};
    if (one.gain_s > best->gain_s) *best = one;
    if (one.gain_s <= 0) continue;
    own.push_back(one);
    elements += static_cast<double>(op.parameter_count());
  }
  double most = 0;
  for (const Candidate& one : own) most += one.gain_s;
  std::vector<Candidate> result = own;
  for (const double limit : {elements, elements / tp}) {
    std::vector<Candidate> mixed = own;
    std::vector<const Operator*> dealt;
    double gain = 0;
    for (Candidate& one : mixed) {
      const Operator& op = operators[static_cast<std::size_t>(one.column)];
      if (static_cast<double>(op.parameter_count()) > limit) {
        gain += one.gain_s;
        continue;
      }
      one.way = TensorSplit::table;
      dealt.push_back(&op);
    }
    if (static_cast<int>(dealt.size()) < tp) continue;
    const double of_dealt = costs.dealt_gain_s(dealt);
    for (Candidate& one : mixed)
      if (one.way == TensorSplit::table) one.gain_s = of_dealt / static_cast<double>(dealt.size());
    if (gain + of_dealt <= most) continue;
    most = gain + of_dealt;
    result = std::move(mixed);
  }
  return result;
}

// The candidates to split at this degree, products in the operators' order before tables; `least`: at least
// one, whatever it costs.
std::vector<Candidate> chosen(const std::shared_ptr<const Job>& job, int tp, bool least) {
  const std::vector<Operator>& operators = job->workload.operators;
  std::vector<std::vector<int>> readers(operators.size());
  for (std::size_t i = 0; i < operators.size(); ++i)
    for (const int input : operators[i].inputs)
      readers[static_cast<std::size_t>(input)].push_back(static_cast<int>(i));
  const SplitCosts costs(job, tp);
  std::vector<Candidate> picked;
  Candidate best;
  best.gain_s = -std::numeric_limits<double>::infinity();
  std::vector<bool> taken(operators.size(), false);
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators[i];
    if (op.kind == OperatorKind::embedding || taken[i] || !can_be_split(op) ||
        !divides(op, TensorSplit::column, tp))
      continue;
    Candidate own{static_cast<int>(i), -1, costs.gain_s(op, nullptr)};
    const int next = follower(operators, readers, own.column);
    if (next >= 0 && divides(operators[static_cast<std::size_t>(next)], TensorSplit::row, tp)) {
      const Operator& after = operators[static_cast<std::size_t>(next)];
      const Candidate pair{own.column, next, costs.gain_s(op, &after)};
      if (pair.gain_s > std::max(own.gain_s, 0.0) + std::max(costs.gain_s(after, nullptr), 0.0)) own = pair;
      if (pair.gain_s > best.gain_s) best = pair;
    }
    if (own.gain_s > best.gain_s) best = own;
    if (own.gain_s <= 0) continue;
    picked.push_back(own);
    if (own.row >= 0) taken[static_cast<std::size_t>(own.row)] = true;
  }
  Candidate table;
  table.gain_s = best.gain_s;
  const std::vector<Candidate> tables = chosen_tables(operators, costs, tp, &table);
  picked.insert(picked.end(), tables.begin(), tables.end());
  if (table.column >= 0) best = table;
  if (picked.empty() && least && best.column >= 0) picked.push_back(best);
  return picked;
}

// A step's arithmetic at the devices' peak: no step takes less.
double computed_s(const Job& job) {
  const DeviceProfile& device = job.cluster.profiles[job.cluster.groups.front().node.profile];
  const double flops = 3 * job.workload.forward_flops_per_sample(job.training.seq_len) *
                       static_cast<double>(job.training.global_batch);
  return flops / (job.cluster.devices() * device.peak(job.training.precision));
}

}  // namespace

bool leaves_splits_open(const Job& job) {
  return !job.workload.transformer && job.cluster.devices() > 1 && split_operators(job.workload).empty();
}

std::shared_ptr<const Job> with_splits(const std::shared_ptr<const Job>& job, const Pins& pins) {
  if (!leaves_splits_open(*job)) return job;
  const int world = job->cluster.devices();
  std::vector<int> degrees = divisors(world);
  if (pins.tp) degrees = {*pins.tp};
  std::vector<Candidate> best;
  double most = 0;
  for (const int tp : degrees) {
    // A sample at least for each rank.
    if (tp <= 1 || world % tp != 0 || !job->training.divides_over(world)) continue;
    std::vector<Candidate> here = chosen(job, tp, pins.tp.has_value());
    double gain = 0;
    for (const Candidate& candidate : here) gain += candidate.gain_s;
    if (here.empty() || (gain <= most && !pins.tp)) continue;
    most = gain;
    best = std::move(here);
  }
  if (best.empty() || (!pins.tp && most < kLeastSavedOfArithmetic * computed_s(*job))) return job;
  auto marked = std::make_shared<Job>(*job);
  std::vector<Operator>& operators = marked->workload.operators;
  for (const Candidate& candidate : best) {
    set_split(&operators[static_cast<std::size_t>(candidate.column)], candidate.way);
    if (candidate.row >= 0) set_split(&operators[static_cast<std::size_t>(candidate.row)], TensorSplit::row);
  }
  ORRERY_CHECK(complete_splits(&operators) < 0, "splits that the planner chose do not go together");
  return marked;
}

}  // namespace orrery::planner
