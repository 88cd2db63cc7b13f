// A comparison as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse.h"
#include "orrery/records.h"

namespace orrery {
using comparison::Balance;
using comparison::BalanceStep;
using comparison::Comparison;
using comparison::CutStep;
using comparison::Ordeal;
using comparison::RankTimes;
using comparison::Reaction;
using comparison::Recut;
using comparison::Row;
using comparison::Tuning;
using comparison::Way;
namespace {

const Record<RankTimes>& rank_times_record() {
  using R = RankTimes;
  static const auto record =
      Record<R>("rank")
          .value("compute_s", "its device computes", [](const R& r) { return r.compute_s; })
          .value("exposed_s", "it computes nothing and its own communication goes on",
                 [](const R& r) { return r.exposed_s; })
          .value("waiting_s", "it computes nothing and waits for others",
                 [](const R& r) { return r.waiting_s; })
          .value("other_s", "inputs, launches, what the software adds", [](const R& r) { return r.other_s; });
  return record;
}

const Record<Tuning>& tuning_record() {
  using T = Tuning;
  static const auto record =
      Record<T>("tuning")
          .value("bucket_bytes", "that it settles on", [](const T& t) { return t.bucket_bytes; })
          .value("cycle_s", "that it settles on", [](const T& t) { return t.cycle_s; })
          .value("group", "in which gradients are summed first; 0: in none",
                 [](const T& t) { return t.group; })
          .value("steps", "until it has settled", [](const T& t) { return t.steps; })
          .value("extra_s", "that these take at least beyond as many settled ones",
                 [](const T& t) { return t.extra_s; });
  return record;
}

struct ShownWay {
  const Way& way;
  bool with_ranks;
};

const Record<ShownWay>& way_record() {
  using W = ShownWay;
  static const auto of_possible = [](auto of) {
    return [of](const W& w) { return w.way.possible() ? std::optional(of(w.way)) : std::nullopt; };
  };
  static const auto mean = [](double RankTimes::*part) {
    return of_possible([part](const Way& w) { return w.mean_of(part); });
  };
  static const auto record =
      Record<W>("way")
          .value("devices", "that it runs on", [](const W& w) { return w.way.devices; })
          .value("refusal", "why it does not",
                 [](const W& w) { return w.way.possible() ? nullptr : &w.way.refusal; })
          .value("found_by", "simulation or closed form",
                 of_possible([](const Way& w) { return name_of(w.found_by); }))
          .value("step_time_s", "in which the workers train as many samples as the global batch has",
                 of_possible([](const Way& w) { return w.step_s; }))
          .value("samples_per_s", "of all devices", of_possible([](const Way& w) { return w.samples_per_s; }))
          .value("efficiency", "of so many times one device alone",
                 of_possible([](const Way& w) { return w.efficiency; }))
          .value("compute_s", "of a step, mean over the ranks", mean(&RankTimes::compute_s))
          .value("exposed_s", "of a step in communication of their own, mean", mean(&RankTimes::exposed_s))
          .value("waiting_s", "of a step in waiting for others, mean", mean(&RankTimes::waiting_s))
          .value("other_s", "of a step in what the software adds, mean", mean(&RankTimes::other_s))
          .value("worst_waiting_s", "of the rank that waits longest", of_possible([](const Way& w) {
                   return w.ranks[static_cast<std::size_t>(w.worst_rank())].waiting_s;
                 }))
          .value("worst_waiting_rank", "that one", of_possible([](const Way& w) { return w.worst_rank(); }))
          .value("wire_bytes", "that a device sends in a step, mean",
                 of_possible([](const Way& w) { return w.wire_bytes; }))
          .value("memory_bytes", "of the fullest device",
                 of_possible([](const Way& w) { return w.memory.total; }))
          .value("capacity_bytes", "of that device",
                 of_possible([](const Way& w) { return w.memory.capacity; }))
          .value("fits", "in memory", of_possible([](const Way& w) { return w.memory.fits(); }))
          .value("micro_batch", "samples that a device takes at once",
                 of_possible([](const Way& w) { return w.plan->choices.micro_batch; }))
          .value("plan", "in words", of_possible([](const Way& w) { return planner::describe(*w.plan); }))
          .value("waiting_of_ranks_s", "of a step, each rank's", of_possible([](const Way& w) {
                   std::vector<double> waiting;
                   for (const RankTimes& rank : w.ranks) waiting.push_back(rank.waiting_s);
                   return waiting;
                 }))
          .object("tuning", "what autotuning settles on, and takes until it has", tuning_record(),
                  [](const W& w) { return w.way.tuning ? &*w.way.tuning : nullptr; })
          .list("ranks", "each, on all devices", rank_times_record(),
                [](const W& w) { return w.with_ranks && w.way.possible() ? &w.way.ranks : nullptr; });
  return record;
}

// Means over the ranks, which add up to the step.
const Record<Way>& parts_record() {
  using W = Way;
  static const auto mean = [](double RankTimes::*part) {
    return [part](const W& w) { return w.mean_of(part); };
  };
  static const auto record =
      Record<W>({}, "s")
          .value("compute", "its device computes", mean(&RankTimes::compute_s))
          .value("data_comm", "communication of its own", mean(&RankTimes::exposed_s))
          .value("bubble", "waiting for others", mean(&RankTimes::waiting_s))
          .value("other", "inputs, launches, what the software adds", mean(&RankTimes::other_s));
  return record;
}

// What a strategy comes to on all devices, by the names that plans have (shared/contract.md).
const Record<Way>& whole_record() {
  using W = Way;
  static const auto record =
      Record<W>()
          .value("step_time_s", "on all devices", [](const W& w) { return w.step_s; })
          .value("samples_per_s", "on all devices", [](const W& w) { return w.samples_per_s; })
          .value("wire_bytes", "that a device sends in a step, mean", [](const W& w) { return w.wire_bytes; })
          .value("memory_bytes", "of the fullest device", [](const W& w) { return w.memory.total; })
          .object(
              "breakdown_s", "of a step, mean over the ranks", parts_record(),
              [](const W& w) -> const auto& { return w; });
  return record;
}

// Against one device alone, which is as efficient as can be.
const Record<ShownWay>& scaling_record() {
  using W = ShownWay;
  static const auto record =
      Record<W>()
          .value("devices", "that it runs on", [](const W& w) { return w.way.devices; })
          .value("speedup", "over one device", [](const W& w) { return w.way.efficiency * w.way.devices; })
          .value("efficiency", "of so many times one device alone",
                 [](const W& w) { return w.way.efficiency; });
  return record;
}

struct Troubled {
  const Ordeal& ordeal;
  const Way& healthy;
  std::string trouble = {};  // where each is gone through by itself, which
};

const Record<Troubled>& ordeal_record() {
  using T = Troubled;
  static const auto record =
      Record<T>()
          .value("horizon_s", "that was looked at", [](const T& t) { return t.ordeal.horizon_s; })
          .value("samples_per_s", "trained and kept", [](const T& t) { return t.ordeal.samples_per_s(); })
          .value("of_healthy", "those over the healthy rate",
                 [](const T& t) { return t.ordeal.samples_per_s() / t.healthy.samples_per_s; })
          .value("mean_waiting_share", "of a worker's time", [](const T& t) { return t.ordeal.mean_waiting; })
          .value("worst_waiting_share", "of the time of the worker that waits longest",
                 [](const T& t) { return t.ordeal.worst_waiting; })
          .value("stood_s", "in which nobody trained", [](const T& t) { return t.ordeal.stood_s; })
          .value("lost_samples", "trained in vain", [](const T& t) { return t.ordeal.lost_samples; })
          .value("dropped_steps", "of workers, that came too late",
                 [](const T& t) { return t.ordeal.dropped; })
          .value("workers", "in the end", [](const T& t) { return t.ordeal.workers; })
          .value("story", "what happened", [](const T& t) { return t.ordeal.story; })
          .value("trouble", "which, where each is gone through by itself",
                 [](const T& t) { return t.trouble.empty() ? nullptr : &t.trouble; });
  return record;
}

const Record<BalanceStep>& balance_step_record() {
  using B = BalanceStep;
  static const auto record =
      Record<B>()
          .value("samples", "by worker", [](const B& b) { return b.samples; })
          .value("busy_s", "by worker", [](const B& b) { return b.busy_s; })
          .value("std_s", "of those", [](const B& b) { return b.std_s; })
          .value("max_over_mean", "of those", [](const B& b) { return b.max_over_mean; })
          .value("longest_s", "of those", [](const B& b) { return b.longest_s; });
  return record;
}

const Record<Balance>& balance_record() {
  using B = Balance;
  static const auto record =
      Record<B>()
          .value("shares", "how samples are dealt", [](const B& b) { return name_of(b.shares); })
          .value("std_s", "of busy times, mean over the steps behind the first",
                 [](const B& b) { return b.std_s; })
          .value("max_over_mean", "of busy times, likewise", [](const B& b) { return b.max_over_mean; })
          .value("longest_s", "busy time, likewise", [](const B& b) { return b.longest_s; })
          .list(
              "steps", "one by one", balance_step_record(),
              [](const B& b) -> const auto& { return b.steps; });
  return record;
}

const Record<comparison::Answer>& role_record() {
  using A = comparison::Answer;
  static const auto known = [](auto of) {
    return [of](const A& a) { return a.reaction == Reaction::absent ? std::nullopt : std::optional(of(a)); };
  };
  static const auto record =
      Record<A>("role")
          .value("reaction", "of the others when it is gone; absent: there is none",
                 [](const A& a) { return name_of(a.reaction); })
          .value("notice_s", "until they know", known([](const A& a) { return a.notice_s; }))
          .value("why", "who stops, who goes on", known([](const A& a) { return a.why; }))
          .value("notice_from", "where notice_s comes from", known([](const A& a) { return a.notice_from; }));
  return record;
}

const Record<Row>& row_record() {
  using R = Row;
  static const auto record =
      Record<R>()
          .value("name", "with settings", [](const R& r) { return r.strategy.name; })
          .value("strategy", "the same", [](const R& r) { return r.strategy.name; })
          .value("what", "it is, in a line", [](const R& r) { return r.strategy.what; })
          .value("meeting", "when workers wait for each other (their rendezvous)",
                 [](const R& r) { return name_of(r.strategy.rendezvous); })
          .value("exact", "a step computes what one device would",
                 [](const R& r) { return r.strategy.exact(); })
          .value("elastic", "workers may come and go", [](const R& r) { return r.strategy.elastic; })
          .object(
              "worker", "when one is gone", role_record(),
              [](const R& r) -> const auto& { return r.strategy.worker; })
          .object(
              "chief", "when it is gone", role_record(),
              [](const R& r) -> const auto& { return r.strategy.chief; })
          .object(
              "server", "when one is gone", role_record(),
              [](const R& r) -> const auto& { return r.strategy.server; })
          .list("sizes", "on 1, 2, 4, … and on all devices", way_record(),
                [](const R& r) {
                  std::vector<ShownWay> ways;
                  for (const Way& way : r.ways) ways.push_back({way, &way == &r.ways.back()});
                  return ways;
                })
          .with(whole_record(), [](const R& r) { return r.whole().possible() ? &r.whole() : nullptr; })
          .list("scaling", "on 1, 2, 4, … and on all devices, where it runs", scaling_record(),
                [](const R& r) {
                  std::vector<ShownWay> ways;
                  for (const Way& way : r.ways)
                    if (way.possible()) ways.push_back({way, false});
                  return ways;
                })
          .with(step_range_record(),
                [](const R& r) { return r.interval ? &r.interval->step_time_s : nullptr; })
          .object("rests_on", "what the figures rest on", rests_on_record(),
                  [](const R& r) { return r.interval ? &r.interval->rests_on : nullptr; })
          .value("narrowed_by", "what would narrow the interval most",
                 [](const R& r) { return r.interval ? &r.interval->narrowed_by : nullptr; })
          .object("troubled", "with what is always there: slow devices, links, neighbours", way_record(),
                  [](const R& r) {
                    return r.troubled ? std::optional<ShownWay>(ShownWay{*r.troubled, true}) : std::nullopt;
                  })
          .object("under_trouble", "over the horizon", ordeal_record(), [](const R& r) {
            return r.ordeal ? std::optional<Troubled>(Troubled{*r.ordeal, r.whole()}) : std::nullopt;
          });
  return record;
}

struct ShownRow {
  const Row& row;
  const CompareRequest& request;
};

// Through each trouble by itself, and behind these, where there are several, through all together.
std::vector<Troubled> under(const ShownRow& shown) {
  std::vector<Troubled> all;
  if (!shown.row.ordeal) return all;
  std::vector<std::string> texts;
  for (const std::string& troubles : shown.request.troubles)
    for (const std::string& trouble : split(troubles)) texts.push_back(trouble);
  for (std::size_t t = 0; t < shown.row.alone.size(); ++t)
    all.push_back({shown.row.alone[t], shown.row.whole(), texts[t]});
  all.push_back({*shown.row.ordeal, shown.row.whole(), fmt::format("{}", fmt::join(texts, ","))});
  return all;
}

const Record<ShownRow>& shown_row_record() {
  static const auto record =
      Record<ShownRow>()
          .with(
              row_record(), [](const ShownRow& s) -> const auto& { return s.row; })
          .list("under", "each trouble by itself, then all together", ordeal_record(), under);
  return record;
}

const Record<CutStep>& cut_step_record() {
  using C = CutStep;
  static const auto record =
      Record<C>()
          .value("layers", "by stage", [](const C& c) { return c.layers; })
          .value("busy_s", "by stage", [](const C& c) { return c.busy_s; })
          .value("std_s", "of those", [](const C& c) { return c.std_s; })
          .value("max_over_mean", "of those", [](const C& c) { return c.max_over_mean; })
          .value("longest_s", "of those", [](const C& c) { return c.longest_s; })
          .value("step_s", "of the pipeline", [](const C& c) { return c.step_s; })
          .value("moved", "layers before this step", [](const C& c) { return c.moved; });
  return record;
}

const Record<Recut>& recut_record() {
  using R = Recut;
  static const auto record =
      Record<R>()
          .value("cutting", "how layers are dealt to stages", [](const R& r) { return name_of(r.cutting); })
          .value("std_s", "of busy times, mean over the steps behind the first",
                 [](const R& r) { return r.std_s; })
          .value("max_over_mean", "of busy times, likewise", [](const R& r) { return r.max_over_mean; })
          .value("longest_s", "busy time, likewise", [](const R& r) { return r.longest_s; })
          .value("step_s", "of the pipeline, likewise", [](const R& r) { return r.step_s; })
          .list(
              "steps", "one by one", cut_step_record(), [](const R& r) -> const auto& { return r.steps; })
          .value("simulated_s", "a step of the last cut", [](const R& r) { return r.simulated_s; });
  return record;
}

const Record<CompareAnswer>& cuts_record() {
  using A = CompareAnswer;
  static const auto record =
      Record<A>()
          .value("stages", "of the pipeline", [](const A& a) { return a.request.stages; })
          .list(
              "cuttings", "side by side", recut_record(),
              [](const A& a) -> const auto& { return a.comparison.recuts; });
  return record;
}

const Record<CompareRequest>& trouble_record() {
  using R = CompareRequest;
  static const auto record =
      Record<R>()
          .value("asked", "in the words of the option", [](const R& r) { return r.troubles; })
          .value("seed", "of what is drawn", [](const R& r) { return r.options.seed; })
          .value("checkpoint_every_s", "between checkpoints",
                 [](const R& r) { return r.options.checkpoint_every_s; })
          .value("restart_s", "until a job has started again", [](const R& r) { return r.options.restart_s; })
          .value("replace_s", "until what died is replaced", [](const R& r) { return r.options.replace_s; });
  return record;
}

}  // namespace

const Record<CompareAnswer>& compare_record() {
  using A = CompareAnswer;
  static const auto named = [](auto index) {
    return [index](const A& a) {
      const std::optional<std::size_t> row = a.comparison.*index;
      return row ? &a.comparison.rows[*row].strategy.name : nullptr;
    };
  };
  static const auto record =
      Record<A>()
          .with(
              job_record(), [](const A& a) -> const auto& { return *a.request.question.job; })
          .value("sizes", "devices, ascending; the last is all of them",
                 [](const A& a) { return a.comparison.sizes; })
          .list("strategies", "side by side", shown_row_record(),
                [](const A& a) {
                  std::vector<ShownRow> rows;
                  for (const Row& row : a.comparison.rows) rows.push_back({row, a.request});
                  return rows;
                })
          .object("trouble", "that was asked for", trouble_record(),
                  [](const A& a) { return a.request.troubles.empty() ? nullptr : &a.request; })
          .list("balance", "where workers' speeds differ or change", balance_record(),
                [](const A& a) { return a.comparison.balances.empty() ? nullptr : &a.comparison.balances; })
          .object("cuts", "of a pipeline whose devices' speeds differ or change", cuts_record(),
                  [](const A& a) { return a.comparison.recuts.empty() ? nullptr : &a; })
          .value("best", "the fastest that computes what one device would", named(&Comparison::best))
          .value("fastest", "of all, where that is another", named(&Comparison::fastest))
          .value("verdict", "the best way, and why", [](const A& a) { return a.comparison.verdict; });
  return record;
}

Json to_json(const CompareRequest& request, const Comparison& comparison) {
  return compare_record().json({request, comparison});
}

}  // namespace orrery
