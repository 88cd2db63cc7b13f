#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "planner/evaluation/interval.h"

namespace orrery::comparison {
namespace {

constexpr int kBalanceSteps = 20;

bool is_link(const Trouble& trouble) {
  return trouble.kind == TroubleKind::slow_link || trouble.kind == TroubleKind::neighbour;
}

bool changes_speeds(const Trouble& trouble) {
  return trouble.kind == TroubleKind::slow_device || trouble.kind == TroubleKind::lognormal ||
         trouble.kind == TroubleKind::on_off;
}

std::vector<Trouble> links_of(const std::vector<Trouble>& all) {
  std::vector<Trouble> links;
  std::copy_if(all.begin(), all.end(), std::back_inserter(links), is_link);
  return links;
}

bool is_always_there(const Trouble& trouble) {
  return trouble.kind == TroubleKind::slow_device || (is_link(trouble) && trouble.on_s == 0);
}

// The simulations of a question.
class Simulations {
 public:
  explicit Simulations(const Question& question) : question_(question) {}

  std::size_t ask(const Strategy& strategy, std::shared_ptr<const Job> job) {
    asked_.push_back({&strategy, std::move(job)});
    return asked_.size() - 1;
  }
  void run() { ways_ = ways_of(question_.base, asked_); }
  const Way& at(std::size_t index) const { return ways_[index]; }

