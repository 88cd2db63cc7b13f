#include "planner/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/error.h"

namespace orrery::planner {
namespace {

// Fewest tokens of a sequence that context parallelism leaves a rank, unless pinned: with fewer, other
// dimensions save the same memory for less traffic.
constexpr int kContextTokens = 4096;

// Values of one dimension: the pinned one, or those that are searched.
std::vector<int> values(const std::optional<int>& pin, std::vector<int> searched) {
  return pin ? std::vector<int>{*pin} : std::move(searched);
}

// Tensor parallelism wants the fast links: it stays inside the smallest node unless pinned beyond.
int smallest_node(const Cluster& cluster) {
  int devices = cluster.groups.front().node.devices;
  for (const NodeGroup& group : cluster.groups) devices = std::min(devices, group.node.devices);
  return std::min(devices, cluster.devices());
}

int experts_of(const Workload& workload) {
  return workload.transformer && workload.transformer->moe ? workload.transformer->moe->experts : 0;
}

class Enumerator {
 public:
  Enumerator(std::shared_ptr<const Job> job, const Pins& pins,
             const std::function<void(const Choices&)>& visit)
      : job_(std::move(job)), pins_(pins), visit_(visit), world_(job_->cluster.devices()) {}

  void run() {
    check_pins();
    const std::vector<int> tps = values(pins_.tp, divisors(smallest_node(job_->cluster)));
    for (const int tp : tps) {
      if (world_ % tp != 0) continue;
      for (const int pp : stages(tp)) {
        for (const int cp : context(tp, pp)) {
          Choices choices = fixed();
          choices.tp = tp;
          choices.pp = pp;
          choices.cp = cp;
          choices.dp = world_ / (tp * pp * cp);
          if (pins_.dp && *pins_.dp != choices.dp) continue;
          if (job_->training.global_batch % choices.dp != 0) continue;
          if (!plausible(choices)) continue;
          for_experts(choices);
        }
      }
    }
    if (empty_) refuse();
  }

 private:
  // Contradictions that no choice of the free dimensions can heal.
  void check_pins() const {
    const auto product = std::int64_t{pins_.tp.value_or(1)} * pins_.pp.value_or(1) * pins_.dp.value_or(1) *
                         pins_.cp.value_or(1);
    const bool all = pins_.tp && pins_.pp && pins_.dp;
    if (world_ % product != 0 || (all && product != world_))
      throw UserError(
          fmt::format("tp*pp*dp*cp = {} {} the {} devices of {}", product,
                      world_ % product != 0 ? "does not divide" : "is not", world_, job_->cluster.name),
          "expected a layout of all devices; --nodes or --gpus say how many there are");
    const std::int64_t batch = job_->training.global_batch;
    const std::int64_t share = std::int64_t{pins_.dp.value_or(1)} * pins_.micro_batch.value_or(1);
    if (batch % share != 0)
      throw UserError(
          fmt::format("the global batch of {} is not a multiple of dp*micro_batch = {}", batch, share),
          "expected --global-batch to be dp * micro-batch * micro-batches");
    if (pins_.interleave && *pins_.interleave > 1 && pins_.schedule &&
        *pins_.schedule != Schedule::interleaved)
      throw UserError(fmt::format("--interleave {} contradicts --schedule {}", *pins_.interleave,
                                  name_of(*pins_.schedule)),
                      "expected --schedule interleaved");
    if (pins_.sequence_parallel && *pins_.sequence_parallel && pins_.tp && *pins_.tp == 1)
      throw UserError("--sequence-parallel on contradicts --tp 1", "expected tp above 1");
    if (pins_.stage_layers) {
      const int total = std::accumulate(pins_.stage_layers->begin(), pins_.stage_layers->end(), 0);
      if (total != job_->workload.layers)
        throw UserError(
            fmt::format("--stage-layers add up to {}", total),
            fmt::format("expected the {} layers of {}", job_->workload.layers, job_->workload.name));
    }
  }

  // What is the same in all plans.
  Choices fixed() const {
    Choices choices;
    if (pins_.stage_layers) choices.stage_layers = *pins_.stage_layers;
    if (pins_.order) choices.order = *pins_.order;
    choices.etp = pins_.etp.value_or(1);
    choices.bucket_bytes = pins_.bucket_bytes.value_or(0);
    choices.grad_compression = pins_.grad_compression.value_or(Compression::none);
    choices.topk_ratio = pins_.topk_ratio.value_or(choices.topk_ratio);
    choices.sync = pins_.sync.value_or(Sync::all_reduce);
    choices.servers = pins_.servers.value_or(0);
    choices.staleness = pins_.staleness.value_or(0);
    choices.shard_group = pins_.shard_group.value_or(0);
    choices.capacity_factor = pins_.capacity_factor.value_or(0);
    return choices;
  }

