// Plans as files.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "program/plan.h"
#include "proto/field_check.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"

namespace orrery {
namespace {

constexpr std::int64_t kMostSamplesEach = std::int64_t{1} << 40;

void read_choices(const proto::Choices& message, Choices& choices) {
  const auto at_least = [](int value, int least) { return value == 0 ? least : value; };
  choices.tp = at_least(message.tp(), 1);
  choices.pp = at_least(message.pp(), 1);
  choices.dp = at_least(message.dp(), 1);
  choices.cp = at_least(message.cp(), 1);
  choices.ep = at_least(message.ep(), 1);
  choices.etp = at_least(message.etp(), 1);
  choices.micro_batch = at_least(message.micro_batch(), 1);
  if (!message.schedule().empty()) choices.schedule = schedule_from_name(message.schedule());
  choices.interleave = at_least(message.interleave(), 1);
  choices.zero = message.zero();
  if (!message.recompute().empty()) choices.recompute = recompute_from_name(message.recompute());
  choices.recompute_layers = message.recompute_layers();
  for (const std::string& name : message.recompute_modules())
    choices.recompute_modules |= modules_from_names(name);
  choices.shard_group = message.shard_group();
  choices.stage_layers.assign(message.stage_layers().begin(), message.stage_layers().end());
  if (message.order_size() != 0) {
    if (message.order_size() != static_cast<int>(choices.order.size())) {
      throw UserError(fmt::format("{} dimensions in order", message.order_size()),
                      "expected each of tp, cp, ep, dp, pp once, innermost first");
    }
    for (int i = 0; i < message.order_size(); ++i) {
      choices.order[static_cast<std::size_t>(i)] = dimension_from_name(message.order(i));
    }
  }
  choices.sequence_parallel = message.sequence_parallel();
  choices.overlap_experts = message.overlap_experts();
  choices.overlap_grad_reduce = message.overlap_grad_reduce();
  choices.bucket_bytes = message.bucket_bytes();
  if (!message.grad_compression().empty()) {
    choices.grad_compression = compression_from_name(message.grad_compression());
  }
  choices.topk_ratio = message.topk_ratio();
  if (!message.sync().empty()) choices.sync = sync_from_name(message.sync());
  choices.servers = message.servers();
  choices.staleness = message.staleness();
  choices.capacity_factor = message.capacity_factor();
  choices.replica_batches.assign(message.replica_batches().begin(), message.replica_batches().end());
  choices.degrees.insert(message.degrees().begin(), message.degrees().end());
}

void read_training(const proto::Training& message, Training& training) {
  training.global_batch = message.global_batch();
  training.seq_len = message.seq_len();
  if (!message.precision().empty()) training.precision = dtype_from_name(message.precision());
  if (!message.optimizer().empty()) training.optimizer = optimizer_from_name(message.optimizer());
  if (message.attention() == "fused" || message.attention().empty()) {
    training.fused_attention = true;
  } else if (message.attention() == "unfused") {
    training.fused_attention = false;
  } else {
    throw UserError(fmt::format("unknown attention '{}'", message.attention()), "expected fused or unfused");
  }
  training.learning_rate = message.learning_rate();
  training.seed = message.seed();
  training.sample_bytes = message.sample_bytes();
  training.lengths.tokens.assign(message.lengths().tokens().begin(), message.lengths().tokens().end());
  training.lengths.packed = message.lengths().packed();
  training.lengths.balanced = message.lengths().balanced();
  training.lengths.samples_each =
      std::clamp<std::int64_t>(message.lengths().samples_each(), 0, kMostSamplesEach);
}

}  // namespace

Plan plan_from_proto(const proto::Plan& message, std::string_view file, std::string_view text) {
  const FieldCheck at(file, text, *proto::Plan::descriptor());
  if (!message.has_workload()) {
    throw UserError(file, 0, "no workload", "expected a plan, as `orrery plan` writes");
  }
  if (!message.has_cluster()) {
    throw UserError(file, 0, "no cluster", "expected a plan, as `orrery plan` writes");
  }
  auto job = std::make_shared<Job>();
  job->workload = workload_from_proto(message.workload(), at.inside("workload"));
  job->cluster = cluster_from_proto(message.cluster(), at.inside("cluster"));
  job->runtime = runtime_profile_from_proto(message.runtime(), at.inside("runtime"));
  Plan plan;
  try {
    read_training(message.training(), job->training);
  } catch (const UserError& error) {
    throw UserError(file, at.line("training"), error.what(), {});
  }
  plan.job = std::move(job);
  try {
    read_choices(message.choices(), plan.choices);
    check_plan(plan);
  } catch (const UserError& error) {
    throw UserError(file, at.line("choices"), error.what(), {});
  }
  return plan;
}

void to_proto(const Plan& plan, proto::Plan* message) {
  const Job& job = *plan.job;
  const Choices& choices = plan.choices;
  message->Clear();
  message->set_orrery_version(ORRERY_VERSION);
  to_proto(job.workload, message->mutable_workload());
  to_proto(job.cluster, message->mutable_cluster());
  to_proto(job.runtime, message->mutable_runtime());

  auto* training = message->mutable_training();
  training->set_global_batch(job.training.global_batch);
  training->set_seq_len(job.training.seq_len);
  training->set_precision(std::string(name_of(job.training.precision)));
  training->set_optimizer(std::string(name_of(job.training.optimizer)));
  training->set_attention(job.training.fused_attention ? "fused" : "unfused");
  training->set_learning_rate(job.training.learning_rate);
  training->set_seed(job.training.seed);
  training->set_sample_bytes(job.training.sample_bytes);
  if (const SequenceLengths& lengths = job.training.lengths; lengths.any()) {
    training->mutable_lengths()->mutable_tokens()->Assign(lengths.tokens.begin(), lengths.tokens.end());
    training->mutable_lengths()->set_packed(lengths.packed);
    training->mutable_lengths()->set_balanced(lengths.balanced);
    training->mutable_lengths()->set_samples_each(lengths.samples_each);
  }

  auto* out = message->mutable_choices();
  out->set_tp(choices.tp);
  out->set_pp(choices.pp);
  out->set_dp(choices.dp);
  out->set_cp(choices.cp);
  out->set_ep(choices.ep);
  out->set_etp(choices.etp);
  out->set_micro_batch(choices.micro_batch);
  out->set_schedule(std::string(name_of(choices.schedule)));
  out->set_interleave(choices.interleave);
  out->set_zero(choices.zero);
  out->set_recompute(std::string(name_of(choices.recompute)));
  out->set_recompute_layers(choices.recompute_layers);
  for (const std::string& name : names_of(choices.recompute_modules)) out->add_recompute_modules(name);
  out->set_shard_group(choices.shard_group);
  for (const int layers : choices.stage_layers) out->add_stage_layers(layers);
  for (const Dimension dimension : choices.order) out->add_order(std::string(name_of(dimension)));
  out->set_sequence_parallel(choices.sequence_parallel);
  out->set_overlap_experts(choices.overlap_experts);
  out->set_overlap_grad_reduce(choices.overlap_grad_reduce);
  out->set_bucket_bytes(choices.bucket_bytes);
  out->set_grad_compression(std::string(name_of(choices.grad_compression)));
  out->set_topk_ratio(choices.topk_ratio);
  out->set_sync(std::string(name_of(choices.sync)));
  out->set_servers(choices.servers);
  out->set_staleness(choices.staleness);
  out->set_capacity_factor(choices.capacity_factor);
  for (const std::int64_t batch : choices.replica_batches) out->add_replica_batches(batch);
  out->mutable_degrees()->insert(choices.degrees.begin(), choices.degrees.end());
}

Plan load_plan(const std::string& file) {
  const std::string text = read_file(file);
  proto::Plan message;
  parse_textproto(text, file, &message);
  return plan_from_proto(message, file, text);
}

}  // namespace orrery