 private:
  const Question& question_;
  std::vector<Asked> asked_;
  std::vector<Way> ways_;
};

// What is asked of one strategy under trouble.
struct UnderTrouble {
  std::size_t still = 0;  // with what is always there, as far as the strategy's workers wait for it
  std::size_t busy = 0;   // while a neighbour that takes turns is at it
  std::size_t all = 0;    // with everything that is always there
  std::map<int, std::size_t> sizes;
};

std::shared_ptr<Job> troubled_job(const Base& base, const std::vector<Trouble>& troubles, bool by_turns) {
  auto job = std::make_shared<Job>(*base.job);
  job->cluster = with_trouble(std::move(job->cluster), troubles, by_turns);
  return job;
}

std::shared_ptr<Job> job_of_size(const Base& base, int devices) {
  const Cluster& cluster = base.job->cluster;
  const int each = cluster.devices() / cluster.nodes();
  if (devices <= cluster.devices() || cluster.nodes() == 1 || devices % each != 0)
    return job_on(base, devices);
  auto job = std::make_shared<Job>(*base.job);
  job->cluster = with_nodes(job->cluster, devices / each);
  job->training.global_batch = base.samples_each() * devices;
  return job;
}

// `healthy`: the strategy's simulation on all devices; `sizes`: those on other numbers of them, so far.
UnderTrouble asked_under(const Base& base, const Strategy& strategy, const std::vector<Trouble>& troubles,
                         std::size_t healthy, std::map<int, std::size_t>* sizes, Simulations* simulations) {
  UnderTrouble under;
  const std::vector<Trouble> links = links_of(troubles);
  const auto with = [&](const std::vector<Trouble>& some) {
    const bool any = std::any_of(some.begin(), some.end(), is_always_there);
    return any ? simulations->ask(strategy, troubled_job(base, some, false)) : healthy;
  };
  // Who waits for all waits for slow devices too, and hides its communication behind theirs.
  const std::vector<Trouble>& felt = strategy.rendezvous == Rendezvous::all ? troubles : links;
  under.still = with(felt);
  under.all = strategy.rendezvous == Rendezvous::all ? under.still : with(troubles);
  under.busy = has_neighbour_by_turns(links) ? simulations->ask(strategy, troubled_job(base, felt, true))
                                             : under.still;
  const Cluster& cluster = base.job->cluster;
  for (const int size :
       sizes_of(strategy, troubles, cluster.devices(), cluster.devices() / cluster.nodes())) {
    const auto known = sizes->find(size);
    std::shared_ptr<Job> job;
    try {
      if (known == sizes->end()) job = job_of_size(base, size);
    } catch (const UserError&) {  // no whole nodes: what is left exchanges as all did
      continue;
    }
    under.sizes[size] = job == nullptr ? known->second : simulations->ask(strategy, job);
    sizes->emplace(size, under.sizes[size]);
  }
  return under;
}

Field field_of(const Question& question, const Strategy& strategy, const Simulations& simulations,
               const UnderTrouble& under, const Way& healthy) {
  Field field;
  const Way& all = simulations.at(under.all);
  const Cluster& cluster = question.base.job->cluster;
  field.compute_s = all.compute_s;
  field.healthy_s = healthy.compute_s.front();
  field.samples_each = static_cast<double>(question.base.samples_each());
  field.step_s = healthy.step_s;
  field.of_node = cluster.devices() / cluster.nodes();
  const int workers = healthy.devices;
  field.exchange = [&strategy, &simulations, &under, workers](int size) {
    const auto of = [&](const Way& way) {
      return strategy.rendezvous == Rendezvous::periodic ? 0.0 : way.exchange_s();
    };
    Field::Exchange exchange;
    const auto other = under.sizes.find(size);
    if (size == workers || other == under.sizes.end() || !simulations.at(other->second).possible()) {
      // Of no whole nodes: they exchange as before.
      exchange.quiet_s = of(simulations.at(under.still));
      exchange.busy_s = of(simulations.at(under.busy));
      exchange.average_s = simulations.at(under.still).average_s;
    } else {
      exchange.quiet_s = exchange.busy_s = of(simulations.at(other->second));
      exchange.average_s = simulations.at(other->second).average_s;
    }
    return exchange;
  };
  return field;
}

std::string part_that_grew(const Way& best, const Way& other) {
  const std::array<std::pair<std::string_view, double RankTimes::*>, 4> kParts = {
      {{"computation", &RankTimes::compute_s},
       {"exposed communication", &RankTimes::exposed_s},
       {"waiting for others", &RankTimes::waiting_s},
       {"overheads", &RankTimes::other_s}}};
  std::string_view name;
  double most = 0;
  for (const auto& [part, field] : kParts) {
    const double more = other.mean_of(field) - best.mean_of(field);
    if (more > most) {
      most = more;
      name = part;
    }
  }
  return most > 0 ? fmt::format("{} more {}", human_seconds(most), name) : std::string();
}

std::string rate_text(double rate) {
  return rate >= 100 ? fmt::format("{:.0f}", rate) : fmt::format("{:.3g}", rate);
}

// What is nearest to fitting, of those that run; the others stand in the table and below it.
std::string no_way(const Comparison& comparison) {
  const auto lacks = [](const Row& row) { return row.whole().memory.needed - row.whole().memory.capacity; };
  const Row* nearest = nullptr;
  for (const Row& row : comparison.rows)
    if (row.whole().possible() && (nearest == nullptr || lacks(row) < lacks(*nearest))) nearest = &row;
  if (nearest == nullptr) return "No strategy runs on all devices";
  const planner::Memory& memory = nearest->whole().memory;
  return fmt::format("No strategy fits in memory: the nearest, {}, needs {} of a device's {}, {} too much",
                     nearest->strategy.name, human_bytes(memory.needed), human_bytes(memory.capacity),
                     human_bytes(lacks(*nearest)));
}

std::string fewer_samples(double rate, double best_rate) {
  const std::string share = fmt::format("{:.1f}%", 100 * (1 - rate / best_rate));
  return share == "0.0%" ? "as many samples/s" : share + " fewer samples/s";
}

std::string verdict_of(const Comparison& comparison) {
  if (!comparison.any_fits()) return no_way(comparison) + ".";
  if (!comparison.best) {
    const Row& fast = comparison.rows[*comparison.fastest];
    return fmt::format(
        "No strategy that computes what one device would fits. {} reaches {} samples/s on {}, but its "
        "workers do not step together: it may need more steps, which are not counted.",
        fast.strategy.name, rate_text(fast.rate()), counted(fast.whole().devices, "device"));
  }
  const Row& best = comparison.rows[*comparison.best];
  const Way& way = best.whole();
  std::string text = fmt::format("Best way: {}, {} samples/s on {}", best.strategy.name,
                                 rate_text(best.rate()), counted(way.devices, "device"));
  if (best.ordeal)
    text += fmt::format(", {:.0f}% of the {} without trouble", 100 * best.rate() / way.samples_per_s,
                        rate_text(way.samples_per_s));
  text += fmt::format(
      ". {} has {:.0f}% scaling efficiency: a step takes {}, {} of it exposed communication. Each device "
      "holds {}.",
      best.ordeal ? "Without trouble it" : "It", 100 * way.efficiency, human_seconds(way.step_s),
      human_seconds(way.mean_of(&RankTimes::exposed_s)), human_bytes(way.memory.total));
  const Row* next = nullptr;
  for (const Row& row : comparison.rows)
    if (&row != &best && row.fits() && row.strategy.exact() && (next == nullptr || row.rate() > next->rate()))
      next = &row;
  if (next != nullptr) {
    const std::string fewer = fewer_samples(next->rate(), best.rate());
    const std::string why =
        best.ordeal || fewer.starts_with("as many") ? std::string() : part_that_grew(way, next->whole());
    text += fmt::format(" The next best, {}, has {}{}{}.", next->strategy.name, fewer,
                        why.empty() ? "" : ": ", why);
  }
  const Row* smallest = nullptr;
  for (const Row& row : comparison.rows)
    if (row.fits() && row.strategy.exact() &&
        (smallest == nullptr || row.whole().memory.total < smallest->whole().memory.total))
      smallest = &row;
  if (smallest != nullptr && smallest != &best && smallest->whole().memory.total < 0.95 * way.memory.total)
    text += fmt::format(" {} needs the least memory, {} per device, at {:.1f}% of the samples/s.",
                        smallest->strategy.name, human_bytes(smallest->whole().memory.total),
                        100 * smallest->rate() / best.rate());
  if (comparison.fastest) {
    const Row& fast = comparison.rows[*comparison.fastest];
    text += fmt::format(
        " {} reaches {} samples/s, {:.1f}% more, but its workers do not step together: it may need more "
        "steps, "
        "which are not counted.",
        fast.strategy.name, rate_text(fast.rate()), 100 * (fast.rate() / best.rate() - 1));
  }
  return text;
}

void judge(Comparison* comparison) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < comparison->rows.size(); ++i) {
    const Row& row = comparison->rows[i];
    if (!row.fits()) continue;
    if (!fastest || row.rate() > comparison->rows[*fastest].rate()) fastest = i;
    if (row.strategy.exact() &&
        (!comparison->best || row.rate() > comparison->rows[*comparison->best].rate()))
      comparison->best = i;
  }
  if (fastest != comparison->best) comparison->fastest = fastest;
  comparison->verdict = verdict_of(*comparison);
}

}  // namespace

