// Settings of other systems as pins: "is what I run now any good?"
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/space/offload.h"
#include "planner/space/pins.h"
#include "workloads/fine_tuning.h"
#include "workloads/workload.h"

namespace orrery::planner {

// What a file says of how its system runs a model, over the runtime profile (proto/runtime_profile.proto has
// what each means).
struct ImportedRuntime {
  std::optional<bool> overlap_param_gather, overlap_tensor, overlap_tensor_backward, overlap_pipeline;
  std::optional<bool> fp32_gradients, clip_gradients, updates_stored_weights;
  std::optional<bool> fused_elementwise, fused_gradient_accumulation, fused_loss;
  std::optional<double> moment_bytes, live_parameters;
  std::optional<int> host_activation_layers;
  bool operator==(const ImportedRuntime&) const = default;
};
void apply(const ImportedRuntime& imported, RuntimeProfile* runtime);

// What a file says of one of the model's dimensions, which is the workload's.
struct SaidDimension {
  std::string name;  // as the file has it: "--hidden-size", "model.config.hidden_size"
  int Transformer::*field = nullptr;
  std::int64_t said = 0;
};
// The model's dimensions, under Megatron-LM's flags.
struct DimensionFlag {
  std::string_view flag;
  int Transformer::*field;
};
std::span<const DimensionFlag> dimension_flags();

// A setting that its system does not have, and the one that was most likely meant
// (handover/keys/known_keys.h).
struct Misspelt {
  std::string name, meant;
  int line = 0;  // of the file; 0: of no file
};

struct Imported {
  Pins pins;
  ImportedRuntime runtime;
  std::string software;  // the runtime profile of the system that the settings are for
  std::optional<std::int64_t> global_batch;
  // Micro-batches of a step, of each replica, where nothing but they and the replicas says the global batch.
  std::optional<int> accumulation;
  std::optional<int> seq_len;
  std::optional<DType> precision;
  std::optional<Offload> offload;
  std::optional<double> offloaded_share;  // of the optimizer's states, where not all wait there
  std::optional<Optimizer> optimizer;
  std::optional<bool> fused_attention;
  std::optional<int> experts;  // of a layer: the model says how many there are
  std::vector<SaidDimension> dimensions;
  std::optional<FineTuning> tuning;  // adapters, where they are asked for
  // Flags or keys that say nothing about the plan, in their order, each with the reason: "--lr: changes no
  // …".
  std::vector<std::string> ignored;
  std::vector<Misspelt> misspelt;  // also among the ignored
  int read = 0;                    // settings that were not ignored
};

// A shell-quoted argument list of Megatron-LM (core 0.20.0). `layers`: of the model, for flags that count
// layers. `devices`: of the cluster, for what is shared among all; 0: not known, and such flags are ignored.
// Throws UserError on an unfinished quotation or a value that is no number.
Imported import_megatron(std::string_view flags, int layers, int devices = 0);
// The same from words; `source` is what errors name.
Imported import_megatron_words(std::vector<std::string> words, int layers, int devices, std::string source);
// The text of a DeepSpeed JSON (0.19.6). Throws UserError naming `file` and the line or the key.
Imported import_deepspeed(std::string_view text, const std::string& file);
// torchtitan's TOML (v0.2.2), the same way. `experts`: whether the model has some.
Imported import_torchtitan(std::string_view text, const std::string& file, int layers, int devices = 0,
                           bool experts = true);
// A YAML of NeMo's: what NeMo-Run writes of a NeMo 2 recipe, NeMo 1's megatron_gpt_config.yaml and its
// fine-tuning's, Megatron Bridge's ConfigContainer.
Imported import_nemo(std::string_view text, const std::string& file, int layers, int devices = 0);

// Those that are not the model's: "--num-layers 80 (it has 32)".
std::vector<std::string> other_dimensions(const Imported& imported, const Transformer& model);

// Of settings that say what each replica takes and not how many there are: the global batch, by the replicas
// that the other forms in `pins` leave of the devices, where a form that nothing says is of one rank. Pins
// them, and says what was assumed; empty where the settings or `pins` say it, or too little. Throws
// UserError where the devices do not divide by the other forms.
std::string settle_batch(Imported* imported, Pins* pins, int devices);

// PEFT's adapter_config.json (0.17) over `tuning`. `layers`: of the model. What says nothing here is added to
// `ignored`. Throws UserError naming `file` and the key.
FineTuning import_peft(std::string_view text, const std::string& file, int layers, FineTuning tuning,
                       std::vector<std::string>* ignored);

}  // namespace orrery::planner
