#include "planner/tables/layer_times.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <utility>

#include "cost/compute_cost.h"
#include "cost/host_cost.h"
#include "program/forms.h"
#include "program/lower/lowering.h"
#include "program/operator_work.h"
#include "program/placement.h"

namespace orrery::planner {
namespace {

double achieved_seconds(const CollectivePlan& plan, double bytes, const RuntimeProfile& runtime) {
  const double rate = plan.bandwidth_bytes_per_s * runtime.communication_efficiency;
  return plan.latency_s + (rate > 0 ? bytes / rate : 0);
}

struct Track {
  double begin_s = 0, end_s = 0, compute_s = 0, host_s = 0, waiting_s = 0;
  bool used = false;
  std::vector<std::pair<double, double>> travels;  // of tokens, from and until
};

// Laying the instructions of a Program on its streams, each as early as it may start.
class Layout {
 public:
  Layout(const Job& job, const LayerSketch& sketch, const GroupShapes& shapes)
      : job_(job), sketch_(sketch), program_(*sketch.program), shapes_(shapes) {}

  std::vector<LayerTime> run() {
    std::array<std::vector<Track>, 2> tracks;  // forward, backward
    for (auto& track : tracks) track.resize(static_cast<std::size_t>(sketch_.parts));
    std::array<double, kStreamCount> free{};
    std::vector<double> ends;
    ends.reserve(program_.instructions.size());
    std::array<double, 2> last{};  // the end of each direction, communication included
    int direction = 0;
    const std::size_t turn = first_of_backward();
    double lead_s = -1;        // what the backward pass begins with, if it does not begin with computing
    Track* current = nullptr;  // issued to; what stands before the first layer counts with it
    double issued_s = 0;
    bool ending = false;  // the optimizer, and what follows it, is of no layer
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      double start = free[static_cast<std::size_t>(instruction.stream)];
      for (const std::uint32_t before : instruction.after) start = std::max(start, ends[before]);
      const double waiting = waiting_s(instruction);
      const double duration =
          sketch_.work_s[i] + (communication_seconds(instruction, sketch_.beside_s[i]) + waiting);
      const double end = start + duration;
      ends.push_back(end);
      free[static_cast<std::size_t>(instruction.stream)] = end;
      const int part = sketch_.part[i];
      if (i == turn) {
        direction = 1;
        if (part < 0) lead_s = start;
      }
      if (part >= 0) {
        direction = instruction.compute == ComputeKind::forward ? 0 : 1;
        Track& track = tracks[direction][part];
        const double begin = direction == 1 && lead_s >= 0 ? std::exchange(lead_s, -1) : start;
        track.begin_s = track.used ? std::min(track.begin_s, begin) : begin;
        track.end_s = std::max(track.end_s, end);
        track.compute_s += duration;
        track.used = true;
        current = &track;
      }
      if (current != nullptr && instruction.stream == Stream::expert && duration > 0) {
        if (!current->travels.empty() && start <= current->travels.back().second)
          current->travels.back().second = end;
        else
          current->travels.emplace_back(start, end);
      }
      if (current != nullptr && instruction.form != Parallelism::data) current->waiting_s += waiting;
      ending |= instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
      if (!ending) issued_s += sketch_.host_s[i];
      if (current != nullptr) {
        current->host_s += issued_s;
        issued_s = 0;
      }
      if (part >= 0 || (instruction.micro_batch >= 0 && instruction.form != Parallelism::data))
        last[direction] = std::max(last[direction], end);
    }
    std::vector<LayerTime> times(static_cast<std::size_t>(sketch_.parts));
    const auto fill = [&](int direction_of, PassTime LayerTime::*pass, int from, int to, int step) {
      double next_begin = last[direction_of];
      for (int i = from; i != to; i -= step) {  // from the last to run, towards the first
        const Track& track = tracks[direction_of][i];
        if (!track.used) continue;
        PassTime& time = times[i].*pass;
        time.serial_s = next_begin - track.begin_s;
        time.tail_s = std::max(0.0, next_begin - track.end_s);
        time.compute_s = track.compute_s;
        time.host_s = track.host_s;
        time.waiting_s = std::min(track.waiting_s, time.serial_s - time.compute_s);
        time.experts = steps_of(track, time.serial_s);
        next_begin = track.begin_s;
      }
    };
    fill(0, &LayerTime::forward, sketch_.parts - 1, -1, 1);
    fill(1, &LayerTime::backward, 0, sketch_.parts, -1);
    return times;
  }

