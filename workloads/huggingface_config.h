// What a Hugging Face `config.json` says of a transformer, for whoever loads its weights there.
#pragma once

#include <optional>
#include <string>

#include "workloads/workload.h"

namespace orrery {

// The text of a config.json that workload_from_huggingface reads as this transformer, and that names the
// class of `transformers` whose weights have the names of its tensors. Of GPT-2, BERT, GPT-NeoX, Llama,
// Mistral, Mixtral, Qwen 2, Qwen 3 (dense and experts), OLMo 2, OLMoE, Gemma, Gemma 2, StableLM, StarCoder2;
// nothing of other families, and of models whose configuration says more (expert biases, layer patterns,
// ...).
std::optional<std::string> huggingface_config(const Transformer& transformer);

// yarn's scores grow with the logarithm of the factor (arXiv 2309.00071, section 3.4; transformers'
// modeling_rope_utils; Megatron-LM's _yarn_get_mscale); `scale`: a configuration's mscale or mscale_all_dim.
double yarn_amplitude(double factor, double scale);
// The scale of an amplitude, for factors above 1.
double yarn_scale_of(double factor, double amplitude);

}  // namespace orrery
