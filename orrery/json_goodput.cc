// Whole training runs on devices that fail, as JSON.
#include <map>
#include <utility>

#include "base/units.h"
#include "orrery/records.h"

namespace orrery {
using namespace planner;
namespace {

const Record<Distribution>& distribution_record(const char* name, const char* unit) {
  static std::map<std::string, Record<Distribution>> all;
  return all
      .try_emplace(
          name, Record<Distribution>(name, unit)
                    .value("mean", "over the runs", [](const Distribution& d) { return d.mean; })
                    .value("p5", "5% of the runs have less", [](const Distribution& d) { return d.p5; })
                    .value("p50", "half of the runs have less", [](const Distribution& d) { return d.p50; })
                    .value("p95", "95% of the runs have less", [](const Distribution& d) { return d.p95; }))
      .first->second;
}

const Record<GoodputFigures>& bill_record() {
  static const auto record =
      Record<GoodputFigures>()
          .value("cost_usd", "of all nodes and spares, from the first to the last second",
                 [](const GoodputFigures& f) { return f.cost_usd; })
          .value("energy_j", "of the whole run", [](const GoodputFigures& f) { return f.energy_j; });
  return record;
}

template <typename Of>
Record<Of>& add_range(Record<Of>& record, const std::string& low, const std::string& high, const char* what,
                      Range Of::*range, double unit) {
  return record
      .value(low, std::string("90% of such runs: ") + what + " at least",
             [range, unit](const Of& of) { return (of.*range).low / unit; })
      .value(high, std::string("90% of such runs: ") + what + " at most",
             [range, unit](const Of& of) { return (of.*range).high / unit; });
}

template <typename Of>
Record<Of>& add_range(Record<Of>& record, const std::string& low, const std::string& high, const char* what,
                      std::optional<Range> Of::*range, double unit) {
  return record
      .value(low, std::string("90% of such runs: ") + what + " at least",
             [range, unit](const Of& of) {
               return of.*range ? std::optional((of.*range)->low / unit) : std::nullopt;
             })
      .value(high, std::string("90% of such runs: ") + what + " at most", [range, unit](const Of& of) {
        return of.*range ? std::optional((of.*range)->high / unit) : std::nullopt;
      });
}

const Record<GoodputInterval>& run_interval_record() {
  static const auto record = [] {
    Record<GoodputInterval> r;
    r.with(
        step_range_record(), [](const GoodputInterval& i) -> const auto& { return i.step_time_s; });
    add_range(r, "goodput_low", "goodput_high", "productive time over all time", &GoodputInterval::goodput,
              1);
    add_range(r, "days_low", "days_high", "to train", &GoodputInterval::time_s, kSecondsPerDay);
    add_range(r, "usd_low", "usd_high", "cost", &GoodputInterval::cost_usd, 1);
    add_range(r, "mwh_low", "mwh_high", "energy", &GoodputInterval::energy_j, kJoulesPerMegawattHour);
    r.object(
         "rests_on", "what the figures rest on", rests_on_record(),
         [](const GoodputInterval& i) -> const auto& { return i.rests_on; })
        .value("narrowed_by", "what would narrow the interval most",
               [](const GoodputInterval& i) { return i.narrowed_by; });
    return r;
  }();
  return record;
}

const Record<Alternative>& alternative_record() {
  using A = Alternative;
  static const auto record =
      Record<A>()
          .value("key", "of the change", [](const A& a) { return a.key; })
          .value("change", "in words", [](const A& a) { return a.change; })
          .value("checkpoint_every_steps", "steps between checkpoints",
                 [](const A& a) { return a.figures.every; })
          .value("spares", "nodes beside the plan's", [](const A& a) { return a.figures.spares; })
          .value("goodput", "productive time over mean time", [](const A& a) { return a.figures.goodput; })
          .value("time_to_train_s", "mean of the runs",
                 [](const A& a) { return a.figures.statistics.time_s.mean; })
          .value("closed_form_s", "the same in closed form",
                 [](const A& a) { return a.figures.closed_form_s; })
          .with(
              bill_record(), [](const A& a) -> const auto& { return a.figures; });
  return record;
}

const Record<RunningPlan>& running_record() {
  static const auto record =
      Record<RunningPlan>()
          .value("nodes", "that it runs on", [](const RunningPlan& p) { return p.nodes; })
          .value("step_time_s", "of a step there", [](const RunningPlan& p) { return p.step_s; });
  return record;
}

const Record<Goodput>& closed_form_record() {
  static const auto mtti_s = [](const Goodput& g) { return 1 / g.question.run.failures_per_s; };
  static const auto record =
      Record<Goodput>()
          .value("goodput", "productive time over all time",
                 [](const Goodput& g) { return g.answer.figures.closed_form_goodput; })
          .value("time_to_train_s", "in the mean",
                 [](const Goodput& g) { return g.answer.figures.closed_form_s; })
          .value(
              "daly_interval_s", "of steps between checkpoints, by Daly's formula",
              [](const Goodput& g) { return daly_interval_s(g.question.run.checkpoint.stall_s, mtti_s(g)); })
          .value("young_interval_s", "the same by Young's", [](const Goodput& g) {
            return young_interval_s(g.question.run.checkpoint.stall_s, mtti_s(g));
          });
  return record;
}

std::vector<std::string> names_of_lost() {
  std::vector<std::string> names;
  for (const auto& [name, seconds] : lost_parts(TimeSpent{})) names.push_back(name);
  return names;
}

}  // namespace

const Record<Goodput>& goodput_record() {
  using G = Goodput;
  static const auto record =
      Record<G>()
          .with(job_record(), [](const G& g) { return g.job.get(); })
          .value("goodput", "productive time over mean time",
                 [](const G& g) { return g.answer.figures.goodput; })
          .value("steps", "of the whole run", [](const G& g) { return g.question.run.steps; })
          .value("step_time_s", "of the plan, simulated",
                 [](const G& g) { return g.question.run.plan().step_s; })
          .object(
              "time_to_train_s", "of the runs that were simulated", distribution_record("seconds", "s"),
              [](const G& g) -> const auto& { return g.answer.figures.statistics.time_s; })
          .value("time_to_train_error_s", "standard error of its mean",
                 [](const G& g) { return g.answer.figures.statistics.time_error_s; })
          .value("ideal_s", "to train if nothing ever failed",
                 [](const G& g) { return g.question.run.ideal_s(); })
          .object(
              "interruptions", "of a run", distribution_record("counts", ""),
              [](const G& g) -> const auto& { return g.answer.figures.statistics.interruptions; })
          .value("mtti_s", "mean time between interruptions",
                 [](const G& g) { return 1 / g.question.run.failures_per_s; })
          .value("checkpoint_every_steps", "steps between checkpoints",
                 [](const G& g) { return g.answer.figures.every; })
          .value("checkpoint_s", "that training stands still for one",
                 [](const G& g) { return g.question.run.checkpoint.stall_s; })
          .value("checkpoint_write_s", "from then until it is complete, beside training",
                 [](const G& g) { return g.question.run.checkpoint.write_s; })
          .value("checkpoint_read_s", "to read one back",
                 [](const G& g) { return g.question.run.checkpoint.read_s; })
          .value("detect_s", "from a failure until the job is stopped",
                 [](const G& g) { return g.question.run.detect_s; })
          .value("restart_s", "until the job has started again",
                 [](const G& g) { return g.question.run.restart_s; })
          .value("spares", "nodes beside the plan's", [](const G& g) { return g.question.run.spares; })
          .value("repair_s", "of a node, in the mean; 0: it is back at once",
                 [](const G& g) { return g.question.run.repair_s; })
          .value("cheapest_spares", "with which a run without end takes the fewest node-seconds",
                 [](const G& g) { return cheapest_spares(g.question.run); })
          .list(
              "plans", "the plan, and those that an elastic run goes on with", running_record(),
              [](const G& g) -> const auto& { return g.question.run.plans; })
          .value("runs", "that were simulated", [](const G& g) { return g.question.runs; })
          .value("seed", "of the random failures and repairs", [](const G& g) { return g.question.seed; })
          .given("lost_s", "of a run in the mean, by what it is lost to",
                 shape_of_map({{"type", "number"}, {"x-unit", "s"}}, names_of_lost()),
                 [](const G& g) {
                   Json lost = Json::object();
                   for (const auto& [name, seconds] : lost_parts(g.answer.figures.statistics.spent))
                     lost[name] = seconds;
                   return lost;
                 })
          .object(
              "closed_form", "what formulas say", closed_form_record(),
              [](const G& g) -> const auto& { return g; })
          .with(
              bill_record(), [](const G& g) -> const auto& { return g.answer.figures; })
          .with(
              run_interval_record(), [](const G& g) -> const auto& { return g.answer.interval; })
          .list(
              "alternatives", "what else it could be", alternative_record(),
              [](const G& g) -> const auto& { return g.answer.alternatives; })
          .value("checkpoint_bytes", "of a checkpoint", [](const G& g) { return g.checkpoint.bytes; });
  return record;
}

Json to_json(const Goodput& goodput) {
  return goodput_record().json(goodput);
}

}  // namespace orrery
