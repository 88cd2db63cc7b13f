// orrery export: a plan in the files of the systems that train by it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string plan, to, out;
  bool all_ranks = false;
  planner::KubernetesJob job = planner::KubernetesJob::pytorch;
  Output output;
};

void make_folder(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code || !fs::is_directory(folder, code))
    throw UserError(fmt::format("`out` {}: cannot be created", folder.string()), "expected a folder");
}

void write_files(const fs::path& folder, const std::vector<planner::ExportedFile>& files) {
  make_folder(folder);
  for (const auto& file : files) {
    write_file_atomically(folder / file.name, file.content);
    if (!file.content.starts_with("#!")) continue;
    const auto executable = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
    std::error_code code;  // where a file system knows no such thing, `bash launch.sh` still works
    fs::permissions(folder / file.name, executable, fs::perm_options::add, code);
  }
}

// What was written, how it is started, and what to know before.
void print(const Plan& plan, const ExportOptions& options, const std::vector<planner::ExportedFile>& files) {
  constexpr std::size_t kMostNamed = 8;
  const Job& job = *plan.job;
  options.output.print(fmt::format("{} on {} of {} for {}: {}\n", job.workload.name,
                                   counted(plan.choices.world(), "device"), job.cluster.name, options.to,
                                   planner::describe(plan)));
  for (std::size_t i = 0; i < std::min(files.size(), kMostNamed); ++i)
    options.output.print(fmt::format("  {}\n", (fs::path(options.out) / files[i].name).string()));
  if (files.size() > kMostNamed)
    options.output.print(fmt::format("  and {} more\n", files.size() - kMostNamed));
  const auto script = std::find_if(files.begin(), files.end(), [](const auto& file) {
    return file.content.starts_with("#!/usr/bin/env bash");
  });
  if (script != files.end())
    options.output.print(fmt::format("To start it: {}\n", (fs::path(options.out) / script->name).string()));
  const std::vector<std::string> notes = planner::notes_in(files);
  if (notes.empty()) return;
  if (!layout().verbose)
    options.output.print(
        fmt::format("{} done otherwise than planned, or left to you: --verbose, or the script's NOTEs\n",
                    notes.size() == 1 ? "One thing is" : fmt::format("{} things are", notes.size())));
  options.output.print_more("Done otherwise than planned, or left to you:\n");
  for (const std::string& note : notes) options.output.print_more(fmt::format("  {}\n", note));
}

int run_export(const ExportOptions& options) {
  const auto target = planner::export_target_from_name(options.to);
  const Plan plan = load_plan(options.plan);
  const auto files = planner::export_plan(plan, target, {options.all_ranks, options.job});
  for (const auto& file : files)
    if (file.binary && options.out.empty())
      throw UserError(fmt::format("`to` {}: {} is binary", options.to, file.name), "expected `out` DIR");
  if (!options.out.empty()) write_files(options.out, files);

  options.output.write(to_json(*plan.job, options.to, files));
  if (!options.out.empty()) {
    print(plan, options, files);
    return 0;
  }
  for (const auto& file : files)
    options.output.print_as_is(fmt::format("# ==> {} <==\n{}", file.name, file.content));
  return 0;
}

}  // namespace

Command export_command() {
  const auto options = std::make_shared<ExportOptions>();
  return {
      "export",
      "writes a plan as the files of another system",
      {plan_option(options->plan),
       text_option({.key = "to",
                    .unit = "TARGET",
                    .help = "the system: " + planner::names_of_targets(),
                    .required = true},
                   options->to),
       text_option(
           {.key = "out", .unit = "DIR", .help = "the folder to write the files into", .fallback = "stdout"},
           options->out),
       switch_option({.key = "all_ranks",
                      .help = "chakra: a trace of every rank also above 64 ranks",
                      .fallback = "one of each class of symmetric ranks"},
                     options->all_ranks),
       name_option({.key = "job",
                    .unit = "pytorchjob|trainjob|mpijob",
                    .help = "kubernetes: which of Kubeflow's jobs",
                    .fallback = "pytorchjob"},
                   options->job, planner::kubernetes_job_from_name),
       options->output.setting()},
      [options] { return run_export(*options); }};
}

}  // namespace orrery::cli
