#include "exec/data.h"

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kMaxTextFileBytes = 4ULL << 30;
constexpr std::uint64_t kSamplingStream = 0x73616D706C65;  // "sample"

}  // namespace

TextData::TextData(const std::string& file, int seq_len, std::uint64_t seed)
    : text_(read_file(file, kMaxTextFileBytes)), seed_(seed) {
  if (text_.size() <= static_cast<std::size_t>(seq_len))
    throw UserError(file, 0, std::to_string(text_.size()) + " bytes of text",
                    "at least " + std::to_string(seq_len + 1) + ", a sequence and its last target");
}

void TextData::sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const {
  const CounterRandom random(seed_ + static_cast<std::uint64_t>(step), kSamplingStream);
  const std::size_t begin = static_cast<std::size_t>(random.bits(static_cast<std::uint64_t>(index)) %
                                                     (text_.size() - tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<unsigned char>(text_[begin + i]);
    targets[i] = static_cast<unsigned char>(text_[begin + i + 1]);
  }
}

}  // namespace orrery::exec
