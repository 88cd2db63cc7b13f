// Bounds on a transformer's dimensions, and what must hold between them: shared by the importers.
#pragma once

#include <functional>
#include <string_view>

#include "workloads/workload.h"

namespace orrery::internal {

// Far beyond any model, so that products of dimensions stay within 63 bits and a hostile file cannot ask for
// more operators than memory holds.
constexpr int kMaxLayers = 10'000;
constexpr int kMaxWidth = 1 << 22;
constexpr int kMaxHeads = 1 << 16;
constexpr int kMaxVocab = 1 << 28;
constexpr int kMaxExperts = 1 << 16;
constexpr int kMaxPositions = 1 << 28;
constexpr double kMaxParameters = 1e17;
constexpr double kMostDropout = 0.99;  // of which something is left to learn by

// Of a model whose file names no training length: its longest, but no more than this (long-context models are
// trained on short sequences first).
constexpr int kMaxDefaultSeqLen = 8192;

// `fail` must throw; its field is a name of Transformer.
using Fail = std::function<void(std::string_view field, std::string_view what, std::string_view expected)>;
void check_transformer(const Transformer& model, const Fail& fail);

}  // namespace orrery::internal
