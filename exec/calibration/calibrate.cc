#include "exec/calibration/calibrate.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>

#include "base/answer/lines.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/statistics.h"
#include "cost/compute_cost.h"
#include "exec/calibration/calibration_fit.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/gather.h"
#include "exec/launch/answers.h"
#include "exec/run/probe.h"
#include "exec/run/process_memory.h"
#include "exec/run/report.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/discover.h"

namespace orrery::exec {
namespace {

// Models whose operators are timed: widths, sequence lengths, rows of a micro-batch and vocabularies around
// what fits a processor, of both families. Few rows on wide layers matter: there a product streams its
// weights.
constexpr Probe kProbes[] = {
    {false, 64, 4, 2, 512, 64, 4},    {false, 256, 4, 2, 1024, 128, 2},
    {true, 128, 4, 2, 512, 256, 1},   kReferenceProbe,
    {true, 512, 8, 1, 2048, 512, 1},  {false, 1024, 16, 1, 2048, 64, 2},
    {false, 768, 12, 2, 8192, 64, 1}, {true, 1024, 16, 1, 4096, 32, 1},
    {false, 512, 8, 2, 16384, 16, 1}, {true, 768, 12, 2, 8192, 8, 1},
};
constexpr int kProbeRounds = 4;  // over all probes, so that a disturbance of seconds is outvoted
constexpr int kScalingRounds = 5;
// On a machine that is busy with other things no more rounds are begun after this long, of each kind.
constexpr double kPatience_s = 45;
constexpr double kCalm = 1.5;  // the fastest by the slowest pace of a machine that nothing else uses

double median_of(const std::vector<BusySeconds>& times, double BusySeconds::*which) {
  std::vector<double> values;
  for (const BusySeconds& t : times) values.push_back(t.*which);
  return upper_median(std::move(values));
}

// Whether any rank has waited long enough: all must agree on how many rounds there are.
bool long_since(Communicator& world, double begin) {
  float elapsed = static_cast<float>(steady_seconds() - begin);
  world.all_reduce(&elapsed, &elapsed, 1, DType::fp32, Reduction::max)->wait();
  return elapsed > static_cast<float>(kPatience_s);
}

// Each operator's mean time over steps and micro-batches, equal operators of several layers averaged: a step
// pays for the slow ones too.
std::vector<Observation> observe(const Probe& probe) {
  const Plan plan = plan_of(probe);
  std::map<std::pair<int, ComputeKind>, std::vector<double>> times;
  run_observed(plan, [&](int op, ComputeKind kind, int, double seconds) {
    times[{op, kind}].push_back(seconds);
  });
  // Some operators have nothing to do one way: a residual's gradient is its output's, the loss leaves the
  // gradient of the logits behind going forward.
  for (std::size_t op = 0; op < plan.job->workload.operators.size(); ++op)
    for (const ComputeKind kind : {ComputeKind::forward, ComputeKind::backward})
      times.try_emplace({static_cast<int>(op), kind});
  const Shard shard = shard_of(plan);
  std::map<std::tuple<std::string, ComputeKind>, std::pair<Observation, int>> same;
  for (auto& [key, samples] : times) {
    if (key.first < 0) continue;  // the optimizer
    const Operator& op = plan.job->workload.operators[static_cast<std::size_t>(key.first)];
    // "h.0.qkv" and "h.1.qkv" are the same operator.
    const std::string name = op.name.substr(op.name.rfind('.') + 1);
    auto& [observation, count] = same[{name, key.second}];
    observation.kind = op.kind;
    observation.backward = key.second == ComputeKind::backward;
    observation.work = operator_work(op, key.second, shard, plan.job->runtime);
    observation.seq_len = probe.seq_len;
    observation.seconds += mean(samples);
    ++count;
  }
  std::vector<Observation> observations;
  for (auto& [key, entry] : same) {
    entry.first.seconds /= entry.second;
    observations.push_back(std::move(entry.first));
  }
  return observations;
}

// The operators' times as if the machine had kept one pace, and the reference's at that pace.
struct Observed {
  std::vector<Observation> observations;
  BusySeconds reference;  // every rank busy
  // The slowest and the fastest that the machine was, beside that.
  double least_pace = 1;
  double most_pace = 1;
};

// All samples of all ranks, on rank 0; elsewhere this rank's own.
std::vector<double> of_all_ranks(Communicator& world, std::vector<double> samples) {
  const std::string mine(reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(double));
  for (const std::string& bytes : gather_to_root(world, mine)) {
    const std::size_t known = samples.size();
    samples.resize(known + bytes.size() / sizeof(double));
    std::memcpy(samples.data() + known, bytes.data(), bytes.size());
  }
  return samples;
}

// All probes, every rank at once; rank 0 gets the median over rounds and ranks of each operator's time, the
// others their own. Other tenants of a host slow it by a third for a minute: the reference runs between any
// two probes, and what was measured while it took longer than it typically does counts as so much shorter.
Observed observe_all(Communicator& world, Reference& reference) {
  Observed observed;
  std::vector<std::vector<double>> samples;
  std::vector<BusySeconds> paces = {reference.seconds(world.size())};
  const double begin = steady_seconds();
  int rounds = 0;
  while (rounds < kProbeRounds && (rounds == 0 || !long_since(world, begin))) {
    std::size_t at = 0;
    for (std::size_t probe = 0; probe < std::size(kProbes); ++probe) {
      for (Observation& o : observe(kProbes[probe])) {
        if (rounds == 0) {
          o.model = static_cast<int>(probe);
          observed.observations.push_back(o);
          samples.emplace_back();
        }
        samples[at++].push_back(o.seconds);
      }
      paces.push_back(reference.seconds(world.size()));
    }
    ++rounds;
  }
  observed.reference = {median_of(paces, &BusySeconds::mean), median_of(paces, &BusySeconds::slowest)};
  for (const BusySeconds& pace : paces) {
    observed.least_pace = std::min(observed.least_pace, observed.reference.mean / pace.mean);
    observed.most_pace = std::max(observed.most_pace, observed.reference.mean / pace.mean);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (int round = 0; round < rounds; ++round) {
      const std::size_t probe = round * std::size(kProbes) + observed.observations[i].model;
      samples[i][round] *= 2 * observed.reference.mean / (paces[probe].mean + paces[probe + 1].mean);
    }
    observed.observations[i].seconds = upper_median(of_all_ranks(world, std::move(samples[i])));
  }
  return observed;
}

double shortest_of(int repeats, const std::function<void()>& work) {
  double best = INFINITY;
  for (int i = 0; i < repeats; ++i) {
    const double begin = steady_seconds();
    work();
    best = std::min(best, steady_seconds() - begin);
  }
  return best;
}

// ---- Processor ----

struct Streams {
  double copy_bytes_per_s = 0;    // read and written
  double stream_bytes_per_s = 0;  // two streams read, one written
  double reduce_bytes_per_s = 0;  // one buffer added to another, by the buffer
  double optimizer_bytes_per_s = 0;
};

Streams measure_streams() {
  constexpr std::size_t kElements = 8U << 20;   // far beyond the caches of a core
  constexpr std::size_t kReduced = 256U << 10;  // a collective's part of a gradient bucket
  const auto device = make_cpu_device();
  std::vector<float*> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(static_cast<float*>(device->allocate(kElements * sizeof(float))));
    device->fill(buffers.back(), kElements, 1e-3F);
  }
  constexpr double kBytes = kElements * sizeof(float);
  Streams streams;
  streams.copy_bytes_per_s =
      2 * kBytes / shortest_of(4, [&] { device->copy(buffers[0], buffers[1], kElements * sizeof(float)); });
  streams.stream_bytes_per_s =
      3 * kBytes / shortest_of(4, [&] { device->add(buffers[0], buffers[1], kElements); });
  streams.reduce_bytes_per_s =
      kReduced * sizeof(float) / shortest_of(16, [&] { device->add(buffers[0], buffers[1], kReduced); });
  const RuntimeProfile runtime = catalog_runtime("orrery");
  double product = 1;
  const auto rate = [&](Optimizer optimizer, const std::function<void()>& work) {
    product *=
        optimizer_traffic_per_parameter(optimizer, DType::fp32, runtime) * kElements / shortest_of(3, work);
  };
  rate(Optimizer::sgd, [&] { device->sgd(buffers[0], buffers[1], kElements, 1e-3F); });
  rate(Optimizer::momentum,
       [&] { device->momentum(buffers[0], buffers[1], buffers[2], kElements, 1e-3F, 0.9F); });
  rate(Optimizer::adam, [&] {
    device->adam(buffers[0], buffers[1], buffers[2], buffers[3], kElements, AdamConstants{.rate = 1e-3F}, 1);
  });
  streams.optimizer_bytes_per_s = std::cbrt(product);
  for (float* buffer : buffers) device->release(buffer);
  return streams;
}

// Bytes of the rotary embedding by its seconds: the cost model prices it apart from the product it follows.
double measure_rotary() {
  const AttentionSize size{4, 128, 8, 8, 64, true};
  RotaryAngles angles;
  angles.pairs = size.head_dim / 2;
  for (int pair = 0; pair < angles.pairs; ++pair)
    angles.frequency[static_cast<std::size_t>(pair)] = std::pow(10000.0, -2.0 * pair / size.head_dim);
  const auto device = make_cpu_device();
  const std::size_t elements = static_cast<std::size_t>(size.batch) * size.seq * size.qkv_columns();
  auto* qkv = static_cast<float*>(device->allocate(elements * sizeof(float)));
  device->fill(qkv, elements, 1);
  const double seconds = shortest_of(8, [&] { device->rotary(size, qkv, angles, false); });
  device->release(qkv);
  const double rotated =
      static_cast<double>(size.batch) * size.seq * (size.heads + size.kv_heads) * size.head_dim;
  return 2 * rotated * sizeof(float) / seconds;
}

void set_rate(DeviceProfile& profile, const std::string& family, double bytes_per_s) {
  for (VectorModel& model : profile.vector)
    if (model.operator_name == family) {
      model = {family, bytes_per_s, 0};
      return;
    }
  profile.vector.push_back({family, bytes_per_s, 0});
}

struct Concurrency {
  std::vector<double> slowest;  // speed that is left to the slowest when 1, 2, … ranks are busy
  double mean = 1;              // and to each on average when all are
};

// Medians, and not the best seen: what disturbs the cores here will disturb them in training.
Concurrency measure_concurrency(Communicator& world, Reference& reference) {
  std::vector<double> typical(static_cast<std::size_t>(world.size()), INFINITY);
  const auto measured = [&](int busy) {
    // Every count up to four, then powers of two and all: what lies between is interpolated.
    return busy <= 4 || std::has_single_bit(static_cast<unsigned>(busy)) || busy == world.size();
  };
  std::vector<std::vector<double>> samples(typical.size());
  std::vector<double> all_busy;
  const double begin = steady_seconds();
  for (int round = 0; round < kScalingRounds && (round == 0 || !long_since(world, begin)); ++round)
    for (int busy = 1; busy <= world.size(); ++busy)
      if (measured(busy)) {
        const BusySeconds seconds = reference.seconds(busy);
        samples[static_cast<std::size_t>(busy) - 1].push_back(seconds.slowest);
        if (busy == world.size()) all_busy.push_back(seconds.mean);
      }
  for (std::size_t i = 0; i < typical.size(); ++i)
    if (!samples[i].empty()) typical[i] = upper_median(std::move(samples[i]));
  Concurrency concurrency;
  concurrency.mean = std::min(1.0, typical[0] / upper_median(std::move(all_busy)));
  std::vector<double>& scale = concurrency.slowest;
  for (int busy = 1; busy <= world.size(); ++busy)
    scale.push_back(measured(busy) ? std::min(1.0, typical[0] / typical[static_cast<std::size_t>(busy) - 1])
                                   : 0);
  for (std::size_t i = 1; i < scale.size(); ++i)
    if (scale[i] == 0) {
      std::size_t next = i;
      while (scale[next] == 0) ++next;
      for (std::size_t j = i; j < next; ++j)
        scale[j] = scale[i - 1] + (scale[next] - scale[i - 1]) * static_cast<double>(j - i + 1) /
                                      static_cast<double>(next - i + 1);
    }
  // More busy cores never make one faster; noise may say so.
  for (std::size_t i = 1; i < scale.size(); ++i) scale[i] = std::min(scale[i], scale[i - 1]);
  return concurrency;
}

// ---- Messages ----

// Shortest mean over `batch` messages in a row: a barrier between any two would be measured with them.
double exchange_seconds(Communicator& world, std::size_t bytes, bool ring, int repeats, int batch) {
  std::vector<char> out(std::max<std::size_t>(bytes, 1));
  std::vector<char> in(out.size());
  const int n = world.size();
  const int next = (world.rank() + 1) % n;
  const int previous = (world.rank() + n - 1) % n;
  double best = INFINITY;
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    const double begin = steady_seconds();
    for (int j = 0; j < batch; ++j) {
      if (ring) {
        const MessageSpec both[] = {{previous, in.data(), bytes, 0, false},
                                    {next, out.data(), bytes, 0, true}};
        world.exchange(both)->wait();
      } else if (world.rank() < 2) {
        const int other = 1 - world.rank();
        const MessageSpec send{other, out.data(), bytes, 0, true};
        const MessageSpec receive{other, in.data(), bytes, 0, false};
        for (int turn = 0; turn < 2; ++turn)
          world.exchange({turn == world.rank() ? &send : &receive, 1})->wait();
      }
    }
    best = std::min(best, (steady_seconds() - begin) / batch);
  }
  return ring ? best : best / 2;
}

