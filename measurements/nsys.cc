// Exports of Nsight Systems as SQLite (`nsys export --type sqlite`; docs.nvidia.com/nsight-systems, "SQLite
// schema reference"): CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and _RUNTIME, NVTX_EVENTS, StringIds,
// TARGET_INFO_GPU. Times are nanoseconds. The file is somebody else's: it is opened read-only, of its schema
// tables alone are read, and what takes longer than a scan of them is cut off.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/parse.h"
#include "measurements/kinds.h"
#include "measurements/trace_events.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr double kNsysMicro = 1e-3;  // of a nanosecond
constexpr std::size_t kMostNsysRanks = 1024;
constexpr std::size_t kMostNames = 1 << 20;
// Rows of a table at most; a view or a trigger in their place could go on for ever.
constexpr std::int64_t kMostRows = 1LL << 30;
constexpr int kSteps = 1'000'000, kMostLooks = 5000;  // of SQLite's machine, between two looks
// Processes differ in the upper bits of a thread's or process's number.
constexpr std::int64_t kProcess = ~0xFFFFFFLL;

class Database {
 public:
  explicit Database(const Source& source) : name_(source.name()) {
    const std::filesystem::path file = source.plain_file();
    sqlite3* opened = nullptr;
    const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | (file.empty() ? SQLITE_OPEN_MEMORY : 0);
    const int code = sqlite3_open_v2(file.empty() ? ":memory:" : file.c_str(), &opened, flags, nullptr);
    db_.reset(opened);
    if (code != SQLITE_OK) fail();
    if (file.empty()) take_bytes(source);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, 1 << 24);
    sqlite3_progress_handler(opened, kSteps, &Database::looked, this);
  }

  [[noreturn]] void fail() const {
    throw UserError(name_, 0, fmt::format("cannot be read: {}", sqlite3_errmsg(db_.get())),
                    "an export of Nsight Systems as SQLite");
  }
  sqlite3* get() const { return db_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
  };

  static int looked(void* self) { return ++static_cast<Database*>(self)->looks_ > kMostLooks ? 1 : 0; }

  // Packed, or in memory. SQLite frees what it is handed.
  void take_bytes(const Source& source) {
    const std::string bytes = source.text();
    auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
    if (copy == nullptr) throw InternalError("there is no memory for a database");
    std::copy(bytes.begin(), bytes.end(), copy);
    const auto size = static_cast<sqlite3_int64>(bytes.size());
    if (sqlite3_deserialize(db_.get(), "main", copy, size, size,
                            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
      fail();
  }

  std::string name_;
  std::unique_ptr<sqlite3, Close> db_;
  int looks_ = 0;
};

class Statement {
 public:
  Statement(const Database& db, const std::string& text) : db_(db) {
    sqlite3_stmt* prepared = nullptr;
    const int code = sqlite3_prepare_v2(db.get(), text.c_str(), -1, &prepared, nullptr);
    statement_.reset(prepared);
    if (code != SQLITE_OK) db.fail();
  }
  bool next() {
    const int code = sqlite3_step(statement_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) db_.fail();
    return code == SQLITE_ROW && ++rows_ <= kMostRows;
  }
  void bind(std::int64_t value) {
    sqlite3_reset(statement_.get());
    sqlite3_bind_int64(statement_.get(), 1, value);
  }
  std::int64_t whole(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  bool empty(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
  std::string text(int column) const {
    const unsigned char* bytes = sqlite3_column_text(statement_.get(), column);
    if (bytes == nullptr) return "";
    return {reinterpret_cast<const char*>(bytes),
            std::min<std::size_t>(sqlite3_column_bytes(statement_.get(), column), 4096)};
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* one) const { sqlite3_finalize(one); }
  };
  const Database& db_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::int64_t rows_ = 0;
};

// "ProfilerStep#12", "iteration 3", "step_4": what people mark steps by; -1: a step without a number.
std::optional<std::int64_t> step_named(const std::string& range) {
  const std::string name = lower_case(range);
  for (const std::string_view word :
       {"profilerstep", "train_step", "training_step", "training step", "iteration", "iter", "step"}) {
    if (!name.starts_with(word)) continue;
    const std::string_view rest = std::string_view(name).substr(word.size());
    const std::size_t digits = rest.find_first_not_of(" #_:=");
    if (digits == std::string_view::npos) return -1;
    const auto number = parse_whole(rest.substr(digits));
    if (number && *number >= 0) return number;
    return std::nullopt;
  }
  return std::nullopt;
}

class NsysReader {
 public:
  NsysReader(const Source& source, const Context& context, Measurements* measurements)
      : source_(source), context_(context), measurements_(measurements), db_(source) {}

  void read() {
    Statement schema(db_, "SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 10000");
    while (schema.next()) tables_.insert(schema.text(0));
    if (!tables_.contains("CUPTI_ACTIVITY_KIND_KERNEL") || !tables_.contains("StringIds"))
      throw UserError(source_.name(), 0, "has no table of kernels and strings",
                      "an export of Nsight Systems in which CUDA was traced");
    check_devices();
    read_kernels();
    for (const char* table : {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}) read_copies(table);
    read_launches();
    read_steps();
    finish();
  }

 private:
  struct Name {
    KernelClass kernel = KernelClass::other;
    std::string kind;
    bool launches = false;
  };
  struct Rank {
    TraceEvents events;
  };
  struct Process {
    std::int64_t thread = 0, steps = 0;
  };
  using Key = std::pair<std::int64_t, std::int64_t>;  // process, device

  bool has(const std::string& table, const std::string& column) const {
    if (!tables_.contains(table)) return false;
    Statement columns(db_, fmt::format("SELECT name FROM pragma_table_info('{}')", table));
    while (columns.next())
      if (columns.text(0) == column) return true;
    return false;
  }
  // A column where the table has it; older exports lack some.
  std::string or_zero(const std::string& table, const std::string& column) const {
    return has(table, column) ? column : "0";
  }

  const Name& name_of_id(std::int64_t id) {
    const auto found = names_.find(id);
    if (found != names_.end()) return found->second;
    if (names_.size() >= kMostNames) names_.clear();
    if (!strings_) strings_ = std::make_unique<Statement>(db_, "SELECT value FROM StringIds WHERE id = ?1");
    strings_->bind(id);
    const std::string text = strings_->next() ? strings_->text(0) : "";
    Name name{class_of(text), {}, text.find("Launch") != std::string::npos};
    if (name.kernel == KernelClass::collective) name.kind = activity_of(text, 0);
    return names_.emplace(id, std::move(name)).first->second;
  }

  // Null: more than are kept.
  Rank* rank_of(std::int64_t process, std::int64_t device) {
    const Key key{process & kProcess, device};
    const auto found = ranks_.find(key);
    if (found != ranks_.end()) return &found->second;
    return ranks_.size() < kMostNsysRanks ? &ranks_[key] : nullptr;
  }

  bool sound(TraceEvents::Span span) {
    if (kept_ >= kMostEvents) {
      ++left_out_;
      return false;
    }
    if (span.begin_us < 0 || span.length_us < 0 || span.length_us > 1e12 || span.begin_us > 1e15)
      return false;
    ++kept_;
    return true;
  }
  static TraceEvents::Span span_of(std::int64_t start, std::int64_t end) {
    const double begin = static_cast<double>(start), length = static_cast<double>(end) - begin;
    return {begin * kNsysMicro, length * kNsysMicro};
  }

  void check_devices() {
    if (!has("TARGET_INFO_GPU", "name")) return;
    Statement devices(db_, "SELECT name FROM TARGET_INFO_GPU LIMIT 64");
    while (devices.next()) {
      check_device(devices.text(0), context_, source_.name(), 0);
      device_ = devices.text(0).substr(0, 100);
    }
  }

  void read_kernels() {
    const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
    Statement kernels(db_, fmt::format("SELECT start, end, {}, {}, {}, {}, {} FROM {}",
                                       or_zero(table, "globalPid"), or_zero(table, "deviceId"),
                                       or_zero(table, "streamId"), or_zero(table, "correlationId"),
                                       has(table, "demangledName") ? "demangledName" : "shortName", table));
    while (kernels.next()) {
      const TraceEvents::Span span = span_of(kernels.whole(0), kernels.whole(1));
      Rank* rank = rank_of(kernels.whole(2), kernels.whole(3));
      if (rank == nullptr || !sound(span)) continue;
      const Name& name = name_of_id(kernels.whole(6));
      rank->events.add_kernel(span, name.kernel, kernels.whole(5), false,
                              fmt::format("stream {}", kernels.whole(4)), name.kind);
    }
    if (kept_ == 0)
      throw UserError(source_.name(), 0, "holds no kernel", "an export in which devices did something");
  }

  void read_copies(const std::string& table) {
    if (!has(table, "start")) return;
    Statement copies(db_, fmt::format("SELECT start, end, {}, {}, {}, {} FROM {}",
                                      or_zero(table, "globalPid"), or_zero(table, "deviceId"),
                                      or_zero(table, "streamId"), or_zero(table, "correlationId"), table));
    while (copies.next()) {
      const TraceEvents::Span span = span_of(copies.whole(0), copies.whole(1));
      Rank* rank = rank_of(copies.whole(2), copies.whole(3));
      if (rank != nullptr && sound(span))
        rank->events.add_kernel(span, KernelClass::copy, copies.whole(5), false,
                                fmt::format("stream {}", copies.whole(4)));
    }
  }

  // Of a process's thread, whichever device it launches on.
  void read_launches() {
    const std::string table = "CUPTI_ACTIVITY_KIND_RUNTIME";
    if (!has(table, "nameId") || !has(table, "globalTid") || !has(table, "correlationId")) return;
    Statement calls(db_, "SELECT start, end, globalTid, correlationId, nameId FROM " + table);
    while (calls.next()) {
      const TraceEvents::Span span = span_of(calls.whole(0), calls.whole(1));
      if (!name_of_id(calls.whole(4)).launches || !sound(span)) continue;
      for (auto& [key, rank] : ranks_)
        if (key.first == (calls.whole(2) & kProcess))
          rank.events.add_launch(span, calls.whole(2), calls.whole(3));
    }
  }

  // Ranges of one thread of each process.
  void read_steps() {
    const std::string table = "NVTX_EVENTS";
    if (!has(table, "text") || !has(table, "end")) return;
    Statement ranges(
        db_, fmt::format("SELECT start, end, text, {}, {} FROM {} WHERE end IS NOT NULL ORDER BY start",
                         has(table, "textId") ? "textId" : "NULL", or_zero(table, "globalTid"), table));
    std::map<std::int64_t, Process> processes;
    while (ranges.next()) {
      std::string text = ranges.text(2);
      if (text.empty() && !ranges.empty(3)) {
        Statement string(db_, fmt::format("SELECT value FROM StringIds WHERE id = {}", ranges.whole(3)));
        if (string.next()) text = string.text(0);
      }
      const auto number = step_named(text);
      const TraceEvents::Span span = span_of(ranges.whole(0), ranges.whole(1));
      if (!number || !(span.length_us > 0) || !sound(span)) continue;
      const std::int64_t thread = ranges.whole(4);
      Process& process = processes.try_emplace(thread & kProcess, Process{thread, 0}).first->second;
      if (process.thread != thread) continue;
      const std::int64_t step = *number < 0 ? process.steps++ : *number;
      for (auto& [key, rank] : ranks_)
        if (key.first == (thread & kProcess)) rank.events.add_step(span, step);
    }
  }

  void finish() {
    if (left_out_ > 0)
      measurements_->ignore(source_.name(), 0,
                            fmt::format("{} events beyond what is kept of a trace", left_out_));
    std::vector<std::pair<std::int64_t, Rank*>> order;  // of a node's processes: by their devices
    for (auto& [key, rank] : ranks_) order.emplace_back(key.second, &rank);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      RankTrace trace;
      trace.file = source_.name();
      trace.device = device_;
      trace.rank = order.size() > 1 ? static_cast<int>(i) : -1;
      order[i].second->events.finish(&trace);
      measurements_->traces.push_back(std::move(trace));
    }
  }

  const Source& source_;
  const Context& context_;
  Measurements* measurements_;
  Database db_;
  std::unique_ptr<Statement> strings_;
  std::set<std::string> tables_;
  std::string device_;
  std::unordered_map<std::int64_t, Name> names_;
  std::map<Key, Rank> ranks_;
  std::size_t kept_ = 0;
  std::int64_t left_out_ = 0;
};

}  // namespace

bool is_nsys(std::string_view head) {
  return head.starts_with(kMagic);
}

void read_nsys(const Source& source, const Context& context, Measurements* measurements) {
  NsysReader(source, context, measurements).read();
}

}  // namespace orrery::measurements
