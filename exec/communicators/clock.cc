#include "exec/communicators/clock.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

namespace orrery::exec {
namespace {

constexpr int kRounds = 16;
constexpr int kTag = (1 << 20) + 2;  // beyond any message of a Program's exchanges

void message(Communicator& world, int peer, double& value, bool send) {
  const MessageSpec spec{peer, &value, sizeof(value), kTag, send};
  world.exchange({&spec, 1})->wait();
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double clock_offset(Communicator& world) {
  double offset = 0;
  for (int rank = 1; rank < world.size(); ++rank) {
    if (world.rank() == 0) {
      for (int round = 0; round < kRounds; ++round) {
        double now = 0;
        message(world, rank, now, false);
        now = steady_seconds();
        message(world, rank, now, true);
      }
    } else if (world.rank() == rank) {
      double shortest = std::numeric_limits<double>::infinity();
      for (int round = 0; round < kRounds; ++round) {
        double ask = 0;
        double theirs = 0;
        const double sent = steady_seconds();
        message(world, 0, ask, true);
        message(world, 0, theirs, false);
        const double received = steady_seconds();
        if (received - sent >= shortest) continue;
        shortest = received - sent;
        offset = theirs - (sent + received) / 2;
      }
      if (std::abs(offset) <= shortest) offset = 0;
    }
  }
  return offset;
}

void sleeping_barrier(Communicator& world, std::chrono::microseconds nap) {
  std::int32_t one = 1;
  auto request = world.all_reduce(&one, &one, 1, DType::int32, Reduction::sum);
  while (!request->test()) std::this_thread::sleep_for(nap);
}

}  // namespace orrery::exec
