// Traces that Orrery writes (program/timeline.h, chrome_trace): of `simulate`, or of a run of the executor.
// One event a line, a process a rank, a thread a stream.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "measurements/kinds.h"
#include "measurements/trace_events.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kBegin = R"({"displayTimeUnit":"ms","traceEvents":[)";
constexpr std::size_t kMostTraceLineBytes = 1 << 20;
constexpr std::size_t kMostTraceRanks = 1 << 14;
constexpr int kMostTraceSteps = 1 << 20;
constexpr double kMostTraceMicroseconds = 1e15;

KernelClass class_of_kind(const std::string& kind) {
  if (kind.ends_with("_comm")) return KernelClass::collective;
  if (kind == "optimizer") return KernelClass::optimizer;
  return kind == "input" ? KernelClass::copy : KernelClass::other;
}

struct Rank {
  std::map<int, std::string> streams;
  TraceEvents events;
};

class OwnTraceReader {
 public:
  OwnTraceReader(const Source& source, Measurements* measurements)
      : source_(source), measurements_(measurements) {}

  void take(std::string_view line, int number) {
    if (number == 1 || line.empty() || line.front() == ']') return;
    if (line.ends_with(',')) line.remove_suffix(1);
    try {
      const Json event = Json::parse(line);
      const std::string phase = event.value("ph", "");
      if (phase == "M") take_name(event);
      if (phase == "X") take_slice(event);
    } catch (const Json::exception&) {
      throw UserError(source_.name(), number, "is no event of a trace", "a trace as Orrery writes it");
    }
  }

  void finish() {
    if (ends_us_.empty()) throw UserError(source_.name(), 0, "holds no event", "a trace as Orrery writes it");
    if (left_out_ > 0)
      measurements_->ignore(source_.name(), 0,
                            fmt::format("{} events beyond what is kept of a trace", left_out_));
    for (auto& [number, rank] : ranks_) {
      // From the end of one step to that of the next, on all ranks.
      double from = begin_us_;
      int last = 0;
      for (const auto& [step, end] : ends_us_) {
        rank.events.add_step({from, std::max(0.0, end - from)}, step);
        from = std::max(from, end);
        last = step;
      }
      rank.events.add_step({from, 0}, last + 1);
      RankTrace trace;
      trace.file = source_.name();
      trace.rank = number;
      trace.of_instructions = true;
      rank.events.finish(&trace);
      measurements_->traces.push_back(std::move(trace));
    }
  }

 private:
  Rank* rank_of(const Json& event) {
    const int number = event.at("pid").get<int>();
    if (number < 0 || (ranks_.size() >= kMostTraceRanks && !ranks_.contains(number))) return nullptr;
    return &ranks_[number];
  }

  void take_name(const Json& event) {
    if (event.value("name", "") != "thread_name") return;
    if (Rank* rank = rank_of(event))
      rank->streams[event.at("tid").get<int>()] =
          event.at("args").at("name").get<std::string>().substr(0, 64);
  }

  void take_slice(const Json& event) {
    const auto begin_us = event.at("ts").get<double>(), length_us = event.at("dur").get<double>();
    const int step = event.at("args").at("step").get<int>();
    Rank* rank = rank_of(event);
    const bool sound = std::isfinite(begin_us) && std::abs(begin_us) < kMostTraceMicroseconds &&
                       length_us >= 0 && length_us < kMostTraceMicroseconds && step >= 0 &&
                       step < kMostTraceSteps;
    if (rank == nullptr || !sound || kept_ >= kMostEvents) {
      ++left_out_;
      return;
    }
    ++kept_;
    begin_us_ = ends_us_.empty() ? begin_us : std::min(begin_us_, begin_us);
    const auto [end, fresh] = ends_us_.try_emplace(step, begin_us + length_us);
    end->second = std::max(end->second, begin_us + length_us);
    const auto kind = event.at("cat").get<std::string>();
    const auto stream = rank->streams.find(event.at("tid").get<int>());
    rank->events.add_kernel({begin_us, length_us}, class_of_kind(kind), -1, false,
                            stream == rank->streams.end() ? "unnamed" : std::string_view(stream->second),
                            kind);
  }

  const Source& source_;
  Measurements* measurements_;
  std::map<int, Rank> ranks_;
  std::map<int, double> ends_us_;  // by step, over all ranks
  double begin_us_ = 0;
  std::size_t kept_ = 0;
  std::int64_t left_out_ = 0;
};

}  // namespace

bool is_own_trace(std::string_view head) {
  return head.starts_with(kBegin) && head.substr(0, 4096).find("\"name\":\"rank ") != std::string_view::npos;
}

void read_own_trace(const Source& source, const Context& /*context*/, Measurements* measurements) {
  OwnTraceReader reader(source, measurements);
  std::string rest;
  int number = 0;
  source.read([&](std::string_view piece) {
    rest += piece;
    std::size_t begin = 0;
    for (std::size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
      reader.take(std::string_view(rest).substr(begin, end - begin), ++number);
      begin = end + 1;
    }
    rest.erase(0, begin);
    if (rest.size() > kMostTraceLineBytes)
      throw UserError(source.name(), number + 1, "has a line of more than 1 MiB",
                      "a trace as Orrery writes it");
    return true;
  });
  if (rest.find_first_not_of("]} \r") != std::string::npos)
    throw UserError(source.name(), number + 1, "ends in the middle", "a whole trace");
  reader.finish();
}

}  // namespace orrery::measurements
