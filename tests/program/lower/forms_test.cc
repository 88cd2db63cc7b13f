// Each form of parallelism by itself: that its Programs are sound and send what the textbook says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "tests/support/small_plans.h"

using namespace orrery;
using orrery::test::lower_all;
using orrery::test::small_plan;
using orrery::test::SmallModel;

namespace {

void verify(const Plan& plan) {
  check_plan(plan);
  verify_programs(lower_all(plan));
}

double sum(const Program& program, const std::function<bool(const Instruction&)>& wanted) {
  double bytes = 0;
  for (const Instruction& instruction : program.instructions) {
    if (wanted(instruction)) bytes += instruction.bytes;
  }
  return bytes;
}

double collective_bytes(const Program& program, Stream stream, CollectiveKind kind) {
  return sum(program, [&](const Instruction& instruction) {
    return instruction.op == Op::collective && instruction.stream == stream && instruction.collective == kind;
  });
}

int count(const Program& program, const std::function<bool(const Instruction&)>& wanted) {
  int found = 0;
  for (const Instruction& instruction : program.instructions) found += wanted(instruction) ? 1 : 0;
  return found;
}

double flops_of(const Program& program, const std::function<bool(ComputeKind)>& wanted) {
  double flops = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op == Op::compute && wanted(instruction.compute)) flops += instruction.flops;
  }
  return flops;
}

// Parameters of one rank, padding included.
double parameters(const Program& program) {
  double elements = 0;
  for (const Bucket& bucket : program.buckets) elements += static_cast<double>(bucket.elements);
  return elements;
}

// What must be equal on ranks of one class: everything but who the peers are.
bool equal_up_to_peers(const Program& a, const Program& b) {
  if (a.instructions.size() != b.instructions.size() || a.groups.size() != b.groups.size() ||
      a.buckets.size() != b.buckets.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.groups.size(); ++i) {
    if (a.groups[i].kind != b.groups[i].kind || a.groups[i].ranks.size() != b.groups[i].ranks.size())
      return false;
  }
  for (std::size_t i = 0; i < a.instructions.size(); ++i) {
    const Instruction& x = a.instructions[i];
    const Instruction& y = b.instructions[i];
    if (x.op != y.op || x.stream != y.stream || x.after != y.after || x.compute != y.compute ||
        x.op_begin != y.op_begin || x.op_end != y.op_end || x.micro_batch != y.micro_batch ||
        x.block != y.block || x.flops != y.flops || x.bytes != y.bytes || x.collective != y.collective ||
        x.group != y.group || x.dtype != y.dtype || x.sequence != y.sequence ||
        x.transfers.size() != y.transfers.size() || x.reads != y.reads || x.writes != y.writes) {
      return false;
    }
    for (std::size_t t = 0; t < x.transfers.size(); ++t) {
      if (x.transfers[t].tag != y.transfers[t].tag || x.transfers[t].bytes != y.transfers[t].bytes ||
          x.transfers[t].send != y.transfers[t].send) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("data parallelism reduces each parameter once, whatever the micro-batches") {
  for (const std::int64_t micro_batches : {1, 4}) {
    Choices choices;
    choices.dp = 3;
    choices.bucket_bytes = 4000;
    const Plan plan = small_plan(choices, micro_batches);
    verify(plan);
    const Program program = lower(plan, 1);
    // An all-reduce's buffer is the gradients in fp32: a ring sends 2 (n - 1) / n of it.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_reduce) == 4 * parameters(program));
  }
}

TEST_CASE("buckets stand in reverse, hold what fits and are reduced as the backward pass completes them") {
  Choices choices;
  choices.dp = 2;
  choices.bucket_bytes = 13000;
  const Program program = lower(small_plan(choices, 1), 0);
  REQUIRE(program.buckets.size() > 2);
  int last_op = 1 << 30;
  for (const Bucket& bucket : program.buckets) {
    CHECK(bucket.elements % 2 == 0);
    CHECK((bucket.parameters.size() == 1 || static_cast<double>(bucket.elements) * 4 <= 13000 + 4));
    for (const BucketParameter& parameter : bucket.parameters) {
      CHECK(parameter.op <= last_op);
      last_op = parameter.op;
    }
  }
  // The first reduction is issued before the last backward: it overlaps.
  std::size_t first_reduction = 0;
  std::size_t last_backward = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::collective && first_reduction == 0) first_reduction = i;
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::backward) last_backward = i;
  }
  CHECK(first_reduction < last_backward);
  choices.overlap_grad_reduce = false;
  const Program after = lower(small_plan(choices, 1), 0);
  bool reduced = false;
  for (const Instruction& instruction : after.instructions) {
    reduced = reduced || instruction.op == Op::collective;
    if (reduced) CHECK_FALSE((instruction.op == Op::compute && instruction.compute == ComputeKind::backward));
  }
}

