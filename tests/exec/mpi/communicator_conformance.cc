// Every collective against its definition: zero, one, odd and large counts, any number of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "equivalence.h"
#include "exec/cpu/narrow.h"

namespace orrery::exec::test {
namespace {

constexpr std::array<std::size_t, 6> kCounts = {0, 1, 3, 17, 1000, 100003};

// Small integers, so that sums are exact in any order.
float value_of(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 7 % 5 + static_cast<int>(i % 11));
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw InternalError("communicator: " + what);
}

void check_all_reduce(Communicator& world, std::size_t count) {
  for (const Reduction op : {Reduction::sum, Reduction::max}) {
    std::vector<float> send(count);
    std::vector<float> receive(count, -1);
    for (std::size_t i = 0; i < count; ++i) send[i] = value_of(world.rank(), i);
    world.all_reduce(send.data(), receive.data(), count, DType::fp32, op)->wait();
    std::vector<float> in_place = send;
    world.all_reduce(in_place.data(), in_place.data(), count, DType::fp32, op)->wait();
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int r = 0; r < world.size(); ++r)
        expected = op == Reduction::sum ? expected + value_of(r, i) : std::max(expected, value_of(r, i));
      expect(receive[i] == expected && in_place[i] == expected,
             fmt::format("all_reduce of {} at {}", count, i));
    }
  }
}

// Two-byte sums: small integers are exact in both types.
void check_narrow(Communicator& world, std::size_t count) {
  for (const DType type : {DType::fp16, DType::bf16}) {
    std::vector<float> values(count);
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = value_of(world.rank(), i);
      for (int r = 0; r < world.size(); ++r) expected[i] += value_of(r, i);
    }
    std::vector<std::uint16_t> data(count);
    cpu::narrow(type, values.data(), data.data(), count, 1, false);
    world.all_reduce(data.data(), data.data(), count, type, Reduction::sum)->wait();
    cpu::widen(type, data.data(), values.data(), count, 1);
    expect(values == expected, fmt::format("all_reduce of {} {}", count, name_of(type)));
  }
}

void check_scatter_gather(Communicator& world, std::size_t count) {
  const auto n = static_cast<std::size_t>(world.size());
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<float> send(n * count);
  for (std::size_t i = 0; i < send.size(); ++i) send[i] = value_of(world.rank(), i);
  std::vector<float> part(count, -1);
  world.reduce_scatter(send.data(), part.data(), count, DType::fp32, Reduction::sum)->wait();
  std::vector<float> inside = send;
  world.reduce_scatter(inside.data(), inside.data() + rank * count, count, DType::fp32, Reduction::sum)
      ->wait();
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int r = 0; r < world.size(); ++r) expected += value_of(r, rank * count + i);
    expect(part[i] == expected && inside[rank * count + i] == expected,
           fmt::format("reduce_scatter of {}", count));
  }
  std::vector<float> whole(n * count, -1);
  world.all_gather(part.data(), whole.data(), count, DType::fp32)->wait();
  std::vector<float> own(n * count, -1);
  std::copy(part.begin(), part.end(), own.begin() + static_cast<std::ptrdiff_t>(rank * count));
  world.all_gather(own.data() + rank * count, own.data(), count, DType::fp32)->wait();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    float expected = 0;
    for (int r = 0; r < world.size(); ++r) expected += value_of(r, i);
    expect(whole[i] == expected && own[i] == expected, fmt::format("all_gather of {}", count));
  }
}

void check_all_to_all(Communicator& world, std::size_t count) {
  // Rank r sends r + peer (+ count) elements to a peer, nothing to the last.
  const int n = world.size();
  const auto counted = [&](int from, int to) {
    return to == n - 1 && n > 1 ? 0 : count + static_cast<std::size_t>(from + to);
  };
  std::vector<std::size_t> send_counts;
  std::vector<std::size_t> receive_counts;
  std::vector<std::int32_t> send;
  std::size_t total = 0;
  for (int r = 0; r < n; ++r) {
    send_counts.push_back(counted(world.rank(), r));
    receive_counts.push_back(counted(r, world.rank()));
    send.insert(send.end(), send_counts.back(), world.rank() * 100 + r);
    total += receive_counts.back();
  }
  std::vector<std::int32_t> receive(total, -1);
  world.all_to_all(send.data(), send_counts, receive.data(), receive_counts, DType::int32)->wait();
  std::size_t at = 0;
  for (int r = 0; r < n; ++r)
    for (std::size_t i = 0; i < receive_counts[static_cast<std::size_t>(r)]; ++i)
      expect(receive[at++] == r * 100 + world.rank(), "all_to_all");
}

