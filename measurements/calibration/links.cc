#include "measurements/calibration/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/statistics.h"
#include "cost/collective_cost.h"
#include "measurements/calibration/posterior.h"
#include "planner/evaluation/hardware.h"
#include "planner/uncertainty/spread.h"

namespace orrery::measurements {
namespace {

using planner::Factor;

enum Parameter : std::size_t { kIntra, kBetween, kLatency, kParameters };
constexpr std::array<Factor, kParameters> kFactorsOfLinks = {Factor::intra, Factor::between, Factor::latency};
// Before nccl-tests are seen: links inside nodes are what datasheets say, networks are built and configured
// as they are; constants of a library's steps.
constexpr std::array<double, kParameters> kSd = {0.15, 0.5, 0.5};
// What the model gets wrong of one kind of collective, and of one size beside.
constexpr double kKindSd = 0.12, kRowSd = 0.10;
// Sizes of one test say nearly the same again: n count as n to this power.
constexpr double kTestPower = 0.5;
constexpr double kFreedom = 8;
constexpr int kRounds = 3;
// Logarithms of how slow networks may be, from which the fit is begun: where something else is the bottleneck
// by what is thought, a slower network changes nothing at first, and nothing would be learned of it. Few
// networks are far off, and those by any factor: what is thought before is as wide as the start.
constexpr std::array<double, 4> kSlowNetworks = {0, 0.7, 1.4, 2.1};
constexpr double kClearly = 1;  // of -log of the density
// More than a link's nominal rate: multicast and sharp links reach a little more than what rings are counted
// by.
constexpr double kMostOfNominal = 2.2;
// Of what ports and switched links carry, headers and all: times are printed to four digits.
constexpr double kMostOfBytes = 1.005;
constexpr double kDeparts = 1.25;

using Point = std::array<double, kParameters>;  // logarithms of factors on time

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
  for (std::size_t p = 0; p < kParameters; ++p) world[kFactorsOfLinks[p]] = point[p];
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
    throw NoAnswer(fmt::format("{}:{}: {:.4g} s for {} bytes is {:.0f} times what is predicted", row.file,
                               row.line, row.seconds, row.bytes, row.seconds / predicted_s));
}

class Learner {
 public:
  Learner(const Cluster& cluster, const std::vector<MeasuredCollective>& rows)
      : cluster_(cluster), rows_(rows) {
    for (std::size_t p = 0; p < kParameters; ++p) effects_.push_back({name_of_link(p), kSd[p]});
    std::map<Test, int> counts;
    for (const MeasuredCollective& row : rows_) ++counts[test_of(row)];
    for (const auto& [test, count] : counts) {
      tests_[test] = {effects_.size(), std::pow(count, kTestPower - 1)};
      effects_.push_back({"test", kKindSd});
    }
    Model before(cluster_, {});
    for (const MeasuredCollective& row : rows_) {
      check_plausible(row, &before);
      check_bytes(row, cluster_);
      before_s_.push_back(before.plan(row).seconds(row.bytes));
      check_not_stuck(row, before_s_.back());
    }
  }

  // The likeliest of what is found from several starts; the usual one's unless another is clearly likelier.
  void fit() {
    const bool between =
        std::any_of(rows_.begin(), rows_.end(), [](const auto& row) { return row.nodes > 1; });
    Point point{};
    std::vector<Seen> seen;
    Posterior posterior;
    double least = 0, sd = 0;
    for (const double start : kSlowNetworks) {
      point_ = {};
      point_[kBetween] = start;
      effects_[kBetween].sd = std::max(kSd[kBetween], start);
      fit_from_here();
      const double surprise = surprise_here();
      if (start == 0 || surprise < least - kClearly) {
        least = surprise;
        sd = effects_[kBetween].sd;
        point = point_;
        seen = seen_;
        posterior = posterior_;
      }
      if (!between) break;
    }
    effects_[kBetween].sd = sd;
    point_ = point;
    seen_ = std::move(seen);
    posterior_ = std::move(posterior);
  }