TEST_CASE("sharding sends parameters and gradients as often as the ZeRO paper says") {
  // arXiv 1910.02054, section 7: stages 1 and 2 send what all-reduce does (2 P), stage 3 half as much again.
  SmallModel model;
  model.tied = false;
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 4;
    choices.zero = zero;
    const Plan plan = small_plan(choices, 1, model);
    verify(plan);
    const Program program = lower(plan, 2);
    const double p = 4 * parameters(program);
    CAPTURE(zero);
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::reduce_scatter) == p);
    double expected = p;
    if (zero == 3) {
      // Gathered going forward and back, but for the head's unit, which stays, and the embedding's, whose
      // backward reads no parameter.
      expected = 2 * p - 4 * static_cast<double>(program.buckets.front().elements) -
                 4 * static_cast<double>(program.buckets.back().elements);
    }
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_gather) == expected);
  }
}

TEST_CASE("ZeRO-2 and 3 scatter gradients in every micro-batch, ZeRO-1 once") {
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 2;
    choices.zero = zero;
    const Program program = lower(small_plan(choices, 3), 0);
    const int scatters = count(program, [](const Instruction& instruction) {
      return instruction.op == Op::collective && instruction.collective == CollectiveKind::reduce_scatter;
    });
    CHECK(scatters == static_cast<int>(program.buckets.size()) * (zero == 1 ? 1 : 3));
  }
}

TEST_CASE("ZeRO-3 holds the parameters of two layers at once") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 3;
  SmallModel model;
  model.tied = false;
  const Program program = lower(small_plan(choices, 2, model), 0);
  // Each gather but the first two waits for the computation of the layer before the one that computes
  // meanwhile.
  int gathers = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op != Op::collective || instruction.collective != CollectiveKind::all_gather) continue;
    if (++gathers > 2) CHECK(instruction.after.size() == 1);
  }
  CHECK(gathers > 10);
}

TEST_CASE("hybrid sharding gathers inside the shard group and sums across") {
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 4;
    choices.zero = zero;
    choices.shard_group = 2;
    SmallModel model;
    model.tied = false;
    const Plan plan = small_plan(choices, 2, model);
    verify(plan);
    const Program program = lower(plan, 3);
    const double p = 4 * parameters(program);
    // Each rank sums its half over the two copies, once a step.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_reduce) == p / 2);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::collective) continue;
      const Group& group = program.groups[static_cast<std::size_t>(instruction.group)];
      CHECK(group.kind ==
            (instruction.collective == CollectiveKind::all_reduce ? GroupKind::replicate : GroupKind::shard));
    }
  }
}

TEST_CASE("a runtime that overlaps parameter gathering opens the step with it") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 1;
  choices.bucket_bytes = 5000;
  auto job = test::small_job({}, 4);
  job->runtime.overlap_param_gather = true;
  const Plan plan{job, choices};
  verify(plan);
  const Program program = lower(plan, 0);
  CHECK(program.instructions.front().collective == CollectiveKind::all_gather);
  CHECK(program.instructions.back().compute == ComputeKind::optimizer);
  CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_gather) == 4 * parameters(program));
}

