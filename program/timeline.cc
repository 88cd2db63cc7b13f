#include "program/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

struct Span {
  double start_s = 0;
  double moving_s = 0;  // nobody is waited for any more
  double end_s = 0;
  bool recorded = false;
};

// By instruction, of one rank and step.
std::vector<Span> spans_of(const Program& program, const Timeline& timeline, int step) {
  std::vector<Span> spans(program.instructions.size());
  const auto key = [](const TimelineEvent& event) { return std::pair(event.rank, event.step); };
  const std::pair wanted(program.rank, static_cast<std::int32_t>(step));
  const auto begin = std::partition_point(timeline.events.begin(), timeline.events.end(),
                                          [&](const TimelineEvent& event) { return key(event) < wanted; });
  for (auto event = begin; event != timeline.events.end() && key(*event) == wanted; ++event) {
    if (event->instruction < spans.size())
      spans[event->instruction] = {event->start_s, event->moving_since_s(), event->end_s, true};
  }
  return spans;
}

double Breakdown::*category_of(const Instruction& instruction) {
  const std::string_view kind = kind_of(instruction);
  if (kind == "forward" || kind == "backward") return &Breakdown::compute;
  if (kind == "recompute") return &Breakdown::recompute;
  if (kind == "optimizer") return &Breakdown::optimizer;
  if (kind == "tensor_comm") return &Breakdown::tensor_comm;
  if (kind == "data_comm") return &Breakdown::data_comm;
  if (kind == "pipeline_comm") return &Breakdown::pipeline_comm;
  if (kind == "expert_comm") return &Breakdown::expert_comm;
  if (kind == "context_comm") return &Breakdown::context_comm;
  if (kind == "input") return &Breakdown::input;
  return &Breakdown::other;
}

// Adds up what a step was spent on, and keeps the stretches where somebody wants them.
class Spent {
 public:
  explicit Spent(std::vector<BreakdownStretch>* stretches) : stretches_(stretches) {}

  void add(double Breakdown::*part, double begin_s, double end_s) {
    sum.*part += end_s - begin_s;
    if (stretches_ != nullptr && end_s > begin_s) stretches_->push_back({begin_s, end_s, part});
  }

  Breakdown sum;

 private:
  std::vector<BreakdownStretch>* stretches_;
};

class GapExplainer {
 public:
  GapExplainer(const Program& program, const std::vector<Span>& spans, Spent& spent)
      : program_(program), spans_(spans), spent_(spent), previous_(program.instructions.size(), -1) {
    std::array<std::int64_t, kStreamCount> last{};
    last.fill(-1);
    for (std::size_t i = 0; i < previous_.size(); ++i) {
      auto& on_stream = last[static_cast<std::size_t>(program.instructions[i].stream)];
      previous_[i] = on_stream;
      on_stream = static_cast<std::int64_t>(i);
    }
  }

  // [begin_s, end_s) passes before `instruction` starts: back along what it waited for, and what that waited
  // for, as long as it communicated inside the gap.
  void before(std::int64_t instruction, double begin_s, double end_s) {
    std::int64_t reason = last_predecessor(static_cast<std::size_t>(instruction));
    follow(reason, begin_s, end_s);
  }

