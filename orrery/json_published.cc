// Published rows beside their predictions, as JSON.
#include "orrery/published.h"
#include "orrery/records.h"

namespace orrery {

using namespace evidence;

namespace {

const Record<CellFigures>& cells_record() {
  using C = CellFigures;
  static const auto record =
      Record<C>()
          .value("cells", "a source's model on a device in a precision", [](const C& c) { return c.cells; })
          .value("mape", "mean size of the relative errors", [](const C& c) { return c.mape; })
          .value("median_ape", "their median size", [](const C& c) { return c.median_ape; })
          .value("bias", "their mean", [](const C& c) { return c.bias; });
  return record;
}

const Record<GroupFigures>& regret_record() {
  using G = GroupFigures;
  static const auto record = Record<G>()
                                 .value("mean", "how much slower the plan predicted fastest is, as measured",
                                        [](const G& g) { return g.regret_mean; })
                                 .value("max", "and at most", [](const G& g) { return g.regret_max; });
  return record;
}

// With `kind` a table of memory's, with the figures above a mebibyte one of collectives'.
const Record<GroupFigures>& any_software_record() {
  using G = GroupFigures;
  static const auto record =
      Record<G>()
          .value("groups", "of such rows", [](const G& g) { return g.groups; })
          .value("pairs_in_order", "share of the pairs of plans predicted in their order",
                 [](const G& g) { return g.pairs_in_order; })
          .object(
              "regret", "of picking the plan that is predicted fastest", regret_record(),
              [](const G& g) -> const auto& { return g; });
  return record;
}

Record<evidence::Figures> figures_record_named(std::string name) {
  using F = evidence::Figures;
  const auto judged = [](auto of) {
    return [of](const F& f) { return f.rows > 0 ? std::optional<double>(of(f)) : std::nullopt; };
  };
  const auto grouped = [](auto of) {
    return [of](const F& f) { return f.rows > 0 && f.groups ? std::optional(of(*f.groups)) : std::nullopt; };
  };
  return Record<F>(std::move(name))
      .value("rows", "that were predicted", [](const F& f) { return f.rows; })
      .value("skipped", "rows", [](const F& f) { return f.skipped; })
      .value("asked", "rows with a time or a rate",
             [](const F& f) { return f.asked ? &f.asked->rows : nullptr; })
      .value("answered", "share of those that is predicted",
             [](const F& f) {
               return f.asked && f.asked->rows > 0
                          ? std::optional(static_cast<double>(f.rows) / f.asked->rows)
                          : std::nullopt;
             })
      .value("refused_by_memory", "rows that ran and are predicted not to fit",
             [](const F& f) { return f.asked ? &f.asked->refused_by_memory : nullptr; })
      .value("mape", "mean size of the relative errors", judged([](const F& f) { return f.mape; }))
      .value("median_ape", "their median size", judged([](const F& f) { return f.median_ape; }))
      .value("max_ape", "their largest size", judged([](const F& f) { return f.max_ape; }))
      .value("bias", "their mean", judged([](const F& f) { return f.bias; }))
      .value("within_10_percent", "share of them", judged([](const F& f) { return f.within_10_percent; }))
      .value("coverage", "share of the rows within their 90% intervals",
             [](const F& f) { return f.rows > 0 ? f.coverage : std::nullopt; })
      .object("by_cell", "each source's model on a device in a precision counted once", cells_record(),
              [](const F& f) { return f.rows > 0 && f.by_cell ? &*f.by_cell : nullptr; })
      .object("any_software", "over rows of one model, batch and machine, whatever software ran them",
              any_software_record(),
              [](const F& f) { return f.rows > 0 && f.any_software ? &*f.any_software : nullptr; })
      .value("groups", "of rows that differ only in the plan",
             grouped([](const GroupFigures& g) { return g.groups; }))
      .value("pairs_in_order", "share of the pairs of plans predicted in their order",
             grouped([](const GroupFigures& g) { return g.pairs_in_order; }))
      .value("kendall_tau", "mean over groups of three and more plans",
             grouped([](const GroupFigures& g) { return g.kendall_tau; }))
      .object("regret", "of picking the plan that is predicted fastest", regret_record(),
              [](const F& f) { return f.rows > 0 && f.groups ? &*f.groups : nullptr; });
}

const Record<evidence::Figures>& figures_record() {
  static const auto record = figures_record_named("figures");
  return record;
}

const Record<SourceFigures>& source_record() {
  static const auto record =
      Record<SourceFigures>("source")
          .with(
              figures_record(), [](const SourceFigures& s) -> const auto& { return s.figures; })
          .value("kind", "of memory that is counted", [](const SourceFigures& s) {
            return s.kind ? std::optional(name_of(*s.kind)) : std::nullopt;
          });
  return record;
}

std::vector<std::pair<std::string, SourceFigures>> by_name(const Summary& summary) {
  std::vector<std::pair<std::string, SourceFigures>> all;
  for (const SourceFigures& source : summary.sources) all.emplace_back(source.name, source);
  return all;
}

const Record<Summary>& summary_record() {
  static const auto record =
      Record<Summary>("summary")
          .object(
              "all", "rows", figures_record(), [](const Summary& s) -> const auto& { return s.all; })
          .map("sources", "by file", source_record(), by_name);
  return record;
}

const Record<Misjudged>& misjudged_record() {
  using M = Misjudged;
  static const auto record =
      Record<M>("misjudged")
          .value("file", "of the row", [](const M& m) { return m.file; })
          .value("line", "of the row", [](const M& m) { return m.line; })
          .value("model", "as the table has it", [](const M& m) { return m.model; })
          .value("plan", "in words", [](const M& m) { return m.plan; })
          .value("predicted_bytes", "of the fullest device", [](const M& m) { return m.predicted_bytes; })
          .given("capacity", "of that device", {{"type", "number"}, {"x-unit", "bytes"}},
                 [](const M& m) { return Json(m.capacity_bytes); });
  return record;
}

const Record<MemorySummary>& fits_record() {
  using M = MemorySummary;
  static const auto record = Record<M>()
                                 .value("ran", "rows", [](const M& m) { return m.ran; })
                                 .list(
                                     "said_not_to_fit", "of those", misjudged_record(),
                                     [](const M& m) -> const auto& { return m.said_not_to_fit; })
                                 .value("out_of_memory", "rows", [](const M& m) { return m.out_of_memory; })
                                 .list(
                                     "said_to_fit", "of those", misjudged_record(),
                                     [](const M& m) -> const auto& { return m.said_to_fit; });
  return record;
}

const Record<MemorySummary>& memory_summary_record() {
  using M = MemorySummary;
  static const auto record = Record<M>()
                                 .with(
                                     summary_record(), [](const M& m) -> const auto& { return m.figures; })
                                 .object(
                                     "fits", "whether rows fit, as predicted", fits_record(),
                                     [](const M& m) -> const auto& { return m; });
  return record;
}

const Record<Assumed>& assumed_record() {
  using A = Assumed;
  static const auto record =
      Record<A>()
          .value("what", "was assumed", [](const A& a) { return a.what; })
          .value("why", "so", [](const A& a) { return a.why; })
          .value("widens", "standard deviation that it adds to the logarithm of the step time",
                 [](const A& a) { return a.widens; });
  return record;
}

// Defaults that may be off.
std::optional<std::vector<Assumed>> doubtful(const PublishedRow& row) {
  std::vector<Assumed> all;
  for (const Assumed& one : row.assumed)
    if (one.widens > 0) all.push_back(one);
  return all.empty() ? std::nullopt : std::optional(all);
}

const Record<PublishedRow>& published_row_record() {
  using R = PublishedRow;
  static const auto with_devices = [](auto of) {
    return [of](const R& r) { return r.devices > 0 ? std::optional(of(r)) : std::nullopt; };
  };
  static const auto of_error = [](const R& r) -> const double* {
    if (r.per_s) return &r.per_s->error;
    return r.step_s ? &r.step_s->error : nullptr;
  };
  static const auto record =
      Record<R>("row")
          .value("file", "without folder and ending", [](const R& r) { return r.file; })
          .value("line", "of it", [](const R& r) { return r.line; })
          .value("source", "as the table has it", [](const R& r) { return r.source; })
          .value("model", "as the table has it", [](const R& r) { return r.model; })
          .value("gpu", "as the table has it", [](const R& r) { return r.device; })
          .value("n_gpus", "devices", with_devices([](const R& r) { return r.devices; }))
          .value("runtime", "whose kernels are modelled", with_devices([](const R& r) { return r.runtime; }))
          .value("plan", "in words", [](const R& r) { return r.plan.empty() ? nullptr : &r.plan; })
          .value("predicted_s", "of a step",
                 [](const R& r) { return r.step_s ? &r.step_s->predicted : nullptr; })
          .value("measured_s", "of a step",
                 [](const R& r) { return r.step_s ? &r.step_s->measured : nullptr; })
          .value("relative_error", "(predicted - measured) / measured, of the step or the rate", of_error)
          .value("predicted_low_s", "90% of such steps take at least",
                 [](const R& r) { return r.step_range_s ? &r.step_range_s->low : nullptr; })
          .value("predicted_high_s", "and at most",
                 [](const R& r) { return r.step_range_s ? &r.step_range_s->high : nullptr; })
          .list("assumed", "defaults that may be off", assumed_record(), doubtful)
          .value("widens", "what those add together to the logarithm's standard deviation",
                 [](const R& r) { return doubtful(r) ? std::optional(widening(r.assumed)) : std::nullopt; })
          .value("skipped", "why the row, or its step time, was not judged",
                 [](const R& r) { return r.skipped.empty() ? nullptr : &r.skipped; })
          .value("fits", "in memory, as predicted", [](const R& r) { return r.fits; })
          .value("predicted_bytes", "of what memory_kind counts",
                 [](const R& r) { return r.memory_bytes ? &r.memory_bytes->predicted : nullptr; })
          .value("measured_bytes", "of the same",
                 [](const R& r) { return r.memory_bytes ? &r.memory_bytes->measured : nullptr; })
          .value("memory_kind", "allocated, reserved or total",
                 [](const R& r) {
                   return r.memory_bytes ? std::optional(name_of(r.memory_kind)) : std::nullopt;
                 })
          .value("memory_error", "(predicted - measured) / measured",
                 [](const R& r) { return r.memory_bytes ? &r.memory_bytes->error : nullptr; })
          .value("predicted_per_s", "samples a second, or percent of so many times one device's",
                 [](const R& r) { return r.per_s ? &r.per_s->predicted : nullptr; })
          .value("measured_per_s", "the same",
                 [](const R& r) { return r.per_s ? &r.per_s->measured : nullptr; });
  return record;
}

const Record<CollectiveRow>& collective_row_record() {
  using R = CollectiveRow;
  static const auto record =
      Record<R>("row_of_collectives")
          .value("file", "with its ending", [](const R& r) { return r.file; })
          .value("line", "of it", [](const R& r) { return r.line; })
          .value("source", "as the table has it", [](const R& r) { return r.source; })
          .value("collective", "as the table has it", [](const R& r) { return r.collective; })
          .value("gpu", "as the table has it", [](const R& r) { return r.device; })
          .value("n_gpus", "devices", [](const R& r) { return r.devices; })
          .value("n_nodes", "of them", [](const R& r) { return r.nodes; })
          .value("size_bytes", "as nccl-tests counts them", [](const R& r) { return r.size_bytes; })
          .value("predicted_s", "of the operation",
                 [](const R& r) { return r.seconds ? &r.seconds->predicted : nullptr; })
          .value("measured_s", "of the operation",
                 [](const R& r) { return r.seconds ? &r.seconds->measured : nullptr; })
          .value("relative_error", "(predicted - measured) / measured",
                 [](const R& r) { return r.seconds ? &r.seconds->error : nullptr; })
          .value("algorithm", "as predicted",
                 [](const R& r) { return r.seconds ? std::optional(name_of(r.algorithm)) : std::nullopt; })
          .value("protocol", "as predicted",
                 [](const R& r) { return r.seconds ? std::optional(name_of(r.protocol)) : std::nullopt; })
          .value("skipped", "why it was not judged",
                 [](const R& r) { return r.skipped.empty() ? nullptr : &r.skipped; });
  return record;
}

const Record<CollectiveSource>& collective_source_record() {
  using S = CollectiveSource;
  static const auto record = Record<S>("source_of_collectives")
                                 .with(
                                     figures_record(), [](const S& s) -> const auto& { return s.all; })
                                 .object(
                                     "above_1_mib", "of larger messages", figures_record(),
                                     [](const S& s) -> const auto& { return s.above_1_mib; });
  return record;
}

}  // namespace

const Record<Published>& published_record() {
  using P = Published;
  static const auto record = Record<P>()
                                 .list(
                                     "rows", "of the tables", published_row_record(),
                                     [](const P& p) -> const auto& { return p.rows; })
                                 .with(
                                     summary_record(), [](const P& p) -> const auto& { return p.steps; })
                                 .object(
                                     "memory", "where rows print it", memory_summary_record(),
                                     [](const P& p) -> const auto& { return p.memory; })
                                 .object(
                                     "throughput", "of tables of throughput", summary_record(),
                                     [](const P& p) -> const auto& { return p.throughput; });
  return record;
}

const Record<PublishedCollectives>& published_collectives_record() {
  using P = PublishedCollectives;
  static const auto record =
      Record<P>()
          .object(
              "all", "rows", figures_record(), [](const P& p) -> const auto& { return p.all; })
          .object(
              "above_1_mib", "rows of larger messages", figures_record(),
              [](const P& p) -> const auto& { return p.above_1_mib; })
          .map("sources", "by file", collective_source_record(),
               [](const P& p) {
                 std::vector<std::pair<std::string, CollectiveSource>> all;
                 for (const CollectiveSource& source : p.sources) all.emplace_back(source.name, source);
                 return all;
               })
          .map(
              "machines", "by device, nodes and collective", figures_record(),
              [](const P& p) -> const auto& { return p.machines; })
          .list(
              "rows", "of the tables", collective_row_record(),
              [](const P& p) -> const auto& { return p.rows; });
  return record;
}

Json to_json(const Published& published) {
  return published_record().json(published);
}
Json to_json(const PublishedCollectives& published) {
  return published_collectives_record().json(published);
}

}  // namespace orrery
