#include "measurements/calibration/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/format.h"
#include "base/statistics.h"
#include "cost/collective_cost.h"
#include "measurements/calibration/posterior.h"
#include "measurements/doubts.h"
#include "planner/evaluation/hardware.h"
#include "planner/uncertainty/spread.h"

namespace orrery::measurements {
namespace {

using planner::Factor;

enum LinkParameter : std::size_t { kIntra, kBetween, kLatency, kLinkParameters };
constexpr std::array<Factor, kLinkParameters> kFactorsOfLinks = {Factor::intra, Factor::between,
                                                                 Factor::latency};
// Before nccl-tests are seen: links inside nodes are nearly what datasheets say, networks are built and
// configured as they are; constants of a library's steps. Where no test stayed inside a node, what holds it
// back is the network.
constexpr std::array<double, kLinkParameters> kSd = {0.4, 0.5, 0.5};
constexpr double kUnseenNodeSd = 0.25;
// What the model gets wrong of one kind of collective. No more than this: what a test says of large messages
// is what training sends, and shall be what is predicted of them.
constexpr double kKindSd = 0.03;
// And of one size beside: of large messages, which bandwidths explain; of small ones, which latencies do; and
// of those between, which depend on when the library changes its protocol.
constexpr double kLargeSd = 0.03, kSmallSd = 0.1, kBetweenSd = 0.3;
// Of its test's highest rate, and its least time: where a message is large, and small.
constexpr double kLargeRate = 0.9, kSmallTime = 1.25;
// Sizes of one test say nearly the same again: n count as n to this power.
constexpr double kTestPower = 0.5;
constexpr int kLinkRounds = 12, kHalvings = 4;
// Logarithms of how slow networks may be, from which the fit is begun: where something else is the bottleneck
// by what is thought, a slower network changes nothing at first, and nothing would be learned of it. Few
// networks are far off, and those by any factor: what is thought before is as wide as the start.
constexpr std::array<double, 4> kSlowNetworks = {0, 0.7, 1.4, 2.1};
constexpr std::array<double, 2> kSlowNodes = {0, 0.7};  // the same of links inside nodes
constexpr double kClearly = 1, kNothing = 1e-4;         // of -log of the density
constexpr int kSharedRounds = 3;
// More than a link's nominal rate: multicast and sharp links reach a little more than what rings are counted
// by.
constexpr double kMostOfNominal = 2.2;
// Of what ports and switched links carry, headers and all: times are printed to four digits.
constexpr double kMostOfBytes = 1.005;
constexpr double kDeparts = 1.25;

using Point = std::array<double, kLinkParameters>;  // logarithms of factors on time

struct Test {  // what sizes of one test share
  CollectiveKind kind;
  int nodes, devices_per_node;
  auto operator<=>(const Test&) const = default;
};
Test test_of(const MeasuredCollective& row) {
  return {row.kind, row.nodes, row.devices_per_node};
}

std::string name_of_link(std::size_t parameter) {
  return std::string(name_of(kFactorsOfLinks[parameter]));
}

Cluster at(const Point& point, const Cluster& cluster) {
  planner::World world;
  for (std::size_t p = 0; p < kLinkParameters; ++p) world[kFactorsOfLinks[p]] = point[p];
  return planner::cluster_in(world, cluster);
}

// The closed form's collectives at one point, shapes looked up once a layout.
class Model {
 public:
  Model(const Cluster& cluster, const Point& point) : cluster_(at(point, cluster)) {}

  CollectivePlan plan(const MeasuredCollective& row) {
    Sized& sized = sized_of(row);
    return plan_collective(row.kind, row.bytes, sized.shape, sized.cluster);
  }
  const GroupShape& shape(const MeasuredCollective& row) { return sized_of(row).shape; }