 private:
  static std::vector<ExpertStep> steps_of(const Track& track, double serial_s) {
    std::vector<ExpertStep> steps;
    double rest = serial_s;
    for (std::size_t i = 0; i < track.travels.size(); ++i) {
      const auto& [from, until] = track.travels[i];
      const double next = i + 1 < track.travels.size() ? track.travels[i + 1].first - until : 0;
      steps.push_back({until - from, next});
      rest -= until - from + next;
    }
    if (!steps.empty()) steps.back().next_s = std::max(0.0, rest);
    return steps;
  }

  // The sketch is one stage and one micro-batch: whatever a pass does after the last layer's forward (its
  // loss's) is the backward's, though it may begin with communication.
  std::size_t first_of_backward() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i)
      if (sketch_.part[i] >= 0 && program_.instructions[i].compute == ComputeKind::forward) last = i;
    for (std::size_t i = last + 1; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (sketch_.part[i] >= 0 || (instruction.micro_batch >= 0 && instruction.form != Parallelism::data))
        return i;
    }
    return program_.instructions.size();
  }

  double waiting_s(const Instruction& instruction) const {
    if (instruction.op != Op::collective || instruction.group < 0) return 0;
    const auto shape = shapes_.find(program_.groups[instruction.group].kind);
    return shape == shapes_.end() ? 0 : waiting_seconds(instruction, shape->second.ranks, job_.runtime);
  }

  // What of its traffic shows, without waiting_s.
  double communication_seconds(const Instruction& instruction, double beside_s) const {
    if (instruction.op == Op::collective && instruction.group >= 0) {
      const auto shape = shapes_.find(program_.groups[instruction.group].kind);
      if (shape == shapes_.end()) return 0;
      const double alone_s =
          collective_s(instruction.collective, sketch_.scale * instruction.bytes, shape->second, job_);
      return shown_seconds(instruction, alone_s, beside_s, shape->second, sketch_.expert_exposed);
    }
    if (instruction.op == Op::exchange) {
      const auto shape = shapes_.find(form_of(instruction.form).exchanges_in);
      double bytes = 0;
      for (const Transfer& transfer : instruction.transfers)
        if (transfer.send) bytes = std::max(bytes, transfer.bytes);
      if (shape == shapes_.end() || bytes == 0) return 0;
      return transfer_s(sketch_.scale * bytes, shape->second, job_);
    }
    return 0;
  }

  const Job& job_;
  const LayerSketch& sketch_;
  const Program& program_;
  const GroupShapes& shapes_;
};

}  // namespace

double paired_gain_s(const PassTime& forward, const PassTime& backward) {
  const auto hidden = [](const ExpertStep& there, const ExpertStep& back, const ExpertStep& after) {
    return std::min(back.next_s, there.traffic_s) + std::min(there.next_s, after.traffic_s);
  };
  const std::size_t steps = forward.experts.size(), of_back = backward.experts.size();
  double gain = 0;
  // In turn: what the backward computes next, beside the forward's tokens; what the forward computes next,
  // beside the backward's. A backward that runs its forward again has more steps, any of which may be there.
  for (std::size_t i = 0; i < steps; ++i) {
    for (std::size_t j = 0; j < of_back; ++j) {
      const std::size_t shift = steps == of_back ? i + j : j;
      const double share = steps == of_back ? (j == 0 ? 1.0 : 0.0) : 1.0 / static_cast<double>(of_back);
      gain += share * hidden(forward.experts[i], backward.experts[shift % of_back],
                             backward.experts[(shift + 1) % of_back]);
    }
  }
  return gain;
}

ModelSketch::ModelSketch(const Workload& whole) : parts_(layer_parts(whole)) {
  if (!whole.transformer) {
    workload_ = whole;
    for (int part = 0; part < parts_.count(); ++part) stand_in_.push_back(part);
    second_ = stand_in_;
    return;
  }
  workload_.name = whole.name;
  workload_.transformer = whole.transformer;
  workload_.default_seq_len = whole.default_seq_len;
  int parts = 0;
  const auto append = [&](int part) {
    std::unordered_map<int, int> moved;  // operators: index in the whole model to index in the sketch
    for (int i = parts_.begin[part]; i < parts_.begin[part + 1]; ++i) {
      Operator op = whole.operators[i];
      op.layer = parts - 1;
      const int here = static_cast<int>(workload_.operators.size());
      for (int& input : op.inputs) {
        // A layer reads its predecessor's last operator: in the sketch that is the operator just before.
        const auto at = moved.find(input);
        input = at != moved.end() ? at->second : workload_.operators.empty() ? -1 : begin_ - 1;
      }
      moved[i] = here;
      workload_.operators.push_back(std::move(op));
    }
    begin_ = static_cast<int>(workload_.operators.size());
    return parts++;
  };
  for (int part = 0; part < parts_.count(); ++part) {
    if (parts_.twin[part] < part) {
      stand_in_.push_back(stand_in_[parts_.twin[part]]);
      second_.push_back(second_[parts_.twin[part]]);
      continue;
    }
    stand_in_.push_back(append(part));
    const bool edge = part == 0 || part == parts_.count() - 1;
    second_.push_back(edge ? stand_in_.back() : append(part));
  }
  workload_.layers = parts - 2;
  workload_.transformer->layers = workload_.layers;
}