void check_one_kind(const Cluster& cluster, std::string_view named) {
  if (cluster.groups.size() <= 1) return;
  throw UserError(
      fmt::format("{}: the cluster has {} kinds of node, of which none is the one device alone that "
                  "ways are measured against",
                  named, cluster.groups.size()),
      "expected a cluster of one kind");
}

void check_answered(const Comparison& comparison) {
  if (!comparison.any_fits())
    throw NoAnswer(comparison.verdict.substr(0, comparison.verdict.size() - 1));  // no full stop
}

namespace {

void check(const Question& question) {
  const Base& base = question.base;
  const Cluster& cluster = base.job->cluster;
  check_one_kind(cluster, cluster.name);
  const std::int64_t batch = base.job->training.global_batch;
  if (batch % cluster.devices() != 0)
    throw UserError(fmt::format("`global_batch` {} over {} devices", batch, cluster.devices()),
                    "as many samples for each");
  const std::int64_t each = base.samples_each();
  if (base.micro_batch && each % *base.micro_batch != 0)
    throw UserError(fmt::format("`micro_batch` {}: each of {} has {} of a step", *base.micro_batch,
                                counted(cluster.devices(), "device"), counted(each, "sample")),
                    fmt::format("expected a divisor of {}", each));
  for (const Trouble& trouble : question.troubles)
    if (trouble.is_event() && question.options.horizon_s > 0 && trouble.when_s >= question.options.horizon_s)
      throw UserError(fmt::format("`trouble` {} comes after the end, which `horizon` puts at {} s",
                                  trouble.text, question.options.horizon_s),
                      "expected an earlier second, or a longer `horizon`");
}

// Bad input where it is none of the strategies': nothing is compared.
void check_any_runs(const std::vector<Row>& rows) {
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.whole().possible(); })) return;
  const Row& first = rows.front();
  throw UserError(fmt::format("{}{} does not run on all devices: {}",
                              rows.size() > 1 ? fmt::format("none of {} strategies runs: ", rows.size()) : "",
                              first.strategy.name, first.whole().refusal));
}

}  // namespace