 private:
  struct Sized {
    Cluster cluster;
    GroupShape shape;
  };
  Sized& sized_of(const MeasuredCollective& row) {
    const auto [found, fresh] = sized_.try_emplace({row.nodes, row.devices_per_node});
    Sized& sized = found->second;
    if (!fresh) return sized;
    sized.cluster = with_nodes(cluster_, row.nodes);
    std::vector<int> devices;
    for (int node = 0; node < row.nodes; ++node)
      for (int i = 0; i < row.devices_per_node; ++i) devices.push_back(sized.cluster.first_device(node) + i);
    const Network network(sized.cluster);
    sized.shape = group_shape(network, devices);
    return sized;
  }

  Cluster cluster_;
  std::map<std::pair<int, int>, Sized> sized_;
};

// What must leave the one that sends most of `members` (devices, or nodes), or reach the one that receives
// most, whatever the algorithm: of an all-reduce its bytes once, where switches add them up.
double least_bytes(const MeasuredCollective& row, int members, int devices_each) {
  const double others = row.bytes * (members - 1) / members;
  switch (row.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return row.bytes;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return others;
    case CollectiveKind::all_to_all:  // of every device
      return others * devices_each;
  }
  return 0;
}

// No algorithm moves fewer bytes than these.
void check_bytes(const MeasuredCollective& row, const Cluster& cluster) {
  const NodeType& node = cluster.groups.front().node;
  const bool between = row.nodes > 1, switched = node.intra.kind == IntraKind::nvswitch;
  const double carried = between    ? node.nic.count * node.nic.bandwidth_bytes_per_s
                         : switched ? node.intra.bandwidth_bytes_per_s
                                    : 0,
               least = between ? least_bytes(row, row.nodes, row.devices_per_node)
                               : least_bytes(row, row.devices_per_node, 1);
  if (carried > 0 && least / row.seconds > kMostOfBytes * carried)
    throw NoAnswer(fmt::format(
        "{}:{}: {:.4g} s for {:.0f} bytes would be {:.4g} GB/s through {}, and {} has {:.4g} GB/s there",
        row.file, row.line, row.seconds, row.bytes, least / row.seconds * 1e-9,
        between ? "the ports of a node" : "the links of a device", cluster.name, carried * 1e-9));
}

void check_plausible(const MeasuredCollective& row, Model* model) {
  const GroupShape& shape = model->shape(row);
  const double nominal =
      row.nodes > 1 ? shape.inter_bandwidth_bytes_per_s : shape.intra_bandwidth_bytes_per_s;
  const double bus = row.bytes / row.seconds * bus_factor(row.kind, row.nodes * row.devices_per_node);
  // Rings between nodes are counted over all ports of a node; inside nodes more than a device's link is
  // wrong.
  if (nominal > 0 &&
      bus > kMostOfNominal * std::max(nominal, row.nodes > 1 ? shape.intra_bandwidth_bytes_per_s : 0))
    throw NoAnswer(fmt::format("{}:{}: {:.4g} GB/s over links of {:.4g} GB/s", row.file, row.line, bus * 1e-9,
                               nominal * 1e-9));
}

// A bandwidth in another unit, or a network that was not used at all: no factor on what is modelled.
void check_not_stuck(const MeasuredCollective& row, double predicted_s) {
  constexpr double kSlowest = 100;
  if (row.seconds > kSlowest * predicted_s)
    throw NoAnswer(fmt::format("{}:{}: {:.4g} s for {} bytes is {}", row.file, row.line, row.seconds,
                               row.bytes, times_predicted(row.seconds / predicted_s)));
}

// A size of a test, measured once or many times: the mean of the logarithms of its times.
std::vector<MeasuredCollective> pooled(const std::vector<MeasuredCollective>& rows) {
  std::map<std::pair<Test, double>, std::pair<std::size_t, int>> seen;
  std::vector<MeasuredCollective> sizes;
  std::vector<double> logs;
  for (const MeasuredCollective& row : rows) {
    const auto [at, fresh] = seen.try_emplace({test_of(row), row.bytes}, sizes.size(), 0);
    if (fresh) sizes.push_back(row), logs.push_back(0);
    logs[at->second.first] += std::log(row.seconds);
    ++at->second.second;
  }
  for (const auto& [key, where] : seen)
    if (where.second > 1) sizes[where.first].seconds = std::exp(logs[where.first] / where.second);
  return sizes;
}

class Learner {
 public:
  Learner(const Cluster& cluster, const std::vector<MeasuredCollective>& rows)
      : cluster_(cluster), rows_(pooled(rows)), measured_(rows.size()) {
    for (std::size_t p = 0; p < kLinkParameters; ++p) effects_.push_back({name_of_link(p), kSd[p]});
    if (!any_over(true)) effects_[kIntra].sd = kUnseenNodeSd;
    Model before(cluster_, {});
    for (const MeasuredCollective& row : rows) {
      check_plausible(row, &before);
      check_bytes(row, cluster_);
      check_not_stuck(row, before.plan(row).seconds(row.bytes));
    }
    for (const MeasuredCollective& row : rows_) before_s_.push_back(before.plan(row).seconds(row.bytes));
    weigh();
  }

