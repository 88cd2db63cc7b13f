// torchtitan's TOML (v0.2.2: torchtitan/config/job_config.py).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "handover/import.h"
#include "handover/settings.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

constexpr const char* kReshard = "parallelism.fsdp_reshard_after_forward";
constexpr const char* kSchedule = "parallelism.pipeline_parallel_schedule";
constexpr const char* kParts = "parallelism.module_fqns_per_model_part";
constexpr const char* kOverlap = "parallelism.pipeline_parallel_expert_parallel_overlap";

class Torchtitan {
 public:
  Torchtitan(Settings settings, int layers, int devices, bool experts)
      : s_(std::move(settings)), layers_(layers), devices_(devices), experts_(experts) {}

  Imported run() {
    result_.software = "torchtitan";
    Pins& p = result_.pins;
    const auto degree = [&](const char* name) {
      return s_.count(std::string("parallelism.") + name).value_or(1);
    };
    p.tp = degree("tensor_parallel_degree");
    p.pp = degree("pipeline_parallel_degree");
    p.cp = degree("context_parallel_degree");
    p.sequence_parallel = *p.tp > 1;  // always with tensor parallelism
    p.overlap_grad_reduce = true;
    read_experts();
    read_sharding();
    read_batch();
    read_pipeline();
    read_recomputation();
    read_precision();
    read_runtime();
    if (const auto name = s_.text("optimizer.name")) {
      if (*name != "Adam" && *name != "AdamW") s_.refuse("optimizer.name", "Adam or AdamW");
      result_.optimizer = *name == "Adam" ? Optimizer::adam : Optimizer::adamw;
    }
    s_.tell_rest("torchtitan", &result_);
    return std::move(result_);
  }

 private:
  // Without expert ranks each expert is split over all tensor ranks, whatever else is said.
  void read_experts() {
    const std::string ranks = "parallelism.expert_parallel_degree",
                      tensor = "parallelism.expert_tensor_parallel_degree";
    Pins& p = result_.pins;
    if (!experts_) {
      for (const std::string& name : {ranks, tensor}) s_.ignore(name, "the model has no experts");
      return;
    }
    p.ep = s_.count(ranks).value_or(1);
    const int said = s_.count(tensor).value_or(*p.ep > 1 ? 1 : *p.tp);
    p.etp = *p.ep > 1 ? said : *p.tp;
    if (said != *p.etp)
      result_.ignored.push_back(fmt::format(
          "{}: says something of expert ranks; without them experts are split as the rest is", tensor));
  }

  void read_runtime() {
    ImportedRuntime& runtime = result_.runtime;
    runtime.fused_elementwise = s_.flag("compile.enable").value_or(false);  // off unless said
    if (const auto beside = s_.flag("parallelism.enable_async_tensor_parallel"))
      runtime.overlap_tensor = *beside;
    if (const auto moved = s_.flag("training.enable_cpu_offload"))
      result_.offload = *moved ? Offload::all : Offload::none;
    if (const auto reduced = s_.text("training.mixed_precision_reduce")) {
      if (*reduced != "float32") s_.refuse("training.mixed_precision_reduce", "float32");
      runtime.fp32_gradients = true;
    }
  }

  // shard: -1 is what the other degrees leave of the devices.
  void read_sharding() {
    Pins& p = result_.pins;
    const int replicate = s_.count("parallelism.data_parallel_replicate_degree").value_or(1);
    int shard = s_.count("parallelism.data_parallel_shard_degree", -1).value_or(-1);
    if (shard == 0) s_.refuse("parallelism.data_parallel_shard_degree", "-1 or a number from 1");
    const std::int64_t others = std::int64_t{replicate} * *p.tp * *p.pp * *p.cp;
    if (shard < 0 && devices_ > 0) {
      if (devices_ % others != 0)
        throw UserError(
            fmt::format("`from_torchtitan`: degrees of {} in all on {} devices", others, devices_),
            "expected a divisor of the devices");
      shard = static_cast<int>(devices_ / others);
    }
    const std::string reshard = s_.text(kReshard).value_or("default");
    if (reshard != "default" && reshard != "always" && reshard != "never")
      s_.refuse(kReshard, "default, always or never");
    if (std::int64_t{shard} * replicate > (1 << 24))
      s_.refuse("parallelism.data_parallel_shard_degree", "fewer");
    if (shard > 0) p.dp = replicate * shard;
    // Context ranks share the states, too.
    const std::int64_t sharers = std::int64_t{shard} * *p.cp;
    if (sharers == 1) {
      p.zero = 0;
    } else {
      p.zero = reshard == "always" || (reshard == "default" && *p.pp == 1) ? 3 : 2;
      if (shard > 0 && replicate > 1 && sharers <= (1 << 24)) p.shard_group = static_cast<int>(sharers);
    }
  }

