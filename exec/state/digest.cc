#include "exec/state/digest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "exec/communicators/gather.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kDigestSeed = 0x646967657374;  // "digest"
constexpr std::int64_t kFetched = 1 << 20;             // elements that are fetched from a device at once

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
  std::vector<Projections> projections(names.size());
  std::vector<float> piece;
  for (const HeldTensor& held : parameters.held()) {
    const Parameters::Part part = parameters.answers_for(held);
    if (part.begin == part.end) continue;
    Projections& into = projections[place.at({held.op, held.parameter})];
    const float* const data =
        parameters.own_master(held.bucket) + (part.begin - parameters.shard_begin(held.bucket));
    const CounterRandom random(kDigestSeed, hash_of(held.name()));
    const std::int64_t begin = part.begin - held.offset;  // in the tensor
    const std::int64_t end = part.end - held.offset;
    const auto add = [&](const Run& run, std::int64_t from, std::int64_t until, const float* values) {
      const std::int64_t first = std::max(run.local, from);
      const std::int64_t last = std::min(run.local + run.count, until);
      if (first < last)
        into.add(random, static_cast<std::uint64_t>(run.global + first - run.local),
                 {values + (first - from), static_cast<std::size_t>(last - first)});
    };
    const std::vector<Run> runs = runs_of(*held.tensor, parameters.place());
    if (device.host_memory()) {
      for (const Run& run : runs) add(run, begin, end, data);
      continue;
    }
    auto run = runs.begin();
    for (std::int64_t at = begin; at < end; at += kFetched) {
      const std::int64_t until = std::min(at + kFetched, end);
      piece.resize(static_cast<std::size_t>(until - at));
      device.copy_to_host(piece.data(), data + (at - begin), piece.size() * sizeof(float));
      while (run != runs.end() && run->local + run->count <= at) ++run;
      for (auto next = run; next != runs.end() && next->local < until; ++next)
        add(*next, at, until, piece.data());
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
