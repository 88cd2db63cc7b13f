// Predicted beside measured, as JSON.
#include "orrery/records.h"

namespace orrery {

using namespace planner;

namespace {

const Record<KindComparison>& kind_comparison_record() {
  using K = KindComparison;
  static const auto record =
      Record<K>("by_kind")
          .value("kind", "of instruction", [](const K& k) { return k.kind; })
          .value("predicted_s", "of a step, mean over the ranks", [](const K& k) { return k.predicted_s; })
          .value("measured_s", "of a step, mean over the ranks", [](const K& k) { return k.measured_s; })
          .value("relative_error", "(predicted - measured) / measured; absent where nothing was measured",
                 [](const K& k) {
                   return k.measured_s > 0 ? std::optional((k.predicted_s - k.measured_s) / k.measured_s)
                                           : std::nullopt;
                 });
  return record;
}

const Record<Validation>& two_memories_record() {
  static const auto record = Record<Validation>()
                                 .value("predicted_bytes", "of the fullest rank",
                                        [](const Validation& v) { return v.predicted_bytes; })
                                 .value("measured_bytes", "of the fullest rank",
                                        [](const Validation& v) { return v.measured_bytes; });
  return record;
}

const Record<planner::FullestShare>& fullest_record() {
  using F = planner::FullestShare;
  static const auto record = Record<F>()
                                 .value("predicted_share", "by the runtime's `expert_spread`",
                                        [](const F& f) { return f.predicted; })
                                 .value("measured_share", "mean over layers, micro-batches and steps",
                                        [](const F& f) { return f.measured; });
  return record;
}

const Record<Validation>& pace_record() {
  using V = Validation;
  static const auto record =
      Record<V>()
          .value("before", "the machine's pace beside its calibration's, before the steps",
                 [](const V& v) { return v.pace->before; })
          .value("after", "and after them", [](const V& v) { return v.pace->after; })
          .value("least", "and at least", [](const V& v) { return v.pace->least; })
          .value("most", "and at most", [](const V& v) { return v.pace->most; })
          .value("step_time_s", "as if the machine had kept its calibrated pace",
                 [](const V& v) { return v.pace->step_time_s; })
          .value("relative_error", "of that", [](const V& v) { return v.relative_error_at_pace(); });
  return record;
}

const Record<Measurement>& measured_times_record() {
  using M = Measurement;
  static const auto record = Record<M>("", "s")
                                 .value("median", "of the steps", [](const M& m) { return m.step_median_s; })
                                 .value("min", "of the steps", [](const M& m) { return m.step_least_s; })
                                 .value("max", "of the steps", [](const M& m) { return m.step_most_s; });
  return record;
}

const Record<AgainstRow>& against_row_record() {
  using R = AgainstRow;
  static const auto record =
      Record<R>()
          .value("file", "that holds it", [](const R& r) { return r.file; })
          .value("line", "0: a trace", [](const R& r) { return r.line; })
          .value("measured_s", "of a step", [](const R& r) { return r.measured_s; })
          .value("relative_error", "of the plan's step", [](const R& r) { return r.relative_error; });
  return record;
}

const Record<measurements::DiffRow>& diff_row_record() {
  using R = measurements::DiffRow;
  static const auto record =
      Record<R>("difference")
          .value("stream", "that it runs on", [](const R& r) { return r.stream; })
          .value("kind", "of what runs", [](const R& r) { return r.kind; })
          .value("a_s", "of a step of A", [](const R& r) { return r.a.seconds; })
          .value("b_s", "of a step of B", [](const R& r) { return r.b.seconds; })
          .value("difference_s", "b_s - a_s", [](const R& r) { return r.b.seconds - r.a.seconds; })
          .value("a_count", "times in A", [](const R& r) { return r.a.count; })
          .value("b_count", "times in B", [](const R& r) { return r.b.count; });
  return record;
}

template <typename Of>
Record<Of> two_times_record() {
  Record<Of> r;
  r.value("a_s", "of a step of A", [](const Of& of) { return of.a_s; })
      .value("b_s", "of a step of B", [](const Of& of) { return of.b_s; })
      .value("a_idle_s", "of that with nothing running", [](const Of& of) { return of.a_idle_s; })
      .value("b_idle_s", "of that with nothing running", [](const Of& of) { return of.b_idle_s; });
  return r;
}

const Record<measurements::DiffStep>& step_times_record() {
  static const auto record = two_times_record<measurements::DiffStep>();
  return record;
}

const Record<measurements::DiffStep>& diff_step_record() {
  using S = measurements::DiffStep;
  static const auto record = Record<S>()
                                 .value("a_step", "its number in A", [](const S& s) { return s.a; })
                                 .value("b_step", "its number in B", [](const S& s) { return s.b; })
                                 .with(
                                     step_times_record(), [](const S& s) -> const auto& { return s; })
                                 .list(
                                     "rows", "largest difference first", diff_row_record(),
                                     [](const S& s) -> const auto& { return s.rows; });
  return record;
}

// What is remembered of a validation (orrery/history.h); lines of older versions have less.
const Json& entries_shape() {
  static const Json shape = {
      {"type", "array"},
      {"items",
       {{"type", "object"},
        {"required",
         {"when", "workload", "cluster", "plan", "predicted_step_time_s", "measured_step_time_s"}}}}};
  return shape;
}

}  // namespace

const Record<Validation>& validation_record() {
  using V = Validation;
  static const auto record =
      Record<V>()
          .value("predicted_step_time_s", "steady state, simulated",
                 [](const V& v) { return v.predicted_step_time_s; })
          .value("measured_step_time_s", "median of the steps but the first",
                 [](const V& v) { return v.measured_step_time_s; })
          .value("relative_error", "(predicted - measured) / measured",
                 [](const V& v) { return v.relative_error(); })
          .list(
              "by_kind", "of instruction, largest difference first", kind_comparison_record(),
              [](const V& v) -> const auto& { return v.by_kind; })
          .object(
              "memory", "of the fullest rank", two_memories_record(),
              [](const V& v) -> const auto& { return v; })
          .object(
              "experts", "tokens of the fullest rank that shares experts, by the mean", fullest_record(),
              [](const V& v) -> const auto& { return v.experts; })
          .object("machine_pace", "how fast the machine was beside the day of its calibration", pace_record(),
                  [](const V& v) { return v.pace ? &v : nullptr; });
  return record;
}

const Record<ValidationAnswer>& measured_record() {
  using A = ValidationAnswer;
  static const auto record =
      Record<A>()
          .with(
              job_record(), [](const A& a) -> const auto& { return *a.predicted.plan.job; })
          .with(
              validation_record(), [](const A& a) -> const auto& { return a.validation; })
          .value("ranks", "of the plan", [](const A& a) { return a.predicted.plan.choices.world(); })
          .value("steps", "that were run", [](const A& a) { return a.steps; })
          .value("profile", kProfileMeaning,
                 [](const A& a) { return profile_of(a.predicted.plan.job->cluster); })
          .object(
              "measured", "step times", measured_times_record(),
              [](const A& a) -> const auto& { return a.measured; });
  return record;
}

const Record<Against>& against_record() {
  using A = Against;
  static const auto traced = [](auto of) {
    return [of](const A& a) { return a.traced_ranks > 0 ? std::optional(of(a)) : std::nullopt; };
  };
  static const auto record =
      Record<A>()
          .with(
              job_record(), [](const A& a) -> const auto& { return *a.predicted.plan.job; })
          .value("predicted_step_time_s", "steady state, simulated",
                 [](const A& a) { return a.predicted.step_time_s(); })
          .value("measured_step_time_s", "median of the rows", [](const A& a) { return a.measured_s; })
          .value("relative_error", "(predicted - measured) / measured",
                 [](const A& a) { return a.relative_error(); })
          // Logs and tables say nothing of kinds.
          .list(
              "by_kind", "where there are traces, largest difference first", kind_comparison_record(),
              [](const A& a) -> const auto& { return a.by_kind; })
          .value("explanation", "of traces, in words", traced([](const A& a) { return a.explanation; }))
          .value("traced_ranks", "whose traces there are", traced([](const A& a) { return a.traced_ranks; }))
          .value("waited_s", "of a step for peers, in collectives",
                 traced([](const A& a) { return a.waited_s; }))
          .with(
              interval_record(), [](const A& a) -> const auto& { return a.predicted.interval; })
          .list(
              "rows", "measured with this plan", against_row_record(),
              [](const A& a) -> const auto& { return a.rows; })
          .list(
              "ignored", "of another model or plan, or unreadable", ignored_record(),
              [](const A& a) -> const auto& { return a.ignored; });
  return record;
}

const Record<measurements::TraceDiff>& trace_diff_record() {
  using T = measurements::TraceDiff;
  static const auto times = two_times_record<T>();
  static const auto record =
      Record<T>()
          .with(
              times, [](const T& t) -> const auto& { return t; })
          .value("relative_difference", "(b - a) / a", [](const T& t) { return t.relative_difference(); })
          .value("explanation", "in words", [](const T& t) { return measurements::explain(t); })
          .value("aligned", "how finely they could be aligned", [](const T& t) { return t.aligned; })
          .value("ranks", "compared; empty: one of each, whatever their numbers",
                 [](const T& t) { return t.ranks; })
          .list(
              "rows", "mean over the steps, largest difference first", diff_row_record(),
              [](const T& t) -> const auto& { return t.rows; })
          .list("by_kind", "over all streams: predicted is a, measured is b", kind_comparison_record(),
                [](const T& t) { return t.by_kind(); })
          .list(
              "steps", "the first with the first, and so on", diff_step_record(),
              [](const T& t) -> const auto& { return t.steps; })
          .value("left_out", "and why", [](const T& t) { return t.left_out; });
  return record;
}

const Record<History>& history_record() {
  using H = History;
  static const auto record = Record<H>()
                                 .given("entries", "validations, oldest first", entries_shape(),
                                        [](const H& h) { return Json(h.entries); })
                                 .value("median_error", "size of the steps' relative errors",
                                        [](const H& h) { return median_error(h, h.entries.size()); })
                                 .value("latest_median_error", "the same of the latest ten",
                                        [](const H& h) { return median_error(h, kLatest); });
  return record;
}

Json to_json(const Validation& validation) {
  return validation_record().json(validation);
}
Json to_json(const Evaluation& predicted, const Measurement& measured, const Validation& validation,
             int steps) {
  return measured_record().json({predicted, measured, validation, steps});
}
Json to_json(const Against& against) {
  return against_record().json(against);
}
Json to_json(const measurements::TraceDiff& diff) {
  return trace_diff_record().json(diff);
}
Json to_json(const History& history) {
  return history_record().json(history);
}

}  // namespace orrery
