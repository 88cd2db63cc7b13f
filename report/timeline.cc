#include "report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/scenario/folding.h"

namespace orrery {
namespace {

// The fields of Breakdown in its order, by their keys in `breakdown_s`.
const std::vector<std::pair<const char*, double Breakdown::*>>& parts() {
  static const std::vector<std::pair<const char*, double Breakdown::*>> all = {
      {"compute", &Breakdown::compute},
      {"recompute", &Breakdown::recompute},
      {"tensor_comm", &Breakdown::tensor_comm},
      {"data_comm", &Breakdown::data_comm},
      {"pipeline_comm", &Breakdown::pipeline_comm},
      {"expert_comm", &Breakdown::expert_comm},
      {"context_comm", &Breakdown::context_comm},
      {"bubble", &Breakdown::bubble},
      {"optimizer", &Breakdown::optimizer},
      {"input", &Breakdown::input},
      {"other", &Breakdown::other}};
  return all;
}

int part_index(double Breakdown::*part) {
  for (std::size_t i = 0; i < parts().size(); ++i)
    if (parts()[i].second == part) return static_cast<int>(i);
  return static_cast<int>(parts().size()) - 1;
}

// Names by the order in which they were first asked for.
class Names {
 public:
  int of(const std::string& name) {
    const auto [at, added] = index_.try_emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return at->second;
  }
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::map<std::string, int> index_;
  std::vector<std::string> names_;
};

struct Piece {
  double begin_s = 0, end_s = 0;
  int kind = 0;
};

struct Span {
  double begin_s = 0, end_s = 0;
  std::string_view kind;
  std::int32_t micro_batch = -1;
  std::uint32_t first = 0;  // instruction
  int instructions = 1;
};

struct Row {
  const Program* program = nullptr;
  int like = 1;
  double begin_s = 0, end_s = 0;  // of its step
  std::vector<Piece> stretches;
  std::map<int, std::vector<Span>> streams;  // by stream, in order of time
};

// Stretches below `resolution_s` are taken together until they are as long; each kind then stands once, as
// long as it was in all of them.
std::vector<Piece> joined(const std::vector<Piece>& pieces, double resolution_s) {
  if (resolution_s <= 0) return pieces;
  std::vector<Piece> result;
  const auto add = [&](double begin_s, double end_s, int kind) {
    if (end_s <= begin_s) return;
    if (!result.empty() && result.back().kind == kind)
      result.back().end_s = end_s;
    else
      result.push_back({begin_s, end_s, kind});
  };
  std::vector<double> of_kind(parts().size());
  std::size_t i = 0;
  while (i < pieces.size()) {
    if (pieces[i].end_s - pieces[i].begin_s >= resolution_s) {
      add(pieces[i].begin_s, pieces[i].end_s, pieces[i].kind);
      ++i;
      continue;
    }
    std::fill(of_kind.begin(), of_kind.end(), 0.0);
    double at_s = pieces[i].begin_s;
    const double until_s = at_s + resolution_s;
    for (; i < pieces.size() && pieces[i].end_s <= until_s; ++i)
      of_kind[static_cast<std::size_t>(pieces[i].kind)] += pieces[i].end_s - pieces[i].begin_s;
    for (std::size_t kind = 0; kind < of_kind.size(); ++kind) {
      add(at_s, at_s + of_kind[kind], static_cast<int>(kind));
      at_s += of_kind[kind];
    }
  }
  return result;
}

// Neighbours of one kind and micro-batch less than `resolution_s` apart, and whatever together is shorter
// than that: under the name of the kind that takes most of it.
std::vector<Span> joined(const std::vector<Span>& spans, double resolution_s) {
  if (resolution_s <= 0) return spans;
  std::vector<Span> result;
  std::vector<std::pair<std::string_view, double>> of_kind;  // seconds of the last; few kinds
  const auto seconds_of = [&](std::string_view kind) -> double& {
    for (auto& [name, seconds] : of_kind)
      if (name == kind) return seconds;
    return of_kind.emplace_back(kind, 0.0).second;
  };
  for (const Span& span : spans) {
    const bool near = !result.empty() && span.begin_s - result.back().end_s <= resolution_s;
    const bool alike =
        near && result.back().kind == span.kind && result.back().micro_batch == span.micro_batch;
    if (!alike && (!near || span.end_s - result.back().begin_s > resolution_s)) {
      result.push_back(span);
      of_kind.assign(1, {span.kind, span.end_s - span.begin_s});
      continue;
    }
    Span& last = result.back();
    last.end_s = std::max(last.end_s, span.end_s);
    last.instructions += span.instructions;
    if (last.micro_batch != span.micro_batch) last.micro_batch = -1;
    seconds_of(span.kind) += span.end_s - span.begin_s;
    if (seconds_of(span.kind) > seconds_of(last.kind)) last.kind = span.kind;
  }
  return result;
}

// The finest with few enough numbers, or `coarsest_s`.
template <typename Count>
double resolution_for(std::size_t most, double length_s, double coarsest_s, Count count) {
  if (count(0.0) <= most) return 0;
  double resolution_s = length_s / kTicks;
  while (resolution_s < coarsest_s && count(resolution_s) > most) resolution_s *= 2;
  return std::min(resolution_s, coarsest_s);
}

// Ranks of a simulation by stage, one of each first, then the others.
std::vector<std::size_t> order_of_rows(const std::vector<Program>& programs, int critical) {
  std::vector<std::size_t> order(programs.size());
  std::iota(order.begin(), order.end(), 0);
  if (order.size() <= kMostRows) return order;
  std::map<int, int> seen;
  std::vector<std::pair<int, std::size_t>> by_turn;  // n-th of its stage
  for (const std::size_t i : order)
    by_turn.push_back({programs[i].rank == critical ? -1 : seen[programs[i].at.pp]++, i});
  std::stable_sort(by_turn.begin(), by_turn.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  by_turn.resize(kMostRows);
  order.clear();
  for (const auto& [turn, i] : by_turn) order.push_back(i);
  std::sort(order.begin(), order.end());
  return order;
}

Row row_of(const Program& program, const sim::Simulation& simulation, int step, bool asynchronous) {
  Row row;
  row.program = &program;
  double before_s = 0;
  // Sorted by rank: a page of many rows does not look through everybody's events for each.
  const std::vector<TimelineEvent>& events = simulation.timeline.events;
  auto at = std::partition_point(events.begin(), events.end(),
                                 [&](const TimelineEvent& event) { return event.rank < program.rank; });
  for (; at != events.end() && at->rank == program.rank; ++at) {
    const TimelineEvent& event = *at;
    if (event.instruction >= program.instructions.size()) continue;
    if (event.step == step - 1) before_s = std::max(before_s, event.end_s);
    if (event.step != step) continue;
    row.end_s = std::max(row.end_s, event.end_s);
    const Instruction& instruction = program.instructions[event.instruction];
    if (event.end_s > event.start_s)
      row.streams[static_cast<int>(instruction.stream)].push_back(
          {event.start_s, event.end_s, kind_of(instruction), instruction.micro_batch, event.instruction, 1});
  }
  if (row.end_s == 0) return row;
  const bool own = asynchronous || simulation.step_ends_s.size() == 1;
  row.begin_s = asynchronous ? before_s : own ? 0 : row.end_s - simulation.step_time_s;
  if (!asynchronous && own) row.end_s = simulation.step_ends_s.back();
  for (const BreakdownStretch& stretch :
       breakdown_stretches(program, simulation.timeline, step, row.begin_s, row.end_s))
    row.stretches.push_back({stretch.begin_s, stretch.end_s, part_index(stretch.part)});
  for (auto& [stream, spans] : row.streams)
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin_s < b.begin_s; });
  return row;
}

class Writer {
 public:
  Writer(const std::vector<Row>& rows, double begin_s, double length_s)
      : rows_(rows), begin_s_(begin_s), length_s_(length_s) {
    stretch_s_ = resolution_for(kMostStretches, length_s, length_s, [&](double resolution_s) {
      std::size_t count = 0;
      for (const Row& row : rows_) count += joined(row.stretches, resolution_s).size();
      return count;
    });
    span_s_ = resolution_for(kMostSpans, length_s, length_s * kCoarsestSpans, [&](double resolution_s) {
      std::size_t count = 0;
      for (const Row& row : rows_) count += spans_of(row, resolution_s);
      return count;
    });
  }

