#include "planner/space/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/graph_cuts.h"
#include "planner/space/admission.h"
#include "planner/space/balance.h"
#include "planner/tables/cuts.h"
#include "planner/tables/geometry.h"
#include "program/schedule.h"
#include "workloads/graph_split.h"

namespace orrery::planner {
namespace {

// Fewest tokens of a sequence that context parallelism leaves a rank, unless pinned or nothing else can be
// had: with fewer, other dimensions save the same memory for less traffic.
constexpr int kContextTokens = 2048;

// Nodes that tensor parallelism spans at most, unless pinned, where the fabric reaches device memory.
constexpr int kTensorNodes = 2;

// Tokens of the largest micro-batch that is tried, unless pinned.
constexpr std::int64_t kMicroBatchTokens = 131072;

// A cut by time is worth its families where every other's slowest part takes so much longer.
constexpr double kCutGain = 1.002;

// Values of one dimension: the pinned one, or those that are searched.
std::vector<int> values(const std::optional<int>& pin, std::vector<int> searched) {
  return pin ? std::vector<int>{*pin} : std::move(searched);
}

class Enumerator {
 public:
  // `visit`: whether it wants more.
  Enumerator(std::shared_ptr<const Job> job, const Pins& pins, const std::function<bool(Family&&)>& visit)
      : job_(std::move(job)),
        pins_(pins),
        visit_(visit),
        world_(job_->cluster.devices()),
        parts_(layer_parts(job_->workload)),
        geometries_(job_),
        cuts_(job_, parts_, geometries_.uniform()),
        heterogeneous_(!geometries_.uniform() && pins.sync.value_or(Sync::all_reduce) == Sync::all_reduce),
        weights_(layer_weights(job_)),
        admission_(job_, pins, fixed()),
        lists_(job_, pins, parts_, geometries_, cuts_, admission_) {}

  void run() {
    if (!job_->workload.transformer) graph_cuts_.emplace(job_);
    check_pins();
    visit_layouts();
    if (empty_ && few_samples_ && !pins_.cp && job_->training.seq_len > 0) {
      // Fewer tokens a context rank than anybody would choose, where the batch has too few samples for the
      // devices.
      least_context_tokens_ = 1;
      visit_layouts_again();
    }
    if (empty_ && admission_.only_executable()) {
      // Nothing that the pins leave can be run here: then it is planned as for any other machine.
      admission_.admit_unexecutable();
      visit_layouts_again();
    }
    // Whoever pins a plan that the runtime cannot run is answered about it all the same.
    while (empty_ && admission_.admit_unable()) visit_layouts_again();
    if (empty_) admission_.refuse();
  }

 private:
  void visit_layouts_again() {
    lists_.forget();
    visit_layouts();
  }

  void visit_layouts() {
    for (const Choices& form : forms()) visit_layouts(form);
  }

  // Compressions and ways to agree, where they are searched.
  std::vector<Choices> forms() const {
    std::vector<Choices> found = {fixed()};
    if (pins_.search_compression && !pins_.grad_compression) {
      for (const Compression kind : {Compression::fp16, Compression::int8, Compression::topk}) {
        found.push_back(found.front());
        found.back().grad_compression = kind;
      }
    }
    if (pins_.search_sync && !pins_.sync) {
      const std::set<int> counts = {1, std::min(job_->cluster.nodes(), world_), world_};
      for (const int servers : counts) {
        if (pins_.servers && *pins_.servers != servers) continue;
        found.push_back(fixed());
        found.back().sync = Sync::parameter_server;
        found.back().servers = servers;
        found.push_back(found.back());
        found.back().sync = Sync::async_parameter_server;
        found.back().staleness = pins_.staleness.value_or(0);
      }
      found.push_back(fixed());
      found.back().sync = Sync::single_process;
    }
    return found;
  }