  std::vector<int> stages(int tp) const {
    std::vector<int> counts;
    const int chunks = pins_.interleave.value_or(1);
    if (pins_.stage_layers) {
      const int given = static_cast<int>(pins_.stage_layers->size());
      if (given % chunks == 0) counts.push_back(given / chunks);
    } else {
      // Even cuts only; an uneven one must be asked for.
      for (const int pp : divisors(world_ / tp))
        if (job_->workload.layers % pp == 0) counts.push_back(pp);
    }
    if (pins_.pp) {
      if (pins_.stage_layers && std::find(counts.begin(), counts.end(), *pins_.pp) == counts.end()) return {};
      counts = {*pins_.pp};
    }
    counts.erase(
        std::remove_if(counts.begin(), counts.end(), [&](int pp) { return (world_ / tp) % pp != 0; }),
        counts.end());
    return counts;
  }

  std::vector<int> context(int tp, int pp) const {
    std::vector<int> counts{1};
    if (job_->training.seq_len > 0) {
      counts.clear();
      for (const int cp : divisors(world_ / (tp * pp)))
        if (cp == 1 ||
            (job_->training.seq_len % (2 * cp) == 0 && job_->training.seq_len / cp >= kContextTokens))
          counts.push_back(cp);
    }
    counts = values(pins_.cp, std::move(counts));
    counts.erase(
        std::remove_if(counts.begin(), counts.end(), [&](int cp) { return (world_ / (tp * pp)) % cp != 0; }),
        counts.end());
    return counts;
  }

  void for_experts(Choices choices) {
    std::vector<int> counts{1};
    if (const int experts = experts_of(job_->workload); experts > 0) {
      counts.clear();
      for (const int ep : divisors(choices.dp * choices.cp))
        if (experts % ep == 0) counts.push_back(ep);
    }
    for (const int ep : values(pins_.ep, counts)) {
      choices.ep = ep;
      if (!plausible(choices)) continue;
      for_micro_batches(choices);
    }
  }

  void for_micro_batches(Choices choices) {
    const std::int64_t share = job_->training.global_batch / choices.dp;
    for (const int micro_batch : values(pins_.micro_batch, divisors(share))) {
      if (share % micro_batch != 0) continue;
      choices.micro_batch = micro_batch;
      const std::int64_t micro_batches = share / micro_batch;
      for (const auto& [schedule, interleave] : schedules(choices, micro_batches)) {
        choices.schedule = schedule;
        choices.interleave = interleave;
        for_recompute(choices);
      }
    }
  }

  std::vector<std::pair<Schedule, int>> schedules(const Choices& choices, std::int64_t micro_batches) const {
    std::vector<std::pair<Schedule, int>> found;
    const auto wanted = [&](Schedule schedule) { return !pins_.schedule || *pins_.schedule == schedule; };
    const int chunks = pins_.interleave.value_or(0);
    if (choices.pp == 1) {
      // One stage runs forward and backward in turn; gathering all forwards first only costs memory, so it is
      // a plan of its own only for who asks.
      found.emplace_back(pins_.schedule.value_or(Schedule::one_f_one_b), std::max(1, chunks));
      return found;
    }
    if (chunks <= 1) {
      for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble})
        if (wanted(schedule)) found.emplace_back(schedule, 1);
    }
    if (wanted(Schedule::interleaved) && micro_batches % choices.pp == 0) {
      const int layers = job_->workload.layers / choices.pp;
      for (const int v : values(pins_.interleave, divisors(layers)))
        if (v > 1) found.emplace_back(Schedule::interleaved, v);
    }
    return found;
  }