TEST_CASE("tensor parallelism sums activations four times a layer") {
  // arXiv 1909.08053, section 3: two all-reduces forward, two backward.
  Choices choices;
  choices.tp = 2;
  SmallModel model;
  const Plan plan = small_plan(choices, 3, model);
  verify(plan);
  const Program program = lower(plan, 0);
  const double activation = 8.0 * model.hidden * 4;  // rows x hidden x fp32
  const double loss = 8.0 * (1 + 2) * 4;
  // And after the embedding, and on the gradient that the head gives the final norm.
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::all_reduce) ==
        3 * (activation * (4 * model.layers + 2) + loss));
}

TEST_CASE(
    "sequence parallelism replaces each all-reduce by a gather and a scatter, and gathers again going back") {
  // arXiv 2205.05198, section 4.2.2: the same bytes as tensor parallelism; and one more gather for each
  // column-split product, whose input is kept as a shard.
  Choices choices;
  choices.tp = 2;
  choices.sequence_parallel = true;
  SmallModel model;
  const Plan plan = small_plan(choices, 1, model);
  verify(plan);
  const Program program = lower(plan, 0);
  const double activation = 8.0 * model.hidden * 4;
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::reduce_scatter) ==
        activation * (4 * model.layers + 2));
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::all_gather) ==
        activation * (4 * model.layers + 2 + 2 * model.layers + 1));
  // What the norms and row-split biases add up at the end: 2 norms and 2 biases a layer and the final norm.
  const double replicated = (model.layers * (2 * 2 + 2) + 2) * model.hidden * 4.0;
  CHECK(sum(program, [](const Instruction& instruction) {
          return !instruction.writes.empty() && instruction.writes[0].kind == TensorKind::replicated_gradient;
        }) == replicated);
}

TEST_CASE("a pipeline sends each boundary's activation and gradient once a micro-batch") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    Choices choices;
    choices.pp = 4;
    choices.schedule = schedule;
    SmallModel model;
    const Plan plan = small_plan(choices, 5, model);
    verify(plan);
    const double activation = 8.0 * model.hidden * 4;
    for (int stage = 0; stage < 4; ++stage) {
      const Program program = lower(plan, stage);
      const double sent = sum(program, [](const Instruction& instruction) {
        return instruction.op == Op::exchange && instruction.transfers[0].send;
      });
      CHECK(sent == 5 * activation * ((stage < 3 ? 1 : 0) + (stage > 0 ? 1 : 0)));
    }
  }
}

TEST_CASE("interleaving sends as many times more as there are chunks") {
  Choices choices;
  choices.pp = 2;
  choices.schedule = Schedule::interleaved;
  choices.interleave = 2;
  SmallModel model;
  const Plan plan = small_plan(choices, 4, model);
  verify(plan);
  const double activation = 8.0 * model.hidden * 4;
  for (int stage = 0; stage < 2; ++stage) {
    const double sent = sum(lower(plan, stage), [](const Instruction& instruction) {
      return instruction.op == Op::exchange && instruction.transfers[0].send;
    });
    // Four parts, three boundaries, each crossed both ways: stage 0 sends two forward and one back.
    CHECK(sent == 4 * activation * 3);
  }
}

TEST_CASE("the tied embedding is summed over the first and the last stage, once") {
  Choices choices;
  choices.pp = 3;
  choices.dp = 2;
  const Plan plan = small_plan(choices, 2);
  verify(plan);
  for (const int stage : {0, 1, 2}) {
    const Program program = lower(plan, rank_of(plan, {0, 0, 0, 1, stage}));
    const int sums = count(program, [](const Instruction& instruction) {
      return !instruction.writes.empty() && instruction.writes[0].kind == TensorKind::tied_gradient;
    });
    CHECK(sums == (stage == 1 ? 0 : 1));
  }
  // On one stage it is one tensor.
  Choices alone;
  const Program program = lower(small_plan(alone, 2), 0);
  double elements = 0;
  const Workload workload = test::small_workload({});
  for (const Operator& op : workload.operators) {
    for (const ParameterTensor& tensor : op.parameters) {
      if (tensor.tied_to.empty()) elements += static_cast<double>(tensor.elements());
    }
  }
  CHECK(parameters(program) == elements);
}