void measure_messages(Communicator& world, CommunicationProfile& profile) {
  profile.message_times.clear();
  for (std::size_t bytes = 64; bytes <= (16U << 20); bytes *= 4) {
    const int repeats = bytes < 2'000'000 ? 30 : 8;
    const int batch = bytes < 100'000 ? 20 : 2;
    // The slowest rank's view decides: a collective's round ends when all have finished.
    float times[2] = {static_cast<float>(exchange_seconds(world, bytes, false, repeats, batch)),
                      static_cast<float>(exchange_seconds(world, bytes, true, repeats, batch))};
    if (world.rank() >= 2) times[0] = 0;
    world.all_reduce(times, times, 2, DType::fp32, Reduction::max)->wait();
    MessageTime point;
    point.bytes = static_cast<double>(bytes);
    point.one_way_s = static_cast<double>(times[0]);
    point.exchange_s = static_cast<double>(times[1]);
    profile.message_times.push_back(point);
  }
  const MessageTime& shortest = profile.message_times.front();
  const MessageTime& longest = profile.message_times.back();
  profile.point_to_point_latency_s = shortest.one_way_s;
  profile.point_to_point_bytes_per_s = longest.bytes / longest.one_way_s;
  profile.intra_efficiency = std::clamp(longest.one_way_s / longest.exchange_s, 0.01, 1.0);
  float value = 1;
  const double whole =
      shortest_of(200, [&] { world.all_reduce(&value, &value, 1, DType::fp32, Reduction::max)->wait(); });
  const double rounds = std::ceil(std::log2(world.size()));
  profile.collective_overhead_s = std::max(0.0, whole - rounds * shortest.exchange_s);
}

