#include "exec/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/file.h"

namespace orrery::exec {
namespace {

const LargeJson* member(const LargeJson& json, const char* key) {
  const auto at = json.find(key);
  return at == json.end() || at->is_null() ? nullptr : &*at;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& file) : file_(file) {
  const LargeJson json = parse_large_json(read_file(file), file);
  const LargeJson* model = json.is_object() ? member(json, "model") : nullptr;
  if (model == nullptr || !model->is_object())
    throw UserError(file, 0, "has no model", "Hugging Face's tokenizer.json");
  const LargeJson none;
  const auto part = [&](const char* key) -> const LargeJson& {
    const LargeJson* found = member(json, key);
    return found == nullptr ? none : *found;
  };
  normalise_ = text_normaliser(part("normalizer"), file);
  split_ = text_splitter(part("pre_tokenizer"), file);
  model_ = token_model(*model, file);
  const LargeJson* vocabulary = member(*model, "vocab");
  if (vocabulary->is_array()) {
    largest_ = static_cast<std::int32_t>(vocabulary->size()) - 1;
  } else {
    for (const auto& entry : vocabulary->items())
      largest_ = std::max(largest_, entry.value().get<std::int32_t>());
  }
  read_added(json, file);
}

void Tokenizer::read_added(const LargeJson& json, const std::string& file) {
  const LargeJson* added = member(json, "added_tokens");
  if (added == nullptr) return;
  const auto fail = [&] {
    throw UserError(file, 0, "has an added token without its number and text", "id and content");
  };
  if (!added->is_array()) fail();
  for (const LargeJson& one : *added) {
    const LargeJson* content = one.is_object() ? member(one, "content") : nullptr;
    const LargeJson* id = one.is_object() ? member(one, "id") : nullptr;
    if (content == nullptr || !content->is_string() || id == nullptr || !id->is_number_unsigned() ||
        id->get<std::uint64_t>() >= static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
      fail();
    Added token{content->get<std::string>(), id->get<std::int32_t>(), true};
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (const LargeJson* says = member(one, key); says != nullptr && *says == true) token.plain = false;
    largest_ = std::max(largest_, token.token);
    if (token.text == "[MASK]" || token.text == "<mask>") mask_ = token.token;
    if (token.text.empty()) continue;
    added_[token.text.front()].push_back(std::move(token));
  }
  for (auto& [first, all] : added_)
    std::stable_sort(all.begin(), all.end(),
                     [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
}

void Tokenizer::encode_part(std::string_view part, bool first, std::vector<std::int32_t>* tokens) const {
  if (part.empty()) return;
  constexpr std::size_t kRemembered = 64;  // bytes: longer words hardly come twice
  std::unordered_map<std::string, std::vector<std::int32_t>> known;
  split_(normalise_(std::string(part)), first, [&](std::string_view word) {
    if (word.empty()) return;
    if (word.size() > kRemembered) {
      model_->encode(word, tokens);
      return;
    }
    const auto [found, first_seen] = known.try_emplace(std::string(word));
    if (first_seen) model_->encode(word, &found->second);
    tokens->insert(tokens->end(), found->second.begin(), found->second.end());
  });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::size_t begin = 0;
  for (std::size_t at = 0; !added_.empty() && at < text.size();) {
    const auto starting = added_.find(text[at]);
    const Added* found = nullptr;
    if (starting != added_.end())
      for (const Added& one : starting->second)
        if (found == nullptr && text.substr(at, one.text.size()) == one.text) found = &one;
    if (found == nullptr) {
      ++at;
      continue;
    }
    if (!found->plain)
      throw UserError(
          file_, 0,
          fmt::format("the text holds its token '{}', which takes blanks around it or stands alone",
                      found->text),
          "a text without it");
    encode_part(text.substr(begin, at - begin), begin == 0, &tokens);
    tokens.push_back(found->token);
    begin = at += found->text.size();
  }
  encode_part(text.substr(begin), begin == 0, &tokens);
  return tokens;
}

}  // namespace orrery::exec