Choices sketch_choices(const Job& job, const Choices& choices) {
  Choices c = choices;
  if (job.workload.transformer) c.micro_batch = 1;
  c.pp = 1;
  c.schedule = Schedule::one_f_one_b;
  c.interleave = 1;
  c.stage_layers.clear();
  c.replica_batches.clear();
  c.shard_group = 0;
  c.sync = Sync::all_reduce;
  c.grad_compression = Compression::none;
  c.recompute_layers = 0;
  c.zero = 0;
  // Enough replicas for the collectives inside a layer (experts), no more: groups are lists.
  c.dp = 1;
  while (expert_ranks(c) % c.ep != 0) ++c.dp;
  return c;
}

std::shared_ptr<const Program> lower_layers(const std::shared_ptr<Job>& job, const Choices& choices) {
  job->training.global_batch = static_cast<std::int64_t>(choices.micro_batch) * choices.dp;
  return std::make_shared<const Program>(lower({job, choices}, 0));
}

LayerSketch sketch_layers(std::shared_ptr<const Program> program, const std::shared_ptr<Job>& job,
                          const Choices& choices, const DeviceProfile& device, double speed) {
  // As many devices compute beside this one as in the whole plan.
  Plan whole{job, sketch_choices(*job, choices)};
  LayerSketch sketch;
  const double rows = shard_of(whole).rows;
  whole.choices.micro_batch = choices.micro_batch;
  sketch.scale = shard_of(whole).rows / rows;
  whole.choices.dp = std::max(1, job->cluster.devices() / (choices.tp * choices.cp));
  whole.choices.zero = host_sharding(choices, job->runtime);
  const ComputeCost cost(whole, device);
  sketch.parts = job->workload.layers + 2;
  sketch.expert_exposed = whole.expert_exposed();
  sketch.weight_s.assign(static_cast<std::size_t>(sketch.parts), 0);
  for (const Instruction& instruction : program->instructions) {
    const bool works =
        instruction.op == Op::compute || instruction.op == Op::pack || instruction.op == Op::unpack;
    sketch.host_s.push_back(cost.host_seconds(instruction));
    sketch.beside_s.push_back(cost.beside_seconds(instruction) / speed);
    sketch.work_s.push_back(works ? cost.seconds(*program, instruction) / speed : 0);
    const bool layered = instruction.op == Op::compute && instruction.compute != ComputeKind::optimizer;
    sketch.part.push_back(
        layered
            ? std::clamp(job->workload.operators[instruction.op_begin].layer, -1, job->workload.layers) + 1
            : -1);
    if (layered && does_weight_gradient(instruction.compute))
      sketch.weight_s[static_cast<std::size_t>(sketch.part.back())] +=
          cost.range_seconds(instruction.op_begin, instruction.op_end, ComputeKind::backward_weight) / speed;
  }
  sketch.program = std::move(program);
  return sketch;
}

std::vector<LayerTime> layer_times(const Job& job, const LayerSketch& sketch, const GroupShapes& shapes) {
  return Layout(job, sketch, shapes).run();
}

double collective_s(CollectiveKind kind, double bytes, const GroupShape& shape, const Job& job) {
  return achieved_seconds(plan_collective(kind, bytes, shape, job.cluster), bytes, job.runtime);
}

double broadcasts_s(double bytes, int tensors, const GroupShape& shape, const Job& job) {
  return achieved_seconds(plan_broadcasts(bytes, tensors, shape, job.cluster), bytes, job.runtime);
}

double transfer_s(double bytes, const GroupShape& shape, const Job& job) {
  return achieved_seconds(plan_transfer(bytes, shape, job.cluster), bytes, job.runtime);
}

}  // namespace orrery::planner
