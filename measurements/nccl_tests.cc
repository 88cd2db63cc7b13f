// Output of nccl-tests and rccl-tests (src/common.cu and the *_perf.cu of github.com/NVIDIA/nccl-tests),
// among whatever else was written to the same terminal: NCCL_DEBUG=INFO, mpirun's tags. A file may hold many
// tests. Or one test's JSON (-J; src/util.cu, version 2 of it).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "cost/collective_cost.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kMostLineBytes = 4096;  // a longer one is somebody else's
// Bandwidths are printed to two digits, times to four or more.
constexpr double kRounding = 0.03;
constexpr std::size_t kMostRowsOfTest = 1 << 16;
constexpr double kMostListed = 1 << 20;

const std::map<std::string, CollectiveKind, std::less<>>& tests() {
  static const std::map<std::string, CollectiveKind, std::less<>> known = {
      {"all_reduce", CollectiveKind::all_reduce},         {"all_gather", CollectiveKind::all_gather},
      {"reduce_scatter", CollectiveKind::reduce_scatter}, {"alltoall", CollectiveKind::all_to_all},
      {"broadcast", CollectiveKind::broadcast},           {"reduce", CollectiveKind::reduce}};
  return known;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = line.find_first_not_of(" \t"); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = line.find_first_not_of(" \t", end);
  }
  return words;
}

struct Timed {
  double bytes = 0, seconds = 0;
  double algorithm = 0, bus = 0;  // bandwidths as printed, GB/s
  std::string operation;          // "sum" "none"; empty: not printed
  int root = -1;
  bool checked = false, checked_in_place = false;  // not "N/A" under #wrong
  bool wrong = false;  // results that were checked and are not what they should be
  int line = 0;

  double bus_factor() const { return algorithm > 0 ? bus / algorithm : 0; }
};

// What the line above the rows says of them.
struct RowColumns {
  // Of one half, out of place or in place: more than time, bandwidths and what was wrong where single
  // iterations are reported.
  std::size_t half = 4;
  bool stamped = false;        // a date and a time behind them
  bool largest_error = false;  // until 2022, in place of a number of wrong results
  bool of_processors = false;  // the time of the calls alone (-C 1)
};

RowColumns columns_of(std::string_view header) {
  std::vector<std::size_t> times;
  RowColumns columns;
  const std::vector<std::string> words = words_of(header);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "time" || words[i] == "cputime") times.push_back(i);
    columns.of_processors |= words[i] == "cputime";
    columns.largest_error |= words[i] == "error" || words[i] == "res";
    columns.stamped |= words[i] == "timestamp";
  }
  if (times.size() == 2) columns.half = std::clamp<std::size_t>(times[1] - times[0], 4, 16);
  return columns;
}

// size count type [redop] [root], then out of place and in place: time algbw busbw #wrong. Nothing: another
// line.
std::optional<Timed> timed(std::string_view line, const RowColumns& columns) {
  std::vector<std::string> words = words_of(line);
  const std::size_t halves = 2 * columns.half;
  if (columns.stamped && words.size() >= 2) words.resize(words.size() - 2);
  if (words.size() < halves + 3 || words.size() > halves + 5) return std::nullopt;
  const auto size = parse_whole(words[0]), count = parse_whole(words[1]);
  if (!size || !count || parse_number(words[2])) return std::nullopt;
  std::size_t at = 3;
  Timed row;
  row.bytes = static_cast<double>(*size);
  if (!parse_number(words[at])) row.operation = words[at++];
  if (words.size() - at == halves + 1) {
    const auto root = parse_whole(words[at++]);
    if (!root) return std::nullopt;
    row.root = static_cast<int>(std::clamp<std::int64_t>(*root, -1, 1 << 20));
  }
  if (words.size() - at != halves) return std::nullopt;
  const auto time_us = parse_number(words[at]), algorithm = parse_number(words[at + 1]),
             bus = parse_number(words[at + 2]);
  if (!time_us || !algorithm || !bus) return std::nullopt;
  row.seconds = *time_us * 1e-6;
  row.algorithm = *algorithm;
  row.bus = *bus;
  row.checked = words[at + 3] != "N/A";
  const std::size_t in_place = at + columns.half + 3;
  row.checked_in_place = words[in_place] != "N/A";
  if (!columns.largest_error)
    for (const std::size_t column : {at + 3, in_place})
      row.wrong |= parse_number(words[column]).value_or(0) > 0;
  // The columns are what they are taken for, where enough digits are printed to say so.
  if (*algorithm >= 1 && std::abs(row.bytes / row.seconds / (*algorithm * 1e9) - 1) > kRounding)
    return std::nullopt;
  return row;
}

