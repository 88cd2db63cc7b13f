#include "exec/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace orrery::exec {
namespace {

const LargeJson* member(const LargeJson& json, const char* key) {
  const auto at = json.find(key);
  return at == json.end() || at->is_null() ? nullptr : &*at;
}

// What transformers' BertTokenizerFast makes of a vocab.txt, a token a line, and of the `do_lower_case`,
// `strip_accents` and `tokenize_chinese_chars` of a tokenizer_config.json beside it.
LargeJson of_vocabulary(const std::string& file) {
  LargeJson vocabulary = LargeJson::object();
  LargeJson added = LargeJson::array();
  std::uint32_t number = 0;  // as files have it: unsigned
  const std::string text = read_file(file);
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string token = text.substr(at, end - at);
    if (token.ends_with('\r')) token.pop_back();
    at = end + 1;
    for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
      if (token == special) added.push_back({{"id", number}, {"content", token}});
    vocabulary[token] = number;
  }
  if (!vocabulary.contains("[UNK]"))
    throw UserError(file, 0, "has no line '[UNK]'", "BERT's vocab.txt, a token a line");
  LargeJson normaliser = {{"type", "BertNormalizer"}};
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / "tokenizer_config.json";
  std::error_code code;
  if (std::filesystem::exists(beside, code)) {
    const LargeJson config = parse_large_json(read_file(beside.string()), beside.string());
    if (!config.is_object()) throw UserError(beside.string(), 0, "is no object", "a tokenizer's settings");
    for (const auto& [from, to] : {std::pair{"do_lower_case", "lowercase"},
                                   {"strip_accents", "strip_accents"},
                                   {"tokenize_chinese_chars", "handle_chinese_chars"}}) {
      const LargeJson* value = member(config, from);
      if (value == nullptr) continue;
      if (!value->is_boolean())
        throw UserError(beside.string(), 0, fmt::format("`{}` is {}", from, value->dump()), "true or false");
      normaliser[to] = *value;
    }
  }
  return {{"normalizer", normaliser},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", std::move(vocabulary)}}},
          {"added_tokens", added}};
}

}  // namespace

Tokenizer::Tokenizer(const std::string& file) : file_(file) {
  const LargeJson json =
      file.ends_with(".txt") ? of_vocabulary(file) : parse_large_json(read_file(file), file);
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
    const auto says = [&](const char* key) {
      const LargeJson* value = member(one, key);
      return value != nullptr && *value == true;
    };
    Added token{content->get<std::string>(), id->get<std::int32_t>(), says("single_word"), says("lstrip"),
                says("rstrip")};
    largest_ = std::max(largest_, token.token);
    if (token.text == "[MASK]" || token.text == "<mask>") mask_ = token.token;
    const bool normalised = says("normalized");
    if (normalised) token.text = normalise_(token.text);
    if (token.text.empty()) continue;
    (normalised ? added_normalised_ : added_)[token.text.front()].push_back(std::move(token));
  }
  for (AddedTokens* tokens : {&added_, &added_normalised_})
    for (auto& [first, all] : *tokens)
      std::stable_sort(all.begin(), all.end(),
                       [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
}

void Tokenizer::encode_words(std::string_view part, bool first, std::vector<std::int32_t>* tokens) const {
  if (part.empty()) return;
  constexpr std::size_t kRemembered = 64;  // bytes: longer words hardly come twice
  std::unordered_map<std::string, std::vector<std::int32_t>> known;
  split_(part, first, [&](std::string_view word) {
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

void Tokenizer::split_at(const AddedTokens& added, std::string_view text,
                         const std::function<void(std::string_view)>& part,
                         std::vector<std::int32_t>* tokens) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; !added.empty() && at < text.size();) {
    const auto starting = added.find(text[at]);
    const Added* found = nullptr;
    if (starting != added.end())
      for (const Added& one : starting->second)
        if (found == nullptr && text.substr(at, one.text.size()) == one.text) found = &one;
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t end = at + found->text.size();
    if (found->single_word && (ends_in_word(text.substr(0, at)) || begins_in_word(text.substr(end)))) {
      at = end;
      continue;
    }
    const std::string_view before = text.substr(begin, at - begin);
    part(before.substr(0, before.size() - (found->takes_before ? white_at_end(before) : 0)));
    tokens->push_back(found->token);
    if (found->takes_behind) end += white_at_begin(text.substr(end));
    begin = at = end;
  }
  part(text.substr(begin));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  const char* const begin = text.data();
  split_at(
      added_, text,
      [&](std::string_view part) {
        if (part.empty()) return;
        const std::string normal = normalise_(std::string(part));
        split_at(
            added_normalised_, normal,
            [&](std::string_view words) {
              encode_words(words, part.data() == begin && words.data() == normal.data(), &tokens);
            },
            &tokens);
      },
      &tokens);
  return tokens;
}

}  // namespace orrery::exec
