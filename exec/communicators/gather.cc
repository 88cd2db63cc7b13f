#include "exec/communicators/gather.h"

#include <cstdint>
#include <cstring>

namespace orrery::exec {
namespace {

constexpr int kLengthTag = 1 << 20;  // beyond any message of a Program's exchanges
constexpr int kBytesTag = kLengthTag + 1;

void message(Communicator& world, int peer, void* data, std::size_t bytes, int tag, bool send) {
  const MessageSpec spec{peer, data, bytes, tag, send};
  world.exchange({&spec, 1})->wait();
}

}  // namespace

std::vector<std::string> gather_to_root(Communicator& world, const std::string& bytes) {
  std::uint64_t length = bytes.size();
  if (world.rank() != 0) {
    message(world, 0, &length, sizeof(length), kLengthTag, true);
    if (length > 0) message(world, 0, const_cast<char*>(bytes.data()), length, kBytesTag, true);
    return {};
  }
  std::vector<std::string> all(static_cast<std::size_t>(world.size()));
  all[0] = bytes;
  for (int rank = 1; rank < world.size(); ++rank) {
    message(world, rank, &length, sizeof(length), kLengthTag, false);
    std::string& into = all[static_cast<std::size_t>(rank)];
    into.resize(length);
    if (length > 0) message(world, rank, into.data(), length, kBytesTag, false);
  }
  return all;
}

std::vector<double> sum_at_root(Communicator& world, const std::vector<double>& values) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  std::vector<double> sums(values.size(), 0);
  for (const std::string& part : gather_to_root(world, bytes))
    for (std::size_t i = 0; i < sums.size(); ++i) {
      double value = 0;
      std::memcpy(&value, part.data() + i * sizeof(value), sizeof(value));
      sums[i] += value;
    }
  return sums;
}

std::string broadcast_from_root(Communicator& world, std::string bytes) {
  std::int64_t length = static_cast<std::int64_t>(bytes.size());
  world.broadcast(&length, 1, DType::int64, 0)->wait();
  bytes.resize(static_cast<std::size_t>(length));
  world.broadcast(bytes.data(), bytes.size(), DType::int8, 0)->wait();
  return bytes;
}

}  // namespace orrery::exec