class NcclTestsReader {
 public:
  NcclTestsReader(const Source& source, const Context& context, Measurements* measurements)
      : source_(source), context_(context), measurements_(measurements) {}

  void run() {
    const std::string text = source_.text();
    if (begins_object(text))
      take_json(parse_json(text, source_.name()));
    else
      take_lines(text);
    conclude();
    if (!any_row_)
      throw UserError(source_.name(), 0, "holds no time of a collective", "the rows that nccl-tests prints");
  }

 private:
  void take_lines(const std::string& text) {
    for (const auto& [number, line] : lines_of(text)) {
      line_ = number;
      if (line.size() < kMostLineBytes) take(trimmed(line));
    }
  }

  void take(std::string_view line) {
    if (line.find("_perf") != std::string_view::npos) take_name(line);
    if (line.starts_with('#')) {
      take_comment(line);
    } else if (auto row = timed(line, columns_)) {
      in_rows_ = true;
      keep(std::move(*row));
    }
  }

  void keep(Timed&& row) {
    any_row_ = true;
    row.line = line_;
    if (rows_.size() == kMostRowsOfTest) conclude();
    rows_.push_back(std::move(row));
  }

  // "# Collective test starting: alltoall_perf", or the command that a script echoed.
  void take_name(std::string_view line) {
    static const std::regex name(R"(([a-z_]+)_perf)");
    std::cmatch found;
    if (!std::regex_search(line.data(), line.data() + line.size(), found, name)) return;
    conclude();
    test_ = found[1];
    if (line.find("concluded") != std::string_view::npos) test_.clear();
  }

  void take_comment(std::string_view line) {
    static const std::regex rank(
        R"(^#\s+Rank\s+(\d+) +(?:Group\s+(\d+) )?.*\bon\s+(\S+) device\s+(\d+) \[[^\]]*\]\s*(.*\S)\s*$)");
    const auto holds = [&](std::string_view word) { return line.find(word) != std::string_view::npos; };
    if (holds("algbw") && holds("busbw")) {
      conclude();
      columns_ = columns_of(line);
    }
    // Where each row says its largest error, how many results were wrong is counted behind them.
    if (columns_.largest_error && holds("Out of bounds values") && holds("FAILED"))
      for (Timed& row : rows_) row.wrong = true;
    if (holds("minBytes ") || holds("Avg bus bandwidth")) conclude();
    // A test that failed has no rows behind its devices.
    in_rows_ = in_rows_ || holds("Using devices");
    std::cmatch found;
    if (!std::regex_search(line.data(), line.data() + line.size(), found, rank)) return;
    if (in_rows_) {
      // Of another test.
      conclude();
      devices_.clear();
      groups_.clear();
      ranks_.clear();
      in_rows_ = false;
    }
    ranks_.insert(parse_whole(std::string(found[1])).value_or(0));
    if (found[2].matched) groups_.insert(found[2]);
    ++devices_[found[3]];
    check(found[5]);
  }

  void check(const std::string& device) {
    if (device == device_) return;
    check_device(device, context_, source_.name(), line_);
    device_ = device;
  }

