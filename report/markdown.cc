// A report as Markdown: its tables, for what shows no pages.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "program/program.h"
#include "report/report.h"

namespace orrery {
namespace {

// In a cell of a table.
std::string cell(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return {};
  std::string text = "|", line = "|";
  for (const std::string& name : head) {
    text += " " + cell(name) + " |";
    line += " --- |";
  }
  text += "\n" + line + "\n";
  for (const auto& row : rows) {
    text += "|";
    for (const std::string& one : row) text += " " + cell(one) + " |";
    text += "\n";
  }
  return text + "\n";
}

std::string range(const Json& plan) {
  if (!plan.contains("step_time_low_s")) return {};
  return fmt::format("{} to {}", human_seconds(number_in(plan, "step_time_low_s")),
                     human_seconds(number_in(plan, "step_time_high_s")));
}

std::string answer(const Json& plan) {
  const Json& memory = plan.at("memory_bytes");
  std::string text = fmt::format("{} takes **{}** a step", text_in(plan, "words"),
                                 human_seconds(number_in(plan, "step_time_s")));
  if (plan.contains("step_time_low_s")) text += fmt::format(" (90% interval {})", range(plan));
  text += fmt::format(", {:.1f}% MFU; its fullest device holds {} of {}.", 100 * number_in(plan, "mfu"),
                      human_bytes(number_in(memory, "total")), human_bytes(number_in(memory, "capacity")));
  const Json& cost = plan.at("cost");
  text += fmt::format(" {:.0e} {} take {}", number_in(cost, "amount"), text_in(cost, "per"),
                      human_duration(number_in(cost, "time_s")));
  text += cost.contains("usd") ? fmt::format(" and {:.2f} USD.", number_in(cost, "usd")) : ".";
  if (const std::string rests = text_in(plan, "rests_on_words"); !rests.empty())
    text += " This rests on: " + rests + ".";
  return text + "\n\n";
}

std::string breakdown_table(const Json& plan) {
  std::vector<std::string> head = {"of a step"};
  for (const Json& one : plan.at("beside")) head.push_back(text_in(one, "label"));
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, auto value) {
    std::vector<std::string> row = {name};
    for (const Json& one : plan.at("beside")) row.push_back(value(one));
    rows.push_back(std::move(row));
  };
  add("plan", [](const Json& one) { return text_in(one, "words"); });
  add("step", [](const Json& one) { return human_seconds(number_in(one, "step_time_s")); });
  add("90% interval", range);
  add("memory", [](const Json& one) { return human_bytes(number_in(one.at("memory_bytes"), "total")); });
  for (const auto& [part, seconds] : plan.at("breakdown_s").items()) {
    bool any = false;
    for (const Json& one : plan.at("beside")) any = any || number_in(one.at("breakdown_s"), part.c_str()) > 0;
    if (any)
      add(part,
          [&](const Json& one) { return human_seconds(number_in(one.at("breakdown_s"), part.c_str())); });
  }
  return table(head, rows);
}

std::string plan_text(const Json& plan) {
  std::string text = fmt::format("## {} on {} of {}\n\n", text_in(plan, "workload"),
                                 counted(static_cast<std::int64_t>(number_in(plan, "devices")), "device"),
                                 text_in(plan, "cluster"));
  text += answer(plan);
  if (const std::string why = text_in(plan, "why"); !why.empty()) text += why + "\n\n";
  text += "### Where the time goes\n\n" + breakdown_table(plan);
  std::vector<std::vector<std::string>> links;
  if (plan.at("network").contains("kinds"))
    for (const Json& kind : plan.at("network").at("kinds"))
      links.push_back({text_in(kind, "kind"), fmt::format("{}", number_in(kind, "links")),
                       human_rate(number_in(kind, "bandwidth_bytes_per_s")),
                       fmt::format("{:.1f}%", 100 * number_in(kind, "mean_utilization")),
                       fmt::format("{:.1f}%", 100 * number_in(kind, "most_utilization"))});
  if (!links.empty()) text += "### Links\n\n" + table({"links", "number", "each", "mean use", "most"}, links);
  std::vector<std::vector<std::string>> assumed;
  for (const Json& one : plan.at("assumptions"))
    assumed.push_back(
        {text_in(one, "what"), text_in(one, "value"), text_in(one, "rests_on"), text_in(one, "source")});
  return text + "### What this rests on\n\n" + table({"what", "value", "rests on", "source"}, assumed);
}

std::string whatif_text(const Json& whatif) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& point : whatif.at("points")) {
    std::string varied;
    for (const auto& [key, value] : point.at("vary").items())
      varied += fmt::format("{}{}={}", varied.empty() ? "" : ", ", key,
                            value.is_string() ? value.get<std::string>() : value.dump());
    if (!point.contains("step_time_s")) {
      rows.push_back({varied, text_in(point, "refusal"), "", "", ""});
      continue;
    }
    rows.push_back(
        {varied, text_in(point, "plan"), human_seconds(number_in(point, "step_time_s")),
         point.contains("time_to_train_s") ? human_duration(number_in(point, "time_to_train_s")) : "",
         point.contains("cost_usd") ? fmt::format("{:.0f}", number_in(point, "cost_usd")) : ""});
  }
  std::string text = fmt::format("## What if ({})\n\n", text_in(whatif, "file")) +
                     table({"varied", "plan", "step", "time to train", "USD"}, rows);
  if (!whatif.contains("scaling")) return text;
  std::vector<std::vector<std::string>> fits;
  for (const Json& fit : whatif.at("scaling").at("fits"))
    fits.push_back({text_in(fit, "law"), fmt::format("{:.4g}", number_in(fit, "serial")),
                    fit.contains("pairs") ? fmt::format("{:.3g}", number_in(fit, "pairs")) : "",
                    fmt::format("{:.2f}%", 100 * number_in(fit, "error"))});
  return text + table({"law", "serial share", "of each pair", "error"}, fits);
}

