// What a workload is: layers, FLOPs, bytes, and what was assumed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "workloads/workload.h"

namespace orrery {

// Of one sample, forward: 2 FLOPs a multiply-add, causal attention counted once.
struct Part {
  std::string name;  // of operators "expert_linear", of layers what they hold: "norm linear attention …"
  int first = 0;     // of layers: the first; of operators 0
  int count = 0;     // neighbouring layers that are alike; operators
  std::int64_t parameters = 0;  // of all of them, tied tensors counted where they are held
  double forward_flops = 0;     // of all of them
  double output_bytes = 0;      // that they write, at the precision
};

struct Description {
  Workload workload;
  int seq_len = 0;                     // tokens a sample; 0: no sequences
  DType precision = DType::bf16;       // in which weights and outputs are kept
  std::int64_t parameters = 0;         // tied tensors counted once
  std::int64_t active_parameters = 0;  // that a token meets: of the experts, those that are chosen
  double weight_bytes = 0;             // at the precision
  double forward_flops = 0;            // of a sample
  double model_flops = 0;              // of a sample trained: three times those
  double output_bytes = 0;             // of a sample
  std::vector<Part> layers;            // embedding and head are layers of their own
  std::vector<Part> operators;         // by kind
  std::vector<std::string> assumed;    // sentences
};

// `seq_len` 0: the workload's own. Throws UserError where a model with sequences says none, and where one
// without is given one.
Description describe(const Workload& workload, int seq_len = 0, DType precision = DType::bf16);

}  // namespace orrery
