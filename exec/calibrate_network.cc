#include "exec/calibrate_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/statistics.h"
#include "exec/clock.h"
#include "program/mpi_model.h"
#include "topologies/cluster_file.h"
#include "topologies/network.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kShortBytes = 64;
constexpr int kShortRepeats = 60;
constexpr int kLongRepeats = 7;
// A long message takes about so long on the link as described: far above every latency.
constexpr double kLongSeconds = 0.1;
constexpr std::size_t kMinLongBytes = 256U << 10;
constexpr std::size_t kMaxLongBytes = 64U << 20;
constexpr std::chrono::microseconds kNap{1000};
constexpr double kWorthSaying = 0.1;  // of the described rate

struct PairTime {
  int a = 0;
  int b = 0;
  double described_bytes_per_s = 0;
  double bytes = 0;
  double short_s = 0;     // one way
  double one_way_s = 0;   // of the long message
  double exchange_s = 0;  // both ways at once
};

std::size_t long_bytes(double bytes_per_s) {
  return std::clamp(static_cast<std::size_t>(bytes_per_s * kLongSeconds), kMinLongBytes, kMaxLongBytes);
}

void wait(Communicator& world, std::unique_ptr<Request> request) {
  while (!request->test()) world.idle();
}

// What delays a message now and then (other work on its processors) is not the link.
double lower_quartile(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times.at(times.size() / 4);
}

// Over the repeats, of a round trip's half or of an exchange, as this rank sees it.
double pair_seconds(Communicator& world, int other, bool first, std::vector<char>& out, std::vector<char>& in,
                    std::size_t bytes, bool both, int repeats) {
  std::vector<double> times;
  const MessageSpec send{other, out.data(), bytes, 0, true};
  const MessageSpec receive{other, in.data(), bytes, 0, false};
  const MessageSpec together[] = {receive, send};
  for (int i = 0; i <= repeats; ++i) {  // the first warms the connection up
    const double begin = steady_seconds();
    if (both) {
      wait(world, world.exchange(together));
    } else {
      wait(world, world.exchange({first ? &send : &receive, 1}));
      wait(world, world.exchange({first ? &receive : &send, 1}));
    }
    const double seconds = steady_seconds() - begin;
    if (i > 0) times.push_back(both ? seconds : seconds / 2);
  }
  return lower_quartile(std::move(times));
}