// One line an operator: what it does, how long it took, and what the fitted model says.
std::string observations_csv(const std::vector<Observation>& observations, const DeviceProfile& profile) {
  std::string csv = "operator,direction,seq_len,products,attention_flops,vector_bytes,seconds,predicted_s\n";
  const RuntimeProfile runtime = catalog_runtime("orrery");
  for (const Observation& o : observations) {
    Shard shard;
    shard.seq_len = static_cast<int>(o.seq_len);
    shard.precision = DType::fp32;
    const double predicted = work_seconds(
        o.work, o.kind, o.backward ? ComputeKind::backward : ComputeKind::forward, shard, profile, runtime);
    std::string products;
    for (const Product& p : o.work.products)
      products += fmt::format("{}{:.0f}x{:.0f}x{:.0f}", products.empty() ? "" : " ", p.m, p.n, p.k);
    csv += fmt::format("{},{},{:.0f},{},{:.0f},{:.0f},{:.9f},{:.9f}\n", name_of(o.kind),
                       o.backward ? "backward" : "forward", o.seq_len, products, o.work.attention_flops,
                       o.work.vector_bytes, o.seconds, predicted);
  }
  return csv;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

MachineAnswer answer_of(const Cluster& cluster, const Observed& observed, const FitQuality& quality,
                        const std::string& file, double seconds) {
  const DeviceProfile& profile = cluster.profiles.front();
  return {machine_signature(),
          file,
          seconds,
          static_cast<std::int64_t>(quality.observations),
          quality.matmul_median_error,
          quality.attention_median_error,
          quality.vector_median_error,
          profile.memory_bandwidth_bytes_per_s,
          {profile.concurrency_scale.begin(), profile.concurrency_scale.end()},
          observed.least_pace,
          observed.most_pace,
          profile.reference_s,
          cluster.communication.point_to_point_latency_s,
          cluster.communication.point_to_point_bytes_per_s};
}

// `keep`: the speed that a core keeps while all are busy.
void print_summary(const Cluster& cluster, const Observed& observed, const FitQuality& quality, double keep) {
  std::string text;
  const DeviceProfile& profile = cluster.profiles.front();
  const auto fp32 = static_cast<std::size_t>(DType::fp32);
  const MatmulModel& matmul = profile.matmul[fp32];
  text += fmt::format("{}\n", machine_signature());
  text += fmt::format(
      "  products   {} a core at most (half k {:.0f}, tile {:.0f}); median error {:.1f}% on models left "
      "out\n",
      human_flops_rate(matmul.efficiency * profile.peak_flops_per_s[fp32]), matmul.half_k, matmul.tile_m,
      100 * quality.matmul_median_error);
  text += fmt::format("  attention  median error {:.1f}%; other operators {:.1f}%; {} operators observed\n",
                      100 * quality.attention_median_error, 100 * quality.vector_median_error,
                      quality.observations);
  text +=
      fmt::format("  memory     {} a core; optimizer {}\n", human_rate(profile.memory_bandwidth_bytes_per_s),
                  human_rate(keep / optimizer_seconds(1, profile)));
  text += fmt::format("  {} busy cores keep {:.0f}% of their speed, the slowest at a time {:.0f}%\n",
                      profile.concurrency_scale.size(), 100 * keep, 100 * profile.concurrency_scale.back());
  text += fmt::format(
      "  pace       {:.0f}% to {:.0f}% of its typical one while models were measured{}\n",
      100 * observed.least_pace, 100 * observed.most_pace,
      observed.most_pace > kCalm * observed.least_pace ? ": calibrate again when it is calmer" : "");
  if (cluster.communication.calibrated)
    text +=
        fmt::format("  messages   {} and {}\n", human_seconds(cluster.communication.point_to_point_latency_s),
                    human_rate(cluster.communication.point_to_point_bytes_per_s));
  fmt::print("{}", wrapped(text));
}

}  // namespace

