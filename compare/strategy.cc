#include "compare/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "compare/quantity.h"

namespace orrery::comparison {
namespace {

constexpr std::array<std::string_view, 5> kRendezvousNames = {"all", "first", "nobody", "bounded",
                                                              "periodic"};
constexpr std::array<std::string_view, 5> kReactions = {"restart", "shrink", "wait", "go-on", "absent"};
constexpr std::array<std::string_view, 4> kLibraries = {"auto", "nccl", "mpi", "gloo"};

constexpr double kMebi = 1 << 20;

// Noticing. A worker is taken to vanish with its host: nobody closes its connections.
// Each with the place in the software's sources that says so; docs/compare.md has the commits.
constexpr std::string_view kWatchdog =
    "PyTorch's NCCL watchdog: 10 minutes (ProcessGroupNCCL.hpp, kProcessGroupNCCLDefaultTimeout)";
constexpr std::string_view kRendezvous =
    "torchrun's rendezvous: 3 keep-alives of 5 s (dynamic_rendezvous.py, keep_alive_interval and "
    "keep_alive_max_attempt)";
constexpr double kTorchGloo_s = 1800;
constexpr std::string_view kTorchGloo =
    "PyTorch's Gloo: 30 minutes (Backend.hpp, kBackendDefaultTimeout; Gloo's own context.cc: 30 s)";
constexpr double kGlooTimeout_s = 30;
constexpr std::string_view kGlooTimeout =
    "Horovod's Gloo: 30 s (gloo_context.cc, HOROVOD_GLOO_TIMEOUT_SECONDS)";
constexpr std::string_view kStallCheck =
    "Horovod's stall check: a warning after 60 s (stall_inspector.h, stall_warning_time_seconds), which ends "
    "nothing by itself: whoever reads it does";
// TensorFlow: since its coordination service stands in for the check of peers (every 30 s, 3 tries of 10 s).
constexpr double kHeartbeat_s = 10;
constexpr std::string_view kHeartbeat =
    "TensorFlow's coordination service: no heartbeat for 10 s (coordination_service.cc, "
    "kDefaultHeartbeatTimeoutMs)";
// The first of five checks fails 10 s after it began, and so does each, 3 s after the one before.
constexpr double kRayHealth_s = 5 * 10 + 4 * 3;
constexpr std::string_view kRayHealth =
    "Ray's health checks: 5 that time out after 10 s, 3 s apart (ray_config_def.h, health_check_*)";
constexpr std::string_view kSaid = "as it was said (notice)";
constexpr std::string_view kProcess = "the process is gone with all of its devices";

const Answer kAllRestart = {Reaction::restart, 600,
                            "its gradient never comes: all hang in the all-reduce, and the job starts again "
                            "from its checkpoint with a replacement, shards as before",
                            kWatchdog};
const Answer kShrinks = {Reaction::shrink, 15,
                         "all stop and meet again without its host; a new sampler deals its shard among them",
                         kRendezvous};
const Answer kProcessGone = {Reaction::restart, 0, "it was the only process: all of it starts again",
                             kProcess};
const Answer kNobody = {};
const Answer kServerGone = {Reaction::restart, kHeartbeat_s,
                            "its part of the parameters is lost: all workers stop, and start again from the "
                            "checkpoint",
                            kHeartbeat};
const Answer kCoordinatorGone = {Reaction::wait, kHeartbeat_s,
                                 "it deals out the steps: workers end theirs and stand until it is back; "
                                 "the parameters are safe on the servers",
                                 kHeartbeat};

Strategy made(std::string name, std::string_view what) {
  Strategy strategy;
  strategy.name = std::move(name);
  strategy.what = what;
  return strategy;
}

Strategy horovod(std::string name, std::string_view what) {
  Strategy s = made(std::move(name), what);
  s.mechanics.bucket_bytes = 128 * kMebi;  // fusion threshold and cycle time since Horovod 0.21
  s.mechanics.cycle_s = 1e-3;
  s.worker = {Reaction::restart, 60,
              "its gradient is never announced: all wait in the negotiation, and the job starts again from "
              "its checkpoint with a replacement",
              kStallCheck};
  s.chief = s.worker;
  s.settings = {"bucket", "cycle",     "algorithm", "compression", "overlap",
                "cache",  "predivide", "autotune",  "library"};
  return s;
}

Strategy torch(std::string name, std::string_view what) {
  Strategy s = made(std::move(name), what);
  s.worker = s.chief = kAllRestart;
  s.settings = {"bucket", "overlap"};
  return s;
}

Strategy servers(std::string name, std::string_view what, Rendezvous rendezvous) {
  Strategy s = made(std::move(name), what);
  s.rendezvous = rendezvous;
  s.mechanics.sync = rendezvous == Rendezvous::all || rendezvous == Rendezvous::first
                         ? Sync::parameter_server
                         : Sync::async_parameter_server;
  s.worker = {
      Reaction::go_on, kHeartbeat_s,
      "the others go on; the coordinator deals its step, and the rest of its shard, to whoever is free",
      kHeartbeat};
  s.chief = kCoordinatorGone;
  s.server = kServerGone;
  s.elastic = true;
  s.settings = {"servers", "bucket", "call", "dispatch"};
  return s;
}

void add_horovod(std::vector<Strategy>& all) {
  all.push_back(horovod("horovod", "Horovod: tensors joined in cycles, all-reduced as the library likes"));
  all.push_back(horovod("horovod-ring", "Horovod over rings"));
  all.back().mechanics.algorithm = Algorithm::ring;
  all.push_back(horovod("horovod-tree", "Horovod over trees"));
  all.back().mechanics.algorithm = Algorithm::tree;
  all.push_back(
      horovod("horovod-hierarchical", "Horovod, summed inside nodes (or rooms) first, then across"));
  all.back().mechanics.in_groups = true;
  all.push_back(horovod("horovod-autotune", "Horovod with the cycle, bucket and hierarchy that suit best"));
  all.back().mechanics.autotune = true;
  all.push_back(horovod("horovod-fp16", "Horovod with gradients sent in fp16"));
  all.back().mechanics.compression = Compression::fp16;
  all.push_back(horovod("horovod-elastic", "elastic Horovod: goes on with the hosts that are left"));
  all.back().worker = {Reaction::shrink, kGlooTimeout_s,
                       "all go back to their last commit and meet again without its host; its shard is dealt "
                       "among them",
                       kGlooTimeout};
  all.back().chief = all.back().worker;
  all.back().elastic = true;
  all.back().mechanics.commit_steps = 10;  // as its examples commit
}

void add_torch(std::vector<Strategy>& all) {
  all.push_back(torch("ddp", "PyTorch DistributedDataParallel: buckets of 25 MiB beside the backward pass"));
  all.back().mechanics.bucket_bytes = 25 * kMebi;
  for (const char* setting : {"algorithm", "compression", "library"}) all.back().settings.push_back(setting);
  all.push_back(all.back());
  all.back().name = "ddp-elastic";
  all.back().what = "DistributedDataParallel under an elastic torchrun";
  all.back().worker = all.back().chief = kShrinks;
  all.back().elastic = true;
  all.push_back(torch("fsdp", "fully sharded: parameters gathered layer by layer (ZeRO-3)"));
  all.back().mechanics.zero = 3;
  all.back().mechanics.overlap_gather = true;
  all.push_back(torch("hsdp", "sharded inside each node, copies over the nodes"));
  all.back().mechanics.zero = 3;
  all.back().mechanics.overlap_gather = true;
  all.back().mechanics.shard_in_node = true;
  all.push_back(made("data-parallel", "torch.nn.DataParallel: one process, all through device 0"));
  all.back().mechanics.sync = Sync::single_process;
  all.back().mechanics.one_node = true;
  all.back().worker = all.back().chief = kProcessGone;
}

void add_sharded(std::vector<Strategy>& all) {
  constexpr std::array<std::string_view, 3> kWhat = {"DeepSpeed ZeRO-1: optimizer states sharded",
                                                     "DeepSpeed ZeRO-2: gradients too",
                                                     "DeepSpeed ZeRO-3: parameters too"};
  for (int stage = 1; stage <= 3; ++stage) {
    all.push_back(
        torch(fmt::format("deepspeed-zero{}", stage), kWhat.at(static_cast<std::size_t>(stage) - 1)));
    all.back().mechanics.zero = stage;
    all.back().mechanics.bucket_parameters = 5e8;  // reduce_bucket_size
  }
  all.push_back(torch("megatron", "Megatron-Core's distributed optimizer, both ways overlapped"));
  all.back().mechanics.zero = 1;
  all.back().mechanics.overlap_gather = true;
  all.back().mechanics.bucket_parameters = 40e6;
  all.back().mechanics.bucket_per_replica = 1e6;
}

void add_tensorflow(std::vector<Strategy>& all) {
  all.push_back(made("mirrored", "MirroredStrategy: one process, one all-reduce behind the backward pass"));
  all.back().mechanics.overlap_reduce = false;
  all.back().mechanics.one_node = true;
  all.back().worker = all.back().chief = kProcessGone;
  all.back().settings = {"bucket"};
  all.push_back(made("multi-worker-mirrored", "MultiWorkerMirroredStrategy: the same over machines"));
  all.back().mechanics.overlap_reduce = false;
  all.back().worker = {
      Reaction::restart, kHeartbeat_s,
      "the coordination service finds it missing and ends them all; they start again from the backup "
      "once it is replaced",
      kHeartbeat};
  all.back().chief = all.back().worker;
  all.back().settings = {"bucket", "algorithm"};
}

void add_servers(std::vector<Strategy>& all) {
  all.push_back(servers("ps-sync", "parameter servers that wait for every worker", Rendezvous::all));
  all.back().worker = {Reaction::wait, kHeartbeat_s,
                       "the servers wait for its gradient: all stand until it is back, then it takes its "
                       "shard up again",
                       kHeartbeat};
  all.back().elastic = false;
  all.push_back(servers("ps-backup", "the same, without waiting for the slowest", Rendezvous::first));
  all.back().mechanics.backups = 1;
  all.back().settings.push_back("backups");
  all.push_back(servers("ps-async", "parameter servers that wait for nobody", Rendezvous::nobody));
  all.push_back(servers("ps-bounded", "the same, nobody far ahead of the slowest", Rendezvous::bounded));
  all.back().mechanics.staleness = 3;
  all.back().settings.push_back("staleness");
  all.push_back(servers("ray-ps", "Ray: workers and one server as actors, steps as tasks that are ready",
                        Rendezvous::nobody));
  all.back().mechanics.servers = 1;
  all.back().worker.notice_s = all.back().chief.notice_s = all.back().server.notice_s = kRayHealth_s;
  all.back().worker.notice_from = all.back().chief.notice_from = all.back().server.notice_from = kRayHealth;
  all.back().worker.why =
      "ray.wait gives whoever is ready: the others go on, and the actor is started again up to max_restarts "
      "times";
  all.back().chief = {Reaction::restart, kRayHealth_s, "the driver owns the actors: all of it starts again",
                      kRayHealth};
  all.back().mechanics.most_restarts = 0;  // ray.remote's max_restarts
  all.back().settings.push_back("max_restarts");
}

void add_ray_train(std::vector<Strategy>& all) {
  all.push_back(
      torch("ray-train", "Ray Train: DistributedDataParallel in actors that its controller starts"));
  all.back().mechanics.bucket_bytes = 25 * kMebi;
  all.back().worker = {Reaction::restart, kRayHealth_s,
                       "the controller ends all workers; they start again from the checkpoint with a "
                       "replacement, up to max_failures times",
                       kRayHealth};
  all.back().chief = {Reaction::restart, kRayHealth_s, "the driver owns the workers: all of it starts again",
                      kRayHealth};
  all.back().mechanics.most_restarts = 0;  // FailureConfig's max_failures
  for (const char* setting : {"algorithm", "compression", "library", "max_failures"})
    all.back().settings.push_back(setting);
  all.push_back(all.back());
  all.back().name = "ray-elastic";
  all.back().what = "Ray Train with num_workers=(1, all): goes on with the nodes that are left";
  all.back().worker.reaction = Reaction::shrink;
  all.back().worker.why =
      "the controller ends all workers and starts as many as there is room for from the checkpoint, up to "
      "max_failures times; their sampler deals its shard among them";
  all.back().elastic = true;
}

void add_local(std::vector<Strategy>& all) {
  all.push_back(made("local-sgd", "steps alone, parameters averaged every so often"));
  all.back().rendezvous = Rendezvous::periodic;
  all.back().mechanics.local_steps = 8;
  all.back().worker = all.back().chief = kAllRestart;
  all.back().settings = {"local_steps", "library"};
  all.push_back(made("diloco", "hundreds of steps alone, an outer optimizer on what they moved"));
  all.back().rendezvous = Rendezvous::periodic;
  all.back().mechanics.local_steps = 500;
  all.back().mechanics.outer_bytes = 8;  // where the last average stood, and its momentum, in fp32
  all.back().worker = {Reaction::go_on, 600,
                       "the others go on; the next average is of those that come, and its shard waits for it",
                       kWatchdog};
  all.back().chief = all.back().worker;
  all.back().elastic = true;
  all.back().settings = {"local_steps", "library"};
}

constexpr std::array<std::string_view, 10> kDefaults = {
    "ddp",      "horovod",   "multi-worker-mirrored", "fsdp", "hsdp", "megatron", "ps-sync",
    "ps-async", "local-sgd", "data-parallel"};

const Strategy* find(std::string_view name) {
  for (const Strategy& strategy : known_strategies())
    if (strategy.name == name) return &strategy;
  return nullptr;
}

[[noreturn]] void refuse(const Strategy& strategy, const std::string& setting, std::string_view expected) {
  throw UserError(fmt::format("`strategies` {}:{}", strategy.name, setting),
                  fmt::format("expected {}", expected));
}

int whole(const Strategy& strategy, const std::string& setting, const std::string& value, int least) {
  const auto number = parse_whole(value);
  if (!number || *number < least || *number > 1'000'000)
    refuse(strategy, setting, fmt::format("a whole number from {} to 1000000", least));
  return static_cast<int>(*number);
}

// Over Gloo a dead worker is noticed when that runs out of patience, be it in an all-reduce or in Horovod's
// negotiation; MPI has no such limit, whoever watches it does.
void use_library(Strategy& strategy, const std::string& setting, const std::string& value) {
  const auto known = std::find(kLibraries.begin(), kLibraries.end(), value);
  if (known == kLibraries.end()) refuse(strategy, setting, fmt::format("{}", fmt::join(kLibraries, ", ")));
  strategy.mechanics.library = static_cast<Library>(known - kLibraries.begin());
  if (strategy.mechanics.library != Library::gloo) return;
  for (Answer* answer : {&strategy.worker, &strategy.chief}) {
    if (answer->notice_from == kWatchdog) {
      answer->notice_s = kTorchGloo_s;
      answer->notice_from = kTorchGloo;
    } else if (answer->notice_from == kStallCheck) {
      answer->notice_s = kGlooTimeout_s;
      answer->notice_from = kGlooTimeout;
    }
  }
}

void apply(Strategy& strategy, const std::string& setting) {
  const auto equals = setting.find('=');
  const std::string key = setting.substr(0, equals);
  if (equals == std::string::npos ||
      std::find(strategy.settings.begin(), strategy.settings.end(), key) == strategy.settings.end())
    refuse(strategy, setting, fmt::format("KEY=VALUE, KEY one of {}", fmt::join(strategy.settings, ", ")));
  const std::string value = setting.substr(equals + 1);
  Mechanics& m = strategy.mechanics;
  if (key == "bucket") {
    const auto bytes = parse_bytes(value);
    if (!bytes) refuse(strategy, setting, "bytes, as 25M (binary); 0: all gradients together");
    m.bucket_bytes = *bytes;
    m.bucket_parameters = m.bucket_per_replica = 0;
  } else if (key == "cycle") {
    // Horovod's own HOROVOD_CYCLE_TIME is a bare number of milliseconds, and ours would be seconds.
    const auto seconds = parse_number(value).value_or(0) == 0 ? parse_seconds(value) : std::nullopt;
    if (!seconds) refuse(strategy, setting, "a time with its unit, as 5ms; HOROVOD_CYCLE_TIME counts ms");
    m.cycle_s = *seconds;
  } else if (key == "algorithm") {
    m.in_groups = value == "hierarchical";
    m.algorithm = value == "auto" || m.in_groups ? std::nullopt : std::optional(algorithm_from_name(value));
  } else if (key == "compression") {
    m.compression = compression_from_name(value);
  } else if (key == "overlap" || key == "cache" || key == "autotune") {
    if (value != "on" && value != "off") refuse(strategy, setting, "on or off");
    (key == "overlap" ? m.overlap_reduce : key == "cache" ? m.response_cache : m.autotune) = value == "on";
  } else if (key == "predivide") {
    const auto factor = parse_number(value);
    if (!factor || !(*factor > 0) || !std::isfinite(*factor)) refuse(strategy, setting, "a number above 0");
    m.predivide = *factor;
  } else if (key == "call" || key == "dispatch") {
    const auto seconds = parse_seconds(value);
    if (!seconds) refuse(strategy, setting, "seconds, as 50us or 1ms");
    (key == "call" ? m.call_s : m.dispatch_s) = *seconds;
  } else if (key == "library") {
    use_library(strategy, setting, value);
  } else if (key == "notice") {
    const auto seconds = parse_seconds(value);
    if (!seconds) refuse(strategy, setting, "seconds, as 0, 30s or 10min");
    for (Answer* answer : {&strategy.worker, &strategy.chief, &strategy.server}) {
      answer->notice_s = *seconds;
      answer->notice_from = kSaid;
    }
  } else if (key == "max_restarts" || key == "max_failures") {
    m.most_restarts = whole(strategy, setting, value, -1);
  } else if (key == "servers") {
    m.servers = whole(strategy, setting, value, 0);
  } else if (key == "staleness") {
    m.staleness = whole(strategy, setting, value, 1);
  } else if (key == "backups") {
    m.backups = whole(strategy, setting, value, 0);
  } else {
    m.local_steps = whole(strategy, setting, value, 1);
  }
  strategy.name += ":" + setting;
}

}  // namespace

std::string_view name_of(Rendezvous rendezvous) {
  return name_in(kRendezvousNames, rendezvous);
}

std::string_view name_of(Reaction reaction) {
  return name_in(kReactions, reaction);
}

std::string_view name_of(Library library) {
  return name_in(kLibraries, library);
}

const std::vector<Strategy>& known_strategies() {
  static const std::vector<Strategy> all = [] {
    std::vector<Strategy> made;
    add_torch(made);
    add_horovod(made);
    add_tensorflow(made);
    add_sharded(made);
    add_servers(made);
    add_ray_train(made);
    add_local(made);
    for (Strategy& strategy : made) strategy.settings.push_back("notice");
    return made;
  }();
  return all;
}

std::vector<Strategy> default_strategies() {
  std::vector<Strategy> chosen;
  for (const std::string_view name : kDefaults) chosen.push_back(*find(name));
  return chosen;
}

std::vector<Strategy> parse_strategies(std::string_view text) {
  if (lower_case(text) == "all") return known_strategies();
  std::vector<Strategy> chosen;
  for (const std::string& one : split(text)) {
    const std::vector<std::string> parts = split(one, ':');
    const Strategy* known = find(lower_case(parts.front()));
    if (known == nullptr) {
      std::vector<std::string> names;
      for (const Strategy& strategy : known_strategies()) names.push_back(strategy.name);
      throw UserError(fmt::format("`strategies` '{}' is unknown", parts.front()),
                      suggestion(parts.front(), names));
    }
    Strategy strategy = *known;
    for (std::size_t i = 1; i < parts.size(); ++i) apply(strategy, parts[i]);
    for (const Strategy& other : chosen)
      if (other.name == strategy.name)
        throw UserError(fmt::format("`strategies` has {} twice", strategy.name), "expected each once");
    chosen.push_back(std::move(strategy));
  }
  return chosen;
}

}  // namespace orrery::comparison
