#include "exec/state/digest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "exec/communicators/gather.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kDigestSeed = 0x646967657374;  // "digest"
// Elements that are added up by one thread. How many threads there are is not seen in the sums.
constexpr std::int64_t kSummed = 1 << 20;

using Sums = std::array<double, 1 + kProjections>;  // of squares; of each projection

// Of what is held from `begin` on.
Projections project(const CounterRandom& random, const std::vector<Run>& runs, std::int64_t begin,
                    std::span<const float> values) {
  Projections sums;
  for (const Run& run : runs_within(runs, begin, begin + static_cast<std::int64_t>(values.size())))
    sums.add(
        random, static_cast<std::uint64_t>(run.global),
        values.subspan(static_cast<std::size_t>(run.local - begin), static_cast<std::size_t>(run.count)));
  return sums;
}

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
  std::vector<Projections> projections(names.size());
  std::vector<float> fetched;
  for (const HeldTensor& held : parameters.held()) {
    const Parameters::Part part = parameters.answers_for(held);
    if (part.begin == part.end) continue;
    Projections& into = projections[place.at({held.op, held.parameter})];
    const float* const data =
        parameters.own_master(held.bucket) + (part.begin - parameters.shard_begin(held.bucket));
    const CounterRandom random(kDigestSeed, fnv_of(held.name()));
    const std::int64_t begin = part.begin - held.offset;  // in the tensor
    const std::int64_t end = part.end - held.offset;
    const std::vector<Run> runs = runs_of(*held.tensor, parameters.place());
    const std::int64_t together = kSummed * device.host_threads();
    for (std::int64_t at = begin; at < end; at += together) {
      const std::int64_t count = std::min(together, end - at);
      const float* now = data + (at - begin);
      if (!device.host_memory()) {
        fetched.resize(static_cast<std::size_t>(count));
        device.copy_to_host(fetched.data(), now, fetched.size() * sizeof(float));
        now = fetched.data();
      }
      std::vector<Projections> parts(static_cast<std::size_t>((count + kSummed - 1) / kSummed));
      for_each_in_parallel(static_cast<int>(parts.size()), device.host_threads(), [&](int i) {
        const std::int64_t first = i * kSummed;
        parts[static_cast<std::size_t>(i)] =
            project(random, runs, at + first,
                    {now + first, static_cast<std::size_t>(std::min(kSummed, count - first))});
      });
      for (const Projections& part_of : parts) into.add(part_of);
    }
  }
  std::vector<Sums> sums;
  sums.reserve(projections.size());
  for (const Projections& of_tensor : projections) sums.push_back(of_tensor.sums());
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
