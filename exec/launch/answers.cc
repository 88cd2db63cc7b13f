#include "exec/launch/answers.h"

namespace orrery::exec {
namespace {

const Record<StepTimes>& step_times_record() {
  using S = StepTimes;
  static const auto record =
      Record<S>("", "s")
          .value("median", "of the steps but the first", [](const S& s) { return s.median_s; })
          .value("min", "of them", [](const S& s) { return s.least_s; })
          .value("max", "of them", [](const S& s) { return s.most_s; });
  return record;
}

const Record<DigestOfTensor>& digest_record() {
  using D = DigestOfTensor;
  static const auto record =
      Record<D>()
          .value("norm", "of the tensor, in fp64", [](const D& d) { return d.norm; })
          .value("projections", "on seeded directions", [](const D& d) { return d.projections; });
  return record;
}

const Record<PaceOfRun>& pace_record() {
  using P = PaceOfRun;
  static const auto record =
      Record<P>()
          .value("before", "beside the calibration's, before the steps", [](const P& p) { return p.before; })
          .value("after", "and after them", [](const P& p) { return p.after; })
          .value("least", "and at least", [](const P& p) { return p.least; })
          .value("most", "and at most", [](const P& p) { return p.most; })
          .value("step_time_s", "as if the machine had kept its calibrated pace",
                 [](const P& p) { return p.step_time_s; });
  return record;
}

const Record<EvaluationDone>& evaluation_record() {
  using E = EvaluationDone;
  static const auto record = Record<E>()
                                 .value("step", "after which it was done", [](const E& e) { return e.step; })
                                 .value("loss", "on the held-out text", [](const E& e) { return e.loss; })
                                 .value("perplexity", "exp(loss)", [](const E& e) { return e.perplexity; });
  return record;
}

const Record<AsynchronousRun>& stale_record() {
  using A = AsynchronousRun;
  static const auto record =
      Record<A>()
          .value("mean", "updates of others between pull and push", [](const A& a) { return a.mean_stale; })
          .value("max", "and at most", [](const A& a) { return a.most_stale; });
  return record;
}

const Record<AsynchronousRun>& asynchronous_record() {
  using A = AsynchronousRun;
  static const auto record =
      Record<A>()
          .value("batches_of_ranks", "that each trained", [](const A& a) { return a.batches_of_ranks; })
          .object(
              "stale_updates", "how stale weights were", stale_record(),
              [](const A& a) -> const auto& { return a; })
          .value("most_steps_ahead", "of the slowest worker", [](const A& a) { return a.most_steps_ahead; })
          .value("lost_ranks", "that fell silent; the others trained on",
                 [](const A& a) { return a.lost_ranks; });
  return record;
}

const Record<RoutingOfRun>& routing_record() {
  using R = RoutingOfRun;
  static const auto record =
      Record<R>()
          .value("dispatches", "of a layer and micro-batch, that were counted",
                 [](const R& r) { return r.dispatches; })
          .value("fullest_share", "tokens of the fullest rank that shares the experts, by the mean",
                 [](const R& r) { return r.fullest_share; })
          .value("expert_spread",
                 "of an expert's tokens the deviation by the mean, of the most that it can be",
                 [](const R& r) { return r.spread; });
  return record;
}

const Record<MachineAnswer>& errors_record() {
  using M = MachineAnswer;
  static const auto record =
      Record<M>()
          .value("products", "matrix products", [](const M& m) { return m.products_error; })
          .value("attention", "attention", [](const M& m) { return m.attention_error; })
          .value("other", "other operators", [](const M& m) { return m.other_error; });
  return record;
}

const Record<MachineAnswer>& machine_pace_record() {
  using M = MachineAnswer;
  static const auto record =
      Record<M>()
          .value("least", "of its typical one", [](const M& m) { return m.least_pace; })
          .value("most", "of its typical one", [](const M& m) { return m.most_pace; });
  return record;
}

const Record<PairMeasured>& pair_record() {
  using P = PairMeasured;
  static const auto record =
      Record<P>()
          .value("from", "a host", [](const P& p) { return p.from; })
          .value("to", "another", [](const P& p) { return p.to; })
          .value("described_bytes_per_s", "in the cluster's file",
                 [](const P& p) { return p.described_bytes_per_s; })
          .value("one_way_bytes_per_s", "as measured", [](const P& p) { return p.one_way_bytes_per_s; })
          .value("exchange_bytes_per_s", "as measured, both ways at once",
                 [](const P& p) { return p.exchange_bytes_per_s; });
  return record;
}

}  // namespace

const Record<RunAnswer>& run_record() {
  using R = RunAnswer;
  static const auto record =
      Record<R>()
          .value("workload", "what was trained", [](const R& r) { return r.workload; })
          .value("cluster", "what the plan is for", [](const R& r) { return r.cluster; })
          .value("devices", "of the cluster", [](const R& r) { return r.devices; })
          .value("runtime", "of the plan", [](const R& r) { return r.runtime; })
          .value("backend", "mpi, nccl or cuda-mpi", [](const R& r) { return r.backend; })
          .value("library", "of messages, with its version", [](const R& r) { return r.library; })
          .value("device", "that a rank computed on", [](const R& r) { return r.device; })
          .value("ranks", "of the run", [](const R& r) { return r.ranks; })
          .value("steps", "that were trained", [](const R& r) { return r.steps; })
          .value("first_step", "after 0, where the run went on from a checkpoint",
                 [](const R& r) { return r.first_step; })
          .value("skipped_steps", "whose gradients were not finite",
                 [](const R& r) { return r.skipped_steps; })
          .value("data", "what was trained on", [](const R& r) { return r.data; })
          .object(
              "step_time_s", "from the end of one step to the end of the next", step_times_record(),
              [](const R& r) -> const auto& { return r.step_time; })
          .value("samples_per_s", "by the median step", [](const R& r) { return r.samples_per_s; })
          .value("tokens_per_s", "likewise; 0: a model without sequences",
                 [](const R& r) { return r.tokens_per_s; })
          .value("loss", "one a step", [](const R& r) { return r.loss; })
          .value("memory_bytes", "of the fullest rank, allocated and context",
                 [](const R& r) { return r.memory_bytes; })
          .value("allocated_bytes", "of that for tensors", [](const R& r) { return r.allocated_bytes; })
          .value("context_bytes", "of that the process itself", [](const R& r) { return r.context_bytes; })
          .value("resident_bytes", "of the fullest process, as the system counts",
                 [](const R& r) { return r.resident_bytes; })
          .value("critical_rank", "with most compute, the lowest on ties",
                 [](const R& r) { return r.critical_rank; })
          .value("by_kind_s", "busy in a step, of that rank, by kind of instruction",
                 [](const R& r) { return r.by_kind_s; })
          .value("by_kind_of_ranks_s", "the same of each rank",
                 [](const R& r) { return r.by_kind_of_ranks_s; })
          .object(
              "asynchronous", "of asynchronous servers", asynchronous_record(),
              [](const R& r) -> const auto& { return r.asynchronous; })
          .object(
              "routing", "how evenly tokens came to ranks' experts, where they travel", routing_record(),
              [](const R& r) -> const auto& { return r.routing; })
          .map(
              "parameters_digest", "of each tensor of the model, by name", digest_record(),
              [](const R& r) -> const auto& { return r.parameters_digest; })
          .list(
              "evaluations", "on held-out text, where asked for", evaluation_record(),
              [](const R& r) -> const auto& { return r.evaluations; })
          .value("stopped_after", "steps, where the held-out loss no longer fell",
                 [](const R& r) { return r.stopped_after; })
          .object(
              "machine_pace", "how fast the machine was beside the day of its calibration", pace_record(),
              [](const R& r) -> const auto& { return r.machine_pace; });
  return record;
}

const Record<MachineAnswer>& machine_record() {
  using M = MachineAnswer;
  static const auto record =
      Record<M>()
          .value("machine", "its signature", [](const M& m) { return m.machine; })
          .value("file", "where its profile was written", [](const M& m) { return m.file; })
          .value("wall_s", "that it took, by the clock", [](const M& m) { return m.wall_s; })
          .value("observations", "of operators", [](const M& m) { return m.observations; })
          .object(
              "median_error", "on models left out, as fractions", errors_record(),
              [](const M& m) -> const auto& { return m; })
          .value("memory_bandwidth_bytes_per_s", "of a core",
                 [](const M& m) { return m.memory_bandwidth_bytes_per_s; })
          .value("concurrency_scale", "a core's speed while 1, 2, … are busy",
                 [](const M& m) { return m.concurrency_scale; })
          .object(
              "pace", "while models were measured", machine_pace_record(),
              [](const M& m) -> const auto& { return m; })
          .value("reference_s", "of the work by which its pace is told",
                 [](const M& m) { return m.reference_s; })
          .value("message_latency_s", "between two ranks", [](const M& m) { return m.message_latency_s; })
          .value("message_bytes_per_s", "between two ranks",
                 [](const M& m) { return m.message_bytes_per_s; });
  return record;
}

const Record<NetworkAnswer>& network_record() {
  using N = NetworkAnswer;
  static const auto record =
      Record<N>()
          .value("nodes", "of the cluster", [](const N& n) { return n.nodes; })
          .value("network_latency_s", "of a message", [](const N& n) { return n.network_latency_s; })
          .value("network_efficiency", "of the described rate, one way",
                 [](const N& n) { return n.network_efficiency; })
          .value("network_exchange_efficiency", "the same, both ways at once",
                 [](const N& n) { return n.network_exchange_efficiency; })
          .value("network_processor_s_per_byte", "of a core at either end",
                 [](const N& n) { return n.network_processor_s_per_byte; })
          .value("network_flow_spread", "how unevenly messages share a port",
                 [](const N& n) { return n.network_flow_spread; })
          .value("ring_efficiency", "of the described rate, of a ring through all; 0: not measured",
                 [](const N& n) { return n.ring_efficiency; })
          .list(
              "pairs", "of hosts", pair_record(), [](const N& n) -> const auto& { return n.pairs; });
  return record;
}

}  // namespace orrery::exec
