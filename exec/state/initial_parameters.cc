#include "exec/state/initial_parameters.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/random.h"

namespace orrery::exec {
namespace {

constexpr int kTag = (1 << 20) + 3;  // beyond any message of a Program's exchanges

void message(Communicator& control, int peer, void* data, std::size_t bytes, bool send) {
  const MessageSpec spec{peer, data, bytes, kTag, send};
  control.exchange({&spec, 1})->wait();
}

// Of values in this process's memory, eight bytes at a time.
std::uint64_t hash_of_values(const std::vector<float>& values) {
  std::uint64_t hash = values.size();
  std::size_t at = 0;
  for (; at + 2 <= values.size(); at += 2) {
    std::uint64_t word = 0;
    std::memcpy(&word, values.data() + at, sizeof(word));
    hash = std::rotl(hash ^ word, 27) * kSplitmix64Step;
  }
  if (at < values.size()) hash ^= std::bit_cast<std::uint32_t>(values[at]);
  return splitmix64(hash);
}

}  // namespace

int agree_on_parameters(const Program& program, Parameters& parameters, Device& device,
                        Communicator& control) {
  int sent = 0;
  std::vector<float> values;
  for (int b = 0; b < parameters.buckets(); ++b) {
    if (!parameters.reduced(b) || parameters.gathers_weights(b)) continue;
    const int group = program.buckets[static_cast<std::size_t>(b)].group;
    const std::vector<std::int32_t>& replicas = program.groups[static_cast<std::size_t>(group)].ranks;
    // Replicas that update all of it have all of it in full precision.
    const bool of_master = parameters.has_master() && !parameters.sharded(b);
    float* data = of_master ? parameters.own_master(b) : parameters.weights(b);
    values.resize(static_cast<std::size_t>(parameters.elements(b)));
    const std::size_t bytes = values.size() * sizeof(float);
    device.copy_to_host(values.data(), data, bytes);
    std::uint64_t hash = hash_of_values(values);
    char differs = 0;
    if (program.rank == replicas.front()) {
      for (const std::int32_t replica : replicas) {
        if (replica == program.rank) continue;
        std::uint64_t theirs = 0;
        message(control, replica, &theirs, sizeof(theirs), false);
        differs = theirs != hash ? 1 : 0;
        message(control, replica, &differs, sizeof(differs), true);
        if (differs != 0) message(control, replica, values.data(), bytes, true);
      }
      continue;
    }
    message(control, replicas.front(), &hash, sizeof(hash), true);
    message(control, replicas.front(), &differs, sizeof(differs), false);
    if (differs == 0) continue;
    message(control, replicas.front(), values.data(), bytes, false);
    device.copy_to_device(data, values.data(), bytes);
    if (of_master)
      parameters.publish(b);
    else if (parameters.type() == DType::fp32)
      parameters.take_weights(b);
    ++sent;
  }
  return sent;
}

}  // namespace orrery::exec