  // The likeliest of what is found from several starts; the usual one's unless another is clearly likelier.
  void fit() {
    std::optional<Found> best;
    for (const double network : kSlowNetworks)
      for (const double node : kSlowNodes) {
        if ((network > 0 && !any_over(false)) || (node > 0 && !any_over(true))) continue;
        Found found = fit_from({node, network, 0});
        if (!best || found.surprise < best->surprise - kClearly) best = std::move(found);
      }
    effects_before_ = std::move(effects_);
    effects_ = std::move(best->effects);
    point_ = best->point;
    seen_ = std::move(best->seen);
    posterior_ = std::move(best->posterior);
  }

  Links result() {
    Links links;
    links.cluster = at(point_, cluster_);
    CommunicationProfile& fabric = links.cluster.communication;
    fabric.network_efficiency = std::min(1.0, fabric.network_efficiency);
    fabric.network_exchange_efficiency = std::min(1.0, fabric.network_exchange_efficiency);
    const std::string source = counted(static_cast<std::int64_t>(measured_), "collective");
    for (std::size_t p = 0; p < kLinkParameters; ++p) {
      links.learned.push_back({name_of_link(p), point_[p], std::sqrt(posterior_.covariance_of(p, p)),
                               effects_before_[p].sd,
                               p == kIntra ? "datasheet and the library's model" : "the library's model",
                               posterior_.said[p] ? source : kNotMeasured});
    }
    links.held_out = held_out();
    links.departures = departures();
    return links;
  }

 private:
  struct Kept {  // of a test
    std::size_t effect = 0;
    double least_s = 0, most_rate = 0;
  };
  struct Weight {  // of a row
    double sd = 0, weight = 1;
  };
  struct Found {
    Point point{};
    double surprise = 0;
    std::vector<Effect> effects;
    std::vector<Seen> seen;
    Posterior posterior;
  };