// Each node's port, each leaf, and ways between leaves: neighbours, and everyone with the first.
std::vector<std::pair<int, int>> pairs_to_measure(int nodes) {
  std::set<std::pair<int, int>> pairs;
  for (int node = 1; node < nodes; ++node) {
    pairs.insert({node - 1, node});
    pairs.insert({0, node});
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<PairTime> measure_pairs(Communicator& world, const Cluster& cluster) {
  const Network network(cluster);
  std::vector<PairTime> times;
  for (const auto& [a, b] : pairs_to_measure(cluster.nodes())) {
    PairTime time;
    time.a = a;
    time.b = b;
    time.described_bytes_per_s =
        network.route(cluster.first_device(a), cluster.first_device(b)).bandwidth_bytes_per_s;
    const std::size_t bytes = long_bytes(time.described_bytes_per_s);
    time.bytes = static_cast<double>(bytes);
    sleeping_barrier(world, kNap);
    if (world.rank() == a || world.rank() == b) {
      const bool first = world.rank() == a;
      const int peer = first ? b : a;
      std::vector<char> out(bytes);
      std::vector<char> in(bytes);
      const auto seconds = [&](std::size_t size, bool both, int repeats) {
        return pair_seconds(world, peer, first, out, in, size, both, repeats);
      };
      time.short_s = seconds(kShortBytes, false, kShortRepeats);
      time.one_way_s = seconds(bytes, false, kLongRepeats);
      time.exchange_s = seconds(bytes, true, kLongRepeats);
    }
    sleeping_barrier(world, kNap);
    // The later of the two decides.
    float all[3] = {static_cast<float>(time.short_s), static_cast<float>(time.one_way_s),
                    static_cast<float>(time.exchange_s)};
    world.all_reduce(all, all, 3, DType::fp32, Reduction::max)->wait();
    time.short_s = static_cast<double>(all[0]);
    time.one_way_s = static_cast<double>(all[1]);
    time.exchange_s = static_cast<double>(all[2]);
    times.push_back(time);
  }
  return times;
}

// Every node sends to the next and receives from the one before, as rings of collectives do: the fraction of
// the described rate of the narrowest way that is reached. A round ends when its slowest message has come.
double ring_fraction(Communicator& world, const Cluster& cluster, double latency_s) {
  const Network network(cluster);
  const int n = world.size();
  double narrowest = INFINITY;
  for (int node = 0; node < n; ++node)
    narrowest =
        std::min(narrowest, network.route(cluster.first_device(node), cluster.first_device((node + 1) % n))
                                .bandwidth_bytes_per_s);
  const std::size_t bytes = long_bytes(narrowest);
  std::vector<char> out(bytes);
  std::vector<char> in(bytes);
  const MessageSpec both[] = {{(world.rank() + n - 1) % n, in.data(), bytes, 0, false},
                              {(world.rank() + 1) % n, out.data(), bytes, 0, true}};
  std::vector<double> times;
  for (int i = 0; i <= kLongRepeats; ++i) {
    sleeping_barrier(world, kNap);
    const double begin = steady_seconds();
    wait(world, world.exchange(both));
    auto seconds = static_cast<float>(steady_seconds() - begin);
    world.all_reduce(&seconds, &seconds, 1, DType::fp32, Reduction::max)->wait();
    if (i > 0) times.push_back(static_cast<double>(seconds));
  }
  const double waited_s = network_crossings(static_cast<double>(bytes), cluster) * latency_s;
  return static_cast<double>(bytes) / std::max(1e-9, lower_quartile(std::move(times)) - waited_s) / narrowest;
}

struct Rates {
  double one_way = 0;  // fraction of the described rate
  double exchange = 0;
};

// As program/mpi_model.cc composes a long message: crossings and the bytes.
Rates rates_of(const PairTime& time, double latency_s, const Cluster& cluster) {
  const double waited_s = network_crossings(time.bytes, cluster) * latency_s;
  const auto fraction = [&](double seconds) {
    return time.bytes / std::max(1e-9, seconds - waited_s) / time.described_bytes_per_s;
  };
  return {fraction(time.one_way_s), fraction(time.exchange_s)};
}

// The name of a node, for people.
std::string host_of(const Cluster& cluster, int node) {
  const NodeType& type = cluster.groups.front().node;
  return type.hosts.empty() ? fmt::format("node {}", node) : type.hosts[static_cast<std::size_t>(node)];
}

}  // namespace

void calibrate_network(Communicator& world, const NetworkCalibrationOptions& options) {
  Cluster cluster = read_cluster_file(options.cluster);
  if (cluster.groups.size() != 1)
    throw UserError(options.cluster, 0, "the cluster has several types of nodes", "one, to be calibrated");
  if (cluster.communication.library != CommunicationLibrary::mpi)
    throw UserError(options.cluster, 0, "the cluster's communication library is not MPI", "library: \"mpi\"");
  if (cluster.nodes() != world.size())
    throw UserError(
        fmt::format("the cluster has {} nodes and {} ranks were started", cluster.nodes(), world.size()),
        "a rank a node");
  const std::vector<PairTime> times = measure_pairs(world, cluster);
  std::vector<double> latencies;
  for (const PairTime& time : times) latencies.push_back(time.short_s);
  const double latency_s = upper_median(std::move(latencies));
  const double ring = world.size() > 2 ? ring_fraction(world, cluster, latency_s) : 0;
  if (world.rank() != 0) return;

  const Cluster host = read_cluster_file(options.host);
  CommunicationProfile profile = host.communication;
  profile.network_latency_s = latency_s;
  std::vector<double> one_way;
  std::vector<double> exchange;
  for (const PairTime& time : times) {
    const Rates rates = rates_of(time, profile.network_latency_s, cluster);
    one_way.push_back(rates.one_way);
    exchange.push_back(rates.exchange);
  }
  profile.network_efficiency = std::clamp(upper_median(std::move(one_way)), 0.01, 1.0);
  // Groups of two exchange over one connection, larger ones in rings: half of each.
  const double pairs = upper_median(std::move(exchange));
  profile.network_exchange_efficiency = std::clamp(ring > 0 ? (pairs + ring) / 2 : pairs, 0.01, 1.0);
  profile.network_eager_bytes = cluster.communication.network_eager_bytes;
  profile.calibrated = true;
  // The host may be known from another cluster's calibration.
  const std::string of_host =
      host.communication.source.substr(0, host.communication.source.find("; network: "));
  profile.source =
      fmt::format("{}; network: `orrery calibrate {}`, {}", of_host, options.cluster, options.library);
  cluster.communication = profile;
  DeviceProfile& device = cluster.profiles.at(static_cast<std::size_t>(cluster.groups.front().node.profile));
  const std::string name = device.name;
  device = host.profiles.at(static_cast<std::size_t>(host.groups.front().node.profile));
  device.name = name;

  write_cluster_file(cluster, options.out);

  fmt::print(
      "network of {} nodes: {} a message, {:.1f}% of the described rate one way, {:.1f}% both ways at once\n",
      cluster.nodes(), human_seconds(profile.network_latency_s), 100 * profile.network_efficiency,
      100 * profile.network_exchange_efficiency);
  if (ring > 0) fmt::print("  a ring through all of them: {:.1f}% of the described rate\n", 100 * ring);
  for (const PairTime& time : times) {
    const Rates rates = rates_of(time, profile.network_latency_s, cluster);
    const bool off = std::abs(rates.one_way / profile.network_efficiency - 1) > kWorthSaying ||
                     std::abs(rates.exchange / profile.network_exchange_efficiency - 1) > kWorthSaying;
    fmt::print("  {} - {}: {} described; {} one way, {} both ways{}\n", host_of(cluster, time.a),
               host_of(cluster, time.b), human_rate(time.described_bytes_per_s),
               human_rate(rates.one_way * time.described_bytes_per_s),
               human_rate(rates.exchange * time.described_bytes_per_s), off ? "  <- not as described" : "");
  }
  fmt::print("wrote {}\n", options.out);
}

}  // namespace orrery::exec