  void visit_layouts(const Choices& form) {
    const std::vector<int> tensors = values(pins_.tp, tensor());
    for (const int tp : tensors) {
      if (world_ % tp != 0) continue;
      if (tp == 1 && tensors.size() > 1 && pins_.sequence_parallel.value_or(false)) continue;
      for (const int pp : stages(tp)) {
        for (const int cp : context(tp, pp)) {
          Choices choices = form;
          choices.tp = tp;
          choices.pp = pp;
          choices.cp = cp;
          choices.dp = world_ / (tp * pp * cp);
          choices.sequence_parallel =
              admission_.shares_samples(choices) && pins_.sequence_parallel.value_or(true);
          if (pins_.dp && *pins_.dp != choices.dp) continue;
          if (job_->training.global_batch < choices.dp ||
              (!heterogeneous_ && !job_->training.divides_over(choices.dp))) {
            admission_.skip(choices, Admission::Skipped::batch);
            few_samples_ = true;
            continue;
          }
          if (!admission_.plausible(choices)) continue;
          for_experts(choices);
          if (enough_) return;
        }
      }
    }
  }

  std::vector<int> tensor() const {
    // A general graph's tensor ranks differ from replicas in its split operators alone.
    if (!job_->workload.transformer)
      return split_operators(job_->workload).empty() ? std::vector<int>{1} : divisors(world_);
    // It wants the fast links: it stays inside the smallest node unless pinned beyond.
    const int node = smallest_node(job_->cluster);
    std::vector<int> sizes = divisors(node);
    const Transport transport = job_->cluster.fabric.transport;
    const bool direct = transport == Transport::infiniband || transport == Transport::roce;
    for (int nodes = 2; direct && nodes <= kTensorNodes && nodes * node <= world_; nodes *= 2)
      sizes.push_back(nodes * node);
    return sizes;
  }

