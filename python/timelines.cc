// Simulations, and when each instruction ran as columns of numbers.
#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "python/bindings.h"

namespace orrery::python {
namespace {

// A column of few different words: their numbers, and the words in the order in which they came.
class Words {
 public:
  std::int8_t number(std::string_view word) {
    const auto [at, added] = numbers_.try_emplace(std::string(word), static_cast<std::int8_t>(words_.size()));
    if (added) words_.emplace_back(word);
    return at->second;
  }
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::int8_t> numbers_;
  std::vector<std::string> words_;
};

const Program* program_of(const sim::Simulation& simulation, std::int32_t rank) {
  for (const Program& program : simulation.programs)
    if (program.rank == rank) return &program;
  return nullptr;
}

// Programs beside the events, which are sorted by rank.
template <typename Body>
void each_event(const sim::Simulation& simulation, const Body& body) {
  const Program* program = nullptr;
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (program == nullptr || program->rank != event.rank) program = program_of(simulation, event.rank);
    body(event, *program);
  }
}

template <typename Value>
py::array_t<Value> array_of(const std::vector<Value>& values) {
  return py::array_t<Value>(static_cast<py::ssize_t>(values.size()), values.data());
}

// rank, step, instruction, stage (of the pipeline), micro_batch (-1: none), start_s, end_s, flops, bytes;
// kind, what (forward, all_reduce, exchange, …) and stream as numbers of the words beside them.
py::dict columns_of(const Simulated& simulated) {
  const sim::Simulation& simulation = simulated.evaluation.simulation.value();
  std::vector<std::int32_t> rank, step, instruction, stage, micro_batch;
  std::vector<double> start_s, end_s, flops, bytes;
  std::vector<std::int8_t> kind, what, stream;
  Words kinds, whats, streams;
  each_event(simulation, [&](const TimelineEvent& event, const Program& program) {
    const Instruction& of = instruction_at(program, event.instruction);
    rank.push_back(event.rank);
    step.push_back(event.step);
    instruction.push_back(static_cast<std::int32_t>(event.instruction));
    stage.push_back(program.at.pp);
    micro_batch.push_back(of.micro_batch);
    start_s.push_back(event.start_s);
    end_s.push_back(event.end_s);
    flops.push_back(of.flops);
    double moved = of.op == Op::exchange ? 0 : of.bytes;
    for (const Transfer& transfer : of.transfers) moved += transfer.bytes;
    bytes.push_back(moved);
    kind.push_back(kinds.number(kind_of(of)));
    what.push_back(whats.number(of.op == Op::compute      ? name_of(of.compute)
                                : of.op == Op::collective ? name_of(of.collective)
                                                          : name_of(of.op)));
    stream.push_back(streams.number(name_of(of.stream)));
  });
  py::dict columns;
  columns["rank"] = array_of(rank);
  columns["step"] = array_of(step);
  columns["instruction"] = array_of(instruction);
  columns["stage"] = array_of(stage);
  columns["micro_batch"] = array_of(micro_batch);
  columns["kind"] = py::make_tuple(array_of(kind), kinds.words());
  columns["what"] = py::make_tuple(array_of(what), whats.words());
  columns["stream"] = py::make_tuple(array_of(stream), streams.words());
  columns["start_s"] = array_of(start_s);
  columns["end_s"] = array_of(end_s);
  columns["flops"] = array_of(flops);
  columns["bytes"] = array_of(bytes);
  return columns;
}

std::vector<std::string> labels_of(const Simulated& simulated) {
  std::vector<std::string> labels;
  each_event(simulated.evaluation.simulation.value(),
             [&](const TimelineEvent& event, const Program& program) {
               labels.push_back(label_of(program, event.instruction));
             });
  return labels;
}

std::shared_ptr<Simulated> simulate_plan(const Plan& plan, bool fold, const std::string& detail, int steps,
                                         bool timeline) {
  return without_gil([&] {
    sim::SimulationOptions options;
    options.fold = fold;
    options.detail = detail_from_name(detail);
    options.steps = steps;
    options.keep_timeline = timeline;
    return std::make_shared<Simulated>(simulate({plan, options}));
  });
}

}  // namespace

void define_timelines(py::module_& module) {
  py::class_<Simulated, std::shared_ptr<Simulated>>(module, "Simulated")
      .def("json", [](const Simulated& simulated) { return to_json(simulated).dump(); })
      .def("energy_j", [](const Simulated& simulated) { return simulated.evaluation.simulation->energy_j; })
      .def("columns", &columns_of)
      .def("labels", &labels_of)
      .def("chrome_trace", [](const Simulated& simulated) {
        return without_gil([&] { return planner::trace_of(simulated.evaluation); });
      });
  module.def("simulate", &simulate_plan);
}

}  // namespace orrery::python
