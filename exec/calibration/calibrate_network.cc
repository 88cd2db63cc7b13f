#include "exec/calibration/calibrate_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/answer/lines.h"
#include "base/error.h"
#include "base/format.h"
#include "base/statistics.h"
#include "cost/mpi_model.h"
#include "exec/calibration/packet_cost.h"
#include "exec/communicators/clock.h"
#include "exec/launch/answers.h"
#include "exec/run/report.h"
#include "topologies/network.h"
#include "topologies/readers/cluster_file.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kShortBytes = 64;
constexpr int kShortRepeats = 25;
// Before every short message: in training, too, they come to ranks that have waited for some milliseconds,
// and look for news the less often.
constexpr std::chrono::milliseconds kPause{5};
constexpr int kLongRepeats = 5;
constexpr int kRingRepeats = 11;  // of all nodes at once: any of them may be disturbed
// A long message takes about so long on the link as described: far above every latency.
constexpr double kLongSeconds = 0.1;
constexpr std::size_t kMinLongBytes = 256U << 10;
constexpr std::size_t kMaxLongBytes = 64U << 20;
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

// Of a long message: half of a round trip, or both ways at once, as this rank sees it.
double long_seconds(Communicator& world, int other, bool first, std::vector<char>& out, std::vector<char>& in,
                    bool both) {
  std::vector<double> times;
  const MessageSpec send{other, out.data(), out.size(), 0, true};
  const MessageSpec receive{other, in.data(), in.size(), 0, false};
  const MessageSpec together[] = {receive, send};
  for (int i = 0; i <= kLongRepeats; ++i) {  // the first warms the connection up
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

// One way, of a short message: half of a round trip without the pause of the one who answers, which the
// answer says.
double short_seconds(Communicator& world, int other, bool first) {
  std::vector<double> times;
  std::array<char, kShortBytes> bytes{};
  const MessageSpec send{other, bytes.data(), bytes.size(), 0, true};
  const MessageSpec receive{other, bytes.data(), bytes.size(), 0, false};
  for (int i = 0; i <= kShortRepeats; ++i) {  // the first warms the connection up
    if (!first) wait(world, world.exchange({&receive, 1}));
    const double begin = steady_seconds();
    std::this_thread::sleep_for(kPause);
    double pause = steady_seconds() - begin;
    if (!first) std::memcpy(bytes.data(), &pause, sizeof(pause));
    wait(world, world.exchange({&send, 1}));
    if (!first) continue;
    wait(world, world.exchange({&receive, 1}));
    const double whole = steady_seconds() - begin - pause;
    std::memcpy(&pause, bytes.data(), sizeof(pause));
    if (i > 0) times.push_back((whole - pause) / 2);
  }
  return median(std::move(times));
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
    sleeping_barrier(world);
    if (world.rank() == a || world.rank() == b) {
      const bool first = world.rank() == a;
      const int peer = first ? b : a;
      std::vector<char> out(bytes);
      std::vector<char> in(bytes);
      time.short_s = short_seconds(world, peer, first);
      time.one_way_s = long_seconds(world, peer, first, out, in, false);
      time.exchange_s = long_seconds(world, peer, first, out, in, true);
    }
    sleeping_barrier(world);
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

// Described rate of the narrowest way from a node to the next.
double narrowest_of_ring(const Cluster& cluster) {
  const Network network(cluster);
  const int n = cluster.nodes();
  double narrowest = INFINITY;
  for (int node = 0; node < n; ++node)
    narrowest =
        std::min(narrowest, network.route(cluster.first_device(node), cluster.first_device((node + 1) % n))
                                .bandwidth_bytes_per_s);
  return narrowest;
}

// Until the last node has what it exchanges, several times.
std::vector<double> slowest_seconds(Communicator& world, std::span<const MessageSpec> messages) {
  std::vector<double> times;
  for (int i = 0; i <= kRingRepeats; ++i) {  // the first warms the connections up
    sleeping_barrier(world);
    const double begin = steady_seconds();
    wait(world, world.exchange(messages));
    auto seconds = static_cast<float>(steady_seconds() - begin);
    world.all_reduce(&seconds, &seconds, 1, DType::fp32, Reduction::max)->wait();
    if (i > 0) times.push_back(static_cast<double>(seconds));
  }
  return times;
}

// Every node sends to the next and receives from the one before, as rings of collectives do: the fraction of
// the described rate of the narrowest way that is reached. A round ends when its slowest message has come.
double ring_fraction(Communicator& world, const Cluster& cluster, double narrowest, double latency_s) {
  const int n = world.size();
  const std::size_t bytes = long_bytes(narrowest);
  std::vector<char> out(bytes);
  std::vector<char> in(bytes);
  const MessageSpec both[] = {{(world.rank() + n - 1) % n, in.data(), bytes, 0, false},
                              {(world.rank() + 1) % n, out.data(), bytes, 0, true}};
  const double waited_s = network_crossings(static_cast<double>(bytes), cluster) * latency_s;
  return static_cast<double>(bytes) /
         std::max(1e-9, lower_quartile(slowest_seconds(world, both)) - waited_s) / narrowest;
}

// All nodes send `bytes` to all others: until the fullest link has carried them at its described rate.
double even_seconds(const Cluster& cluster, double bytes) {
  const Network network(cluster);
  std::map<LinkId, double> carried_s;
  for (int a = 0; a < cluster.nodes(); ++a)
    for (int b = 0; b < cluster.nodes(); ++b) {
      if (a == b) continue;
      for (const Link& link : network.route(cluster.first_device(a), cluster.first_device(b)).links)
        if (link.bandwidth_bytes_per_s > 0) carried_s[link.id] += bytes / link.bandwidth_bytes_per_s;
    }
  double longest = 0;
  for (const auto& [link, seconds] : carried_s) longest = std::max(longest, seconds);
  return longest;
}

// All nodes send to all others: by how much the last of a node's messages is later than if they shared the
// links evenly at the rate of rings; beside the logarithm of how many they are.
double flow_spread(Communicator& world, const Cluster& cluster, double narrowest, double ring) {
  const int n = world.size();
  if (n < 4) return 0;
  const std::size_t bytes = long_bytes(narrowest) / static_cast<std::size_t>(n - 1);
  std::vector<char> out(bytes);
  std::vector<std::vector<char>> in(static_cast<std::size_t>(n), std::vector<char>(bytes));
  std::vector<MessageSpec> messages;
  for (int k = 1; k < n; ++k) {
    const int from = (world.rank() + n - k) % n;
    messages.push_back({from, in[static_cast<std::size_t>(from)].data(), bytes, 0, false});
    messages.push_back({(world.rank() + k) % n, out.data(), bytes, 0, true});
  }
  const double even = even_seconds(cluster, static_cast<double>(bytes)) / ring;
  const double all = median(slowest_seconds(world, messages));
  return std::max(0.0, all / even - 1) / std::log(n - 1);
}

struct Rates {
  double one_way = 0;  // fraction of the described rate
  double exchange = 0;
};

// As cost/mpi_model.cc composes a long message: crossings and the bytes.
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

NetworkAnswer answer_of(const Cluster& cluster, const std::vector<PairTime>& times, double ring) {
  const CommunicationProfile& profile = cluster.communication;
  NetworkAnswer answer = {cluster.nodes(),
                          profile.network_latency_s,
                          profile.network_efficiency,
                          profile.network_exchange_efficiency,
                          profile.network_processor_s_per_byte,
                          profile.network_flow_spread,
                          ring,
                          {}};
  for (const PairTime& time : times) {
    const Rates rates = rates_of(time, profile.network_latency_s, cluster);
    answer.pairs.push_back({host_of(cluster, time.a), host_of(cluster, time.b), time.described_bytes_per_s,
                            rates.one_way * time.described_bytes_per_s,
                            rates.exchange * time.described_bytes_per_s});
  }
  return answer;
}

void print_summary(const Cluster& cluster, const std::vector<PairTime>& times, double ring) {
  std::string text;
  const CommunicationProfile& profile = cluster.communication;
  text += fmt::format(
      "Network of {} nodes: {} a message, {:.1f}% of the described rate one way, {:.1f}% both ways at once\n",
      cluster.nodes(), human_seconds(profile.network_latency_s), 100 * profile.network_efficiency,
      100 * profile.network_exchange_efficiency);
  text += fmt::format("  a megabyte takes {} of a core at either end\n",
                      human_seconds(1e6 * profile.network_processor_s_per_byte));
  if (profile.network_flow_spread > 0)
    text += fmt::format(
        "  of {} messages through a port at once the last takes {:.0f}% longer than an even share\n",
        cluster.nodes() - 1, 100 * profile.network_flow_spread * std::log(cluster.nodes() - 1));
  if (ring > 0)
    text += fmt::format("  a ring through all of them: {:.1f}% of the described rate\n", 100 * ring);
  for (const PairTime& time : times) {
    const Rates rates = rates_of(time, profile.network_latency_s, cluster);
    const bool off = std::abs(rates.one_way / profile.network_efficiency - 1) > kWorthSaying ||
                     std::abs(rates.exchange / profile.network_exchange_efficiency - 1) > kWorthSaying;
    text += fmt::format("  {} - {}: {} described; {} one way, {} both ways{}\n", host_of(cluster, time.a),
                        host_of(cluster, time.b), human_rate(time.described_bytes_per_s),
                        human_rate(rates.one_way * time.described_bytes_per_s),
                        human_rate(rates.exchange * time.described_bytes_per_s),
                        off ? "  <- not as described" : "");
  }
  fmt::print("{}", wrapped(text));
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
  const double narrowest = narrowest_of_ring(cluster);
  const double ring = world.size() > 2 ? ring_fraction(world, cluster, narrowest, latency_s) : 0;
  const double spread = flow_spread(world, cluster, narrowest, ring);
  const double processor_s = processor_seconds_per_byte(world, cluster, long_bytes(narrowest));
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
  const double pairs = upper_median(std::move(exchange));
  profile.network_exchange_efficiency = std::clamp(ring > 0 ? std::min(pairs, ring) : pairs, 0.01, 1.0);
  profile.network_eager_bytes = cluster.communication.network_eager_bytes;
  profile.network_processor_s_per_byte = processor_s;
  profile.network_flow_spread = spread;
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

  if (!deliver("calibrate", network_record().json(answer_of(cluster, times, ring)), options.json)) return;
  fmt::print("The cluster is calibrated: plan on this in its place.\n  {}\n", options.out);
  print_summary(cluster, times, ring);
}

}  // namespace orrery::exec