  void read_batch() {
    Pins& p = result_.pins;
    const int local = s_.count("training.local_batch_size").value_or(8);
    const int global = s_.count("training.global_batch_size", -1).value_or(-1);
    if (global > 0)
      result_.global_batch = global;
    else if (p.dp)
      result_.global_batch = std::int64_t{local} * *p.dp;
    result_.seq_len = s_.count("training.seq_len").value_or(2048);
    const int piece = s_.count("parallelism.pipeline_parallel_microbatch_size").value_or(1);
    p.micro_batch = *p.pp > 1 ? piece : local;
    if (*p.pp > 1 && p.dp && result_.global_batch && *result_.global_batch > std::int64_t{local} * *p.dp)
      result_.ignored.push_back(
          fmt::format("training.local_batch_size: the pipeline drains after each {} samples; planned is one "
                      "that runs through the whole step",
                      local));
  }

  void read_pipeline() {
    Pins& p = result_.pins;
    const std::string name = s_.text(kSchedule).value_or("1F1B");
    const bool csv = !s_.text("parallelism.pipeline_parallel_schedule_csv").value_or("").empty();
    if (*p.pp == 1) {
      for (const char* unused : {kParts, "parallelism.pipeline_parallel_layers_per_stage",
                                 "parallelism.pipeline_parallel_first_stage_less_layers",
                                 "parallelism.pipeline_parallel_last_stage_less_layers"})
        s_.ignore(unused, "there is one stage");
      return;
    }
    int chunks = 1;
    if (!csv && name == "DualPipeV") {
      p.schedule = Schedule::dualpipe_v;
      chunks = fixed_chunks(*p.schedule);
      const bool overlaps = s_.flag(kOverlap).value_or(true);
      if (p.ep.value_or(1) > 1) p.overlap_experts = overlaps;
    } else if (csv || name == "ZBVZeroBubble" || name == "InterleavedZeroBubble") {
      p.schedule = Schedule::zero_bubble;
      chunks = csv ? 1 : 2;
    } else if (name == "Interleaved1F1B" || name == "LoopedBFS") {
      p.schedule = Schedule::interleaved;
      chunks = 2;
    } else if (name == "GPipe") {
      p.schedule = Schedule::gpipe;
    } else if (name == "1F1B") {
      p.schedule = Schedule::one_f_one_b;
    } else {
      s_.refuse(kSchedule, "1F1B, Interleaved1F1B, GPipe, InterleavedZeroBubble, ZBVZeroBubble or DualPipeV");
    }
    if (p.schedule != Schedule::dualpipe_v) s_.ignore(kOverlap, "it is of DualPipeV alone");
    if (csv)
      result_.ignored.emplace_back(
          "parallelism.pipeline_parallel_schedule_csv: planned is the zero-bubble schedule known here");
    else if (p.schedule == Schedule::zero_bubble)
      result_.ignored.push_back(
          fmt::format("{}: planned is zero-bubble with one chunk of layers a stage", name));
    if (p.schedule != Schedule::zero_bubble) p.interleave = chunks;
    if (const auto parts = s_.lists(kParts)) return read_parts(*parts);
    if (const auto each = s_.count("parallelism.pipeline_parallel_layers_per_stage");
        each && p.schedule == Schedule::zero_bubble) {
      result_.ignored.emplace_back(
          "parallelism.pipeline_parallel_layers_per_stage: planned is zero-bubble with one chunk of layers a "
          "stage");
    } else if (each) {
      // Embedding and head count as layers here, too.
      const std::int64_t counted =
          std::int64_t{layers_} +
          s_.count("parallelism.pipeline_parallel_first_stage_less_layers", 0).value_or(1) +
          s_.count("parallelism.pipeline_parallel_last_stage_less_layers", 0).value_or(1);
      const std::int64_t virtual_stages = (counted + *each - 1) / *each;
      const bool in_a_v = p.schedule == Schedule::dualpipe_v;
      if (virtual_stages % *p.pp != 0 || (in_a_v && virtual_stages != std::int64_t{chunks} * *p.pp) ||
          (in_a_v || p.schedule == Schedule::interleaved) != (virtual_stages > *p.pp))
        s_.refuse(
            "parallelism.pipeline_parallel_layers_per_stage",
            fmt::format("as many as make a multiple of the {} stages of {} layers, more than one each of an "
                        "interleaved schedule",
                        *p.pp, counted));
      if (p.schedule == Schedule::interleaved) p.interleave = static_cast<int>(virtual_stages / *p.pp);
    }
    read_ends(chunks);
  }