TEST_CASE("recomputation runs what was forgotten once more") {
  const auto recomputed = [](Recompute recompute, int layers) {
    Choices choices;
    choices.recompute = recompute;
    choices.recompute_layers = layers;
    const Plan plan = small_plan(choices, 2);
    verify(plan);
    return lower(plan, 0);
  };
  const auto forward = [](ComputeKind kind) { return kind == ComputeKind::forward; };
  const auto again = [](ComputeKind kind) { return kind == ComputeKind::recompute; };
  const Program none = recomputed(Recompute::none, 0);
  CHECK(flops_of(none, again) == 0);
  const Program full = recomputed(Recompute::full, 0);
  double layers = 0;
  for (const Instruction& instruction : full.instructions) {
    const bool layer = instruction.op_begin > 0 && instruction.op_end <= 41;
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::forward && layer) {
      layers += instruction.flops;
    }
  }
  CHECK(flops_of(full, again) == Approx(layers));
  CHECK(flops_of(full, again) < flops_of(full, forward));
  CHECK(flops_of(recomputed(Recompute::full, 1), again) == Approx(layers / 4));
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) > 0);
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) < layers / 4);
}

TEST_CASE("the same work is done however it is split") {
  const auto total = [](const Plan& plan) {
    double flops = 0;
    for (const Program& program : lower_all(plan))
      flops += flops_of(program, [](ComputeKind) { return true; });
    return flops;
  };
  SmallModel model;
  model.vocab = 64;
  const double serial = total(small_plan({}, 8, model));
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    Choices choices;
    choices.tp = 2;
    choices.pp = 2;
    choices.dp = 2;
    choices.schedule = schedule;
    CHECK(total(small_plan(choices, 4, model)) == Approx(serial).epsilon(1e-9));
  }
  Choices context;
  context.cp = 4;
  CHECK(total(small_plan(context, 8, model)) == Approx(serial).epsilon(1e-9));
}

TEST_CASE("expert parallelism sends every token's copies there and back, forward and backward") {
  SmallModel model;
  model.experts = 4;
  for (const int ep : {2, 4}) {
    Choices choices;
    choices.dp = 4;
    choices.ep = ep;
    const Plan plan = small_plan(choices, 2, model);
    verify(plan);
    const Program program = lower(plan, 1);
    const double copies = 8.0 * 2 * model.hidden * 4;  // rows x experts per token x hidden x fp32
    CHECK(collective_bytes(program, Stream::expert, CollectiveKind::all_to_all) ==
          2 * model.layers * 4 * copies);
    // Experts are reduced over the ranks that hold the same, everything else over all.
    for (const Bucket& bucket : program.buckets) {
      const ParameterTensor& tensor =
          plan.job->workload.operators[static_cast<std::size_t>(bucket.parameters[0].op)]
              .parameters[static_cast<std::size_t>(bucket.parameters[0].parameter)];
      if (bucket.group < 0) {
        CHECK((tensor.expert && ep == 4));
        continue;
      }
      CHECK(program.groups[static_cast<std::size_t>(bucket.group)].ranks.size() ==
            static_cast<std::size_t>(tensor.expert ? 4 / ep : 4));
    }
  }
}

TEST_CASE("expert parallelism composes with the others") {
  SmallModel model;
  model.experts = 4;
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      Choices choices;
      choices.dp = 4;
      choices.ep = 2;
      choices.tp = 2;
      choices.pp = 2;
      choices.zero = zero;
      choices.sequence_parallel = sequence_parallel;
      choices.recompute = zero == 2 ? Recompute::full : Recompute::none;
      CAPTURE(zero, sequence_parallel);
      verify(small_plan(choices, 2, model));
    }
  }
}

