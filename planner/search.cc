#include "planner/search.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "planner/candidates.h"
#include "planner/why.h"

namespace orrery::planner {
namespace {

// Simulated together. Fixed, so that what is simulated does not depend on the number of processes.
constexpr std::size_t kBatch = 4;

// At least so many plans are kept in order, for the case that the closed form errs.
constexpr int kKept = 64;

// Alike but for details that move a step by little.
bool same_kind(const Choices& a, const Choices& b) {
  return a.tp == b.tp && a.pp == b.pp && a.dp == b.dp && a.cp == b.cp && a.ep == b.ep &&
         a.micro_batch == b.micro_batch && a.schedule == b.schedule && (a.zero == 3) == (b.zero == 3) &&
         a.sequence_parallel == b.sequence_parallel;
}

class Search {
 public:
  Search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options)
      : job_(std::move(job)), pins_(pins), options_(options), estimator_(job_) {}

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    candidates_ = gather(job_, pins_, options_.objective, std::max(options_.top, kKept), estimator_);
    if (candidates_.worth.empty()) throw NoAnswer(nothing_fits(job_, pins_, candidates_));
    rank();
    simulate();
    SearchResult result;
    result.candidates = candidates_.count;
    result.feasible = candidates_.feasible;
    result.simulated = static_cast<std::int64_t>(done_.size());
    const double best = value_of(done_.front());
    const double least = least_open_bound();
    result.proven = least >= best;
    result.gap = result.proven ? 0 : (best - least) / best;
    result.why = explain(done_, candidates_, estimator_);
    done_.resize(std::min(done_.size(), static_cast<std::size_t>(options_.top)));
    result.plans = std::move(done_);
    result.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  double value(const Candidate& candidate, double step_s) const {
    return objective_value(options_.objective, *job_, step_s, candidate.times.compute_s,
                           candidate.memory_bytes);
  }

  double value_of(const Evaluation& evaluation) {
    return objective_value(options_.objective, *job_, evaluation.step_time_s(),
                           estimator_.times(evaluation.plan.choices).compute_s, evaluation.memory.total);
  }

  void rank() {
    for (const Candidate& candidate : candidates_.worth) order_.push_back(&candidate);
    // Equal values (memory ties) go by time; equal times stay in the order of the space.
    std::stable_sort(order_.begin(), order_.end(), [](const Candidate* a, const Candidate* b) {
      if (a->expected != b->expected) return a->expected < b->expected;
      return a->times.estimate_s < b->times.estimate_s;
    });
    // The first to be simulated are of unlike kinds, in case the closed form errs about one of them.
    std::vector<const Candidate*> first, rest;
    for (const Candidate* candidate : order_) {
      const bool fresh =
          first.size() < kBatch && std::none_of(first.begin(), first.end(), [&](const Candidate* other) {
            return same_kind(candidate->choices, other->choices);
          });
      (fresh ? first : rest).push_back(candidate);
    }
    order_ = std::move(first);
    order_.insert(order_.end(), rest.begin(), rest.end());
    // Least bound of what stands at or after each place, and of what was cut.
    open_bound_.assign(order_.size() + 1, candidates_.cut_bound);
    for (std::size_t i = order_.size(); i-- > 0;)
      open_bound_[i] = std::min(open_bound_[i + 1], order_[i]->bound);
  }

  void simulate() {
    const int jobs = options_.jobs > 0 ? options_.jobs
                                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::size_t wanted = std::min(order_.size(), static_cast<std::size_t>(options_.top));
    sim::SimulationOptions simulation;
    simulation.keep_timeline = false;
    double spent_s = 0;
    double best = std::numeric_limits<double>::infinity();
    while (next_ < order_.size()) {
      if (done_.size() >= wanted && least_open_bound() >= best) break;
      if (!done_.empty() && spent_s >= options_.budget_s) break;
      std::vector<Plan> batch;
      std::vector<const Candidate*> of;
      for (; next_ < order_.size() && batch.size() < kBatch; ++next_) {
        const bool hopeless = order_[next_]->bound >= best && done_.size() + batch.size() >= wanted;
        if (hopeless) continue;
        batch.push_back({job_, order_[next_]->choices});
        check_plan(batch.back());
        of.push_back(order_[next_]);
      }
      const std::vector<sim::Simulation> results = sim::simulate_all(batch, simulation, jobs);
      for (std::size_t i = 0; i < results.size(); ++i) {
        spent_s += static_cast<double>(results[i].events) / kNominalEventsPerSecond +
                   job_->cluster.devices() * kNominalSecondsPerRank;
        best = std::min(best, value(*of[i], results[i].step_time_s));
        Evaluation evaluation;
        evaluation.plan = batch[i];
        evaluation.memory = predict_memory(batch[i]);
        evaluation.estimate_s = of[i]->times.estimate_s;
        evaluation.simulation = results[i];
        done_.push_back(std::move(evaluation));
      }
      if (options_.progress) options_.progress(static_cast<int>(done_.size()), static_cast<int>(wanted));
    }
    std::stable_sort(done_.begin(), done_.end(), [this](const Evaluation& a, const Evaluation& b) {
      const double left = value_of(a);
      const double right = value_of(b);
      return left != right ? left < right : a.step_time_s() < b.step_time_s();
    });
  }

  double least_open_bound() const { return open_bound_[next_]; }

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  const SearchOptions& options_;
  Estimator estimator_;
  Candidates candidates_;
  std::vector<const Candidate*> order_;
  std::vector<double> open_bound_;
  std::size_t next_ = 0;
  std::vector<Evaluation> done_;
};

Json training_json(const Job& job) {
  const Training& t = job.training;
  return {{"global_batch", t.global_batch},
          {"seq_len", t.seq_len},
          {"precision", name_of(t.precision)},
          {"optimizer", name_of(t.optimizer)},
          {"attention", t.fused_attention ? "fused" : "unfused"}};
}

}  // namespace

SearchResult search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options) {
  return Search(std::move(job), pins, options).run();
}

Json to_json(const Job& job, const SearchResult& result) {
  Json plans = Json::array();
  for (const Evaluation& evaluation : result.plans) plans.push_back(to_json(evaluation));
  return {{"workload", job.workload.name},
          {"parameters", job.workload.parameters()},
          {"cluster", job.cluster.name},
          {"devices", job.cluster.devices()},
          {"nodes", job.cluster.nodes()},
          {"runtime", job.runtime.name},
          {"training", training_json(job)},
          {"candidates", result.candidates},
          {"proven", result.proven},
          {"gap", result.gap},
          {"feasible", result.feasible},
          {"simulated", result.simulated},
          {"search_s", result.search_s},
          {"why", result.why},
          {"plans", plans}};
}

}  // namespace orrery::planner