void check_rooted(Communicator& world, std::size_t count) {
  for (int root = 0; root < world.size(); ++root) {
    std::vector<std::int64_t> data(count, world.rank() == root ? 42 + root : -1);
    world.broadcast(data.data(), count, DType::int64, root)->wait();
    expect(std::all_of(data.begin(), data.end(), [&](std::int64_t v) { return v == 42 + root; }),
           "broadcast");
    std::vector<std::int64_t> send(count, world.rank() + 1);
    std::vector<std::int64_t> sum(count, -1);
    world.reduce(send.data(), sum.data(), count, DType::int64, Reduction::sum, root)->wait();
    const std::int64_t n = world.size();
    if (world.rank() == root)
      expect(std::all_of(sum.begin(), sum.end(), [&](std::int64_t v) { return v == n * (n + 1) / 2; }),
             "reduce");
  }
}

void check_exchange(Communicator& world) {
  // A ring both ways at once, two messages with one tag in order, and none.
  const int n = world.size();
  if (n == 1) return;
  const int next = (world.rank() + 1) % n;
  const int previous = (world.rank() + n - 1) % n;
  std::array<std::int32_t, 3> out = {world.rank(), world.rank() + 1000, world.rank() + 2000};
  std::array<std::int32_t, 3> in = {-1, -1, -1};
  const std::vector<MessageSpec> messages = {
      {previous, in.data(), 4, 5, false}, {previous, &in[1], 4, 5, false}, {next, &in[2], 4, 6, false},
      {next, out.data(), 4, 5, true},     {next, &out[1], 4, 5, true},     {previous, &out[2], 4, 6, true},
  };
  world.exchange(messages)->wait();
  expect(in[0] == previous && in[1] == previous + 1000 && in[2] == next + 2000, "exchange");
  world.exchange({})->wait();
  // Long ones, longer than any library sends unasked: two with one tag, around the ring both ways.
  constexpr std::size_t kLong = 300'001;
  std::array<std::vector<std::int32_t>, 3> from;
  std::array<std::vector<std::int32_t>, 3> to;
  for (std::size_t m = 0; m < 3; ++m) {
    from[m].assign(kLong, world.rank() + 1000 * static_cast<int>(m));
    to[m].assign(kLong, -1);
  }
  const std::size_t bytes = kLong * 4;
  const std::vector<MessageSpec> longer = {
      {previous, to[0].data(), bytes, 5, false}, {previous, to[1].data(), bytes, 5, false},
      {next, to[2].data(), bytes, 6, false},     {next, from[0].data(), bytes, 5, true},
      {next, from[1].data(), bytes, 5, true},    {previous, from[2].data(), bytes, 6, true},
  };
  world.exchange(longer)->wait();
  for (std::size_t m = 0; m < 3; ++m) {
    const int sender = m < 2 ? previous : next;
    expect(to[m] == std::vector<std::int32_t>(kLong, sender + 1000 * static_cast<int>(m)), "long exchange");
  }
}

void check_concurrent_and_split(Communicator& world) {
  // Two collectives under way at once, finished in the other order; groups of even and odd ranks.
  std::vector<float> a(5000, 1);
  std::vector<float> b(70000, 2);
  auto first = world.all_reduce(a.data(), a.data(), a.size(), DType::fp32, Reduction::sum);
  auto second = world.all_reduce(b.data(), b.data(), b.size(), DType::fp32, Reduction::sum);
  second->wait();
  while (!first->test()) world.idle();
  expect(a[4999] == static_cast<float>(world.size()) && b[69999] == static_cast<float>(2 * world.size()),
         "two at once");
  std::vector<int> members;
  for (int r = world.rank() % 2; r < world.size(); r += 2) members.push_back(r);
  std::reverse(members.begin(), members.end());
  auto group = world.split(members, 3);
  expect(members[static_cast<std::size_t>(group->rank())] == world.rank(),
         "split keeps the order of the members");
  check_scatter_gather(*group, 5);
  check_all_reduce(*group, 17);
}

}  // namespace

void check_communicator(Communicator& world) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::recursive_doubling}) {
    world.set_algorithms([algorithm](CollectiveKind, double) {
      CollectivePlan plan;
      plan.algorithm = algorithm;
      return plan;
    });
    for (const std::size_t count : kCounts) {
      check_all_reduce(world, count);
      check_scatter_gather(world, count);
    }
  }
  world.set_algorithms({});
  for (const std::size_t count : kCounts) {
    check_all_reduce(world, count);
    check_narrow(world, count);
    check_all_to_all(world, std::min<std::size_t>(count, 1000));
    check_rooted(world, count);
  }
  check_exchange(world);
  check_concurrent_and_split(world);
  world.barrier();
  if (world.rank() == 0) fmt::print("all collectives conform on {} ranks\n", world.size());
}

}  // namespace orrery::exec::test
