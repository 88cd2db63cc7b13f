#include "evidence/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::evidence {
namespace {

constexpr std::size_t kWorst = 10;

std::string statistics_line(const std::string& name, const Json& block) {
  const auto percent = [&](const Json& from, const char* key) {
    return from.contains(key) ? fmt::format("{:.2f}", 100 * from.at(key).get<double>()) : std::string();
  };
  const bool grouped = block.contains("groups") && block.at("groups").get<int>() > 0;
  const Json regret = grouped ? block.at("regret") : Json::object();
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name,
                     block.at("rows").get<int>(), block.at("skipped").get<int>(), percent(block, "mape"),
                     percent(block, "median_ape"), percent(block, "max_ape"), percent(block, "bias"),
                     percent(block, "within_10_percent"), grouped ? block.at("groups").get<int>() : 0,
                     grouped ? fmt::format("{:.3f}", block.at("kendall_tau").get<double>()) : "",
                     percent(regret, "mean"), percent(regret, "max"));
}

}  // namespace

std::string published_markdown(const Json& result) {
  std::string page =
      "# Predicted and measured training steps\n\n"
      "Written by `orrery validate --published ../shared/published/steps/*.csv --markdown "
      "tests/golden/published.md`; a test\nfails where a figure differs by more than 0.1 point. Percent, but "
      "for "
      "counts and tau.\n\n"
      "| source | rows | skipped | mean | median | worst | bias | within 10% | groups | tau | regret | worst "
      "regret |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [name, block] : result.at("sources").items()) page += statistics_line(name, block);
  page += statistics_line("all", result.at("all"));
  std::vector<const Json*> rows;
  for (const Json& row : result.at("rows"))
    if (row.contains("relative_error")) rows.push_back(&row);
  const auto error = [](const Json* row) { return std::abs(row->at("relative_error").get<double>()); };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Json* a, const Json* b) { return error(a) > error(b); });
  page +=
      "\n## The worst ten rows\n\n| row | model | device | devices | plan | predicted s | measured s | error "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < std::min(kWorst, rows.size()); ++i) {
    const Json& row = *rows[i];
    page += fmt::format(
        "| {}:{} | {} | {} | {} | {} | {:.4g} | {:.4g} | {:+.2f} |\n", row.at("file").get<std::string>(),
        row.at("line").get<int>(), row.at("model").get<std::string>(), row.at("gpu").get<std::string>(),
        row.at("n_gpus").get<int>(), row.at("plan").get<std::string>(), row.at("predicted_s").get<double>(),
        row.at("measured_s").get<double>(), 100 * row.at("relative_error").get<double>());
  }
  return page;
}

}  // namespace orrery::evidence
