#include "exec/state/digest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "exec/communicators/gather.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kDigestSeed = 0x646967657374;  // "digest"

using Sums = std::array<double, 1 + kProjections>;  // of squares; of each projection

}  // namespace

std::map<std::string, TensorDigest> digest_parameters(const Plan& plan, const Parameters& parameters,
                                                      Device& device, Communicator& world) {
  // All tensors of the model in the order of its operators: the same on every rank.
  std::map<std::pair<int, int>, std::size_t> place;
  std::vector<std::string> names;
  const std::vector<Operator>& operators = plan.job->workload.operators;
  for (std::size_t op = 0; op < operators.size(); ++op)
    for (std::size_t p = 0; p < operators[op].parameters.size(); ++p) {
      if (!operators[op].parameters[p].tied_to.empty()) continue;
      place[{static_cast<int>(op), static_cast<int>(p)}] = names.size();
      names.push_back(operators[op].parameters[p].name);
    }
  std::vector<Sums> sums(names.size(), Sums{});
  std::vector<float> values;
  for (const HeldTensor& held : parameters.held()) {
    const Parameters::Part part = parameters.answers_for(held);
    if (part.begin == part.end) continue;
    Sums& sum = sums[place.at({held.op, held.parameter})];
    values.resize(static_cast<std::size_t>(part.end - part.begin));
    device.copy_to_host(
        values.data(),
        parameters.own_master(held.bucket) + (part.begin - parameters.shard_begin(held.bucket)),
        values.size() * sizeof(float));
    const CounterRandom random(kDigestSeed, hash_of(held.name()));
    const std::int64_t begin = part.begin - held.offset;  // in the tensor
    const std::int64_t end = part.end - held.offset;
    for (const Run& run : runs_of(*held.tensor, parameters.place()))
      for (std::int64_t local = std::max(run.local, begin); local < std::min(run.local + run.count, end);
           ++local) {
        const auto value = static_cast<double>(values[static_cast<std::size_t>(local - begin)]);
        const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(run.global + local - run.local));
        sum[0] += value * value;
        // The sign is as random as a branch can be: its bit is set instead.
        const auto raw = std::bit_cast<std::uint64_t>(value);
        for (int k = 0; k < kProjections; ++k)
          sum[static_cast<std::size_t>(k) + 1] += std::bit_cast<double>(raw ^ (~bits >> k & 1) << 63);
      }
  }
  const std::string mine(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(Sums));
  std::map<std::string, TensorDigest> digest;
  for (const std::string& part : gather_to_root(world, mine)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      Sums sum;
      std::memcpy(sum.data(), part.data() + i * sizeof(Sums), sizeof(Sums));
      TensorDigest& into = digest[names[i]];
      into.norm += sum[0];
      for (int k = 0; k < kProjections; ++k)
        into.projections[static_cast<std::size_t>(k)] += sum[static_cast<std::size_t>(k) + 1];
    }
  }
  for (auto& [name, tensor] : digest) tensor.norm = std::sqrt(tensor.norm);
  return digest;
}

}  // namespace orrery::exec