  Json write(int critical) {
    Json rows = Json::array();
    const std::vector<bool> with_streams = rows_with_streams(critical);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      Json json = {{"rank", row.program->rank},
                   {"stage", row.program->at.pp},
                   {"dp", row.program->at.dp},
                   {"tp", row.program->at.tp},
                   {"like", row.like},
                   {"critical", row.program->rank == critical},
                   {"stretches", stretches(row)},
                   {"lanes", with_streams[i] ? streams(row) : Json::array()}};
      rows.push_back(std::move(json));
    }
    Json part_names = Json::array();
    for (const auto& [name, part] : parts()) part_names.push_back(name);
    return {{"begin_s", begin_s_},        {"length_s", length_s_},        {"ticks", kTicks},
            {"parts", part_names},        {"kinds", kinds_.all()},        {"labels", labels_.all()},
            {"resolution_s", stretch_s_}, {"span_resolution_s", span_s_}, {"rows", rows}};
  }

 private:
  static std::size_t spans_of(const Row& row, double resolution_s) {
    std::size_t count = 0;
    for (const auto& [stream, spans] : row.streams) count += joined(spans, resolution_s).size();
    return count;
  }

  // Where all are too many even so, those of the rank with most compute, then of one rank of each stage, then
  // of the others.
  std::vector<bool> rows_with_streams(int critical) const {
    std::vector<std::pair<int, std::size_t>> by_turn;
    std::map<int, int> seen;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      by_turn.push_back({rows_[i].program->rank == critical ? -1 : seen[rows_[i].program->at.pp]++, i});
    std::stable_sort(by_turn.begin(), by_turn.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<bool> with(rows_.size(), false);
    std::size_t spans = 0;
    for (const auto& [turn, i] : by_turn) {
      spans += spans_of(rows_[i], span_s_);
      if (spans > kMostSpans && turn >= 0) break;
      with[i] = true;
    }
    return with;
  }

  std::int64_t tick(double at_s) const {
    return std::clamp<std::int64_t>(std::llround((at_s - begin_s_) / length_s_ * kTicks), 0,
                                    static_cast<std::int64_t>(kTicks));
  }

  Json stretches(const Row& row) const {
    Json numbers = Json::array();
    std::int64_t last = 0;
    for (const Piece& piece : joined(row.stretches, stretch_s_)) {
      const std::int64_t begin = tick(piece.begin_s), end = tick(piece.end_s);
      if (end <= begin) continue;
      numbers.push_back(begin - last);
      numbers.push_back(end - begin);
      numbers.push_back(piece.kind);
      last = end;
    }
    return numbers;
  }

  // Without its micro-batch's number: what a rank does with each of them is named once.
  static std::string label(const Row& row, const Span& span) {
    if (span.instructions > 1)
      return span.micro_batch >= 0 ? fmt::format("{} mb#", span.kind) : std::string(span.kind);
    std::string label = label_of(*row.program, span.first);
    const std::string numbered = fmt::format(" mb{}", span.micro_batch);
    const std::size_t at = label.find(numbered), end = at + numbered.size();
    if (at != std::string::npos && (end == label.size() || label[end] == ' '))
      label.replace(at, numbered.size(), " mb#");
    return label;
  }

  Json streams(const Row& row) {
    Json all = Json::array();
    for (const auto& [stream, spans] : row.streams) {
      Json numbers = Json::array();
      std::int64_t last = 0;
      for (const Span& span : joined(spans, span_s_)) {
        const std::int64_t begin = tick(span.begin_s), end = tick(span.end_s);
        numbers.push_back(begin - last);
        numbers.push_back(end - begin);
        numbers.push_back(kinds_.of(std::string(span.kind)));
        numbers.push_back(labels_.of(label(row, span)));
        numbers.push_back(span.instructions);
        numbers.push_back(span.micro_batch);
        last = begin;
      }
      all.push_back({{"stream", name_of(static_cast<Stream>(stream))}, {"spans", numbers}});
    }
    return all;
  }

  const std::vector<Row>& rows_;
  double begin_s_, length_s_;
  double stretch_s_ = 0, span_s_ = 0;
  Names kinds_, labels_;
};

}  // namespace

Json timeline_json(const Plan& plan, const sim::Simulation& simulation, bool fold) {
  const int step = static_cast<int>(simulation.step_ends_s.size()) - 1;
  const bool asynchronous = plan.choices.asynchronous();
  std::map<int, int> like;
  if (fold)
    for (const sim::RankClass& one : sim::fold_ranks(plan).classes) like[one.representative] = one.size;
  std::vector<Row> rows;
  double begin_s = 1e300, end_s = 0;
  for (const std::size_t i : order_of_rows(simulation.programs, simulation.critical_rank)) {
    Row row = row_of(simulation.programs[i], simulation, step, asynchronous);
    if (row.end_s <= row.begin_s) continue;
    const auto found = like.find(row.program->rank);
    if (found != like.end()) row.like = found->second;
    begin_s = std::min(begin_s, row.begin_s);
    end_s = std::max(end_s, row.end_s);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return Json::object();
  Json json = Writer(rows, begin_s, end_s - begin_s).write(simulation.critical_rank);
  json["ranks"] = simulation.ranks;
  json["simulated_ranks"] = simulation.simulated_ranks;
  return json;
}

}  // namespace orrery