  void for_recompute(Choices choices) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      if (pins_.recompute && *pins_.recompute != recompute) continue;
      choices.recompute = recompute;
      std::vector<int> counts{0};
      if (recompute == Recompute::full) {
        const int layers = job_->workload.layers / choices.pp;
        for (int quarter = 1; quarter < 4; ++quarter) {
          const int k = layers * quarter / 4;
          if (k > 0 && k < layers && k != counts.back()) counts.push_back(k);
        }
        counts = values(pins_.recompute_layers, counts);
      }
      for (const int k : counts) {
        choices.recompute_layers = k;
        if (!supported(choices)) continue;
        for_sharding(choices);
      }
    }
  }

  void for_sharding(Choices choices) {
    const bool alone = choices.dp * choices.cp == 1;
    for (const int zero : values(pins_.zero, alone ? std::vector<int>{0} : std::vector<int>{0, 1, 2, 3})) {
      choices.zero = zero;
      for (const bool sequence_parallel : {false, true}) {
        if (pins_.sequence_parallel ? *pins_.sequence_parallel != sequence_parallel
                                    : choices.tp == 1 && sequence_parallel)
          continue;
        choices.sequence_parallel = sequence_parallel;
        for (const bool overlap : {false, true}) {
          if (pins_.overlap_grad_reduce ? *pins_.overlap_grad_reduce != overlap : alone && !overlap) continue;
          choices.overlap_grad_reduce = overlap;
          if (!supported(choices) || !sequence_divides(choices)) continue;
          if (sequence_parallel && !plausible(choices)) continue;
          empty_ = false;
          visit_(choices);
        }
      }
    }
  }

  // Sequence parallelism wants the rows of a micro-batch to divide.
  bool sequence_divides(const Choices& c) const {
    if (!c.sequence_parallel) return true;
    const std::int64_t rows =
        static_cast<std::int64_t>(c.micro_batch) * std::max(1, job_->training.seq_len) / c.cp;
    return rows % c.tp == 0;
  }

  // Whether check_plan lets this *kind* of plan pass: asked once for each combination of forms, because the
  // answer depends on the forms and refusing by exception is slow.
  bool supported(const Choices& c) {
    std::uint32_t forms = 0;
    const auto add = [&](int value, int bits) { forms = forms << bits | static_cast<std::uint32_t>(value); };
    add(c.tp > 1, 1);
    add(c.pp > 1, 1);
    add(c.cp > 1, 1);
    add(c.ep > 1, 1);
    add(static_cast<int>(c.schedule), 2);
    add(static_cast<int>(c.recompute), 2);
    add(c.recompute_layers > 0, 1);
    add(c.zero, 2);
    add(c.sequence_parallel, 1);
    add(c.overlap_grad_reduce, 1);
    const auto [entry, fresh] = supported_.try_emplace(forms, true);
    if (fresh) entry->second = accepted(c, /*depth=*/2);
    return entry->second;
  }

  // Whether the layout itself (tp, pp, dp, cp, ep) can be had: heads, layers, the batch.
  bool plausible(const Choices& c) {
    const std::array<int, 5> layout = {c.tp, c.pp, c.cp, c.ep, c.sequence_parallel};
    const auto [entry, fresh] = plausible_.try_emplace(layout, true);
    if (fresh) {
      Choices plain = fixed();
      plain.tp = c.tp;
      plain.pp = c.pp;
      plain.dp = c.dp;
      plain.cp = c.cp;
      plain.ep = c.ep;
      plain.sequence_parallel = c.sequence_parallel;
      plain.schedule = pins_.schedule && *pins_.schedule != Schedule::interleaved ? *pins_.schedule
                                                                                  : Schedule::one_f_one_b;
      if (plain.schedule == Schedule::one_f_one_b && pins_.stage_layers && pins_.interleave)
        return true;  // the layers are of chunks: the leaves decide
      entry->second = accepted(plain, /*depth=*/1);
    }
    return entry->second;
  }

  bool accepted(const Choices& choices, int depth) {
    try {
      check_plan(Plan{job_, choices});
      return true;
    } catch (const UserError& error) {
      if (depth > refusal_depth_) refusal_ = error.what();
      refusal_depth_ = std::max(depth, refusal_depth_);
      return false;
    }
  }

  // Nothing is left: say why, in the words of the first check that refused what came furthest.
  [[noreturn]] void refuse() const {
    if (!refusal_.empty()) throw UserError(refusal_);
    throw UserError(
        fmt::format("no layout of {} devices suits {} with a global batch of {}", world_, job_->workload.name,
                    job_->training.global_batch),
        "expected pins with tp*pp*dp*cp = devices, dp*micro-batch dividing the batch, pp dividing "
        "the layers");
  }

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  const std::function<void(const Choices&)>& visit_;
  int world_;
  bool empty_ = true;
  std::unordered_map<std::uint32_t, bool> supported_;
  std::map<std::array<int, 5>, bool> plausible_;
  std::string refusal_;
  int refusal_depth_ = 0;
};

}  // namespace

std::vector<int> divisors(std::int64_t n) {
  std::vector<int> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(static_cast<int>(d));
    if (d * d != n && n / d <= INT32_MAX) high.push_back(static_cast<int>(n / d));
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

void for_each_plan(const std::shared_ptr<const Job>& job, const Pins& pins,
                   const std::function<void(const Choices&)>& visit) {
  Enumerator(job, pins, visit).run();
}

std::vector<Choices> enumerate(const std::shared_ptr<const Job>& job, const Pins& pins) {
  std::vector<Choices> plans;
  for_each_plan(job, pins, [&](const Choices& choices) { plans.push_back(choices); });
  return plans;
}

}  // namespace orrery::planner