TEST_CASE("ranks that share experts gather their tokens and scatter the sums, or reduce what all have") {
  SmallModel model;
  model.experts = 4;
  for (const bool sequence_parallel : {false, true}) {
    for (const int etp : {1, 2, 4}) {
      Choices choices;
      choices.tp = 4;
      choices.dp = 2;
      choices.ep = 2;
      choices.etp = etp;
      choices.sequence_parallel = sequence_parallel;
      CAPTURE(sequence_parallel, etp);
      const Plan plan = small_plan(choices, 2, model);
      verify(plan);
      const Program program = lower(plan, 5);
      // Rows x experts per token x hidden x fp32 of one rank's tokens, by layers, both passes and
      // micro-batches.
      const double own = 8.0 / (sequence_parallel ? 4 : 1) * 2 * model.hidden * 4 * model.layers * 2 * 2;
      const auto sent = [&](CollectiveKind kind) { return collective_bytes(program, Stream::expert, kind); };
      CHECK(sent(CollectiveKind::all_to_all) == 2 * own);
      CHECK(sent(CollectiveKind::all_gather) == (sequence_parallel && etp > 1 ? etp * own : 0));
      CHECK(sent(CollectiveKind::reduce_scatter) == (sequence_parallel && etp > 1 ? etp * own : 0));
      CHECK(sent(CollectiveKind::all_reduce) == (!sequence_parallel && etp > 1 ? own : 0));
      // An expert's matrices are split; those that hold the same part are reduced together.
      for (const Bucket& bucket : program.buckets) {
        for (const BucketParameter& part : bucket.parameters) {
          const ParameterTensor& tensor = plan.job->workload.operators[static_cast<std::size_t>(part.op)]
                                              .parameters[static_cast<std::size_t>(part.parameter)];
          if (!tensor.expert) continue;
          CHECK(part.elements == tensor.elements() / (choices.ep * etp));
          const std::size_t members =
              bucket.group < 0 ? 1 : program.groups[static_cast<std::size_t>(bucket.group)].ranks.size();
          CHECK(members == static_cast<std::size_t>(sequence_parallel ? 4 / etp : 1));
        }
      }
    }
  }
}

TEST_CASE("experts that tensor ranks share are computed once in all, and compose with the others") {
  SmallModel model;
  model.experts = 4;
  const auto of_all = [&](const Choices& choices) {
    double flops = 0;
    for (const Program& program : lower_all(small_plan(choices, 8 / choices.dp, model)))
      flops += flops_of(program, [](ComputeKind kind) { return kind != ComputeKind::optimizer; });
    return flops;
  };
  const double serial = of_all({});
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const int ep : {1, 2}) {
        Choices choices;
        choices.dp = 2;
        choices.ep = ep;
        choices.tp = choices.etp = 2;
        choices.pp = 2;
        choices.zero = zero;
        choices.sequence_parallel = sequence_parallel;
        choices.schedule = zero == 1 ? Schedule::zero_bubble : Schedule::one_f_one_b;
        CAPTURE(zero, sequence_parallel, ep);
        verify(small_plan(choices, 4, model));
        if (sequence_parallel) CHECK(of_all(choices) == Approx(serial).epsilon(1e-9));
        choices.recompute = Recompute::full;
        choices.cp = 2;
        verify(small_plan(choices, 4, model));
      }
    }
  }
}

TEST_CASE("ring attention passes keys and values round, and their gradients home") {
  for (const int cp : {2, 4}) {
    Choices choices;
    choices.cp = cp;
    SmallModel model;
    const Plan plan = small_plan(choices, 3, model);
    verify(plan);
    const Program program = lower(plan, cp - 1);
    const double block = 8.0 / cp * 2 * model.hidden * 4;  // rows x (keys and values) x fp32
    const double sent = sum(program, [](const Instruction& instruction) {
      return instruction.op == Op::exchange && instruction.stream == Stream::context;
    });
    CHECK(sent == 3 * model.layers * block * (2 * (cp - 1) + cp));
    // Gradients are summed over the context group too.
    CHECK(program.groups[static_cast<std::size_t>(program.buckets[0].group)].ranks.size() ==
          static_cast<std::size_t>(cp));
  }
}