  // The step ends: what ended last is what it waited for.
  void at_end(double begin_s, double end_s) {
    std::int64_t reason = -1;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if (!spans_[i].recorded || program_.instructions[i].stream == Stream::compute) continue;
      if (reason < 0 || spans_[i].end_s > spans_[static_cast<std::size_t>(reason)].end_s) {
        reason = static_cast<std::int64_t>(i);
      }
    }
    follow(reason, begin_s, end_s);
  }

 private:
  std::int64_t last_predecessor(std::size_t instruction) const {
    std::int64_t result = -1;
    const auto consider = [&](std::int64_t other) {
      if (other < 0 || !spans_[static_cast<std::size_t>(other)].recorded) return;
      if (result < 0 ||
          spans_[static_cast<std::size_t>(other)].end_s > spans_[static_cast<std::size_t>(result)].end_s) {
        result = other;
      }
    };
    for (const std::uint32_t other : program_.instructions[instruction].after) consider(other);
    consider(previous_[instruction]);
    return result;
  }

  void follow(std::int64_t reason, double begin_s, double end_s) {
    double at_s = end_s;
    while (at_s > begin_s) {
      const bool explains = reason >= 0 && spans_[static_cast<std::size_t>(reason)].end_s > begin_s &&
                            program_.instructions[static_cast<std::size_t>(reason)].stream != Stream::compute;
      if (!explains) {
        spent_.add(&Breakdown::bubble, begin_s, at_s);
        return;
      }
      const Span& span = spans_[static_cast<std::size_t>(reason)];
      if (span.end_s < at_s) {  // everything was there, and yet it did not start: peers were late
        spent_.add(&Breakdown::bubble, span.end_s, at_s);
        at_s = span.end_s;
      }
      const double moving_s = std::clamp(span.moving_s, begin_s, at_s);
      const double from_s = std::clamp(span.start_s, begin_s, moving_s);
      spent_.add(category_of(program_.instructions[static_cast<std::size_t>(reason)]), moving_s, at_s);
      if (from_s < moving_s) spent_.add(&Breakdown::bubble, from_s, moving_s);
      at_s = from_s;
      reason = last_predecessor(static_cast<std::size_t>(reason));
    }
  }

  const Program& program_;
  const std::vector<Span>& spans_;
  Spent& spent_;
  std::vector<std::int64_t> previous_;  // on the same stream
};

void explain(const Program& program, const std::vector<Span>& spans, double begin_s, double end_s,
             Spent& spent) {
  GapExplainer gaps(program, spans, spent);
  double at_s = begin_s;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (!spans[i].recorded || program.instructions[i].stream != Stream::compute) continue;
    const double start_s = std::clamp(spans[i].start_s, at_s, std::max(at_s, end_s));
    const double stop_s = std::clamp(spans[i].end_s, start_s, std::max(start_s, end_s));
    if (start_s > at_s) gaps.before(static_cast<std::int64_t>(i), at_s, start_s);
    spent.add(category_of(program.instructions[i]), start_s, stop_s);
    at_s = stop_s;
  }
  if (end_s > at_s) gaps.at_end(at_s, end_s);
}

}  // namespace

Breakdown breakdown(const Program& program, const Timeline& timeline, int step, double begin_s,
                    double end_s) {
  Spent spent(nullptr);
  explain(program, spans_of(program, timeline, step), begin_s, end_s, spent);
  Breakdown result = spent.sum;
  // The parts are differences of times; their sum may miss the step by rounding, and what should be nothing
  // be less.
  result.other = std::max(0.0, result.other);
  const double rest = (end_s - begin_s) - result.total();
  double& part = result.bubble > 0 ? result.bubble : result.other;
  part = std::max(0.0, part + rest);
  return result;
}

std::vector<BreakdownStretch> breakdown_stretches(const Program& program, const Timeline& timeline, int step,
                                                  double begin_s, double end_s) {
  std::vector<BreakdownStretch> found;
  Spent spent(&found);
  explain(program, spans_of(program, timeline, step), begin_s, end_s, spent);
  // Gaps are explained backwards.
  std::sort(found.begin(), found.end(),
            [](const BreakdownStretch& a, const BreakdownStretch& b) { return a.begin_s < b.begin_s; });
  std::vector<BreakdownStretch> joined;
  for (const BreakdownStretch& stretch : found) {
    if (!joined.empty() && joined.back().part == stretch.part)
      joined.back().end_s = stretch.end_s;
    else
      joined.push_back(stretch);
  }
  return joined;
}