  Links result() {
    Links links;
    links.cluster = at(point_, cluster_);
    CommunicationProfile& fabric = links.cluster.communication;
    fabric.network_efficiency = std::min(1.0, fabric.network_efficiency);
    fabric.network_exchange_efficiency = std::min(1.0, fabric.network_exchange_efficiency);
    const std::string source = fmt::format("{} collectives", rows_.size());
    for (std::size_t p = 0; p < kParameters; ++p) {
      links.learned.push_back({name_of_link(p), point_[p], std::sqrt(posterior_.covariance_of(p, p)), kSd[p],
                               p == kIntra ? "datasheet and the library's model" : "the library's model",
                               posterior_.said[p] ? source : kNotMeasured});
    }
    links.held_out = held_out();
    links.departures = departures();
    return links;
  }

 private:
  void fit_from_here() {
    for (int round = 0; round < kRounds; ++round) {
      look();
      posterior_ = posterior_of(effects_, seen_, kFreedom);
      for (std::size_t p = 0; p < kParameters; ++p) point_[p] = posterior_.mean[p];
    }
  }

  // -log of the density of the effects that were found and of the rows with them, as the model has it and not
  // its slopes.
  double surprise_here() const {
    double sum = std::log(effects_[kBetween].sd);
    for (std::size_t e = 0; e < effects_.size(); ++e)
      sum += 0.5 * std::pow(posterior_.mean[e] / effects_[e].sd, 2);
    Model model(cluster_, point_);
    for (const MeasuredCollective& row : rows_) {
      const Kept& test = tests_.at(test_of(row));
      const double left =
          std::log(row.seconds / model.plan(row).seconds(row.bytes)) - posterior_.mean[test.effect];
      sum += test.weight * (kFreedom + 1) / 2 * std::log1p(std::pow(left / kRowSd, 2) / kFreedom);
    }
    return sum;
  }

  void look() {
    constexpr double kStep = 0.08;
    std::vector<Model> models;
    models.emplace_back(cluster_, point_);
    for (std::size_t p = 0; p < kParameters; ++p) {
      Point up = point_, down = point_;
      up[p] += kStep;
      down[p] -= kStep;
      models.emplace_back(cluster_, up);
      models.emplace_back(cluster_, down);
    }
    seen_.clear();
    for (const MeasuredCollective& row : rows_) {
      const auto seconds = [&](std::size_t model) { return models[model].plan(row).seconds(row.bytes); };
      Seen one{std::vector<double>(effects_.size(), 0), std::log(row.seconds / seconds(0)), kRowSd,
               tests_.at(test_of(row)).weight};
      for (std::size_t p = 0; p < kParameters; ++p) {
        one.slopes[p] = std::log(seconds(1 + 2 * p) / seconds(2 + 2 * p)) / (2 * kStep);
        one.y += one.slopes[p] * point_[p];
      }
      one.slopes[tests_.at(test_of(row)).effect] = 1;
      seen_.push_back(std::move(one));
    }
  }

  // Whole tests are held back, for their sizes say the same.
  HeldOut held_out() const {
    Errors errors;
    for (const auto& [test, kept] : tests_) {
      if (tests_.size() < 2) break;
      std::vector<Seen> others;
      for (std::size_t i = 0; i < rows_.size(); ++i)
        if (test_of(rows_[i]) != test) others.push_back(seen_[i]);
      const Posterior posterior = posterior_of(effects_, others, kFreedom);
      Point point{};
      for (std::size_t p = 0; p < kParameters; ++p) point[p] = posterior.mean[p];
      Model model(cluster_, point);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (test_of(rows_[i]) != test) continue;
        errors.add(before_s_[i], model.plan(rows_[i]).seconds(rows_[i].bytes),
                   std::sqrt(posterior.variance_of(seen_[i].slopes) + posterior.scale * kRowSd * kRowSd),
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

  struct Kept {
    std::size_t effect = 0;
    double weight = 1;
  };
  const Cluster& cluster_;
  const std::vector<MeasuredCollective>& rows_;
  std::vector<Effect> effects_;
  std::map<Test, Kept> tests_;
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
