#include "evidence/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::evidence {
namespace {

constexpr std::size_t kWorst = 10;

std::string statistics_line(const std::string& name, const Figures& of) {
  const auto percent = [](bool known, double share) {
    return known ? fmt::format("{:.2f}", 100 * share) : std::string();
  };
  const bool any = of.rows > 0;
  const bool grouped = of.groups && of.groups->groups > 0;
  const GroupFigures groups = of.groups.value_or(GroupFigures{});
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, of.rows,
                     of.skipped, percent(any, of.mape), percent(any, of.median_ape), percent(any, of.max_ape),
                     percent(any, of.bias), percent(any, of.within_10_percent), grouped ? groups.groups : 0,
                     grouped ? fmt::format("{:.3f}", groups.kendall_tau) : "",
                     percent(grouped, groups.regret_mean), percent(grouped, groups.regret_max));
}

}  // namespace

std::string published_markdown(const Published& result) {
  std::string page =
      "# Predicted and measured training steps\n\n"
      "Written by `orrery validate --published ../shared/published/steps/*.csv --markdown "
      "tests/golden/published.md`; a test\nfails where a figure differs by more than 0.1 point. Percent, but "
      "for "
      "counts and tau.\n\n"
      "| source | rows | skipped | mean | median | worst | bias | within 10% | groups | tau | regret | worst "
      "regret |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const SourceFigures& source : result.steps.sources)
    page += statistics_line(source.name, source.figures);
  page += statistics_line("all", result.steps.all);
  std::vector<const PublishedRow*> rows;
  for (const PublishedRow& row : result.rows)
    if (row.step_s) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](const PublishedRow* a, const PublishedRow* b) {
    return std::abs(a->step_s->error) > std::abs(b->step_s->error);
  });
  page +=
      "\n## The worst ten rows\n\n| row | model | device | devices | plan | predicted s | measured s | error "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < std::min(kWorst, rows.size()); ++i) {
    const PublishedRow& row = *rows[i];
    page += fmt::format("| {}:{} | {} | {} | {} | {} | {:.4g} | {:.4g} | {:+.2f} |\n", row.file, row.line,
                        row.model, row.device.value_or(""), row.devices, row.plan, row.step_s->predicted,
                        row.step_s->measured, 100 * row.step_s->error);
  }
  return page;
}

}  // namespace orrery::evidence
