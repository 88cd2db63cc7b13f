#include "exec/data/data.h"

#include "base/error.h"
#include "base/file.h"
#include "exec/data/bpe.h"
#include "exec/data/epoch.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kMaxTextFileBytes = 4ULL << 30;

}  // namespace

TextData::TextData(const std::string& file, int seq_len, std::uint64_t seed, std::int64_t samples_per_step,
                   const std::string& vocabulary)
    : text_(read_file(file, kMaxTextFileBytes)), seed_(seed), samples_per_step_(samples_per_step) {
  if (!vocabulary.empty()) {
    const BpeVocabulary bpe(vocabulary);
    tokens_ = bpe.encode(text_);
    text_.clear();
    largest_ = bpe.largest();
  }
  const std::size_t tokens = vocabulary.empty() ? text_.size() : tokens_.size();
  if (tokens <= static_cast<std::size_t>(seq_len))
    throw UserError(file, 0,
                    std::to_string(tokens) + (vocabulary.empty() ? " bytes" : " tokens") + " of text",
                    "at least " + std::to_string(seq_len + 1) + ", a sequence and its last target");
  sequences_ = static_cast<std::int64_t>((tokens - 1) / static_cast<std::size_t>(seq_len));
}

void TextData::sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const {
  const std::int64_t number = step * samples_per_step_ + index;
  const std::size_t begin =
      static_cast<std::size_t>(place_in_epoch(seed_, number / sequences_, number % sequences_, sequences_)) *
      tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = token(begin + i);
    targets[i] = token(begin + i + 1);
  }
}

}  // namespace orrery::exec
