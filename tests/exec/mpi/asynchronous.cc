// What asynchronous servers promise: one worker trains as one rank does, several nearly as synchronous ones
// do; nobody is ahead of the bound; every batch is trained once; all end with the same parameters.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "equivalence.h"
#include "exec/communicators/collectives.h"
#include "exec/communicators/gather.h"
#include "exec/math/objective.h"
#include "exec/run/interpreter.h"
#include "gpu.h"
#include "program/lower/lowering.h"
#include "training_runs.h"

namespace orrery::exec::test {
namespace {

// On GPUs one rank trains on processors beside it.
double same() {
  return gpu_suite() == nullptr ? 0 : 1e-4;
}

// This machine's first GPU, which all share, or its processors.
TrainedOn trained_on(Communicator& world) {
  if (const GpuSuite* gpu = gpu_suite()) return gpu->first(world);
  return {make_cpu_device(), beneath_device(world)};
}

struct AsynchronousCase {
  std::string name;
  PlanCase plan;
  int only_worker = -1;  // that trains; -1: all
  int slow_worker = -1;  // that sleeps before every batch
  bool twice = false;    // in two parts, as with a checkpoint between
  double tolerance = 0;  // of the mean loss of the last steps; 0: the losses are the serial ones
};

struct Seen {
  std::vector<double> loss;             // by step
  std::vector<std::int64_t> batches;    // all, in the order of the ranks
  std::vector<std::int64_t> of_rank;    // how many
  std::vector<std::string> parameters;  // of each rank
  Staleness staleness;
};

template <typename T>
std::string bytes_of_vector(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> vector_of_bytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(reinterpret_cast<const T*>(bytes.data()), values.size(), values.begin());
  return values;
}

Seen train(const AsynchronousCase& c, const Plan& plan, Communicator& world) {
  const TrainedOn engine = trained_on(world);
  const Program program = lower(plan, world.rank());
  const Training& training = plan.job->training;
  const TextData text(kDefaultText, kSeqLen, training.seed, training.global_batch);
  Interpreter interpreter(plan, program, *engine.device, *engine.world, text);
  const int replicas = plan.choices.dp;
  const double rate = interpreter.parameters().learning_rate();
  std::vector<double> loss(static_cast<std::size_t>(c.plan.steps), 0);
  std::vector<std::int64_t> batches;
  AsynchronousServers& servers = interpreter.servers();
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    servers.begin(
        begin * replicas, end * replicas, [rate](std::int64_t) { return rate; }, begin);
    const bool trains = c.only_worker < 0 || c.only_worker == world.rank();
    while (const auto batch = trains ? servers.next() : std::nullopt) {
      if (c.slow_worker == world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      interpreter.run_batch(*batch);
      loss[static_cast<std::size_t>(*batch / replicas)] +=
          interpreter.loss_sum() /
          static_cast<double>(training.global_batch * predictions_per_sample(*plan.job));
      batches.push_back(*batch);
    }
    servers.finish();
  };
  const std::int64_t half = c.twice ? c.plan.steps / 2 : 0;
  if (half > 0) run(0, half);
  run(half, c.plan.steps);

  Seen seen;
  seen.loss.assign(loss.size(), 0);
  for (const std::string& part : gather_to_root(world, bytes_of_vector(loss)))
    for (std::size_t s = 0; s < loss.size(); ++s) seen.loss[s] += vector_of_bytes<double>(part)[s];
  for (const std::string& part : gather_to_root(world, bytes_of_vector(batches))) {
    const auto some = vector_of_bytes<std::int64_t>(part);
    seen.of_rank.push_back(static_cast<std::int64_t>(some.size()));
    seen.batches.insert(seen.batches.end(), some.begin(), some.end());
  }
  std::string mine;
  const Parameters& parameters = interpreter.parameters();
  for (int b = 0; b < parameters.buckets(); ++b) {
    std::string bucket(static_cast<std::size_t>(parameters.elements(b)) * sizeof(float), 0);
    engine.device->copy_to_host(bucket.data(), parameters.weights(b), bucket.size());
    mine += bucket;
  }
  seen.parameters = gather_to_root(world, mine);
  const Staleness own = servers.staleness();
  for (const std::string& part :
       gather_to_root(world, std::string(reinterpret_cast<const char*>(&own), sizeof(own)))) {
    const Staleness one = vector_of_bytes<Staleness>(part).front();
    seen.staleness.pushes += one.pushes;
    seen.staleness.updates += one.updates;
    seen.staleness.most_updates = std::max(seen.staleness.most_updates, one.most_updates);
    seen.staleness.most_ahead = std::max(seen.staleness.most_ahead, one.most_ahead);
  }
  return seen;
}

// The losses of one rank that trains the same samples: every batch of the whole step, or, where one worker
// trains alone, batch after batch.
std::vector<double> serial_losses(const AsynchronousCase& c, const Plan& plan) {
  PlanCase serial = serial_of(c.plan);
  Plan one = make_plan(serial);
  auto job = std::make_shared<Job>(*one.job);
  const int parts = c.only_worker >= 0 ? plan.choices.dp : 1;
  job->training.global_batch /= parts;
  job->training.learning_rate /= parts;  // a batch's gradient is its share of the step's
  one.job = job;
  const auto self = make_self_communicator();
  const auto device = make_cpu_device();
  const Program program = lower(one, 0);
  const TextData text(kDefaultText, kSeqLen, job->training.seed, job->training.global_batch);
  Interpreter interpreter(one, program, *device, *self, text);
  std::vector<double> loss(static_cast<std::size_t>(c.plan.steps), 0);
  for (int step = 0; step < c.plan.steps * parts; ++step) {
    interpreter.run_step(step);
    loss[static_cast<std::size_t>(step / parts)] +=
        interpreter.loss_sum() / static_cast<double>(kGlobalBatch * predictions_per_sample(*job));
  }
  return loss;
}

std::string fault_of(const AsynchronousCase& c, const Plan& plan, const Seen& seen,
                     const std::vector<double>& serial) {
  const Choices& choices = plan.choices;
  const std::set<std::int64_t> distinct(seen.batches.begin(), seen.batches.end());
  const auto wanted = static_cast<std::size_t>(c.plan.steps) * static_cast<std::size_t>(choices.dp);
  if (seen.batches.size() != wanted || distinct.size() != wanted ||
      *distinct.rbegin() + 1 != static_cast<std::int64_t>(wanted))
    return fmt::format("{} batches of {} were trained", distinct.size(), wanted);
  for (const std::string& other : seen.parameters)
    if (other != seen.parameters.front()) return "the ranks end with different parameters";
  const int bound = choices.staleness;
  if (bound > 0 && seen.staleness.most_ahead > bound)
    return fmt::format("a worker was {} steps ahead", seen.staleness.most_ahead);
  // While a worker trains, each other may push what it was behind, what it may be ahead, and one under way.
  if (bound > 0 && seen.staleness.most_updates > (2 * bound + 1) * (choices.dp - 1))
    return fmt::format("a push was {} updates stale", seen.staleness.most_updates);
  const double expected = mean_of_last(serial);
  const double error = std::abs(mean_of_last(seen.loss) - expected) / expected;
  if (c.tolerance > 0)
    return error <= c.tolerance ? "" : fmt::format("the last losses are {:.1f}% off", 100 * error);
  if (seen.staleness.most_updates > 0) return "one worker alone has stale parameters";
  for (std::size_t s = 0; s < serial.size(); ++s)
    if (!(std::abs(seen.loss[s] - serial[s]) <= same() * serial[s]))
      return fmt::format("loss of step {}: {} instead of {}", s, seen.loss[s], serial[s]);
  return "";
}

PlanCase servers(int workers, int count, int staleness, Optimizer optimizer) {
  PlanCase c;
  c.choices.dp = workers;
  c.choices.micro_batch = kGlobalBatch / workers > 1 && workers < 4 ? 2 : 1;
  c.choices.sync = Sync::async_parameter_server;
  c.choices.servers = count;
  c.choices.staleness = staleness;
  c.optimizer = optimizer;
  c.steps = 40;
  return c;
}

std::vector<AsynchronousCase> cases(int ranks) {
  std::vector<AsynchronousCase> all;
  // Powers of two, so that shares of the rate and of the gradient are exact.
  if (ranks == 2) {
    for (const int count : {1, 2})
      for (const int worker : {0, 1})
        all.push_back({fmt::format("worker {} alone with {} servers", worker, count),
                       servers(2, count, 0, Optimizer::sgd), worker});
  }
  // Who is ready decides what is trained: -2.9% to +5.5% was seen, where the untrained model is 67% off.
  constexpr double kNear = 0.1;
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::momentum, Optimizer::adam})
    all.push_back({fmt::format("{} with 1 server", name_of(optimizer)), servers(ranks, 1, 0, optimizer), -1,
                   -1, false, kNear});
  all.push_back({"a server each", servers(ranks, ranks, 0, Optimizer::sgd), -1, -1, true, kNear});
  for (const int bound : {1, 3}) {
    AsynchronousCase c{fmt::format("at most {} ahead of a slow worker", bound),
                       servers(ranks, 2, bound, Optimizer::sgd),
                       -1,
                       ranks - 1,
                       false,
                       kNear};
    all.push_back(c);
  }
  all.push_back({"a slow worker", servers(ranks, 1, 0, Optimizer::adamw), -1, ranks - 1, false, kNear});
  AsynchronousCase narrow{"bf16", servers(ranks, ranks, 2, Optimizer::sgd), -1, -1, false, kNear};
  narrow.plan.precision = DType::bf16;
  all.push_back(narrow);
  // Not with momentum: old gradients act as more of it (arXiv 1605.09774), and this model then overshoots now
  // and then (12% off was seen once).
  AsynchronousCase late{"no overlap, llama", servers(ranks, 1, 1, Optimizer::adam), -1, 0, true, kNear};
  late.plan.choices.overlap_grad_reduce = false;
  late.plan.llama = true;
  all.push_back(late);
  if (gpu_suite() == nullptr) return all;
  // Of each kind one, and fewer steps: what is emulated is slow.
  const std::set<std::string> some = {"worker 1 alone with 2 servers", "a server each",
                                      "at most 1 ahead of a slow worker", "bf16"};
  std::erase_if(all, [&](const AsynchronousCase& c) { return some.count(c.name) == 0; });
  for (AsynchronousCase& c : all) c.plan.steps = 8;
  return all;
}

}  // namespace

int check_asynchronous(Communicator& world) {
  int faults = 0;
  for (const AsynchronousCase& c : cases(world.size())) {
    if (kGlobalBatch % (world.size() * c.plan.choices.micro_batch) != 0) continue;
    const Plan plan = make_plan(c.plan);
    const Seen seen = train(c, plan, world);
    if (world.rank() == 0) {
      const std::vector<double> serial = serial_losses(c, plan);
      const std::string fault = fault_of(c, plan, seen, serial);
      const double expected = mean_of_last(serial);
      fmt::print(
          "{:<36} loss {:.4f} -> {:.4f} ({:+.2f}%)  stale {:.1f} (at most {:.0f}), ahead {:.0f}, "
          "batches {}  {}\n",
          c.name, seen.loss.front(), mean_of_last(seen.loss),
          100 * (mean_of_last(seen.loss) - expected) / expected,
          seen.staleness.updates / static_cast<double>(seen.staleness.pushes), seen.staleness.most_updates,
          seen.staleness.most_ahead, fmt::join(seen.of_rank, " "), fault.empty() ? "as promised" : fault);
      if (!fault.empty()) ++faults;
    }
    world.barrier();
  }
  return faults;
}

}  // namespace orrery::exec::test
