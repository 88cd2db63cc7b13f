#include "planner/search/guess.h"

#include <algorithm>

#include "planner/evaluation/interval.h"
#include "planner/search/candidates.h"
#include "planner/search/split_search.h"

namespace orrery::planner {

Evaluation guess(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options) {
  job = with_best_splits(job, pins, options).job;
  Estimator estimator(job);
  Outlook outlook(job);
  const Candidates candidates =
      gather_fitting(job, pins, options.objective, 1, estimator, outlook.spread(), options.fit_probability)
          .candidates;
  const auto first =
      std::min_element(candidates.promising.begin(), candidates.promising.end(),
                       [](const Candidate& a, const Candidate& b) { return a.expected < b.expected; });
  Evaluation evaluation = evaluate({job, first->choices});
  add_interval(&outlook, outlook.response(first->choices), &evaluation);
  return evaluation;
}

}  // namespace orrery::planner