TEST_CASE("ring attention composes with the others") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool sequence_parallel : {false, true}) {
      Choices choices;
      choices.cp = 2;
      choices.tp = 2;
      choices.pp = 2;
      choices.dp = 2;
      choices.zero = 1;
      choices.recompute = recompute;
      choices.sequence_parallel = sequence_parallel;
      choices.schedule = recompute == Recompute::none ? Schedule::zero_bubble : Schedule::one_f_one_b;
      CAPTURE(static_cast<int>(recompute), sequence_parallel);
      verify(small_plan(choices, 3));
    }
  }
}

TEST_CASE("zero-bubble splits the backward pass and reduces after the weights' part") {
  Choices choices;
  choices.pp = 3;
  choices.dp = 2;
  choices.tp = 2;
  choices.schedule = Schedule::zero_bubble;
  for (const int zero : {0, 2, 3}) {
    choices.zero = zero;
    choices.sequence_parallel = zero == 2;
    choices.recompute = zero == 3 ? Recompute::full : Recompute::none;
    const Plan plan = small_plan(choices, 5);
    verify(plan);
    const Program program = lower(plan, 0);
    const auto of = [&](ComputeKind kind) {
      return count(program, [kind](const Instruction& instruction) {
        return instruction.op == Op::compute && instruction.compute == kind;
      });
    };
    CHECK(of(ComputeKind::backward) == 0);
    CHECK(of(ComputeKind::backward_input) > 0);
    CHECK(of(ComputeKind::backward_weight) == 5 * 3);  // embedding and two layers
  }
}

TEST_CASE("uneven replicas run as many micro-batches as they have samples") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 1;
  choices.replica_batches = {1, 5};
  const Plan plan{test::small_job({}, 6), choices};
  verify(plan);
  const auto loads = [](const Program& program) {
    return count(program, [](const Instruction& instruction) { return instruction.op == Op::load; });
  };
  CHECK(loads(lower(plan, 0)) == 1);
  CHECK(loads(lower(plan, 1)) == 5);
}

TEST_CASE("ranks that differ only in data, tensor and context coordinates do the same") {
  Choices choices;
  choices.tp = 2;
  choices.cp = 2;
  choices.dp = 2;
  choices.pp = 2;
  choices.sequence_parallel = true;
  const Plan plan = small_plan(choices, 3);
  const auto programs = lower_all(plan);
  for (const Program& program : programs) {
    const int stage_first = rank_of(plan, {0, 0, 0, 0, program.at.pp});
    CHECK(equal_up_to_peers(program, programs[static_cast<std::size_t>(stage_first)]));
  }
}

TEST_CASE("compressed gradients travel as small as they were packed") {
  SmallModel model;
  for (const Compression compression : {Compression::fp16, Compression::int8, Compression::topk}) {
    for (const bool overlap : {false, true}) {
      Choices choices;
      choices.dp = 3;
      choices.pp = 2;
      choices.grad_compression = compression;
      choices.topk_ratio = 0.1;
      choices.bucket_bytes = 20000;
      choices.overlap_grad_reduce = overlap;
      const Plan plan = small_plan(choices, 2, model);
      verify(plan);
      const Program program = lower(plan, 0);
      double payload = 0;
      for (const Bucket& bucket : program.buckets) {
        const auto n = static_cast<double>(bucket.elements);
        payload += compression == Compression::fp16   ? 2 * n
                   : compression == Compression::int8 ? n + 4 * std::ceil(n / 1024)
                                                      : 8 * std::ceil(n * 0.1);
      }
      const double travels = sum(program, [](const Instruction& instruction) {
        return instruction.op == Op::collective && instruction.writes[0].kind == TensorKind::compressed;
      });
      // A gather's size is the whole over its members.
      CHECK(travels == payload * (compression == Compression::fp16 ? 1 : 3));
      const auto of = [&](Op op) {
        return count(program, [op](const Instruction& i) { return i.op == op; });
      };
      CHECK(of(Op::pack) == static_cast<int>(program.buckets.size()));
      CHECK(of(Op::unpack) == of(Op::pack));
    }
  }
  Choices sharded;
  sharded.dp = 2;
  sharded.zero = 1;
  sharded.grad_compression = Compression::fp16;
  verify(small_plan(sharded, 2));
}