  // Embedding and head count for so many layers each; what does not divide goes to the first parts, one more
  // each.
  void read_ends(int chunks) {
    Pins& p = result_.pins;
    const std::string first = "parallelism.pipeline_parallel_first_stage_less_layers",
                      last = "parallelism.pipeline_parallel_last_stage_less_layers";
    const int fewer = s_.count(first, 0).value_or(1), fewer_last = s_.count(last, 0).value_or(1);
    if (p.schedule == Schedule::zero_bubble && chunks > 1) {  // planned with one chunk, whose cuts are others
      result_.ignored.push_back(first + ": of stages in two chunks; planned is one");
      return;
    }
    const std::int64_t parts = std::int64_t{*p.pp} * p.interleave.value_or(1);
    const std::int64_t counted = std::int64_t{layers_} + fewer + fewer_last;
    const std::int64_t each = counted / parts, more = counted % parts;
    if (fewer > each || fewer_last > each || parts > kMostParts)
      s_.refuse(s_.has(first) ? first : "parallelism.pipeline_parallel_degree",
                fmt::format("fewer than the {} layers of a part of {}", each, parts));
    p.stage_layers.emplace();
    for (std::int64_t part = 0; part < parts; ++part)
      p.stage_layers->push_back(static_cast<int>(each + (part < more ? 1 : 0)));
    p.stage_layers->front() -= fewer;
    p.stage_layers->back() -= fewer_last;
  }

  void read_parts(const std::vector<std::vector<std::string>>& parts) {
    Pins& p = result_.pins;
    if (parts.empty() || parts.size() > kMostParts || parts.size() % static_cast<std::size_t>(*p.pp) != 0)
      s_.refuse(kParts, "lists of modules' names, as many as stages or a multiple of it");
    p.stage_layers.emplace();
    for (const auto& part : parts)
      p.stage_layers->push_back(static_cast<int>(std::count_if(
          part.begin(), part.end(), [](const std::string& name) { return name.starts_with("layers."); })));
    p.interleave = static_cast<int>(parts.size()) / *p.pp;
    if (p.schedule == Schedule::dualpipe_v && *p.interleave != fixed_chunks(*p.schedule))
      s_.refuse(kParts, "two lists of modules' names for each stage");
    if (*p.interleave > 1 && p.schedule == Schedule::one_f_one_b) p.schedule = Schedule::interleaved;
  }

  void read_recomputation() {
    Pins& p = result_.pins;
    const std::string mode = s_.text("activation_checkpoint.mode").value_or("selective");
    const std::string option = s_.text("activation_checkpoint.selective_ac_option").value_or("2");
    p.recompute_layers = 0;
    if (mode == "none" || mode == "memory_budget") {
      p.recompute = Recompute::none;
      if (mode != "none")
        result_.ignored.emplace_back(
            "activation_checkpoint.mode memory_budget: the compiler's own choice is not known; nothing is "
            "recomputed in the plan");
      s_.ignore("activation_checkpoint.memory_budget", "the compiler's own choice is not known");
    } else if (mode == "full") {
      p.recompute = Recompute::full;
    } else if (mode == "selective" && option == "op") {
      p.recompute = Recompute::selective;
    } else if (mode == "selective") {
      const auto every = parse_whole(option);
      if (!every || *every < 1 || *every > kMostEvery)
        s_.refuse("activation_checkpoint.selective_ac_option", "op or every how many-th layer");
      p.recompute = Recompute::full;
      if (*every > 1) {
        const int of_stage = std::max(1, layers_ / std::max(1, *p.pp));
        p.recompute_layers = of_stage / static_cast<int>(*every);
        if (p.recompute_layers == 0) p.recompute = Recompute::none;
        result_.ignored.push_back(fmt::format(
            "activation_checkpoint.selective_ac_option {}: as many whole layers, the first of each stage",
            *every));
      }
    } else {
      s_.refuse("activation_checkpoint.mode", "none, selective, full or memory_budget");
    }
  }

  void read_precision() {
    const std::string param = s_.text("training.mixed_precision_param").value_or("bfloat16");
    const std::string own = s_.text("training.dtype").value_or("float32");
    for (const auto& [name, value] :
         {std::pair{"training.mixed_precision_param", param}, {"training.dtype", own}})
      if (value != "bfloat16" && value != "float32") s_.refuse(name, "bfloat16 or float32");
    result_.precision = param == "bfloat16" || own == "bfloat16" ? DType::bf16 : DType::fp32;
    if (own == "bfloat16")
      result_.ignored.emplace_back(
          "training.dtype bfloat16: optimizer states and weights in bf16 alone are not planned; memory is "
          "less");
    if (const auto converters = s_.list("model.converters"))
      for (const std::string& one : *converters)
        // "quantize.linear.float8"; "float8" before v0.2.
        if (one.find("float8") != std::string::npos || one.find("mx") != std::string::npos)
          result_.precision = DType::fp8;
  }

  static constexpr int kMostParts = 4096;
  static constexpr std::int64_t kMostEvery = 1 << 20;
  Settings s_;
  int layers_, devices_;
  bool experts_;
  Imported result_;
};

}  // namespace

Imported import_torchtitan(std::string_view text, const std::string& file, int layers, int devices,
                           bool experts) {
  return Torchtitan(Settings::from_toml(text, file), layers, devices, experts).run();
}

}  // namespace orrery::planner