std::vector<int> sizes_of(const Cluster& cluster) {
  std::vector<int> sizes;
  const int all = cluster.devices();
  for (int devices = 1; devices < all; devices *= 2) {
    try {
      with_devices(cluster, devices);
      sizes.push_back(devices);
    } catch (const UserError&) {  // no whole nodes, or nodes of several types
    }
  }
  sizes.push_back(all);
  return sizes;
}

// How sure the way's step is; what is dealt out or averaged beside the plan is taken to be as uncertain.
std::optional<planner::Interval> interval_of(const Way& way) {
  if (!way.possible()) return std::nullopt;
  planner::Evaluation evaluation;
  evaluation.plan = *way.plan;
  evaluation.memory = way.memory;
  evaluation.estimate_s = way.step_s;
  planner::add_interval(&evaluation);
  return evaluation.interval;
}

Comparison compare(const Question& question) {
  const Base& base = question.base;
  const Cluster& cluster = base.job->cluster;
  check(question);
  Comparison comparison;
  comparison.sizes = sizes_of(cluster);
  for (const Strategy& strategy : question.strategies)
    comparison.rows.push_back({strategy, {}, {}, {}, {}, {}});

  Simulations simulations(question);
  const std::vector<Trouble>& troubles = question.troubles;
  std::vector<std::vector<std::size_t>> healthy(comparison.rows.size());
  // By row: under all troubles, and where there are several under each alone.
  std::vector<std::vector<UnderTrouble>> under(comparison.rows.size());
  std::vector<std::shared_ptr<Job>> jobs;
  for (const int size : comparison.sizes) jobs.push_back(job_on(base, size));
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    const Strategy& strategy = comparison.rows[i].strategy;
    for (const auto& job : jobs) healthy[i].push_back(simulations.ask(strategy, job));
    if (troubles.empty()) continue;
    std::map<int, std::size_t> sizes;
    const auto ask = [&](const std::vector<Trouble>& some) {
      under[i].push_back(asked_under(base, strategy, some, healthy[i].back(), &sizes, &simulations));
    };
    ask(troubles);
    if (troubles.size() > 1)
      for (const Trouble& trouble : troubles) ask({trouble});
  }
  simulations.run();
  for (std::size_t i = 0; i < comparison.rows.size(); ++i)
    for (const std::size_t index : healthy[i]) comparison.rows[i].ways.push_back(simulations.at(index));
  check_any_runs(comparison.rows);
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    Row& row = comparison.rows[i];
    if (row.fits()) row.interval = interval_of(row.whole());
    if (troubles.empty() || !row.whole().possible()) continue;
    row.troubled = simulations.at(under[i].front().all);
    if (!row.troubled->possible()) continue;
    const auto through = [&](std::size_t u, const std::vector<Trouble>& some) {
      return ordeal_of(row.strategy, field_of(question, row.strategy, simulations, under[i][u], row.whole()),
                       some, question.options);
    };
    row.ordeal = through(0, troubles);
    for (std::size_t t = 0; t + 1 < under[i].size(); ++t) row.alone.push_back(through(t + 1, {troubles[t]}));
    if (row.ordeal && comparison.balances.empty() &&
        std::any_of(question.troubles.begin(), question.troubles.end(), changes_speeds)) {
      std::vector<double> sample_s;
      for (const double own : row.troubled->compute_s)
        sample_s.push_back(own / static_cast<double>(base.samples_each()));
      for (const Shares shares : kShares)
        comparison.balances.push_back(balance(shares, sample_s, base.job->training.global_batch, 1,
                                              kBalanceSteps, question.troubles, question.options.seed));
    }
  }
  if (question.stages > 1)
    comparison.recuts =
        recuts(base, question.stages, kBalanceSteps, question.troubles, question.options.seed);
  judge(&comparison);
  return comparison;
}

}  // namespace orrery::comparison