  // Contradictions that no choice of the free dimensions can heal.
  void check_pins() const {
    const auto product = std::int64_t{pins_.tp.value_or(1)} * pins_.pp.value_or(1) * pins_.dp.value_or(1) *
                         pins_.cp.value_or(1);
    const bool all = pins_.tp && pins_.pp && pins_.dp;
    if (world_ % product != 0 || (all && product != world_))
      throw UserError(
          fmt::format("tp*pp*dp*cp = {} {} the {} devices of {}", product,
                      world_ % product != 0 ? "does not divide" : "is not", world_, job_->cluster.name),
          "expected a layout of all devices; `nodes` or `gpus` say how many there are");
    const std::int64_t batch = job_->training.global_batch;
    const std::int64_t replicas = pins_.dp.value_or(1), micro_batch = pins_.micro_batch.value_or(1);
    if (!job_->training.divides_over(replicas, micro_batch) && !heterogeneous_)
      throw UserError(fmt::format("the global batch of {} is not a multiple of dp*micro_batch = {}", batch,
                                  replicas * micro_batch),
                      "expected `global_batch` to be dp * micro-batch * micro-batches");
    if (pins_.interleave && pins_.schedule) {
      const int chunks = fixed_chunks(*pins_.schedule);
      if (chunks > 0 && *pins_.interleave != chunks)
        throw UserError(fmt::format("`interleave` {} contradicts `schedule` {}", *pins_.interleave,
                                    name_of(*pins_.schedule)),
                        chunks == 1 ? "expected `schedule` interleaved"
                                    : fmt::format("expected `interleave` {}", chunks));
    }
    if (pins_.schedule == Schedule::zero_bubble && (pins_.pp == 1 || world_ == 1)) throw without_stages();
    if (pins_.sequence_parallel && *pins_.sequence_parallel && pins_.tp && *pins_.tp == 1)
      throw UserError("`sequence_parallel` on contradicts `tp` 1", "expected tp above 1");
    if (pins_.stage_layers) {
      const int total = std::accumulate(pins_.stage_layers->begin(), pins_.stage_layers->end(), 0);
      if (total != job_->workload.layers)
        throw UserError(
            fmt::format("`stage_layers` add up to {}", total),
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
    // Servers that nobody counts: one beside every worker, which shares the traffic most evenly.
    const bool served =
        choices.sync == Sync::parameter_server || choices.sync == Sync::async_parameter_server;
    choices.servers = pins_.servers.value_or(served && world_ > 1 ? world_ : 0);
    if (pins_.sync || !pins_.search_sync) choices.staleness = pins_.staleness.value_or(0);
    choices.shard_group = pins_.shard_group.value_or(0);
    if (choices.shard_group > 0) choices.zero = pins_.zero.value_or(1);  // groups shard states
    choices.capacity_factor = pins_.capacity_factor.value_or(0);
    return choices;
  }

  std::vector<int> stages(int tp) const {
    std::vector<int> counts;
    const int chunks = pins_.interleave.value_or(std::max(1, fixed_chunks(asked_schedule())));
    if (pins_.stage_layers) {
      const int given = static_cast<int>(pins_.stage_layers->size());
      if (given % chunks == 0) counts.push_back(given / chunks);
    } else {
      for (const int pp : divisors(world_ / tp))
        if (pp <= std::max(1, job_->workload.layers)) counts.push_back(pp);
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

  Schedule asked_schedule() const { return pins_.schedule.value_or(Schedule::one_f_one_b); }

  std::vector<int> context(int tp, int pp) const {
    std::vector<int> counts{1};
    if (job_->training.seq_len > 0) {
      counts.clear();
      for (const int cp : divisors(world_ / (tp * pp)))
        if (cp == 1 ||
            (job_->training.seq_len % (2 * cp) == 0 && job_->training.seq_len / cp >= least_context_tokens_))
          counts.push_back(cp);
    }
    counts = values(pins_.cp, std::move(counts));
    counts.erase(
        std::remove_if(counts.begin(), counts.end(), [&](int cp) { return (world_ / (tp * pp)) % cp != 0; }),
        counts.end());
    return counts;
  }

  // Only where tensor ranks have tokens of their own can experts be spread over them too.
  static bool spans_tensor_ranks(const Choices& c) { return c.tp > 1 && (c.dp * c.cp) % c.ep != 0; }

  void for_experts(Choices choices) {
    const int replicas = choices.dp * choices.cp;
    const bool over_tensor = choices.tp > 1 && pins_.sequence_parallel.value_or(true);
    std::vector<int> counts{1};
    if (const int experts = experts_of(job_->workload); experts > 0) {
      counts.clear();
      for (const int ep : divisors(std::int64_t{replicas} * (over_tensor ? choices.tp / choices.etp : 1)))
        if (experts % ep == 0) counts.push_back(ep);
    }
    for (const int ep : values(pins_.ep, counts)) {
      choices.ep = ep;
      choices.sequence_parallel = admission_.shares_samples(choices) || spans_tensor_ranks(choices);
      if (!admission_.plausible(choices)) continue;
      for (const auto& order : orders(choices)) {
        choices.order = order;
        for_micro_batches(choices);
      }
    }
  }

  // Placements on the machine that differ: data parallelism on neighbouring nodes and the pipeline's stages
  // far apart, or the other way round (Megatron-LM's two). On one node they are alike.
  std::vector<std::array<Dimension, 5>> orders(const Choices& c) const {
    if (pins_.order) return {*pins_.order};
    std::vector<std::array<Dimension, 5>> found = {Choices{}.order};
    if (job_->cluster.nodes() > 1 && c.dp > 1 && c.pp > 1)
      found.push_back({Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp});
    return found;
  }

  void for_micro_batches(Choices choices) {
    const std::int64_t batch = job_->training.global_batch;
    const std::int64_t share = job_->training.samples_each(choices.dp);
    const bool even = job_->training.divides_over(choices.dp);
    for (const int micro_batch : values(pins_.micro_batch, divisors(even ? share : batch))) {
      choices.micro_batch = micro_batch;
      if (micro_batch > share || (even && !job_->training.divides_over(choices.dp, micro_batch))) {
        admission_.skip(choices, Admission::Skipped::micro_batch);
        continue;
      }
      if (admission_.shares_samples(choices) && micro_batch % choices.tp != 0 && !pins_.micro_batch) continue;
      if (!pins_.micro_batch && micro_batch > 1 &&
          static_cast<std::int64_t>(micro_batch) * job_->training.seq_len / choices.cp > kMicroBatchTokens)
        break;
      const std::int64_t micro_batches = share / micro_batch;
      for (const auto& [schedule, interleave] : schedules(choices, micro_batches)) {
        choices.schedule = schedule;
        choices.interleave = interleave;
        choices.stage_layers = pins_.stage_layers.value_or(std::vector<int>{});
        Choices shared = choices;
        if (choices.pp > 1 && ends_fill(choices.pp * interleave)) shared.stage_layers = cuts(choices).back();
        if (!even) shared.replica_batches = admission_.some_shares(choices);
        if ((!even && shared.replica_batches.empty()) || !admission_.supported(shared)) continue;
        for (const auto& layers : cuts(choices)) {
          choices.stage_layers = layers;
          for_sequence(choices);
        }
        for_cuts_by_time(choices);
      }
    }
  }

  // The cuts that what the layers take asks for, and where devices are different their speed, beside those
  // that do not know of it: with nothing run again and with everything.
  void for_cuts_by_time(Choices choices) {
    // Those of general graphs heed times already. Chunks of like layers are as even as they can be.
    if (graph_cuts_ || pins_.stage_layers || choices.pp == 1) return;
    if (choices.interleave > 1 && (heterogeneous_ || parts_.layers_alike())) return;
    const int parts = choices.pp * choices.interleave;
    if (parts > job_->workload.layers) return;  // one cut alone
    std::vector<std::vector<int>> known = cuts(choices);
    known.front() = even_cut(*job_, parts);
    const auto add = [&](std::vector<int>&& cut) {
      if (cut.empty() || std::find(known.begin(), known.end(), cut) != known.end()) return;
      known.push_back(cut);
      choices.stage_layers = std::move(cut);
      for_sequence(choices);
      choices.stage_layers.clear();
    };
    choices.stage_layers.clear();
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const bool full = recompute == Recompute::full;
      if (pins_.recompute && (*pins_.recompute == Recompute::full) != full) continue;
      Choices timed = choices;
      timed.recompute = recompute;
      const std::vector<double> seconds = estimator().layer_seconds(timed);
      std::vector<int> cut = balanced_cut(seconds, parts);
      if (heterogeneous_) add(estimator().cut_by_speed(timed));
      if (cut.empty()) continue;
      const double least = heaviest_part(seconds, cut) * kCutGain;
      if (std::all_of(known.begin(), known.end(),
                      [&](const std::vector<int>& other) { return heaviest_part(seconds, other) > least; }))
        add(std::move(cut));
    }
  }

  // Even; balanced by FLOPs; embedding and head counted as a layer each, or, of models whose layers are
  // different, the optimal one.
  const std::vector<std::vector<int>>& cuts(const Choices& c) {
    CutKey key{c.pp, c.interleave};
    if (graph_cuts_) {
      key.tp = c.tp;
      key.micro_batch = c.micro_batch;
      key.schedule = c.schedule;
      key.order = c.order;
    }
    const auto [entry, fresh] = cut_lists_.try_emplace(key);
    if (!fresh) return entry->second;
    if (pins_.stage_layers) return entry->second = {*pins_.stage_layers};
    const int parts = c.pp * c.interleave;
    if (parts <= std::max(1, job_->workload.layers)) entry->second = {{}};
    if (c.pp == 1) return entry->second;
    if (c.interleave > 1 && !graph_cuts_) {
      if (ends_fill(parts)) entry->second.push_back(ends_count_cut(job_->workload.layers, parts));
      return entry->second;
    }
    std::set<std::vector<int>> seen = {even_cut(*job_, parts)};
    std::vector<std::vector<int>> cuts;
    if (c.interleave == 1) cuts.push_back(balanced_cut(weights_, c.pp));
    if (graph_cuts_) {
      for (std::vector<int>& cut : graph_cuts_->of(c, geometries_.of(c))) cuts.push_back(std::move(cut));
    } else {
      cuts.push_back(ends_count_cut(job_->workload.layers, c.pp));
    }
    for (std::vector<int>& cut : cuts)
      if (!cut.empty() && seen.insert(cut).second) entry->second.push_back(std::move(cut));
    return entry->second;
  }

  std::vector<std::pair<Schedule, int>> schedules(const Choices& choices, std::int64_t micro_batches) {
    std::vector<std::pair<Schedule, int>> found;
    const auto wanted = [&](Schedule schedule) { return !pins_.schedule || *pins_.schedule == schedule; };
    const int chunks = pins_.interleave.value_or(0);
    if (choices.pp == 1) {
      if (asked_schedule() == Schedule::zero_bubble) {
        admission_.skip(without_stages());
        return found;
      }
      // One stage runs forward and backward in turn; gathering all forwards first only costs memory, so it is
      // a plan of its own only for who asks.
      found.emplace_back(asked_schedule(), std::max({1, chunks, fixed_chunks(asked_schedule())}));
      return found;
    }
    if (chunks <= 1) {
      for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
        // With one micro-batch GPipe and 1F1B are the same.
        if (schedule == Schedule::gpipe && micro_batches == 1 && !pins_.schedule) continue;
        if (wanted(schedule)) found.emplace_back(schedule, 1);
      }
    }
    if (pins_.schedule == Schedule::interleaved && micro_batches % choices.pp != 0) {
      Choices asked = choices;
      asked.schedule = Schedule::interleaved;
      asked.interleave = std::max(2, chunks);
      admission_.skip(asked, Admission::Skipped::schedule);
    }
    if (wanted(Schedule::interleaved) && micro_batches % choices.pp == 0) {
      for (const int v : values(pins_.interleave, chunks_of(choices.pp)))
        if (v > 1) found.emplace_back(Schedule::interleaved, v);
    }
    const Schedule v = Schedule::dualpipe_v;
    if (wanted(v) && (chunks == 0 || chunks == fixed_chunks(v)) && v_admitted(choices, micro_batches))
      found.emplace_back(v, fixed_chunks(v));
    // Pinned layers are of so many chunks; where none has as many, the refusal says so.
    const auto as_pinned = [&](const std::pair<Schedule, int>& one) {
      return pins_.stage_layers->size() == static_cast<std::size_t>(choices.pp * one.second);
    };
    if (pins_.stage_layers && std::any_of(found.begin(), found.end(), as_pinned))
      std::erase_if(found, [&](const auto& one) { return !as_pinned(one); });
    return found;
  }

  static UserError without_stages() {
    return UserError("`schedule` zero-bubble with `pp` 1: one stage has no bubble",
                     "expected `pp` of at least 2");
  }

  // Of who asks for a V that cannot be had, the refusal says so.
  bool v_admitted(const Choices& choices, std::int64_t micro_batches) {
    const bool enough = micro_batches >= micro_batch_rule(Schedule::dualpipe_v, choices.pp).least &&
                        choices.pp * fixed_chunks(Schedule::dualpipe_v) <= job_->workload.layers;
    if (enough || !pins_.schedule || !job_->training.divides_over(choices.dp, choices.micro_batch))
      return enough;
    Choices asked = choices;
    asked.schedule = Schedule::dualpipe_v;
    asked.interleave = fixed_chunks(asked.schedule);
    return admission_.passes(asked);
  }

  bool ends_fill(int parts) const { return !graph_cuts_ && ends_fill_parts(job_->workload.layers, parts); }

  // Chunks of a stage: those that divide its layers (where stages are unequal, the layers of either kind).
  std::vector<int> chunks_of(int pp) const {
    const int layers = job_->workload.layers;
    std::set<int> counts;
    for (const int of : {layers / pp, (layers + pp - 1) / pp})
      for (const int v : divisors(std::max(1, of)))
        if (pp * v <= layers || ends_fill(pp * v)) counts.insert(v);
    return {counts.begin(), counts.end()};
  }

  void for_sequence(Choices choices) {
    for (const bool sequence_parallel : {false, true}) {
      if ((admission_.shares_samples(choices) || spans_tensor_ranks(choices)) && !sequence_parallel) continue;
      if (pins_.sequence_parallel ? *pins_.sequence_parallel != sequence_parallel
                                  : choices.tp == 1 && sequence_parallel)
        continue;
      choices.sequence_parallel = sequence_parallel;
      if (!admission_.holds_sequences_so(choices)) continue;
      if (!sequence_divides(choices)) {
        if (pins_.sequence_parallel) admission_.skip(choices, Admission::Skipped::sequence);
        continue;
      }
      if (sequence_parallel && !admission_.plausible(choices)) continue;
      add_families(choices);
    }
  }

  // On heterogeneous devices also with the shares of the batch that their speed asks for.
  void add_families(Choices choices) {
    if (job_->training.divides_over(choices.dp, choices.micro_batch)) add_family(choices);
    if (!heterogeneous_ || choices.dp == 1 || choices.ep > 1) return;
    choices.replica_batches = estimator().shares_by_speed(choices);
    if (!choices.replica_batches.empty()) add_family(choices);
  }

  void add_family(Choices choices) {
    const bool searched = job_->runtime.overlaps_experts && choices.ep > 1;
    for (const bool overlap : {false, true}) {
      if (enough_) return;
      if (pins_.overlap_experts ? *pins_.overlap_experts != overlap : overlap && !searched) continue;
      choices.overlap_experts = overlap;
      if (overlap && !admission_.supported(choices)) continue;
      // With too few micro-batches nothing stands beside anything: the same Program again.
      const Plan plan{job_, choices};
      if (overlap && !pins_.overlap_experts && paired_slots(plan, choices.pp - 1, plan.micro_batches()) == 0)
        continue;
      std::optional<Family> family = lists_.family_of(choices);
      if (!family) continue;
      empty_ = false;
      enough_ = !visit_(std::move(*family));
    }
  }

  // Sequence parallelism wants the rows of a micro-batch to divide.
  bool sequence_divides(const Choices& c) const {
    if (!c.sequence_parallel) return true;
    const std::int64_t rows =
        static_cast<std::int64_t>(c.micro_batch) * std::max(1, job_->training.seq_len) / c.cp;
    return rows % c.tp == 0;
  }

  Estimator& estimator() {
    if (!estimator_) estimator_.emplace(job_);
    return *estimator_;
  }

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  const std::function<bool(Family&&)>& visit_;
  int world_;
  LayerParts parts_;
  Geometries geometries_;
  Cuts cuts_;
  bool heterogeneous_ = false;          // devices: shares of the batch and cuts may heed their speed
  std::optional<Estimator> estimator_;  // of what they take
  std::vector<double> weights_;         // of the layers, for balanced cuts
  Admission admission_;
  FamilyLists lists_;
  bool empty_ = true, enough_ = false;
  bool few_samples_ = false;  // for the replicas of some layout
  int least_context_tokens_ = kContextTokens;
  struct CutKey {
    int pp = 1, interleave = 1, tp = 1, micro_batch = 1;
    Schedule schedule = Schedule::one_f_one_b;
    std::array<Dimension, 5> order{};
    auto operator<=>(const CutKey&) const = default;
  };
  std::optional<GraphCuts> graph_cuts_;  // of models that are no transformers
  std::map<CutKey, std::vector<std::vector<int>>> cut_lists_;
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

void for_each_family(const std::shared_ptr<const Job>& job, const Pins& pins,
                     const std::function<void(Family&&)>& visit) {
  for_families_until(job, pins, [&](Family&& family) {
    visit(std::move(family));
    return true;
  });
}

void for_families_until(const std::shared_ptr<const Job>& job, const Pins& pins,
                        const std::function<bool(Family&&)>& visit) {
  Enumerator(job, pins, visit).run();
}

void for_each_plan(const std::shared_ptr<const Job>& job, const Pins& pins,
                   const std::function<void(const Choices&)>& visit) {
  for_each_family(job, pins, [&](Family&& family) {
    for (const Recomputed& recomputed : *family.recomputes)
      for (const Sharding& sharding : *family.shardings)
        for (std::size_t o = 0; o < family.overlaps->size(); ++o)
          for (std::size_t b = 0; b < family.buckets->size(); ++b)
            if (family.distinct(sharding.zero, o, b))
              visit(family.plan(recomputed, sharding, (*family.overlaps)[o], (*family.buckets)[b].bytes));
  });
}

std::vector<Choices> enumerate(const std::shared_ptr<const Job>& job, const Pins& pins) {
  std::vector<Choices> plans;
  for_each_plan(job, pins, [&](const Choices& choices) { plans.push_back(choices); });
  return plans;
}

int experts_of(const Workload& workload) {
  return workload.transformer && workload.transformer->moe ? workload.transformer->moe->experts : 0;
}

}  // namespace orrery::planner
