// What makes a plan impossible, option by option. Every message names the option at fault and what would do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "program/forms.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "program/plan.h"
#include "program/schedule.h"
#include "workloads/graph_split.h"

namespace orrery {
namespace {

[[noreturn]] void reject(const std::string& what, const std::string& expected) {
  throw UserError(what, "expected " + expected);
}

void check_at_least(std::string_view option, std::int64_t value, std::int64_t least) {
  if (value < least) reject(fmt::format("{} {}", option, value), fmt::format("at least {}", least));
}

void check_divides(std::string_view option, std::int64_t value, std::int64_t count, std::string_view of_what,
                   std::string_view expected) {
  if (count % value != 0) {
    reject(fmt::format("{} {}: does not divide {} {}", option, value, count, of_what), std::string(expected));
  }
}

void check_batch(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Training& training = plan.job->training;
  check_at_least("`global_batch`", training.global_batch, 1);
  check_at_least("`micro_batch`", choices.micro_batch, 1);
  if (!(training.sample_bytes >= 0) || !std::isfinite(training.sample_bytes)) {
    reject(fmt::format("`sample_bytes` {}", training.sample_bytes), "a size in bytes");
  }
  const auto& groups = plan.job->cluster.groups;
  if (training.sample_bytes > 0 && std::any_of(groups.begin(), groups.end(), [](const NodeGroup& group) {
        return group.node.storage_read_bytes_per_s <= 0;
      })) {
    reject(fmt::format("`sample_bytes` {}: nodes of {} without storage", training.sample_bytes,
                       plan.job->cluster.name),
           "storage_read_bytes_per_s in the cluster file");
  }
  if (choices.replica_batches.empty()) {
    if (!training.divides_over(choices.dp, choices.micro_batch)) {
      reject(fmt::format("`global_batch` {}: does not divide by dp {} x micro-batch {}",
                         training.global_batch, choices.dp, choices.micro_batch),
             fmt::format("a multiple of {}", std::int64_t{choices.dp} * choices.micro_batch));
    }
    return;
  }
  const auto& batches = choices.replica_batches;
  if (static_cast<int>(batches.size()) != choices.dp) {
    reject(fmt::format("{} replica batches", batches.size()),
           fmt::format("one for each of the {} replicas", choices.dp));
  }
  for (const std::int64_t batch : batches) {
    if (batch < choices.micro_batch || batch % choices.micro_batch != 0) {
      reject(fmt::format("a replica batch of {}", batch),
             fmt::format("a positive multiple of the micro-batch {}", choices.micro_batch));
    }
  }
  const auto total = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  if (total != training.global_batch) {
    reject(fmt::format("replica batches add up to {}", total),
           fmt::format("the global batch {}", training.global_batch));
  }
  const bool even =
      std::all_of(batches.begin(), batches.end(), [&](auto batch) { return batch == batches[0]; });
  if (!even && choices.zero >= 2) {
    reject(fmt::format("`zero` {} with uneven replica batches", choices.zero),
           "`zero` 0 or 1: ZeRO 2 and 3 communicate in every micro-batch, so replicas need equally many");
  }
  if (!even && choices.ep > 1) {
    reject(fmt::format("`ep` {} with uneven replica batches", choices.ep),
           "`ep` 1: experts are exchanged in every micro-batch, so replicas need equally many");
  }
}

// Of a model that is no transformer: its tensor ranks share samples, and the weights of what is split.
void check_split(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Workload& workload = plan.job->workload;
  const std::vector<int> split = split_operators(workload);
  if (split.empty()) {
    reject(fmt::format("`tp` {}: {} has no operator that is split between tensor ranks", choices.tp,
                       workload.name),
           "`tp` 1");
  }
  if (!choices.sequence_parallel) {
    reject(fmt::format("`tp` {} with `sequence_parallel` off: tensor ranks share the samples of {}",
                       choices.tp, workload.name),
           "`sequence_parallel` on");
  }
  int dealt = 0;
  for (const int index : split) {
    const Operator& op = workload.operators[static_cast<std::size_t>(index)];
    const bool table = op.kind == OperatorKind::embedding;
    const bool row = op.split == TensorSplit::row;
    if (op.split == TensorSplit::table) {
      ++dealt;
      continue;
    }
    if (table && row) continue;  // the last rank has fewer rows
    const bool heads = !row && op.image && op.image->heads > 0;
    check_divides("`tp`", choices.tp, parts_to_share(op, op.split),
                  fmt::format("{} of {}",
                              row     ? "input features"
                              : heads ? "heads"
                                      : "output features",
                              op.name),
                  "a divisor of what is split");
  }
  if (dealt > 0 && dealt < choices.tp) {
    reject(fmt::format("`tp` {}: {} has {} tables to deal out", choices.tp, workload.name, dealt),
           "at least a table for each tensor rank");
  }
  if (choices.shard_group > 0) {
    reject(fmt::format("`shard_group` {} with `tp` {} of {}", choices.shard_group, choices.tp, workload.name),
           "no `shard_group`: what tensor ranks hold whole is sharded over all of them");
  }
}

void check_tensor(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Workload& workload = plan.job->workload;
  const Training& training = plan.job->training;
  if (choices.sequence_parallel && choices.tp == 1) {
    reject("`sequence_parallel` on with `tp` 1",
           "`tp` of at least 2, whose group the sequence is split over");
  }
  if (choices.tp == 1) return;
  if (!workload.transformer) {
    check_split(plan);
  } else {
    const Transformer& model = *workload.transformer;
    if (model.heads % choices.tp != 0) {
      reject(fmt::format("`tp` {}: does not divide the {} attention heads", choices.tp, model.heads),
             fmt::format("a divisor of heads and kv heads, {} and {}", model.heads, model.kv_heads));
    }
    if (!model.mla && model.kv_heads % choices.tp != 0) {
      reject(fmt::format("`tp` {}: does not divide the {} key-value heads", choices.tp, model.kv_heads),
             fmt::format("a divisor of heads and kv heads, {} and {}", model.heads, model.kv_heads));
    }
    if (model.state_space) {
      check_divides("`tp`", choices.tp, model.state_space->heads, "heads of the state-space layers",
                    "a divisor of their heads and groups");
      check_divides("`tp`", choices.tp, model.state_space->groups, "groups of the state-space layers",
                    "a divisor of their heads and groups");
    }
    if (model.ffn_hidden > 0) {
      check_divides("`tp`", choices.tp, model.ffn_hidden, "hidden features of the MLP",
                    "a divisor of the MLP's width");
    }
    if (model.moe && model.moe->shared_ffn_hidden > 0) {
      check_divides("`tp`", choices.tp, model.moe->shared_ffn_hidden, "hidden features of the shared experts",
                    "a divisor of the shared experts' width");
    }
  }
  if (choices.sequence_parallel) {
    const std::int64_t rows =
        static_cast<std::int64_t>(choices.micro_batch) * std::max(training.seq_len, 1) / choices.cp;
    if (rows % choices.tp != 0) {
      reject(fmt::format("`sequence_parallel` on: {} rows of a micro-batch do not divide by `tp` {}", rows,
                         choices.tp),
             "micro-batch x sequence length / cp to be a multiple of tp");
    }
  }
}

void check_experts(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Workload& workload = plan.job->workload;
  const bool has_experts = workload.transformer && workload.transformer->moe;
  if (choices.etp > 1) {
    if (!has_experts) {
      reject(fmt::format("`etp` {}: {} has no experts", choices.etp, workload.name), "`etp` 1");
    }
    check_divides("`etp`", choices.etp, choices.tp, "tensor ranks",
                  "a divisor of `tp`, whose ranks share each expert");
    check_divides("`etp`", choices.etp, workload.transformer->moe->expert_ffn_hidden,
                  "hidden features of an expert", "a divisor of the experts' width");
  }
  if (choices.ep > 1) {
    if (!has_experts) {
      reject(fmt::format("`ep` {}: {} has no experts", choices.ep, workload.name), "`ep` 1");
    }
    const int experts = workload.transformer->moe->experts;
    check_divides("`ep`", choices.ep, experts, "experts", "a divisor of the experts");
    const int ranks = expert_ranks(choices);
    if (ranks % choices.ep != 0) {
      reject(fmt::format("`ep` {}: does not divide {}dp x cp = {}", choices.ep,
                         !choices.sequence_parallel ? ""
                         : choices.etp > 1          ? "tp / etp x "
                                                    : "tp x ",
                         ranks),
             "a divisor of dp x cp (with `sequence_parallel` on of tp / etp x dp x cp), inside which experts "
             "are spread");
    }
  }
  if (choices.capacity_factor > 0 && !has_experts) {
    reject(fmt::format("`capacity_factor` {}: {} has no experts", choices.capacity_factor, workload.name),
           "`capacity_factor` 0");
  }
  if (choices.capacity_factor < 0 || !std::isfinite(choices.capacity_factor)) {
    reject(fmt::format("`capacity_factor` {}", choices.capacity_factor), "0 (dropless) or a positive factor");
  }
}

void check_pipeline(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Workload& workload = plan.job->workload;
  const int parts = parts_of(choices);
  const int chunks = fixed_chunks(choices.schedule);
  if (chunks == 1 && choices.interleave != 1) {
    reject(fmt::format("`interleave` {} with `schedule` {}", choices.interleave, name_of(choices.schedule)),
           "`schedule` interleaved");
  } else if (chunks != 1) {
    const std::string option = fmt::format("`schedule` {}", name_of(choices.schedule));
    if (chunks == 0 && choices.interleave < 2)
      reject(option + " with `interleave` 1", "`interleave` of at least 2 model chunks a stage");
    if (chunks > 0 && choices.interleave != chunks)
      reject(fmt::format("{} with `interleave` {}", option, choices.interleave),
             fmt::format("`interleave` {}: a stage's model chunks lie in a V", chunks));
    if (choices.pp < 2) reject(option + " with `pp` 1", "`pp` of at least 2");
    const MicroBatchRule rule = micro_batch_rule(choices.schedule, choices.pp);
    for (int replica = 0; replica < choices.dp; ++replica) {
      const std::int64_t count = plan.micro_batches_of(replica);
      if (count % rule.unit != 0) {
        reject(fmt::format("{}: {} micro-batches do not divide by `pp` {}", option, count, rule.unit),
               "a number of micro-batches that is a multiple of pp");
      }
      if (rule.unit == 1 && count < rule.least) {
        reject(fmt::format("{} with `pp` {}: {} micro-batches", option, choices.pp, count),
               fmt::format("at least {}, twice the stages", rule.least));
      }
    }
  }
  // Of cuts by hand the ends may have no layer: the embedding and the head are theirs.
  if (parts > std::max(workload.layers, 1) && choices.stage_layers.empty()) {
    reject(fmt::format("`pp` {}{}: more parts than the {} layers of {}", choices.pp,
                       choices.interleave > 1 ? fmt::format(" `interleave` {}", choices.interleave) : "",
                       workload.layers, workload.name),
           fmt::format("at most {}", std::max(workload.layers, 1)));
  }
  for (int stage = 0; stage < choices.pp; ++stage) {
    for (int chunk = 0; chunk < choices.interleave; ++chunk) {
      const LayerRange range = operators_of(plan, stage, chunk);  // throws where stage_layers do not add up
      if (range.begin == range.end) {
        reject(fmt::format("`stage_layers`: stage {} has no layer", stage), "at least one layer a stage");
      }
    }
  }
}

// Counted over all of a stage's chunks.
void check_recomputed_layers(const Plan& plan) {
  const Choices& c = plan.choices;
  if (c.recompute_layers == 0) return;
  const int most = layers_of_largest_stage(plan);
  if (c.recompute_layers > most) {
    const std::string of = c.pp > 1 ? fmt::format("the largest of {} stages of ", c.pp) : "";
    reject(fmt::format("`recompute` full:{}: {}{} has {} layers", c.recompute_layers, of,
                       plan.job->workload.name, most),
           fmt::format("at most {}, or full", most));
  }
}

void check_overlap_experts(const Plan& plan) {
  const Choices& c = plan.choices;
  if (!c.overlap_experts) return;
  const std::string option = "`overlap_experts` on";
  if (c.ep == 1) reject(option + " with `ep` 1: no tokens travel to experts", "`ep` of at least 2");
  const bool chunks = fixed_chunks(c.schedule) != 1;
  if (!chunks && (c.pp > 1 || c.schedule != Schedule::one_f_one_b)) {
    reject(
        fmt::format("{} with `pp` {} and `schedule` {}: the last stage has no second micro-batch to compute "
                    "beside one's traffic",
                    option, c.pp, name_of(c.schedule)),
        "`schedule` interleaved or dualpipe-v, or 1f1b with `pp` 1");
  }
  if (c.zero == 3) {
    reject(option + " with `zero` 3: parameters are gathered for one pass at a time", "`zero` 0, 1 or 2");
  }
}

void check_sharding(const Plan& plan) {
  const Choices& choices = plan.choices;
  if (choices.zero < 0 || choices.zero > 3) reject(fmt::format("`zero` {}", choices.zero), "0, 1, 2 or 3");
  if (choices.shard_group != 0) {
    check_at_least("`shard_group`", choices.shard_group, 1);
    if (choices.zero == 0 && choices.sync != Sync::all_reduce) {
      reject(fmt::format("`shard_group` {} with `zero` 0 and `sync` {}", choices.shard_group,
                         name_of(choices.sync)),
             "`sync` all-reduce, whose gradients are summed inside the groups first");
    }
    const int replicas = choices.dp * choices.cp;
    if (replicas % choices.shard_group != 0) {
      reject(fmt::format("`shard_group` {}: does not divide dp x cp = {}", choices.shard_group, replicas),
             "a divisor of dp x cp");
    }
    if (choices.shard_group == 1 && replicas > 1) {
      reject("`shard_group` 1: shards nothing", "at least 2, or `zero` 0");
    }
    if (choices.ep > 1 && choices.shard_group != replicas) {
      reject(fmt::format("`shard_group` {} with `ep` {}", choices.shard_group, choices.ep),
             "no `shard_group`: experts are sharded over their own data group");
    }
  }
  if (choices.bucket_bytes < 0 || !std::isfinite(choices.bucket_bytes)) {
    reject(fmt::format("`bucket_bytes` {}", choices.bucket_bytes), "a size in bytes");
  }
}

void check_context(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Workload& workload = plan.job->workload;
  if (choices.cp == 1) return;
  const bool has_attention = std::any_of(workload.operators.begin(), workload.operators.end(),
                                         [](const Operator& op) { return op.attention.has_value(); });
  if (!workload.transformer) {
    reject(
        fmt::format("`cp` {}: context parallelism is planned for stacks of transformer layers, and {} is a "
                    "graph of operators",
                    choices.cp, workload.name),
        "`cp` 1");
  }
  if (!has_attention) {
    reject(fmt::format("`cp` {}: {} has no attention", choices.cp, workload.name), "`cp` 1");
  }
  if (workload.transformer && workload.transformer->state_space) {
    reject(fmt::format("`cp` {}: {} has state-space layers, which are not split along the sequence",
                       choices.cp, workload.name),
           "`cp` 1");
  }
  const int seq_len = plan.job->training.seq_len;
  if (seq_len % (2 * choices.cp) != 0) {
    reject(fmt::format("`cp` {}: sequences of {} tokens", choices.cp, seq_len),
           fmt::format("a multiple of 2 x cp = {} (each rank takes one early and one late part)",
                       2 * choices.cp));
  }
}

void check_synchronisation(const Plan& plan) {
  const Choices& choices = plan.choices;
  const std::string option = fmt::format("`sync` {}", name_of(choices.sync));
  const bool asynchronous = choices.sync == Sync::async_parameter_server;
  const bool servers = asynchronous || choices.sync == Sync::parameter_server;
  if (!servers && choices.servers != 0) {
    reject(fmt::format("`servers` {} with {}", choices.servers, option),
           "`sync` parameter-server or async-parameter-server");
  }
  if (choices.staleness < 0) {
    reject(fmt::format("`staleness` {}", choices.staleness), "steps, or 0 for any number of them");
  }
  if (!asynchronous && choices.staleness != 0) {
    reject(fmt::format("`staleness` {} with {}", choices.staleness, option), "`sync` async-parameter-server");
  }
  if (choices.sync == Sync::all_reduce) return;
  if (choices.world() != choices.dp || choices.ep != 1) {
    reject(option + " with tensor, pipeline, context or expert parallelism", "`dp` alone");
  }
  if (choices.zero != 0) reject(fmt::format("{} with `zero` {}", option, choices.zero), "`zero` 0");
  if (choices.schedule == Schedule::interleaved) {
    reject(option + " with `schedule` interleaved", "another schedule");
  }
  if (servers) {
    if (choices.servers < 1 || choices.servers > choices.dp) {
      reject(fmt::format("`servers` {}", choices.servers),
             fmt::format("1 to {}: servers stand beside workers", choices.dp));
    }
    if (asynchronous && !choices.replica_batches.empty()) {
      reject(option + " with uneven replica batches",
             "equal shares: whoever is ready takes the next, so fast workers take more of them");
    }
    return;
  }
  if (!choices.replica_batches.empty()) {
    reject(option + " with uneven replica batches", "equal shares: the inputs are scattered");
  }
  if (plan.job->cluster.nodes() > 1) {
    reject(fmt::format("{} over {} nodes", option, plan.job->cluster.nodes()), "the devices of one node");
  }
}

void check_compression(const Plan& plan) {
  const Choices& choices = plan.choices;
  if (choices.grad_compression == Compression::none) return;
  const std::string option = fmt::format("`grad_compression` {}", name_of(choices.grad_compression));
  if (choices.sync != Sync::all_reduce) {
    reject(fmt::format("{} with `sync` {}", option, name_of(choices.sync)), "`sync` all-reduce");
  }
  const bool half = choices.grad_compression == Compression::fp16;
  if (choices.zero > (half ? 1 : 0)) {
    reject(fmt::format("{} with `zero` {}", option, choices.zero), half ? "`zero` 0 or 1" : "`zero` 0");
  }
  if (half && bytes_of(plan.gradient_type()) <= bytes_of(DType::fp16)) {
    reject(fmt::format("{}: gradients are {} already", option, name_of(plan.gradient_type())), "none");
  }
  if (choices.hybrid()) {
    reject(fmt::format("{} with `shard_group` {}", option, choices.shard_group), "no `shard_group`");
  }
  if (choices.grad_compression == Compression::topk && !(choices.topk_ratio > 0 && choices.topk_ratio <= 1)) {
    reject(fmt::format("`grad_compression` topk:{}", choices.topk_ratio), "a ratio above 0 and up to 1");
  }
}

// Forms that the Choices have no fields for.
void check_forms(const Plan& plan) {
  const auto& forms = forms_of_parallelism();
  for (const auto& [name, degree] : plan.choices.degrees) {
    const auto form = std::find_if(forms.begin(), forms.end(), [&, &name = name](const auto& known) {
      return known.id != Parallelism::none && known.name == name && known.degree == nullptr;
    });
    if (form == forms.end())
      reject(fmt::format("a form of parallelism called '{}'", name), "one that is known");
    check_at_least(name, degree, 1);
    if (degree > 1 && form->check != nullptr) form->check(plan, degree);
  }
}

void check_lengths(const Training& training) {
  const std::vector<int>& tokens = training.lengths.tokens;
  if (tokens.empty()) {
    if (training.lengths.packed || training.lengths.balanced)
      reject(training.lengths.packed ? "`packed`" : "`balanced`", "`lengths` beside it");
    return;
  }
  if (training.seq_len == 0) reject("`lengths`: the workload says how large its samples are", "no `lengths`");
  if (!std::is_sorted(tokens.begin(), tokens.end()) || tokens.front() < 1 || tokens.back() > training.seq_len)
    reject(fmt::format("`lengths` from {} to {}", tokens.front(), tokens.back()),
           fmt::format("ascending, from 1 to `seq_len` {}", training.seq_len));
}

void check_world(const Plan& plan) {
  const Choices& choices = plan.choices;
  const Cluster& cluster = plan.job->cluster;
  const std::int64_t world = static_cast<std::int64_t>(choices.tp) * choices.pp * choices.dp * choices.cp;
  const bool shared = std::all_of(cluster.groups.begin(), cluster.groups.end(),
                                  [](const NodeGroup& group) { return group.node.shared_cores > 0; });
  // Ranks on shared cores may outnumber them (placement.h); a GPU is one rank's.
  if (world > cluster.devices() && !shared) {
    reject(fmt::format("tp {} x pp {} x dp {} x cp {} = {} ranks on the {} devices of {}", choices.tp,
                       choices.pp, choices.dp, choices.cp, world, cluster.devices(), cluster.name),
           "no more ranks than devices");
  }
  if (world < cluster.devices() && !shared) {
    reject(
        fmt::format("tp {} x pp {} x dp {} x cp {} = {} ranks leave devices of {} idle, which has {}",
                    choices.tp, choices.pp, choices.dp, choices.cp, world, cluster.name, cluster.devices()),
        "a world of all the devices; `nodes` or `gpus` takes fewer");
  }
}

// As Megatron-Core has it: a layer without experts or without a dense MLP has nothing of theirs to run again,
// but latent attention and grouped experts must be there to be named.
void check_modules(const Plan& plan) {
  const Choices& choices = plan.choices;
  if (choices.recompute_modules == 0) return;
  const std::string names = fmt::format("{}", fmt::join(names_of(choices.recompute_modules), ","));
  if (choices.recompute != Recompute::selective)
    reject(fmt::format("modules {} with `recompute` {}", names, name_of(choices.recompute)),
           "`recompute` selective:" + names);
  if (!plan.job->workload.transformer && choices.recompute_modules != module_bit("core_attn"))
    reject(fmt::format("`recompute` selective:{}: {} is no transformer", names, plan.job->workload.name),
           "`recompute` none or full");
  for (const auto& [module, what] : {std::pair("mla_up_proj", "latent attention"), {"moe_act", "experts"}}) {
    const ModuleSet bit = choices.recompute_modules & module_bit(module);
    if (bit != modules_of(plan.job->workload, bit))
      reject(fmt::format("`recompute` selective:{}: {} has no {}", module, plan.job->workload.name, what),
             "modules that the model has");
  }
}

}  // namespace

void check_plan(const Plan& plan) {
  const Choices& choices = plan.choices;
  const std::array<std::pair<std::string_view, int>, 8> counts = {{{"`tp`", choices.tp},
                                                                   {"`pp`", choices.pp},
                                                                   {"`dp`", choices.dp},
                                                                   {"`cp`", choices.cp},
                                                                   {"`ep`", choices.ep},
                                                                   {"`etp`", choices.etp},
                                                                   {"`micro_batch`", choices.micro_batch},
                                                                   {"`interleave`", choices.interleave}}};
  for (const auto& [option, value] : counts) check_at_least(option, value, 1);
  constexpr int kMostRanks = 1 << 22;  // far beyond any machine, and no product below overflows
  for (const auto& [option, value] : counts) {
    if (value > kMostRanks)
      reject(fmt::format("{} {}", option, value), fmt::format("at most {}", kMostRanks));
  }
  auto order = choices.order;
  std::sort(order.begin(), order.end());
  if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
    reject("`order` names a dimension twice", "each of tp, cp, ep, dp, pp once, innermost first");
  }
  if (plan.job->workload.operators.empty()) reject("the workload has no operators", "a model");
  if (plan.job->workload.default_seq_len > 0) check_at_least("`seq_len`", plan.job->training.seq_len, 1);
  check_lengths(plan.job->training);
  if (choices.recompute_layers < 0) {
    reject(fmt::format("`recompute` full:{}", choices.recompute_layers), "a number of layers");
  }
  if (choices.recompute_layers > 0 && choices.recompute != Recompute::full) {
    reject(fmt::format("{} recomputed layers with `recompute` {}", choices.recompute_layers,
                       name_of(choices.recompute)),
           "`recompute` full:K");
  }
  check_modules(plan);
  check_world(plan);
  check_batch(plan);
  check_context(plan);
  check_tensor(plan);
  check_experts(plan);
  check_pipeline(plan);
  check_recomputed_layers(plan);
  check_overlap_experts(plan);
  check_sharding(plan);
  check_synchronisation(plan);
  check_compression(plan);
  check_forms(plan);
}

}  // namespace orrery
