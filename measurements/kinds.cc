#include "measurements/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/statistics.h"
#include "evidence/words/fields.h"
#include "evidence/words/machines.h"
#include "measurements/log_lines.h"
#include "topologies/device_catalog.h"

namespace orrery::measurements {
namespace {

// Two measurements of one plan that differ by more are of different things.
constexpr double kMostApart = 1.5;

std::string names_of_kinds() {
  std::string names;
  for (const Kind& kind : kinds()) names += (names.empty() ? "" : "; ") + std::string(kind.name);
  return names;
}

// "h100-sxm-80g" and "h100-pcie-80g" are both "h100", "rtx-4090" is itself: up to the first part with a
// digit.
std::string family_of(const std::string& profile) {
  std::size_t at = 0;
  while (at < profile.size()) {
    const std::size_t end = std::min(profile.find('-', at), profile.size());
    const std::string_view part = std::string_view(profile).substr(at, end - at);
    if (part.find_first_of("0123456789") != std::string_view::npos) return profile.substr(0, end);
    at = end + 1;
  }
  return profile;
}

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Words of letters and digits, in lower case: "NVIDIA A100-SXM4-80GB" has "nvidia", "a100", "sxm4" and
// "80gb".
std::vector<std::string> parts_of_name(std::string_view name) {
  std::vector<std::string> parts;
  bool inside = false;
  for (const char c : name) {
    if (is_letter_or_digit(c)) {
      if (!inside) parts.emplace_back();
      parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    inside = is_letter_or_digit(c);
  }
  return parts;
}

// What tells devices of one family apart, so far as a name has it: how the module is built ("sxm", "pcie",
// "nvl"), and its memory in GB.
struct Variant {
  std::set<std::string> forms;
  std::set<int> memory_gb;
};

Variant variant_in(std::string_view name) {
  Variant variant;
  const std::vector<std::string> parts = parts_of_name(name);
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const std::string& part = parts[at];
    const auto starts = [&](std::string_view with) {
      return part.starts_with(with) && std::all_of(part.begin() + static_cast<std::ptrdiff_t>(with.size()),
                                                   part.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    if (starts("sxm")) variant.forms.insert("sxm");
    if (starts("pcie") || part == "pci") variant.forms.insert("pcie");
    if (starts("nvl")) variant.forms.insert("nvl");
    int number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const std::string_view unit(end, static_cast<std::size_t>(part.data() + part.size() - end));
    const bool next =
        unit.empty() && at + 1 < parts.size() && (parts[at + 1] == "gb" || parts[at + 1] == "gib");
    if (error == std::errc() && (unit == "g" || unit == "gb" || unit == "gib" || next))
      variant.memory_gb.insert(number);
  }
  return variant;
}

bool is_ti(std::string_view profile) {
  const std::vector<std::string> parts = parts_of_name(profile);
  return std::find(parts.begin(), parts.end(), "ti") != parts.end();
}

// Whether something measured on `words` may have been measured on this device of the same family. What the
// words leave open is no contradiction, nor is more memory than the device's that no device of the family has
// ("GH200 480GB" has a processor's).
bool may_be(const std::string& words, const DeviceProfile& device) {
  constexpr double kOwnMemory = 0.1;  // in GB or GiB, with or without what ECC takes
  const Variant said = variant_in(words), named = variant_in(device.name);
  const bool other_form = !said.forms.empty() && !named.forms.empty() &&
                          std::none_of(said.forms.begin(), said.forms.end(),
                                       [&](const std::string& form) { return named.forms.contains(form); });
  if (other_form) return false;
  std::set<int> of_family;
  for (const CatalogEntry& entry : catalog_devices())
    if (family_of(entry.name) == family_of(device.name)) of_family.merge(variant_in(entry.name).memory_gb);
  const double own_gb = device.memory_bytes / 1e9;
  bool other_memory = false;
  for (const int size : said.memory_gb) {
    if (std::abs(size / own_gb - 1) <= kOwnMemory) return true;
    other_memory = other_memory || size < own_gb || of_family.contains(size);
  }
  return !other_memory;
}

// The first, and where that is a test of links the log of a training that one job wrote behind it; of none
// nothing.
std::vector<const Kind*> kinds_of(const Source& source) {
  std::vector<const Kind*> found;
  for (const Kind& one : kinds()) {
    const bool wanted =
        found.empty() || (found.size() == 1 && found.front()->read == read_nccl_tests && one.early);
    if (wanted && one.recognises(source.head())) found.push_back(&one);
  }
  return found;
}

// What a file of no kind is, where it is something that people have in place of one, and what to give
// instead.
struct Unread {
  std::string_view begins, ends, what, expected;  // how the file begins, or its name ends
};
[[noreturn]] void refuse_unknown(const Source& source) {
  using namespace std::string_view_literals;
  static constexpr std::array<Unread, 9> kUnread = {
      {{"\xFF\xFE"sv, "", "is UTF-16 (PowerShell's '>' and spreadsheets' \"Unicode text\" write it)",
        "UTF-8"},
       {"\xFE\xFF"sv, "", "is UTF-16", "UTF-8"},
       {"PK\x03\x04"sv, "", "is a ZIP archive, or a spreadsheet of its own kind (.xlsx)",
        "the files in it, or the spreadsheet as CSV"},
       {"\x28\xB5\x2F\xFD"sv, "", "is packed by zstd", "the file unpacked, or packed by gzip"},
       {"\xFD"
        "7zXZ"sv,
        "", "is packed by xz", "the file unpacked, or packed by gzip"},
       {"BZh"sv, "", "is packed by bzip2", "the file unpacked, or packed by gzip"},
       {"", ".nsys-rep", "is Nsight Systems' own report", "its export as SQLite, by nsys export"},
       {"", ".qdrep", "is Nsight Systems' own report", "its export as SQLite, by nsys export"},
       {"", ".ncu-rep", "is a report of Nsight Compute, which times kernels one by one",
        "a trace of PyTorch's profiler, or of Nsight Systems"}}};
  const std::string name = std::filesystem::path(source.name()).filename().string();
  const std::string_view head = source.head();
  for (const Unread& one : kUnread)
    if (one.begins.empty() ? name.ends_with(one.ends) : head.starts_with(one.begins))
      throw UserError(source.name(), 0, std::string(one.what), "expected " + std::string(one.expected));
  if (name.starts_with("events.out.tfevents"))
    throw UserError(source.name(), 0, "is TensorBoard's", "expected a log, or a table of steps (CSV)");
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    throw UserError(source.name(), 0, "is empty", "expected " + names_of_kinds());
  if (head[first] == '[' && head.find("\"ph\"") != std::string_view::npos)
    throw UserError(source.name(), 0, "is a list of events without what a profiler says beside them",
                    "expected the trace of torch.profiler's export_chrome_trace");
  if (const std::string lacks = lacks_of_step_table(head); !lacks.empty())
    throw UserError(source.name(), 1, lacks, "expected the columns of its template (docs/measurements.md)");
  throw UserError(source.name(), 0, "holds no known kind of measurement", "expected " + names_of_kinds());
}

void check_repeats(const Measurements& measurements) {
  std::map<std::pair<std::string, std::string>, const MeasuredStep*> seen;
  for (const MeasuredStep& step : measurements.steps) {
    // The group names the file, which is what may differ.
    const std::string group = step.row.group.substr(step.row.group.find('|') + 1);
    const auto [at, fresh] = seen.try_emplace({group, step.row.label}, &step);
    const MeasuredStep& other = *at->second;
    if (fresh || std::abs(std::log(step.row.measured_s / other.row.measured_s)) < std::log(kMostApart))
      continue;
    throw UserError(step.file, step.line,
                    fmt::format("{:.4g} s for the plan that took {:.4g} s in {}:{}", step.row.measured_s,
                                other.row.measured_s, other.file, other.line),
                    "measurements that agree, or one of the two");
  }
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"a trace of PyTorch's profiler (Kineto)",
       "collectives, matrix products, step times, kernels by class, what overlaps", is_kineto, read_kineto,
       true},
      {"an export of Nsight Systems (SQLite)", "step times, kernels by class, launches, what overlaps",
       is_nsys, read_nsys, true},
      {"a Chakra execution trace", "kernels by class, what overlaps", is_chakra, read_chakra, true},
      {"a trace that Orrery wrote", "compared with a plan or another trace; nothing is learned from it",
       is_own_trace, read_own_trace, true},
      {"output of nccl-tests or rccl-tests", "bandwidth and latency of the links", is_nccl_tests,
       read_nccl_tests},
      {"a log of Megatron-LM or Megatron-DeepSpeed", "its median step, with the configuration that it prints",
       is_megatron_log, read_megatron_log, false, true},
      {"a log of Hugging Face's Trainer, with or without DeepSpeed",
       "its mean step, with the configuration that it prints or a table says", is_trainer_log,
       read_trainer_log, false, true},
      {"trainer_state.json of Hugging Face's Trainer",
       "its mean step, with the configuration that a table says", is_trainer_state, read_trainer_state, false,
       true},
      {"a log of torchtitan", "its median step, with the configuration that it prints", is_torchtitan_log,
       read_torchtitan_log, false, true},
      {"a log of NeMo or MLPerf", "its median step, with the configuration that it prints or a table says",
       is_nemo_log, read_nemo_log, false, true},
      {"a log of DeepSpeed", "its median step, with the configuration that a table says", is_deepspeed_log,
       read_deepspeed_log, false, true},
      {"a table of measured steps", "what runtime, device and network take beside the model", is_step_table,
       read_step_table},
  };
  return all;
}

void Measurements::ignore(const std::string& file, int line, const std::string& why) {
  for (Ignored& one : ignored)
    if (one.file == file && one.why == why) {
      ++one.rows;
      return;
    }
  ignored.push_back({file, line, why});
}

void Measurements::doubt(const std::string& file, int line, const std::string& alike,
                         const std::string& why) {
  for (Doubt& one : doubts)
    if (one.file == file && one.alike == alike) {
      ++one.rows;
      return;
    }
  doubts.push_back({file, line, alike, why});
}

std::string Doubt::text() const {
  return fmt::format("{}:{}: {}{}", file, line, why,
                     rows > 1 ? fmt::format(" ({} more alike)", orrery::counted(rows - 1, "row")) : "");
}

void read(const Source& source, const Context& context, Measurements* measurements) {
  const std::vector<const Kind*> found = kinds_of(source);
  if (found.empty()) refuse_unknown(source);
  for (const Kind* kind : found) {
    const std::size_t steps = measurements->steps.size(), collectives = measurements->collectives.size();
    kind->read(source, context, measurements);
    measurements->files.push_back({source.name(), std::string(kind->name),
                                   static_cast<int>(measurements->steps.size() - steps),
                                   static_cast<int>(measurements->collectives.size() - collectives)});
  }
}

void read_trace(const Source& source, const Context& context, Measurements* measurements) {
  for (const Kind& kind : kinds())
    if (kind.trace && kind.recognises(source.head())) return kind.read(source, context, measurements);
  std::string names;
  for (const Kind& kind : kinds())
    if (kind.trace) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  throw UserError(source.name(), 0, "is no trace of a known kind", "expected " + names);
}

namespace {

// Whether two files hold the same, by their sizes and how they begin (all of it, where that is below
// kHeadBytes).
bool alike(const std::string& a, const Source& of_a, const std::string& b, const Source& of_b) {
  return of_a.head() == of_b.head() && std::filesystem::file_size(a) == std::filesystem::file_size(b);
}

}  // namespace

Measurements read(const std::vector<std::string>& files, const Context& context) {
  Measurements all;
  std::vector<Source> sources;
  std::vector<std::string> counted;
  for (const std::string& file : files) {
    Source source{std::filesystem::path(file)};
    std::size_t first = 0;
    while (first < sources.size() && !alike(counted[first], sources[first], file, source)) ++first;
    if (first < sources.size()) {
      // What is measured once says no more when it is given twice.
      all.ignore(file, 0, fmt::format("holds what {} holds, which counts once", counted[first]));
      continue;
    }
    sources.push_back(std::move(source));
    counted.push_back(file);
  }
  all.given = files;
  // Tables may name traces.
  std::stable_partition(sources.begin(), sources.end(), [](const Source& source) {
    const std::vector<const Kind*> found = kinds_of(source);
    return std::any_of(found.begin(), found.end(),
                       [](const Kind* kind) { return kind->trace || kind->early; });
  });
  for (const Source& source : sources) read(source, context, &all);
  conclude_traces(context, &all);
  for (const TimedLog& log : all.logs) {
    if (!log.named)
      all.ignore(log.file, 0,
                 fmt::format("{} of {:.4g} s whose model and layout the log does not say: give a table of "
                             "steps too, with a row whose column 'trace' names it",
                             orrery::counted(static_cast<std::int64_t>(log.steps_s.size()), "step"),
                             median(log.steps_s)));
  }
  check_repeats(all);
  return all;
}

void add_timed_runs(const std::string& file, const std::vector<TimedLog>& runs, Measurements* measurements) {
  if (runs.empty()) return;
  if (runs.size() == 1) return measurements->logs.push_back(runs.front());
  measurements->ignore(file, 0,
                       fmt::format("{} runs in one log that does not say their layouts: give each a file of "
                                   "its own, which a row's column 'trace' can name",
                                   runs.size()));
}

void check_device(const std::string& device, const Context& context, const std::string& file, int line) {
  if (device.empty() || context.cluster.groups.empty()) return;
  std::string named;
  try {
    const Cluster known = evidence::cluster_with_device(device, "");
    named = known.profiles[static_cast<std::size_t>(known.groups.front().node.profile)].name;
  } catch (const evidence::Unreadable&) {
    return;  // nobody knows it: the cluster says what it is
  }
  std::string expected;
  for (const NodeGroup& group : context.cluster.groups) {
    const DeviceProfile& profile = context.cluster.profiles[static_cast<std::size_t>(group.node.profile)];
    // A device that somebody describes may have any name.
    if (!is_catalog_device(profile.name) || (family_of(profile.name) == family_of(named) &&
                                             is_ti(profile.name) == is_ti(named) && may_be(device, profile)))
      return;
    expected += (expected.empty() ? "" : ", ") + profile.name;
  }
  throw UserError(
      file, line,
      fmt::format("was measured on '{}', and {} has no such device", device, context.cluster.name),
      "a measurement of " + expected);
}

}  // namespace orrery::measurements
