#include "exec/data/data.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "exec/data/bpe.h"
#include "exec/data/epoch.h"
#include "exec/data/tokenizer.h"

namespace orrery::exec {
namespace {

// A tokenizer.json says more than the vocab.json and merges.txt, or the vocab.txt, that may lie beside it.
// Empty: GPT-2's.
std::string tokenizer_file(const std::string& vocabulary) {
  std::error_code code;
  if (!std::filesystem::is_directory(vocabulary, code)) return vocabulary;
  for (const char* name : {"/tokenizer.json", "/vocab.json", "/vocab.txt"})
    if (std::filesystem::exists(vocabulary + name, code))
      return std::string_view(name) == "/vocab.json" ? std::string() : vocabulary + name;
  return {};
}

}  // namespace

TextData::TextData(const std::string& file, int seq_len, std::uint64_t seed, std::int64_t samples_per_step,
                   const std::string& vocabulary, std::int32_t model_vocabulary)
    : file_(std::make_shared<TokenFile>(file)),
      seq_len_(seq_len),
      seed_(seed),
      samples_per_step_(samples_per_step),
      model_vocabulary_(model_vocabulary) {
  const bool bytes = vocabulary.empty() && file_->is_text();
  if (bytes && model_vocabulary > 0 && model_vocabulary <= largest_)
    throw UserError(file, 0,
                    fmt::format("is a text, whose bytes are tokens 0 to {}, and the model has {}", largest_,
                                model_vocabulary),
                    "a file of tokens (.bin), or a `vocab` as small");
  if (!vocabulary.empty()) {
    if (!file_->is_text()) throw UserError(file, 0, "holds tokens already", "no `vocab`, or a text");
    if (const std::string tokenizer = tokenizer_file(vocabulary); !tokenizer.empty()) {
      const Tokenizer own(tokenizer);
      tokens_ = own.encode(file_->text());
      largest_ = own.largest();
      mask_ = own.mask();
    } else {
      const BpeVocabulary bpe(vocabulary);
      tokens_ = bpe.encode(file_->text());
      largest_ = bpe.largest();
    }
  }
  const std::int64_t tokens =
      vocabulary.empty() ? file_->tokens() : static_cast<std::int64_t>(tokens_.size());
  if (tokens <= seq_len)
    throw UserError(file, 0, fmt::format("{} {} of text", tokens, bytes ? "bytes" : "tokens"),
                    fmt::format("at least {}, a sequence and its last target", seq_len + 1));
  sequences_ = (tokens - 1) / seq_len;
}

std::optional<std::int32_t> TextData::largest_token() const {
  if (tokens_.empty() && !file_->is_text()) return std::nullopt;
  return largest_;
}

std::int32_t TextData::token(std::int64_t at) const {
  if (!tokens_.empty()) return tokens_[static_cast<std::size_t>(at)];
  const std::int32_t token = file_->token(at);
  if (!file_->is_text() && (token < 0 || (model_vocabulary_ > 0 && token >= model_vocabulary_)))
    throw UserError(file_->file(), 0,
                    fmt::format("token {} is {} and the model has {}", at, token, model_vocabulary_),
                    "tokens of the model's own vocabulary");
  return token;
}

std::int64_t TextData::begin_of(std::int64_t step, std::int64_t index) const {
  const std::int64_t number = step * samples_per_step_ + index;
  return place_in_epoch(seed_, number / sequences_, number % sequences_, sequences_) * seq_len_;
}

void TextData::sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const {
  const std::int64_t begin = begin_of(step, index);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = token(begin + static_cast<std::int64_t>(i));
    targets[i] = token(begin + static_cast<std::int64_t>(i) + 1);
  }
}

}  // namespace orrery::exec