std::map<std::string, double> busy_seconds(const Program& program, const Timeline& timeline, int step) {
  std::map<std::string, double> busy;
  const std::vector<Span> spans = spans_of(program, timeline, step);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].recorded)
      busy[std::string(kind_of(program.instructions[i]))] += spans[i].end_s - spans[i].moving_s;
  }
  return busy;
}

namespace {

class TraceWriter {
 public:
  explicit TraceWriter(const std::vector<Program>& programs) : programs_(programs) {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  }

  std::string write(const Timeline& timeline, const std::vector<TraceCounter>& counters) {
    for (const Program& program : programs_) name_tracks(program);
    for (std::size_t p = 0; p < programs_.size(); ++p) programs_by_rank_[programs_[p].rank] = p;
    for (const TimelineEvent& event : timeline.events) {
      const auto at = programs_by_rank_.find(event.rank);
      if (at == programs_by_rank_.end()) continue;
      const Program& program = programs_[at->second];
      if (event.instruction >= instruction_count(program)) continue;
      slice(program, event);
    }
    for (const auto& [key, flow] : flows_) arrow(flow);
    for (const auto& [rank, changes] : rates_) count(counter_of(rank, changes));
    for (const TraceCounter& counter : counters) count(counter);
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  using FlowKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;  // step, from, to, tag
  struct End {
    const TimelineEvent* event = nullptr;
    int track = 0;
  };
  using Flow = std::pair<End, End>;

  // By time: of a kind of communication so many bytes/s more, or less.
  using RateChanges = std::map<double, std::map<std::string_view, double>>;

  void line() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }

  void name_process(std::int32_t process, const std::string& name) {
    line();
    fmt::format_to(std::back_inserter(text_),
                   R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":"{}"}}}})", process,
                   name);
  }

  void name_tracks(const Program& program) {
    name_process(program.rank, fmt::format("rank {} (stage {}, dp {}, tp {})", program.rank, program.at.pp,
                                           program.at.dp, program.at.tp));
    std::map<int, std::string> tracks;
    for (std::size_t i = 0; i < instruction_count(program); ++i) {
      const std::int32_t worker = worker_of(program, i);
      std::string& name = tracks[track_of(program, i)];
      if (!name.empty()) continue;
      name = name_of(instruction_at(program, i).stream);
      if (worker >= 0) name += fmt::format(" for worker {}", worker);
    }
    for (const auto& [track, name] : tracks) {
      line();
      fmt::format_to(std::back_inserter(text_),
                     R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                     program.rank, track, name);
    }
  }

  // Whom an instruction serves; -1: it is the rank's own.
  static std::int32_t worker_of(const Program& program, std::size_t index) {
    std::size_t end = program.instructions.size();
    for (const Service& service : program.services) {
      if (index >= end && index - end < service.instructions.size()) return service.worker;
      end += service.instructions.size();
    }
    return -1;
  }

  // A stream of the rank's own, or of what it does for one worker.
  static int track_of(const Program& program, std::size_t index) {
    return static_cast<int>(instruction_at(program, index).stream) +
           kStreamCount * (worker_of(program, index) + 1);
  }