TEST_CASE("parameter servers take a slice of every bucket from every worker and give parameters back") {
  for (const int servers : {1, 2, 3, 4}) {
    for (const bool clip : {false, true}) {
      Choices choices;
      choices.dp = 4;
      choices.sync = Sync::parameter_server;
      choices.servers = servers;
      choices.bucket_bytes = 6000;
      auto job = test::small_job({}, 8);
      job->runtime.clip_gradients = clip;
      const Plan plan{job, choices};
      verify(plan);
      double sent = 0;
      int updates = 0;
      double updated_bytes = 0;
      const auto programs = lower_all(plan);
      for (const Program& program : programs) {
        for (const Instruction& instruction : program.instructions) {
          std::vector<int> peers;
          for (const Transfer& transfer : instruction.transfers) {
            sent += transfer.send ? transfer.bytes : 0;
            if (transfer.send && transfer.tensor.kind == TensorKind::gradients)
              peers.push_back(transfer.peer);
          }
          // Not all of them into the same port first.
          if (!peers.empty() && program.rank >= servers) CHECK(peers.front() == program.rank % servers);
          if (instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer) {
            updates += instruction.op_end - instruction.op_begin;
            updated_bytes += instruction.bytes;
          }
        }
      }
      CHECK(sent == 3 * 2 * 4 * parameters(programs[0]));  // three workers' there and back
      CHECK(updates == servers * static_cast<int>(programs[0].buckets.size()));  // each bucket in slices
      CHECK(updated_bytes == Approx(parameters(programs[0]) *
                                    optimizer_traffic_per_parameter(job->training.optimizer,
                                                                    job->training.precision, job->runtime)));
    }
  }
}

TEST_CASE("slices of parameter servers cover a bucket once, none longer by more than an element") {
  for (const std::int64_t elements : {0, 1, 5, 12, 1003})
    for (int servers = 1; servers <= 7; ++servers) {
      std::int64_t at = 0;
      for (int s = 0; s < servers; ++s) {
        const ServerSlice slice = server_slice(elements, servers, s);
        CHECK(slice.begin == at);
        CHECK(slice.elements >= elements / servers);
        CHECK(slice.elements <= elements / servers + 1);
        at += slice.elements;
      }
      CHECK(at == elements);
    }
}

TEST_CASE("one process scatters inputs, replicates parameters and gathers gradients on device 0") {
  Choices choices;
  choices.dp = 4;
  choices.sync = Sync::single_process;
  choices.bucket_bytes = 6000;
  const Plan plan = small_plan(choices, 2);
  verify(plan);
  for (const int rank : {0, 3}) {
    const Program program = lower(plan, rank);
    // In every micro-batch, as torch.nn.DataParallel does at every call.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::broadcast) == 2 * 4 * parameters(program));
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::reduce) == 2 * 4 * parameters(program));
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::scatter) == 2 * 4 * 8 * 2 * 4);
    CHECK(flops_of(program, [](ComputeKind kind) { return kind == ComputeKind::optimizer; }) == 0);
    const int updates = count(program, [](const Instruction& instruction) {
      return instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
    });
    CHECK(updates == (rank == 0 ? 1 : 0));
  }
}

TEST_CASE("a runtime without pipeline overlap computes nothing while messages travel") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    Choices choices;
    choices.pp = 4;
    choices.schedule = schedule;
    auto job = test::small_job({}, 6);
    job->runtime.overlap_pipeline = false;
    const Plan plan{job, choices};
    verify(plan);
    const Program program = lower(plan, 1);
    std::int64_t waiting = -1;
    int together = 0;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op == Op::exchange) {
        waiting = static_cast<std::int64_t>(i);
        together += instruction.transfers.size() == 2 ? 1 : 0;
      } else if (waiting >= 0 && instruction.stream == Stream::compute &&
                 instruction.compute != ComputeKind::optimizer) {
        CHECK(std::count(instruction.after.begin(), instruction.after.end(),
                         static_cast<std::uint32_t>(waiting)) == 1);
        waiting = -1;
      }
    }
    CHECK(together > 6);
  }
}

