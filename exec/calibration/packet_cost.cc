#include "exec/calibration/packet_cost.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/statistics.h"
#include "exec/communicators/clock.h"
#include "exec/cpu/gemm.h"

namespace orrery::exec {
namespace {

constexpr int kPacketRounds = 3;
constexpr int kMessages = 6;      // of a round
constexpr double kPlain_s = 0.4;  // of a round without messages

// A product of the size that small layers have: some 200 us, between which the executor polls.
class Products {
 public:
  void run() {
    cpu::gemm(false, false, kRows, kOut, kIn, 1, x_.data(), kIn, weight_.data(), kOut, 0, y_.data(), kOut);
    ++count;
  }
  std::int64_t count = 0;

 private:
  static constexpr std::int64_t kRows = 64, kIn = 160, kOut = 640;
  std::vector<float> x_ = std::vector<float>(kRows * kIn, 1e-3F);
  std::vector<float> weight_ = std::vector<float>(kIn * kOut, 1e-3F);
  std::vector<float> y_ = std::vector<float>(kRows * kOut);
};

// The cores of this rank's node but the rank's own, computing until it goes.
class OtherCores {
 public:
  explicit OtherCores(int cores) : counts_(static_cast<std::size_t>(cores)) {
    for (std::atomic<std::int64_t>& count : counts_)
      threads_.emplace_back([this, &count] {
        for (Products products; !stop_; count = products.count) products.run();
      });
  }
  ~OtherCores() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  OtherCores(const OtherCores&) = delete;
  OtherCores& operator=(const OtherCores&) = delete;

  std::int64_t count() const {
    std::int64_t sum = 0;
    for (const std::atomic<std::int64_t>& count : counts_) sum += count;
    return sum;
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::atomic<std::int64_t>> counts_;
  std::vector<std::thread> threads_;
};

struct Pace {  // of all nodes together
  double products_per_s = 0;
  double bytes_per_s = 0;  // sent and received
};

// While `messages` exchanges with the ring's neighbours come and go; none: for a while.
Pace pace_of(Communicator& world, const OtherCores& others, Products& own, std::vector<char>& out,
             std::vector<char>& in, int messages) {
  const int n = world.size();
  const MessageSpec both[] = {{(world.rank() + n - 1) % n, in.data(), in.size(), 0, false},
                              {(world.rank() + 1) % n, out.data(), out.size(), 0, true}};
  sleeping_barrier(world);
  const double begin = steady_seconds();
  const std::int64_t before = own.count + others.count();
  double moved = 0;
  for (int i = 0; i < messages; ++i, moved += static_cast<double>(out.size() + in.size()))
    for (const auto request = world.exchange(both); !request->test();) own.run();
  while (messages == 0 && steady_seconds() - begin < kPlain_s) own.run();
  const double seconds = steady_seconds() - begin;
  float rates[2] = {static_cast<float>(static_cast<double>(own.count + others.count() - before) / seconds),
                    static_cast<float>(moved / seconds)};
  sleeping_barrier(world);
  world.all_reduce(rates, rates, 2, DType::fp32, Reduction::sum)->wait();
  return {static_cast<double>(rates[0]), static_cast<double>(rates[1])};
}

}  // namespace

double processor_seconds_per_byte(Communicator& world, const Cluster& cluster, std::size_t message_bytes) {
  if (world.size() < 2) return 0;
  const int of_node = cluster.groups.front().node.devices;
  const int cores = cluster.shared_cores > 0 ? cluster.shared_cores : cluster.nodes() * of_node;
  const OtherCores others(cluster.shared_cores > 0 ? 0 : of_node - 1);
  Products own;
  std::vector<char> out(message_bytes);
  std::vector<char> in(message_bytes);
  std::vector<double> costs;
  for (int round = 0; round < kPacketRounds; ++round) {
    const Pace plain = pace_of(world, others, own, out, in, 0);
    const Pace loaded = pace_of(world, others, own, out, in, kMessages);
    costs.push_back(std::max(0.0, cores * (1 - loaded.products_per_s / plain.products_per_s)) /
                    loaded.bytes_per_s);
  }
  return upper_median(std::move(costs));
}

}  // namespace orrery::exec
