#include "planner/layer_times.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>

#include "program/compute_cost.h"
#include "program/lowering.h"

namespace orrery::planner {
namespace {

struct Track {
  double begin_s = 0, end_s = 0, compute_s = 0, host_s = 0;
  bool used = false;
};

// Laying the instructions of a Program on its streams, each as early as it may start.
class Layout {
 public:
  Layout(const Job& job, const Program& program, const ComputeCost& cost, double speed,
         const GroupShapes& shapes)
      : job_(job), program_(program), cost_(cost), speed_(speed), shapes_(shapes) {}

  std::vector<LayerTime> run(int layers) {
    const std::vector<Operator>& operators = job_.workload.operators;
    std::array<std::vector<Track>, 2> tracks;  // forward, backward
    for (auto& track : tracks) track.resize(static_cast<std::size_t>(layers) + 2);
    std::array<double, kStreamCount> free{};
    std::vector<double> ends;
    std::array<double, 2> last{};  // the end of each direction, communication included
    Track* current = nullptr;      // issued to; what stands before the first layer counts with it
    double issued_s = 0;
    bool ending = false;  // the optimizer, and what follows it, is of no layer
    for (const Instruction& instruction : program_.instructions) {
      double start = free[static_cast<std::size_t>(instruction.stream)];
      for (const std::uint32_t before : instruction.after) start = std::max(start, ends[before]);
      const double duration = seconds(instruction);
      const double end = start + duration;
      ends.push_back(end);
      free[static_cast<std::size_t>(instruction.stream)] = end;
      const bool layered = instruction.op == Op::compute && instruction.compute != ComputeKind::optimizer;
      if (layered) {
        direction_ = instruction.compute == ComputeKind::forward ? 0 : 1;
        const int layer = std::clamp(operators[instruction.op_begin].layer, -1, layers) + 1;
        Track& track = tracks[direction_][layer];
        track.begin_s = track.used ? std::min(track.begin_s, start) : start;
        track.end_s = std::max(track.end_s, end);
        track.compute_s += duration;
        track.used = true;
        current = &track;
      }
      ending |= instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
      if (!ending) issued_s += cost_.host_seconds(instruction);
      if (current != nullptr) {
        current->host_s += issued_s;
        issued_s = 0;
      }
      if (layered || (instruction.micro_batch >= 0 && instruction.stream != Stream::data))
        last[direction_] = std::max(last[direction_], end);
    }
    std::vector<LayerTime> times(static_cast<std::size_t>(layers) + 2);
    const auto fill = [&](int direction, PassTime LayerTime::*pass, int from, int to, int step) {
      double next_begin = last[direction];
      for (int i = from; i != to; i -= step) {  // from the last to run, towards the first
        const Track& track = tracks[direction][i];
        if (!track.used) continue;
        PassTime& time = times[i].*pass;
        time.serial_s = next_begin - track.begin_s;
        time.tail_s = std::max(0.0, next_begin - track.end_s);
        time.compute_s = track.compute_s;
        time.host_s = track.host_s;
        next_begin = track.begin_s;
      }
    };
    fill(0, &LayerTime::forward, layers + 1, -1, 1);
    fill(1, &LayerTime::backward, 0, layers + 2, -1);
    return times;
  }

 private:
  double seconds_of(const CollectivePlan& plan, double bytes) const {
    return achieved_seconds(plan, bytes, job_.runtime);
  }

  double seconds(const Instruction& instruction) const {
    switch (instruction.op) {
      case Op::compute:
      case Op::pack:
      case Op::unpack:
      case Op::copy:
        return cost_.seconds(program_, instruction) / speed_;
      case Op::collective: {
        if (instruction.group < 0) return 0;
        const auto shape = shapes_.find(program_.groups[instruction.group].kind);
        if (shape == shapes_.end()) return 0;
        return seconds_of(
                   plan_collective(instruction.collective, instruction.bytes, shape->second, job_.cluster),
                   instruction.bytes) +
               (is_waited_for(instruction) ? job_.runtime.collective_overhead_s : 0);
      }
      case Op::exchange: {
        const auto shape = shapes_.find(GroupKind::context);
        double bytes = 0;
        for (const Transfer& transfer : instruction.transfers)
          if (transfer.send) bytes = std::max(bytes, transfer.bytes);
        if (shape == shapes_.end() || bytes == 0) return 0;
        return seconds_of(plan_transfer(bytes, shape->second, job_.cluster), bytes);
      }
      default:
        return 0;
    }
  }

  const Job& job_;
  const Program& program_;
  const ComputeCost& cost_;
  double speed_;
  const GroupShapes& shapes_;
  int direction_ = 0;
};

}  // namespace

double achieved_seconds(const CollectivePlan& plan, double bytes, const RuntimeProfile& runtime) {
  const double rate = plan.bandwidth_bytes_per_s * runtime.communication_efficiency;
  return plan.latency_s + (rate > 0 ? bytes / rate : 0);
}

ModelSketch::ModelSketch(const Workload& whole) : parts_(layer_parts(whole)) {
  if (!whole.transformer) {
    workload_ = whole;
    for (int part = 0; part < parts_.count(); ++part) stand_in_.push_back(part);
    return;
  }
  workload_.name = whole.name;
  workload_.transformer = whole.transformer;
  workload_.default_seq_len = whole.default_seq_len;
  std::unordered_map<int, int> moved;  // operators: index in the whole model to index in the sketch
  int parts = 0;
  for (int part = 0; part < parts_.count(); ++part) {
    if (parts_.twin[part] < part) {
      stand_in_.push_back(stand_in_[parts_.twin[part]]);
      continue;
    }
    stand_in_.push_back(parts++);
    for (int i = parts_.begin[part]; i < parts_.begin[part + 1]; ++i) {
      Operator op = whole.operators[i];
      op.layer = stand_in_.back() - 1;
      const int here = static_cast<int>(workload_.operators.size());
      for (int& input : op.inputs) {
        // A layer reads its predecessor's last operator: in the sketch that is the operator just before.
        const auto at = moved.find(input);
        input = at != moved.end() ? at->second : here - 1;
      }
      moved[i] = here;
      workload_.operators.push_back(std::move(op));
    }
  }
  workload_.layers = parts - 2;
  workload_.transformer->layers = workload_.layers;
}

std::vector<LayerTime> layer_times(const Job& job, const ModelSketch& sketch, const Choices& choices,
                                   const DeviceProfile& device, double speed, const GroupShapes& shapes) {
  Choices c = choices;
  c.pp = 1;
  c.schedule = Schedule::one_f_one_b;
  c.interleave = 1;
  c.stage_layers.clear();
  c.replica_batches.clear();
  c.shard_group = 0;
  c.sync = Sync::all_reduce;
  c.grad_compression = Compression::none;
  if (c.recompute_layers > 0) c.recompute_layers = 0;
  // Enough replicas for the collectives inside a layer (experts, ZeRO-2 and -3), no more: groups are lists.
  if (c.zero < 2) c.zero = 0;
  c.dp = c.zero >= 2 ? 2 : 1;
  while (c.dp * c.cp % c.ep != 0) ++c.dp;
  auto small = std::make_shared<Job>();
  small->workload = sketch.workload();
  small->cluster = job.cluster;
  small->runtime = job.runtime;
  small->training = job.training;
  small->training.global_batch = static_cast<std::int64_t>(c.micro_batch) * c.dp;
  const Plan plan{small, c};
  const Program program = lower(plan, 0);
  const ComputeCost cost(plan, device);
  return Layout(*small, program, cost, speed, shapes).run(small->workload.layers);
}

}  // namespace orrery::planner
