// What the exporters share: the launch line, NCCL's variables, comments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "handover/export.h"
#include "planner/space/offload.h"

namespace orrery::planner {

std::vector<ExportedFile> export_megatron(const Plan& plan);
std::vector<ExportedFile> export_deepspeed(const Plan& plan);
std::vector<ExportedFile> export_torchtitan(const Plan& plan);
std::vector<ExportedFile> export_torchrun(const Plan& plan);
std::vector<ExportedFile> export_nemo(const Plan& plan);
std::vector<ExportedFile> export_torchtune(const Plan& plan);
std::vector<ExportedFile> export_ray(const Plan& plan);
std::vector<ExportedFile> export_tensorflow(const Plan& plan);
std::vector<ExportedFile> export_horovod(const Plan& plan);
std::vector<ExportedFile> export_chakra(const Plan& plan, const ExportOptions& options);
std::vector<ExportedFile> export_simgrid(const Plan& plan);
std::vector<ExportedFile> export_slurm(const Plan& plan);
std::vector<ExportedFile> export_kubernetes(const Plan& plan, KubernetesJob job);

// What a target makes of the model: `by_script`, the user's, to which all of it is told; `by_dimensions`,
// with a note on what they do not say; by Megatron Core's flags or a flavor of torchtitan's, which say a
// little more; either, and which of it is trained; `built` in all its parts, of which the exporter notes what
// is different.
enum class ModelIs : std::uint8_t {
  by_script,
  by_dimensions,
  by_dimensions_and_adapters,
  by_flags,
  by_flags_and_adapters,
  by_flavor,
  built
};
// "#!/usr/bin/env bash", what the plan is and what it was predicted for, one comment a line of `notes`.
std::string script_head(const Plan& plan, std::string_view target, const std::vector<std::string>& notes,
                        ModelIs model = ModelIs::by_dimensions);
// Comments that say which lines its log begins with where it runs what was planned.
std::string log_begins_with(const std::vector<std::string>& lines);
// `export NAME=value` lines for the NCCL variables that matter on this cluster; empty on processors.
std::string nccl_environment(const Plan& plan);
// `export CUDA_DEVICE_MAX_CONNECTIONS=1`, which Megatron Core asks for under tensor and context parallelism,
// or =32 where experts' traffic runs beside another micro-batch; empty where it shards weights (FSDP), which
// wants more queues.
std::string hardware_queues(const Plan& plan);
// torchrun over the cluster's nodes, without the script and its arguments: "torchrun --nnodes=… \\\n".
std::string torchrun_line(const Plan& plan);
// Devices of one node that the plan uses.
int ranks_per_node(const Plan& plan);
int nodes_used(const Plan& plan);
// Megatron Core's pipeline_model_parallel_layout, "Ett|(ttt|)*6ttL": embedding, decoder layers and loss of
// each virtual stage, in model order.
std::string megatron_layout(const Plan& plan);
// Throws UserError where chunks lie in a V (dualpipe-v), which only who has such a schedule can place.
void refuse_v(const Plan& plan, std::string_view target);
// The transformer, or a UserError that says that `target` trains transformers only.
const Transformer& transformer_for(const Plan& plan, std::string_view target);
// "torch.bfloat16", of parameters and activations.
std::string_view torch_type(DType precision);
// Throws UserError(…, `expected`) where a degree of these forms ("tensor", 8) is above 1.
void refuse_forms(const std::vector<std::pair<std::string_view, int>>& forms, std::string_view target,
                  std::string_view expected);
// "adapters of rank 16 on q,v, alpha 32".
std::string text_of(const FineTuning& tuning);
bool has_attention(const Workload& workload);
// Whether output projection and MLP have biases: what systems say with one word.
bool has_linear_biases(const Transformer& model);
// Or every linear layer, experts and router among them: one word of Megatron-LM's.
bool has_biases_everywhere(const Transformer& model);
// What a model's configuration says of a setting that is planned and not executed (Transformer::unexecuted):
// "2.5" of "routed_scaling_factor".
std::optional<std::string> unexecuted_setting(const Transformer& model, std::string_view key);
// Whether its router scores experts by sigmoids, as all do that balance them by a bias; else by a softmax.
bool has_sigmoid_router(const Transformer& model);
// How many groups of experts its router has and how many of them a token chooses first; none: all as one.
std::optional<std::pair<int, int>> router_groups(const Transformer& model);
// GPT-OSS's MLP, Nemotron's, and norms by one more than their weights, which Megatron-LM has flags for.
bool is_clamped_quick_geglu(const Transformer& model);
bool is_squared_relu(const Transformer& model);
bool is_offset_norm(const Transformer& model);
// Megatron Core's recompute_num_layers: of each chunk where a stage's layers lie in several.
int recomputed_layers_of_chunk(const Plan& plan, std::vector<std::string>* notes);
// "9% more computation, less memory": where `runs` layers of a stage are run again, and the plan's are fewer.
std::string cost_of_running_again(const Plan& plan, int planned, int runs);
// No table of positions and no rotation: linear biases (ALiBi) stand for both, which Transformer::unexecuted
// names.
bool has_no_positions(const Transformer& model);
// What a plan with recomputation runs again, for a script of the user's: "each layer", "each of the first 3
// layers of each stage", "the attention core".
std::string what_runs_again(const Choices& choices);
// Layers of each stage, in all of its chunks.
std::vector<int> layers_by_stage(const Plan& plan);
// Micro-batches of every replica where all have the same share, which is all that the targets have. Throws
// UserError where the batch has no such share.
std::int64_t equal_micro_batches(const Plan& plan, std::string_view target);
// For models whose rotary positions a target does not scale.
std::string note_on_rotary_scaling(const Transformer& model);
// Choices that hardly any target knows, as notes: parameter servers, compressed gradients, uneven shards.
std::vector<std::string> notes_on_rare_choices(const Plan& plan, std::string_view target);
// What selective recomputation runs again, by the names of Megatron-Core's --recompute-modules. Throws
// UserError where it has no such module.
std::vector<std::string> modules_of_megatron(const Plan& plan, std::string_view target);
// Whether Megatron Core runs this plan's fp8 by current scaling alone: its delayed scaling, which is what
// hybrid fp8 means unless told otherwise, runs no norms and no experts' activations again.
bool wants_current_scaling(const Plan& plan);
std::string note_on_current_scaling(std::string_view setting);

}  // namespace orrery::planner
