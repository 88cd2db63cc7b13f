// What a model learns to predict: the next token, or (BERT, arXiv 1810.04805, section 3.1) tokens that were
// hidden from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "program/plan.h"

namespace orrery::exec {

// Of the rows of a target that is not asked for: no loss, no gradient.
constexpr std::int32_t kNoTarget = -1;

// Rows of a sample that have a target, the same in every sample: of images one, the class; of text all of the
// sequence, or 15% of it, rounded, at least one, as BERT's own data are made (create_pretraining_data.py in
// google-research/bert).
std::int64_t predictions_per_sample(const Job& job);

// One sample: hides predictions_per_sample() of its tokens, chosen by (seed, step, sample, position) alone.
// Of these 80% become the mask, 10% a random token of the first `kinds`, 10% stay. `targets` becomes the
// hidden tokens, kNoTarget everywhere else. `mask`: the token that stands for what is hidden; nothing: the
// one after the first `kinds`, which no text has.
void hide_tokens(const Job& job, std::int64_t step, std::int64_t sample, std::int32_t kinds,
                 std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                 std::optional<std::int32_t> mask = std::nullopt);

}  // namespace orrery::exec