  void take_json(const Json& test) {
    line_ = 1;
    const std::filesystem::path program = text_at(list_in(test, "args"), 0);
    take_name(program.filename().string());
    const auto config = test.find("config");
    if (config == test.end() || !config->is_object())
      throw UserError(source_.name(), 0, "has no `config`", "what nccl-tests writes with -J");
    // Of each process the first device alone is listed.
    const double each = number_in(*config, "nthreads") * number_in(*config, "ngpus");
    double listed = 0;
    for (const Json& device : list_in(*config, "devices")) {
      const double rank = device.is_object() ? number_in(device, "rank") : -1;
      listed += each;
      if (!(each >= 1 && listed <= kMostListed && rank >= 0 && rank + each <= kMostListed))
        throw UserError(source_.name(), 0, "lists no ranks, or more than a million",
                        "`nthreads` times `ngpus` of each process");
      for (int i = 0; i < static_cast<int>(each); ++i) ranks_.insert(static_cast<std::int64_t>(rank) + i);
      groups_.insert(fmt::format("{}", number_in(device, "group")));
      devices_[text_in(device, "hostname")] += static_cast<int>(each);
      check(text_in(device, "device_info"));
    }
    for (const Json& row : list_in(test, "results")) {
      if (auto timed = row.is_object() ? timed_in(row) : std::nullopt) keep(std::move(*timed));
    }
  }

  // Nothing where it was timed in place alone (of a trace that was played again).
  std::optional<Timed> timed_in(const Json& result) {
    const Json &apart = object_in(result, "out_of_place"), &in_place = object_in(result, "in_place");
    if (apart.empty()) return std::nullopt;
    columns_.of_processors = apart.contains("cpu_time");
    Timed row;
    row.bytes = number_in(result, "size");
    row.seconds = number_in(apart, columns_.of_processors ? "cpu_time" : "time") * 1e-6;
    row.algorithm = number_in(apart, "alg_bw");
    row.bus = number_in(apart, "bus_bw");
    row.operation = text_in(result, "redop");
    const std::string root(trimmed(text_in(result, "root")));
    row.root = static_cast<int>(std::clamp<std::int64_t>(parse_whole(root).value_or(-1), -1, 1 << 20));
    row.checked = apart.contains("nwrong") && !apart["nwrong"].is_null();
    row.checked_in_place = in_place.contains("nwrong") && !in_place["nwrong"].is_null();
    row.wrong = number_in(apart, "nwrong") > 0 || number_in(in_place, "nwrong") > 0;
    return row;
  }

  // Those whose operation, root and bus bandwidth these are; of a row whose bandwidths are rounded to nothing
  // too many.
  static std::vector<CollectiveKind> kinds_like(const Timed& row, int devices) {
    const double n = devices, factor = row.bus_factor();
    // Both bandwidths are off by up to half a digit.
    const double rounding =
        kRounding + (row.algorithm > 0 && row.bus > 0 ? 0.005 / row.algorithm + 0.005 / row.bus : 1e9);
    const auto near = [&](double expected) { return std::abs(factor / expected - 1) < rounding; };
    const bool reduces = !row.operation.empty() && row.operation != "none";
    std::vector<CollectiveKind> like;
    if (row.root >= 0) {
      if (near(1)) like.push_back(reduces ? CollectiveKind::reduce : CollectiveKind::broadcast);
      return like;
    }
    if (reduces && near(2 * (n - 1) / n)) like.push_back(CollectiveKind::all_reduce);
    if (!near((n - 1) / n)) return like;
    if (reduces) like.push_back(CollectiveKind::reduce_scatter);
    // What is sent to all is not checked in place.
    if (!reduces && (row.checked_in_place || !row.checked)) like.push_back(CollectiveKind::all_gather);
    if (!reduces && !row.checked_in_place) like.push_back(CollectiveKind::all_to_all);
    return like;
  }

