#include "evidence/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "planner/space/order_choice.h"
#include "planner/space/pin_options.h"
#include "planner/space/space.h"
#include "planner/space/split_choice.h"
#include "program/runtime_profile.h"
#include "proto/evidence.pb.h"
#include "proto/plan.pb.h"
#include "proto/runtime_profile.pb.h"
#include "proto/textproto.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_profiles();
}

namespace orrery::evidence {
namespace {

RuntimeProfile profile_named(std::string_view name) {
  for (const EmbeddedFile& entry : embedded_profiles())
    if (entry.name == name)
      return runtime_from_text(entry.content, fmt::format("evidence/profiles/{}.textproto", name));
  return catalog_runtime(name);
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::reserved:
      return "reserved";
    case MemoryKind::total:
      return "total";
    default:
      return "allocated";
  }
}

MemoryKind memory_kind_from(std::string_view name) {
  for (const MemoryKind kind : {MemoryKind::reserved, MemoryKind::total})
    if (name == name_of(kind)) return kind;
  return MemoryKind::allocated;
}

planner::Evaluation predict(const Plan& plan) {
  const planner::Pins pins = planner::pins_of(plan);
  const std::shared_ptr<const Job> job = planner::with_order(planner::with_splits(plan.job, pins), pins);
  std::vector<Choices> plans = planner::enumerate(job, pins);
  // Heterogeneous devices may share a batch unevenly, which no pin says.
  std::erase_if(plans, [&](const Choices& c) { return c.replica_batches != plan.choices.replica_batches; });
  ORRERY_CHECK(plans.size() == 1, fmt::format("{} plans under the pins of one", plans.size()));
  return planner::evaluate({job, plans.front()});
}

std::string runtime_for(std::string_view framework) {
  const std::string stated = lower(std::string(framework));
  std::string best;
  std::size_t longest = 0;
  for (const proto::PublishedFramework& known : published_frameworks().framework()) {
    for (const std::string& name : known.name()) {
      if (name.size() <= longest || !contains(stated, lower(name))) continue;
      longest = name.size();
      best = known.runtime();
    }
  }
  if (!best.empty()) return best;
  for (const proto::PublishedFramework& known : published_frameworks().framework())
    if (stated == lower(known.runtime())) return known.runtime();
  for (const proto::PublishedFramework& known : published_frameworks().framework())
    for (const std::string& word : known.word())
      if (contains(stated, lower(word))) return known.runtime();
  return "";
}

std::string runtime_of_row(std::string_view framework, std::string_view date, std::string_view generation) {
  constexpr std::array<std::string_view, 5> kBefore = {"kepler", "pascal", "volta", "turing", "ampere"};
  const std::string runtime = runtime_for(framework);
  const bool later =
      !generation.empty() && std::find(kBefore.begin(), kBefore.end(), generation) == kBefore.end();
  return runtime == "megatron-lm-2022" && date.empty() && later ? "megatron-core" : runtime;
}

std::string cell_of(std::string_view source, std::string_view model, const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  return fmt::format("{}|{}|{}|{}", source, model,
                     cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].name,
                     name_of(plan.job->training.precision));
}

std::string job_key_of(const Plan& plan) {
  const Job& job = *plan.job;
  const DeviceProfile& device =
      job.cluster.profiles[static_cast<std::size_t>(job.cluster.groups.front().node.profile)];
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", job.workload.layers, job.workload.parameters(),
                     job.training.seq_len, job.training.global_batch, device.name, job.cluster.devices(),
                     name_of(job.training.precision));
}

RuntimeProfile runtime_named(std::string_view name, const std::vector<std::string>& changes) {
  return changed(profile_named(name), changes);
}

RuntimeProfile changed(const RuntimeProfile& profile, const std::vector<std::string>& changes) {
  if (changes.empty()) return profile;
  proto::RuntimeProfile message;
  to_proto(profile, &message);
  for (const std::string& text : changes) merge_textproto(text, "a rule's runtime", &message);
  return runtime_profile_from_proto(message, profile.name, "");
}

int padded(int vocabulary, int multiple, int tensor_ranks) {
  if (multiple <= 0) return vocabulary;
  const std::int64_t whole = std::int64_t{multiple} * tensor_ranks;
  const std::int64_t filled = (vocabulary + whole - 1) / whole * whole;
  return static_cast<int>(std::min<std::int64_t>(filled, std::numeric_limits<int>::max()));
}