std::string error_text(const Json& row) {
  return row.contains("relative_error") ? fmt::format("{:+.1f}%", 100 * number_in(row, "relative_error"))
                                        : "";
}

std::string validation_text(const Json& validation) {
  std::vector<std::vector<std::string>> rows = {
      {"step", human_seconds(number_in(validation, "predicted_step_time_s")),
       human_seconds(number_in(validation, "measured_step_time_s")), error_text(validation)}};
  for (const Json& kind : validation.at("by_kind"))
    rows.push_back({std::string(spoken_part(text_in(kind, "kind"))),
                    human_seconds(number_in(kind, "predicted_s")),
                    human_seconds(number_in(kind, "measured_s")), error_text(kind)});
  return fmt::format("## Predicted and measured ({})\n\n", text_in(validation, "file")) +
         table({"", "predicted", "measured", "error"}, rows);
}

std::string published_text(const Json& published) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const Json& block) {
    rows.push_back({name, fmt::format("{}", number_in(block, "rows")),
                    fmt::format("{:.1f}%", 100 * number_in(block, "median_ape")),
                    fmt::format("{:.1f}%", 100 * number_in(block, "mape")),
                    fmt::format("{:+.1f}%", 100 * number_in(block, "bias"))});
  };
  add("all", published.at("all"));
  for (const auto& [name, block] : published.at("sources").items()) add(name, block);
  return fmt::format("## Published measurements ({})\n\n", text_in(published, "file")) +
         table({"", "rows", "median error", "mean error", "bias"}, rows);
}

}  // namespace

std::string report_markdown(const Json& report) {
  std::string text = "# " + text_in(report, "title") + "\n\n";
  for (const Json& plan : report.at("plans")) text += plan_text(plan);
  for (const Json& whatif : report.at("whatifs")) text += whatif_text(whatif);
  for (const Json& validation : report.at("validations")) text += validation_text(validation);
  for (const Json& published : report.at("published")) text += published_text(published);
  return text + fmt::format("Orrery {}\n", text_in(report, "version"));
}

}  // namespace orrery
