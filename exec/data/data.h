// Training data: sequences of a text file, as bytes or as tokens of a vocabulary, or of a file of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/data/token_file.h"

namespace orrery::exec {

// The licence that every Debian system carries.
constexpr const char* kDefaultText = "/usr/share/common-licenses/GPL-3";

// The text is cut into sequences that do not overlap. Each time through (an epoch) visits every one of them
// once, in an order of its own; what is left at the end of the text, shorter than a sequence, is not used.
class TextData {
 public:
  // `samples_per_step`: the global batch. `vocabulary`: a tokenizer.json or the folder of one
  // (exec/data/tokenizer.h), or the folder of a GPT-2 vocabulary (exec/data/bpe.h); empty: a token is a byte.
  // A file of tokens (exec/data/token_file.h) takes no vocabulary; of such a file `model_vocabulary` (0: any)
  // is what its tokens must stay below, which is seen as they are used. Throws UserError where a file cannot
  // be read or the text is shorter than seq_len + 1 tokens.
  TextData(const std::string& file, int seq_len, std::uint64_t seed, std::int64_t samples_per_step = 1,
           const std::string& vocabulary = {}, std::int32_t model_vocabulary = 0);

  // Sample `index` of the global batch of `step`, by (seed, step, index) alone: every plan trains on the same
  // batches, and ranks that take different samples never take the same sequence in one epoch. Both spans have
  // seq_len elements. Throws UserError on a token that the model does not have.
  void sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;

  // Where that sample begins, in tokens from the start of the file (bytes of a text without a vocabulary).
  std::int64_t begin_of(std::int64_t step, std::int64_t index) const;

  const std::string& file() const { return file_->file(); }
  std::int64_t sequences() const { return sequences_; }             // of an epoch
  std::optional<std::int32_t> mask_token() const { return mask_; }  // of a tokenizer that has one
  // That the vocabulary has; nothing of a file of tokens, which does not say it.
  std::optional<std::int32_t> largest_token() const;

 private:
  std::int32_t token(std::int64_t at) const;

  std::shared_ptr<const TokenFile> file_;
  std::vector<std::int32_t> tokens_;  // of a vocabulary; none: the file's own
  int seq_len_;
  std::uint64_t seed_;
  std::int64_t samples_per_step_;
  std::int32_t model_vocabulary_;
  std::int64_t sequences_ = 0;
  std::int32_t largest_ = 255;
  std::optional<std::int32_t> mask_;
};

}  // namespace orrery::exec