  // Whether a test stayed inside a node, or left it.
  bool any_over(bool one_node) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const MeasuredCollective& row) { return (row.nodes == 1) == one_node; });
  }

  // By what rows say: bandwidth the large ones, latency the small ones, and the others little.
  void weigh() {
    for (const MeasuredCollective& row : rows_) {
      const auto [at, fresh] = tests_.try_emplace(test_of(row), Kept{effects_.size(), row.seconds, 0});
      if (fresh) effects_.push_back({"test", kKindSd});
      at->second.least_s = std::min(at->second.least_s, row.seconds);
      at->second.most_rate = std::max(at->second.most_rate, row.bytes / row.seconds);
    }
    std::map<std::pair<Test, double>, int> alike;
    for (const MeasuredCollective& row : rows_) {
      const Kept& test = tests_.at(test_of(row));
      const bool large = row.bytes / row.seconds >= kLargeRate * test.most_rate;
      const bool small = row.seconds <= kSmallTime * test.least_s;
      weights_.push_back({large ? kLargeSd : small ? kSmallSd : kBetweenSd, 1});
      ++alike[{test_of(row), weights_.back().sd}];
    }
    for (std::size_t i = 0; i < rows_.size(); ++i)
      weights_[i].weight = std::pow(alike.at({test_of(rows_[i]), weights_[i].sd}), kTestPower - 1);
  }

  // By Gauss and Newton, in steps that make what was measured likelier: where algorithms and bottlenecks
  // change, slopes say little of what lies a whole step away.
  Found fit_from(const Point& start) {
    Found found;
    found.effects = effects_;
    for (const std::size_t p : {kIntra, kBetween}) found.effects[p].sd = std::max(effects_[p].sd, start[p]);
    found.point = start;
    found.surprise = surprise_at(found.point, found.effects);
    for (int round = 0; round < kLinkRounds; ++round) {
      found.seen = seen_at(found.point);
      found.posterior = posterior_of(found.effects, found.seen, kNoiseFreedom);
      if (!step(&found)) break;
    }
    // What nothing was said of stays as it was.
    for (std::size_t p = 0; p < kLinkParameters; ++p)
      if (!found.posterior.said[p]) found.point[p] = 0;
    return found;
  }

  bool step(Found* found) const {
    double part = 1;
    for (int halving = 0; halving <= kHalvings; ++halving, part /= 2) {
      Point point;
      for (std::size_t p = 0; p < kLinkParameters; ++p)
        point[p] = found->point[p] + part * (found->posterior.mean[p] - found->point[p]);
      const double surprise = surprise_at(point, found->effects);
      if (surprise >= found->surprise - kNothing) continue;
      found->point = point;
      found->surprise = surprise;
      return true;
    }
    return false;
  }

  // -log of the density of a point and of the rows at it, as the model has it and not its slopes, with what
  // is likeliest of each test.
  double surprise_at(const Point& point, const std::vector<Effect>& effects) const {
    double sum = 0;
    for (std::size_t p = 0; p < kLinkParameters; ++p)
      sum += std::log(effects[p].sd) + 0.5 * std::pow(point[p] / effects[p].sd, 2);
    Model model(cluster_, point);
    std::vector<double> left;
    for (const MeasuredCollective& row : rows_)
      left.push_back(std::log(row.seconds / model.plan(row).seconds(row.bytes)));
    for (const auto& [test, kept] : tests_) {
      const double shared = shared_by(test, left);
      sum += 0.5 * std::pow(shared / kKindSd, 2);
      for (std::size_t i = 0; i < rows_.size(); ++i)
        if (test_of(rows_[i]) == test)
          sum += weights_[i].weight * (kNoiseFreedom + 1) / 2 *
                 std::log1p(std::pow((left[i] - shared) / weights_[i].sd, 2) / kNoiseFreedom);
    }
    return sum;
  }

  // Of what is `left` of a test's rows, the part that they have in common.
  double shared_by(const Test& test, const std::vector<double>& left) const {
    double shared = 0;
    for (int round = 0; round < kSharedRounds; ++round) {
      double weight = 1 / (kKindSd * kKindSd), sum = 0;
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (test_of(rows_[i]) != test) continue;
        const double variance = weights_[i].sd * weights_[i].sd;
        const double w = weights_[i].weight * (kNoiseFreedom + 1) /
                         (kNoiseFreedom + std::pow(left[i] - shared, 2) / variance) / variance;
        weight += w;
        sum += w * left[i];
      }
      shared = sum / weight;
    }
    return shared;
  }

  std::vector<Seen> seen_at(const Point& point) const {
    constexpr double kStep = 0.08;
    std::vector<Model> models;
    models.emplace_back(cluster_, point);
    for (std::size_t p = 0; p < kLinkParameters; ++p) {
      Point up = point, down = point;
      up[p] += kStep;
      down[p] -= kStep;
      models.emplace_back(cluster_, up);
      models.emplace_back(cluster_, down);
    }
    std::vector<Seen> all;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const MeasuredCollective& row = rows_[i];
      const auto seconds = [&](std::size_t model) { return models[model].plan(row).seconds(row.bytes); };
      Seen one{std::vector<double>(effects_.size(), 0), std::log(row.seconds / seconds(0)), weights_[i].sd,
               weights_[i].weight};
      for (std::size_t p = 0; p < kLinkParameters; ++p) {
        one.slopes[p] = std::log(seconds(1 + 2 * p) / seconds(2 + 2 * p)) / (2 * kStep);
        one.y += one.slopes[p] * point[p];
      }
      one.slopes[tests_.at(test_of(row)).effect] = 1;
      all.push_back(std::move(one));
    }
    return all;
  }

  // Whole tests are held back, for their sizes say the same.
  HeldOut held_out() const {
    Errors errors;
    for (const auto& [test, kept] : tests_) {
      if (tests_.size() < 2) break;
      std::vector<Seen> others;
      for (std::size_t i = 0; i < rows_.size(); ++i)
        if (test_of(rows_[i]) != test) others.push_back(seen_[i]);
      const Posterior posterior = posterior_of(effects_, others, kNoiseFreedom);
      Point point{};
      for (std::size_t p = 0; p < kLinkParameters; ++p) point[p] = posterior.mean[p];
      Model model(cluster_, point);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (test_of(rows_[i]) != test) continue;
        errors.add(before_s_[i], model.plan(rows_[i]).seconds(rows_[i].bytes),
                   std::sqrt(posterior.variance_of(seen_[i].slopes) +
                             posterior.scale * weights_[i].sd * weights_[i].sd),
                   rows_[i].seconds);
      }
    }
    return errors.sum();
  }

  // Neighbouring sizes of a test that leave the curve to the same side.
  std::vector<Departure> departures() {
    Model model(cluster_, point_);
    std::map<std::tuple<Test, std::string, std::string, bool>, std::pair<Departure, std::vector<double>>>
        found;
    for (const MeasuredCollective& row : rows_) {
      const CollectivePlan plan = model.plan(row);
      const double times = row.seconds / plan.seconds(row.bytes);
      if (times < kDeparts && times > 1 / kDeparts) continue;
      auto& [departure, all] = found[{test_of(row), std::string(name_of(plan.algorithm)),
                                      std::string(name_of(plan.protocol)), times > 1}];
      if (all.empty())
        departure = {row.kind,
                     row.nodes,
                     row.devices_per_node,
                     std::string(name_of(plan.algorithm)),
                     std::string(name_of(plan.protocol)),
                     row.bytes,
                     row.bytes,
                     1};
      departure.least_bytes = std::min(departure.least_bytes, row.bytes);
      departure.most_bytes = std::max(departure.most_bytes, row.bytes);
      all.push_back(times);
    }
    std::vector<Departure> list;
    for (auto& [key, value] : found) {
      value.first.times = median(value.second);
      list.push_back(value.first);
    }
    return list;
  }

  const Cluster& cluster_;
  const std::vector<MeasuredCollective> rows_;
  const std::size_t measured_;                    // rows before they were pooled
  std::vector<Effect> effects_, effects_before_;  // the latter: wherever the fit began
  std::map<Test, Kept> tests_;
  std::vector<Weight> weights_;
  std::vector<double> before_s_;
  Point point_{};
  std::vector<Seen> seen_;
  Posterior posterior_;
};

}  // namespace

Links learn_links(const Cluster& cluster, const std::vector<MeasuredCollective>& collectives) {
  Learner learner(cluster, collectives);
  learner.fit();
  return learner.result();
}

}  // namespace orrery::measurements
