// Figures of merit of predictions against measurements.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orrery::evidence {

struct Compared {
  double predicted = 0, measured = 0;
  double error = 0;  // relative
};

struct Judged {
  double predicted = 0;
  double measured = 0;
  std::string group;  // rows that differ only in the plan share it
  std::string plan;
  std::string cell = {};     // a source's model on a device in a precision; empty: not told apart
  double low = 0, high = 0;  // of the prediction's interval; 0: none
  std::string job = {};      // rows of one model, batch and machine share it, whatever ran them
  std::string software = {};
};

struct GroupFigures {
  int groups = 0;             // of two and more distinct plans
  double pairs_in_order = 0;  // share of the pairs of plans, ties left out, that are predicted in their order
  double kendall_tau = 0;     // mean tau-b over groups of three and more
  double regret_mean = 0, regret_max = 0;
};

// Repeats of a plan are averaged. Pairs whose measurements are within 1% count as ties. Regret: how much
// slower, as measured, the plan predicted fastest is than the one measured fastest; of plans predicted alike
// the slowest.
GroupFigures group_figures(const std::vector<Judged>& rows);

// Of training steps.
struct Asked {
  int rows = 0;               // those with a time or a rate; adapters and devices without a name do not count
  int refused_by_memory = 0;  // rows that ran, and are predicted not to fit
};

// A cell counts once, however many rows it has: its error is the mean of its rows'.
struct CellFigures {
  int cells = 0;
  double mape = 0, median_ape = 0, bias = 0;
};

struct Figures {
  int rows = 0, skipped = 0;
  // Of relative errors: their mean and median size, the largest, their mean, and the share of those up to
  // 10%. Nothing where there are no rows.
  double mape = 0, median_ape = 0, max_ape = 0, bias = 0, within_10_percent = 0;
  std::optional<Asked> asked;
  std::optional<GroupFigures> groups;  // where there are rows that may share a group
  std::optional<CellFigures> by_cell;  // where rows have cells
  std::optional<GroupFigures>
      any_software;                // over rows that share a job: a plan is what it is and what ran it
  std::optional<double> coverage;  // share of the rows within their intervals, where they have some
};

// Of signed relative errors.
Figures error_figures(const std::vector<double>& errors, int skipped);
// With those of groups and jobs.
Figures figures(const std::vector<Judged>& rows, int skipped);

}  // namespace orrery::evidence