void calibrate(Communicator& world, const CalibrationOptions& options) {
  const double begin = steady_seconds();
  const double context = resident_bytes();
  const std::string file = options.out.empty() ? localhost_calibration_file().string() : options.out;
  if (world.rank() == 0) {
    for (const std::string& written : {options.out, options.observations, options.json})
      check_writable(written);
    std::error_code code;  // whatever it is, the file cannot be written
    if (options.out.empty())
      std::filesystem::create_directories(localhost_calibration_file().parent_path(), code);
    check_writable(file);
  }
  Cluster cluster = discover_uncalibrated_localhost();
  DeviceProfile& profile = cluster.profiles.at(static_cast<std::size_t>(cluster.groups.front().node.profile));
  const auto tell = [&](const std::string& what) {
    if (world.rank() == 0) fmt::print(stderr, "{:5.1f} s  {}\n", steady_seconds() - begin, what);
  };
  tell("operators of small models, every core busy");
  Reference reference(world);
  Observed observed = observe_all(world, reference);
  std::vector<Observation>& observations = observed.observations;
  const Streams streams = measure_streams();
  const double rotary = measure_rotary();
  tell("how much cores slow each other");
  const Concurrency concurrency = measure_concurrency(world, reference);
  profile.concurrency_scale = concurrency.slowest;
  profile.reference_s = observed.reference.slowest * concurrency.slowest.back();  // on one busy core
  if (world.size() > 1) {
    tell("messages between ranks");
    measure_messages(world, cluster.communication);
  }
  if (world.rank() != 0) return;

  tell("fit");
  // Measured with every core busy; the profile describes a core alone, and the scale leads back.
  const double keep = concurrency.mean;
  for (Observation& o : observations) o.seconds *= keep;
  double fastest = 0;
  for (const Observation& o : observations)
    if (!o.work.products.empty() && o.seconds > 0) fastest = std::max(fastest, o.work.flops / o.seconds);
  double& peak = profile.peak_flops_per_s[static_cast<std::size_t>(DType::fp32)];
  peak = std::max(peak, fastest);  // a clock above the one that the kernel names
  profile.memory_bandwidth_bytes_per_s = streams.stream_bytes_per_s / keep;
  profile.memory_efficiency = 1;
  profile.context_bytes = context;
  const FitQuality quality = fit_device(observations, profile);
  set_rate(profile, "optimizer", streams.optimizer_bytes_per_s / keep);
  set_rate(profile, "copy", streams.copy_bytes_per_s / keep);
  set_rate(profile, "softmax", rotary / keep);
  const std::string record =
      fmt::format("measured by `{}` on {}; {}", options.command, today(), machine_signature());
  profile.calibrated = true;
  profile.source = record;
  cluster.source = record;
  cluster.communication.reduce_bytes_per_s = streams.reduce_bytes_per_s;
  cluster.communication.calibrated = world.size() > 1;
  if (world.size() > 1) cluster.communication.source = fmt::format("{}; {}", record, options.library);

  write_cluster_file(cluster, file);

  if (!options.observations.empty())
    write_file_atomically(options.observations, observations_csv(observations, profile));

  const double seconds = steady_seconds() - begin;
  if (!deliver("calibrate", machine_record().json(answer_of(cluster, observed, quality, file, seconds)),
               options.json))
    return;
  fmt::print("This machine is calibrated, in {:.0f} s:\n  {}\n", seconds, file);
  print_summary(cluster, observed, quality, keep);
}

}  // namespace orrery::exec