int replicas_of(const Choices& c, int devices) {
  const double ranks = static_cast<double>(c.tp) * c.pp * c.cp;  // of words that nobody has checked
  if (ranks > devices || devices % static_cast<int>(ranks) != 0)
    throw Unreadable{fmt::format("tp {} pp {} cp {} do not divide {} devices", c.tp, c.pp, c.cp, devices)};
  return devices / static_cast<int>(ranks);
}

void change(const std::vector<std::string>& changes, Training* training) {
  proto::Training message;
  for (const std::string& text : changes) merge_textproto(text, "a rule's training", &message);
  if (!message.precision().empty()) training->precision = dtype_from_name(message.precision());
  if (!message.optimizer().empty()) training->optimizer = optimizer_from_name(message.optimizer());
  if (!message.attention().empty()) training->fused_attention = message.attention() == "fused";
  if (message.seq_len() > 0) training->seq_len = message.seq_len();
  if (message.has_lengths()) {
    training->lengths.tokens.assign(message.lengths().tokens().begin(), message.lengths().tokens().end());
    training->lengths.packed = message.lengths().packed();
  }
}

void change(const std::vector<std::string>& changes, Choices* choices) {
  proto::Choices message;
  message.set_zero(choices->zero);
  for (const std::string& text : changes) {
    proto::Choices own;
    merge_textproto(text, "a rule's plan", &own);
    if (own.recompute_modules_size() > 0) message.clear_recompute_modules();  // a later rule's are all
    merge_textproto(text, "a rule's plan", &message);
  }
  choices->zero = message.zero();
  if (!message.recompute().empty()) choices->recompute = recompute_from_name(message.recompute());
  if (message.recompute_layers() > 0) choices->recompute_layers = message.recompute_layers();
  if (choices->recompute == Recompute::selective)
    for (const std::string& name : message.recompute_modules())
      choices->recompute_modules |= modules_from_names(name);
  if (message.shard_group() > 0) choices->shard_group = message.shard_group();
  choices->overlap_experts = message.overlap_experts();
  message.clear_zero();
  message.clear_recompute();
  message.clear_recompute_layers();
  message.clear_recompute_modules();
  message.clear_shard_group();
  message.clear_overlap_experts();
  ORRERY_CHECK(message.ByteSizeLong() == 0, "a rule says of a plan what no row takes");
}

std::string plan_file(const ExplicitRow& row) {
  std::string text = fmt::format("# {}:{}: {}\n", row.file, row.line, row.label);
  if (row.measured_s > 0) text += fmt::format("# measured: {:.6g} s a step\n", row.measured_s);
  if (row.measured_per_s > 0)
    text += row.efficiency
                ? fmt::format("# measured: {:.6g}% of as many times one device's rate\n", row.measured_per_s)
                : fmt::format("# measured: {:.6g} samples/s\n", row.measured_per_s);
  if (row.measured_bytes > 0)
    text += fmt::format("# measured: {:.6g} bytes {}\n", row.measured_bytes, name_of(row.memory_kind));
  if (row.out_of_memory) text += "# it ran out of memory\n";
  for (const Assumed& assumed : row.assumed) {
    std::string line = assumed.what + (assumed.why.empty() ? "" : " (" + assumed.why + ")");
    if (assumed.widens > 0) line += fmt::format(", {:.0f}% of the time", 100 * assumed.widens);
    std::replace(line.begin(), line.end(), '\n', ' ');  // a column may hold several lines
    text += fmt::format("# assumed: {}\n", line);
  }
  proto::Plan message;
  to_proto(row.plan, &message);
  return text + to_textproto(message);
}

void write_plans(const std::vector<ExplicitRow>& rows, const std::string& folder) {
  std::set<std::pair<std::string, int>> places;
  for (const ExplicitRow& row : rows)
    if (!places.emplace(row.file, row.line).second)
      throw UserError(fmt::format("two tables are called {}", row.file),
                      "tables of different names: their rows' plans are called by them");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UserError(folder + ": " + error.message(), "a folder that can be written");
  for (const ExplicitRow& row : rows)
    write_file_atomically(fmt::format("{}/{}-{}.textproto", folder, row.file, row.line), plan_file(row));
}

}  // namespace orrery::evidence
