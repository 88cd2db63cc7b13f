// What measurements taught, as JSON.
#include <cmath>

#include "orrery/records.h"

namespace orrery {
namespace {

using measurements::kCoveredDeviations;

const Record<measurements::HeldOut>& held_out_record() {
  using H = measurements::HeldOut;
  static const auto record =
      Record<H>("held_out")
          .value("rows", "held back in turn", [](const H& h) { return h.rows; })
          .value("mape_before", "mean size of the relative errors before",
                 [](const H& h) { return h.mape_before; })
          .value("mape_after", "and with what the others taught", [](const H& h) { return h.mape_after; })
          .value("coverage", "share of the rows within their 90% intervals",
                 [](const H& h) { return h.coverage; });
  return record;
}

const Record<measurements::Learned>& factor_record() {
  using L = measurements::Learned;
  static const auto record =
      Record<L>()
          .value("name", "of what takes so many times as long as profiles say",
                 [](const L& l) { return l.name; })
          .value("before", "1: as profiles say", [](const L&) { return 1.0; })
          .value("before_low", "90% lie above",
                 [](const L& l) { return std::exp(-kCoveredDeviations * l.sd_before); })
          .value("before_high", "and below",
                 [](const L& l) { return std::exp(kCoveredDeviations * l.sd_before); })
          .value("source_before", "what said so", [](const L& l) { return l.source_before; })
          .value("after", "with these measurements", [](const L& l) { return std::exp(l.mean); })
          .value("low", "90% lie above",
                 [](const L& l) { return std::exp(l.mean - kCoveredDeviations * l.sd); })
          .value("high", "and below", [](const L& l) { return std::exp(l.mean + kCoveredDeviations * l.sd); })
          .value("source", "what says so", [](const L& l) { return l.source; });
  return record;
}

const Record<measurements::Departure>& departure_record() {
  using D = measurements::Departure;
  static const auto record =
      Record<D>()
          .value("collective", "that departs from its prediction", [](const D& d) { return name_of(d.kind); })
          .value("nodes", "that it runs over", [](const D& d) { return d.nodes; })
          .value("devices_per_node", "of them", [](const D& d) { return d.devices_per_node; })
          .value("algorithm", "as predicted", [](const D& d) { return d.algorithm; })
          .value("protocol", "as predicted", [](const D& d) { return d.protocol; })
          .value("least_bytes", "of the sizes", [](const D& d) { return d.least_bytes; })
          .value("most_bytes", "of the sizes", [](const D& d) { return d.most_bytes; })
          .value("times_as_predicted", "that it takes, in the mean", [](const D& d) { return d.times; });
  return record;
}

const Record<measurements::KernelTotal>& kernels_record() {
  using K = measurements::KernelTotal;
  static const auto record = Record<K>("kernels")
                                 .value("kernels", "launches", [](const K& k) { return k.kernels; })
                                 .given("seconds", "that they take", {{"type", "number"}, {"x-unit", "s"}},
                                        [](const K& k) { return Json(k.seconds); });
  return record;
}

const Record<measurements::RankTrace>& trace_record() {
  using T = measurements::RankTrace;
  static const auto record =
      Record<T>()
          .value("file", "that holds the trace", [](const T& t) { return t.file; })
          .value("device", "that it is of; empty: it does not say", [](const T& t) { return t.device; })
          .value("rank", "-1: it does not say", [](const T& t) { return t.rank; })
          .value("world", "ranks of the job; 0: it does not say", [](const T& t) { return t.world; })
          .value("steps_s", "each step", [](const T& t) { return t.steps_s; })
          .map("kernels", "by class", kernels_record(),
               [](const T& t) {
                 std::vector<std::pair<std::string, measurements::KernelTotal>> all;
                 for (std::size_t i = 0; i < measurements::kKernelClasses; ++i)
                   all.emplace_back(name_of(static_cast<measurements::KernelClass>(i)), t.kernels[i]);
                 return all;
               })
          .value("window_s", "from the device's first to its last", [](const T& t) { return t.window_s; })
          .value("compute_s", "of that with computation", [](const T& t) { return t.compute_s; })
          .value("collective_s", "of that with collectives", [](const T& t) { return t.collective_s; })
          .value("both_s", "of that with both at once", [](const T& t) { return t.both_s; })
          .value("idle_s", "of that with neither", [](const T& t) { return t.idle_s; })
          .value("launch_s", "of the host, from launch to launch; 0: the device never waited",
                 [](const T& t) { return t.launch_s; });
  return record;
}

const Record<measurements::FileRead>& file_read_record() {
  using F = measurements::FileRead;
  static const auto record =
      Record<F>()
          .value("file", "that was read", [](const F& f) { return f.file; })
          .value("kind", "of file", [](const F& f) { return f.kind; })
          .value("steps", "taken from it", [](const F& f) { return f.steps; })
          .value("collectives", "taken from it", [](const F& f) { return f.collectives; })
          .value("products", "taken from it", [](const F& f) { return f.products; });
  return record;
}

}  // namespace

const Record<measurements::Ignored>& ignored_record() {
  using I = measurements::Ignored;
  static const auto record = Record<I>("ignored")
                                 .value("file", "that holds it", [](const I& i) { return i.file; })
                                 .value("line", "the first; 0: all of it", [](const I& i) { return i.line; })
                                 .value("why", "it says nothing here", [](const I& i) { return i.why; })
                                 .value("rows", "alike", [](const I& i) { return i.rows; });
  return record;
}

const Record<SiteCalibrated>& site_record() {
  using S = SiteCalibrated;
  static const auto record =
      Record<S>()
          .value("cluster", "that was calibrated", [](const S& s) { return s.cluster; })
          .value("file", "where its profile was written", [](const S& s) { return s.file; })
          .value("runtime", "of the steps; empty: none", [](const S& s) { return s.calibrated.runtime; })
          .value("runtime_from", "what says so", [](const S& s) { return s.calibrated.runtime_from; })
          .list(
              "files", "that were read", file_read_record(),
              [](const S& s) -> const auto& { return s.measured.files; })
          .list(
              "factors", "what was learnt", factor_record(),
              [](const S& s) -> const auto& { return s.calibrated.factors; })
          // Of steps where there are some: what plans are made of.
          .object("held_out", "how far off rows held back are, of steps where there are some",
                  held_out_record(),
                  [](const S& s) {
                    const auto& steps = s.calibrated.steps;
                    return steps ? *steps : s.calibrated.collectives.value_or(measurements::HeldOut{});
                  })
          .object(
              "held_out_collectives", "the same of collectives", held_out_record(),
              [](const S& s) -> const auto& { return s.calibrated.collectives; })
          .object(
              "held_out_products", "the same of products", held_out_record(),
              [](const S& s) -> const auto& { return s.calibrated.products; })
          .list(
              "departures", "collectives that no factor explains", departure_record(),
              [](const S& s) -> const auto& { return s.calibrated.departures; })
          .list(
              "ignored", "what says nothing here", ignored_record(),
              [](const S& s) -> const auto& { return s.measured.ignored; })
          .value("doubts", "what was taken all the same, and why it may be wrong",
                 [](const S& s) { return s.calibrated.doubts; })
          .list(
              "traces", "what devices did in them", trace_record(),
              [](const S& s) -> const auto& { return s.measured.traces; });
  return record;
}

const Record<Refitted>& refitted_record() {
  using R = Refitted;
  static const auto record =
      Record<R>()
          .value("validations", "that it rests on", [](const R& r) { return r.validations; })
          .value("computation", "takes so many times as long as calibrated",
                 [](const R& r) { return r.found.slowdown.computation; })
          .value("communication", "takes so many times as long as calibrated",
                 [](const R& r) { return r.found.slowdown.communication; })
          .value("median_error", "of the step before, as a fraction",
                 [](const R& r) { return r.found.median_error; })
          .value("left_out_median_error", "of plans left out of the refit",
                 [](const R& r) { return r.found.left_out_median_error; });
  return record;
}

Json to_json(const SiteCalibrated& result) {
  return site_record().json(result);
}
Json to_json(const Refitted& refitted) {
  return refitted_record().json(refitted);
}

}  // namespace orrery