  // Versions before 2.17 do not print the test's name: the row with most digits says what all are, and the
  // file's name where it leaves several.
  std::optional<CollectiveKind> kind_of_rows(int devices) const {
    if (const auto known = tests().find(test_); known != tests().end()) return known->second;
    if (!test_.empty()) return std::nullopt;
    const auto most = std::max_element(rows_.begin(), rows_.end(), [](const Timed& one, const Timed& other) {
      return one.algorithm < other.algorithm;
    });
    const std::vector<CollectiveKind> like = kinds_like(*most, devices);
    if (like.size() == 1) return like.front();
    const std::string file = std::filesystem::path(source_.name()).filename().string();
    for (const auto& [name, kind] : tests())
      if (const std::size_t at = file.find(name + "_perf");
          at != std::string::npos &&
          (at == 0 || std::isalpha(static_cast<unsigned char>(file[at - 1])) == 0) &&
          std::find(like.begin(), like.end(), kind) != like.end())
        return kind;
    return std::nullopt;
  }

  // The rows of one test, which ends here.
  void conclude() {
    if (rows_.empty()) return;
    int devices = 0, most = 0, least = 1 << 30;
    for (const auto& [host, count] : devices_) {
      devices += count;
      most = std::max(most, count);
      least = std::min(least, count);
    }
    const auto kind = devices >= 2 ? kind_of_rows(devices) : std::nullopt;
    for (const Timed& row : rows_) add(row, kind, devices, most, least);
    rows_.clear();
  }

  void add(const Timed& row, std::optional<CollectiveKind> kind, int devices, int most, int least) {
    const auto ignore = [&](const std::string& why) { measurements_->ignore(source_.name(), row.line, why); };
    const int per_node = context_.cluster.groups.front().node.devices;
    if (devices < 2) return ignore("a row of fewer than two devices, or of a test that does not list them");
    if (groups_.size() > 1)
      return ignore(fmt::format("{} groups at once (NCCL_TESTS_SPLIT), which share links", groups_.size()));
    // Of a log that lost its beginning, or lines of it.
    if (groups_.size() <= 1 &&
        (*ranks_.rbegin() + 1 != devices || ranks_.size() != static_cast<std::size_t>(devices)))
      return ignore(fmt::format("a test that lists {} of its {} ranks", ranks_.size(), *ranks_.rbegin() + 1));
    if (most != least) return ignore("nodes with different numbers of devices");
    if (!kind)
      return ignore(test_.empty() ? "a test that is not named: give the file its name, as in "
                                    "all_gather_perf.log"
                                  : fmt::format("no model of {}_perf", test_));
    if (row.bytes <= 0 || row.seconds <= 0) return ignore("no bytes, or no time");
    if (columns_.of_processors)
      return ignore("times of the processors' calls (cputime, -C 1), which say nothing of the links");
    if (row.wrong)
      return ignore(
          "results that nccl-tests found wrong (#wrong above 0, or FAILED): what was timed is broken");
    if (most > per_node)
      throw UserError(source_.name(), row.line, fmt::format("{} devices on one node", most),
                      fmt::format("up to {} of {}", per_node, context_.cluster.name));
    measurements_->collectives.push_back(
        {source_.name(), row.line, *kind, row.bytes, row.seconds, static_cast<int>(devices_.size()), most});
  }

  const Source& source_;
  const Context& context_;
  Measurements* measurements_;
  int line_ = 0;
  bool any_row_ = false, in_rows_ = false;           // behind a test's devices
  std::string test_, device_;                        // the last that was checked
  std::map<std::string, int, std::less<>> devices_;  // by host
  std::set<std::string, std::less<>> groups_;
  std::set<std::int64_t> ranks_;
  std::vector<Timed> rows_;  // of the test that was begun
  RowColumns columns_;
};

}  // namespace

bool is_nccl_tests(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  // The header of the rows may come late behind NCCL_DEBUG=INFO; what was asked for stands before it.
  // DeepSpeed's log of its communication has columns of these names, too.
  if (begins_object(head)) return holds("\"start_time\"") && holds("\"args\"") && holds("_perf");
  return (holds("busbw") && holds("algbw") && holds("(elements)")) || (holds("nGpus ") && holds("minBytes "));
}

void read_nccl_tests(const Source& source, const Context& context, Measurements* measurements) {
  NcclTestsReader(source, context, measurements).run();
}

}  // namespace orrery::measurements
