// What of a transformer is trained: all of it, low-rank adapters beside frozen weights, or its later layers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace orrery {

// Projections that adapters may stand beside, as bits of FineTuning::targets.
inline constexpr std::uint8_t kQuery = 1;
inline constexpr std::uint8_t kKey = 2;
inline constexpr std::uint8_t kValue = 4;
inline constexpr std::uint8_t kOutput = 8;
inline constexpr std::uint8_t kGate = 16;
inline constexpr std::uint8_t kUp = 32;
inline constexpr std::uint8_t kDown = 64;
inline constexpr std::uint8_t kAllProjections = 127;
// From a list separated by commas or spaces: q k v o gate up down; qkv and all; and what PEFT (q_proj,
// gate_proj, all-linear, …) and Megatron (linear_qkv, linear_proj, linear_fc1, linear_fc2) call them. Throws
// UserError.
std::uint8_t projections_from(std::string_view list);
std::string names_of_projections(std::uint8_t targets);  // "q,v"

// What frozen weights of linear layers are stored in. They are turned into the storage type before each
// product: QLoRA, arXiv 2305.14314, section 3 (nf4: 4 bits and an fp32 scale for 64 weights; nf4-dq: scales
// in 8 bits, in groups of 256). int8: a byte each, a scale a row.
enum class BaseType : std::uint8_t { none, int8, nf4, nf4_dq };
std::string_view name_of(BaseType type);              // "none" "int8" "nf4" "nf4-dq"
BaseType base_type_from_name(std::string_view name);  // throws UserError
double base_bytes(BaseType type, DType storage);      // that a weight takes

constexpr int kLargestAdapterRank = 1 << 16;  // that anybody may ask for

struct FineTuning {
  int rank = 0;  // of the adapters (LoRA, arXiv 2106.09685); 0: there are none
  std::uint8_t targets = kAllProjections;
  double alpha = 0;                // adapters' outputs are scaled by alpha / rank; 0: by 1
  bool dora = false;               // weights' columns are scaled to trained magnitudes (arXiv 2402.09353)
  BaseType base = BaseType::none;  // beside adapters
  int frozen_layers = 0;           // the embedding and the first so many layers are left as they are

  bool any() const { return rank > 0 || frozen_layers > 0; }
  double scale() const { return rank > 0 && alpha > 0 ? alpha / rank : 1; }  // of adapters' outputs
  bool operator==(const FineTuning&) const = default;
};

struct Operator;
struct Transformer;
struct Workload;

// The same model, trained so. Throws UserError: of a graph that is no transformer, of values that do not go
// together, or where nothing would be trained.
void fine_tune(Workload& workload, const FineTuning& tuning);
// What PEFT keeps beside saved adapters as adapter_config.json; the model must have some.
std::string peft_config(const Workload& workload);
// "adapters of rank 16 on q,v, base in nf4"; empty where all is trained.
std::string description_of(const FineTuning& tuning);

}  // namespace orrery