TEST_CASE("a runtime that overlaps tensor communication reduces beside the weight's gradient") {
  for (const bool sequence_parallel : {false, true}) {
    Choices choices;
    choices.tp = 2;
    choices.sequence_parallel = sequence_parallel;
    auto job = test::small_job({}, 2);
    job->runtime.overlap_tensor = true;
    const Plan plan{job, choices};
    verify(plan);
    const Program program = lower(plan, 0);
    int beside = 0;
    for (std::size_t i = 0; i + 1 < program.instructions.size(); ++i) {
      const Instruction& next = program.instructions[i + 1];
      if (program.instructions[i].stream == Stream::tensor && next.op == Op::compute &&
          next.compute == ComputeKind::backward_weight) {
        CHECK(std::count(next.after.begin(), next.after.end(), static_cast<std::uint32_t>(i)) == 0);
        ++beside;
      }
    }
    CHECK(beside == 2 * 2 * 4);  // two products a layer in each micro-batch
    job->runtime.overlap_tensor = false;
    const Program plain = lower(plan, 0);
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
      CHECK(collective_bytes(plain, Stream::tensor, kind) == collective_bytes(program, Stream::tensor, kind));
    }
    const auto all = [](ComputeKind) { return true; };
    CHECK(flops_of(plain, all) == Approx(flops_of(program, all)));
  }
}

TEST_CASE(
    "a runtime that overlaps tensor communication says beside which product each sequence collective "
    "travels") {
  Choices choices;
  choices.tp = 2;
  choices.sequence_parallel = true;
  auto job = test::small_job({}, 2);
  const auto marked = [&](bool overlap, bool sequence_parallel) {
    job->runtime.overlap_tensor = overlap;
    choices.sequence_parallel = sequence_parallel;
    const Plan plan{job, choices};
    verify(plan);
    int forward = 0, backward = 0;
    const Program program = lower(plan, 0);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::collective || instruction.op_end == instruction.op_begin) continue;
      const Operator& product = job->workload.operators[static_cast<std::size_t>(instruction.op_begin)];
      CHECK(instruction.op_end == instruction.op_begin + 1);
      CHECK(product.kind == OperatorKind::linear);
      // Gathered before a product that is split by columns, scattered behind one that is by rows.
      if (instruction.compute == ComputeKind::forward) {
        CHECK((instruction.collective == CollectiveKind::all_gather) ==
              (product.split == TensorSplit::column));
        ++forward;
      } else {
        CHECK(instruction.compute == ComputeKind::backward_input);
        CHECK(instruction.collective == CollectiveKind::all_gather);
        CHECK(product.split == TensorSplit::row);
        ++backward;
      }
    }
    return std::pair(forward, backward);
  };
  // Four products a layer going forward, two going back (the others' travel beside weights' gradients), of
  // eight layers' passes.
  CHECK(marked(true, true) == std::pair(4 * 2 * 4, 2 * 2 * 4));
  CHECK(marked(true, false) == std::pair(0, 0));
  CHECK(marked(false, true) == std::pair(0, 0));
}

TEST_CASE("samples on the nodes' storage are read for the next step, once, by those who load them") {
  Choices choices;
  choices.tp = 2;
  choices.dp = 2;
  choices.pp = 2;
  choices.micro_batch = 2;
  Plan plan = small_plan(choices, 8);
  auto job = std::make_shared<Job>(*plan.job);
  for (NodeGroup& group : job->cluster.groups) group.node.storage_read_bytes_per_s = 1e9;
  job->training.sample_bytes = 1000;
  plan.job = job;
  verify(plan);
  double read = 0;
  for (const Program& program : lower_all(plan)) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::load || instruction.bytes == 0) continue;
      CHECK(program.at.pp == 0);
      CHECK(instruction.writes.front().kind == TensorKind::next_batch);
      read += instruction.bytes;
    }
  }
  CHECK(read == 1000 * static_cast<double>(job->training.global_batch));
}