  void slice(const Program& program, const TimelineEvent& event) {
    const Instruction& instruction = instruction_at(program, event.instruction);
    const int track = track_of(program, event.instruction);
    const double waited_s = event.moving_since_s() - event.start_s;
    const std::string waited = waited_s > 0 ? fmt::format(R"(,"waited_us":{:.3f})", waited_s * 1e6) : "";
    line();
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"instruction":{},"step":{},"flops":{:.0f},"bytes":{:.0f}{}}}}})",
        label_of(program, event.instruction), kind_of(instruction), event.rank, track, event.start_s * 1e6,
        (event.end_s - event.start_s) * 1e6, event.instruction, event.step, instruction.flops,
        instruction.bytes, waited);
    if (instruction.bytes > 0 && instruction.stream != Stream::compute &&
        event.end_s > event.moving_since_s()) {
      const double rate = instruction.bytes / (event.end_s - event.moving_since_s());
      rates_[event.rank][event.moving_since_s()][kind_of(instruction)] += rate;
      rates_[event.rank][event.end_s][kind_of(instruction)] -= rate;
    }
    for (const Transfer& transfer : instruction.transfers) {
      const std::int32_t from = transfer.send ? event.rank : transfer.peer;
      const std::int32_t to = transfer.send ? transfer.peer : event.rank;
      Flow& flow = flows_[{event.step, from, to, transfer.tag}];
      (transfer.send ? flow.first : flow.second) = {&event, track};
    }
  }

  void arrow(const Flow& flow) {
    const auto& [from, to] = flow;
    if (from.event == nullptr || to.event == nullptr) return;
    const double start_s = from.event->start_s;
    // Inside the receiving slice, and not before the arrow starts.
    const double end_s = (std::max(start_s, to.event->start_s) + std::max(start_s, to.event->end_s)) / 2;
    // "pipeline_comm, rank 0 to 4": of both ends alike, for that is how viewers join them.
    const Program& sender = programs_[programs_by_rank_.at(from.event->rank)];
    const std::string name =
        fmt::format("{}, rank {} to {}", kind_of(instruction_at(sender, from.event->instruction)),
                    from.event->rank, to.event->rank);
    ++arrows_;
    line();
    fmt::format_to(std::back_inserter(text_),
                   R"({{"ph":"s","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{:.3f}}})", name,
                   arrows_, from.event->rank, from.track, start_s * 1e6);
    line();
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"ph":"f","bp":"e","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{:.3f}}})", name,
        arrows_, to.event->rank, to.track, end_s * 1e6);
  }

  // What a rank's communication moves a second, by kind.
  static TraceCounter counter_of(std::int32_t rank, const RateChanges& changes) {
    std::map<std::string_view, double> now;
    for (const auto& [at_s, by_kind] : changes)
      for (const auto& [kind, change] : by_kind) now[kind] = 0;
    TraceCounter counter{"communication (bytes/s)", rank, {}, {}, {}};
    for (const auto& [kind, rate] : now) counter.series.emplace_back(kind);
    for (const auto& [at_s, by_kind] : changes) {
      for (const auto& [kind, change] : by_kind) {
        double& rate = now[kind];
        rate += change;
        if (rate < std::abs(change) * 1e-9) rate = 0;  // what is left of rounding
      }
      TraceCounter::Sample& sample = counter.samples.emplace_back(TraceCounter::Sample{at_s, {}});
      for (const auto& [kind, rate] : now) sample.values.push_back(rate);
    }
    return counter;
  }

  void count(const TraceCounter& counter) {
    if (!counter.process_name.empty()) name_process(counter.process, counter.process_name);
    for (const TraceCounter::Sample& sample : counter.samples) {
      line();
      fmt::format_to(std::back_inserter(text_),
                     R"j({{"ph":"C","name":"{}","pid":{},"tid":0,"ts":{:.3f},"args":{{)j", counter.name,
                     counter.process, sample.at_s * 1e6);
      for (std::size_t i = 0; i < counter.series.size(); ++i)
        fmt::format_to(std::back_inserter(text_), R"({}"{}":{:.0f})", i == 0 ? "" : ",", counter.series[i],
                       sample.values[i]);
      text_ += "}}";
    }
  }

  const std::vector<Program>& programs_;
  std::map<std::int32_t, std::size_t> programs_by_rank_;
  std::map<FlowKey, Flow> flows_;
  std::map<std::int32_t, RateChanges> rates_;  // by rank
  std::string text_;
  bool first_ = true;
  std::int64_t arrows_ = 0;
};

}  // namespace

std::string chrome_trace(const std::vector<Program>& programs, const Timeline& timeline,
                         const std::vector<TraceCounter>& counters) {
  return TraceWriter(programs).write(timeline, counters);
}

}  // namespace orrery
