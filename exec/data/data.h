// Training data: sequences of a text file, as bytes or as tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::exec {

// The licence that every Debian system carries.
constexpr const char* kDefaultText = "/usr/share/common-licenses/GPL-3";

// The text is cut into sequences that do not overlap. Each time through (an epoch) visits every one of them
// once, in an order of its own; what is left at the end of the text, shorter than a sequence, is not used.
class TextData {
 public:
  // `samples_per_step`: the global batch. `vocabulary`: folder of a GPT-2 vocabulary (exec/data/bpe.h);
  // empty: a token is a byte. Throws UserError where a file cannot be read or the text is shorter than
  // seq_len + 1 tokens.
  TextData(const std::string& file, int seq_len, std::uint64_t seed, std::int64_t samples_per_step = 1,
           const std::string& vocabulary = {});

  // Sample `index` of the global batch of `step`, by (seed, step, index) alone: every plan trains on the same
  // batches, and ranks that take different samples never take the same sequence in one epoch. Both spans have
  // seq_len elements.
  void sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;

  std::int64_t sequences() const { return sequences_; }  // of an epoch
  std::int32_t largest_token() const { return largest_; }

 private:
  std::int32_t token(std::size_t at) const {
    return tokens_.empty() ? static_cast<unsigned char>(text_[at]) : tokens_[at];
  }

  std::string text_;                  // bytes, or
  std::vector<std::int32_t> tokens_;  // tokens of a vocabulary
  std::uint64_t seed_;
  std::int64_t samples_per_step_;
  std::int64_t sequences_ = 0;
  std::int32_t largest_ = 255;
};

}  // namespace orrery::exec
