#include "exec/data/bpe.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace orrery::exec {
namespace {

constexpr int kMaxMerges = 4'000'000;

std::string utf8(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

}  // namespace

std::array<std::string, 256> byte_spelling() {
  std::array<std::string, 256> spelled;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    spelled[static_cast<std::size_t>(byte)] = utf8(printable ? static_cast<char32_t>(byte) : next++);
  }
  return spelled;
}

std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
  if (length == 1 || first >= 0xF5 || at + length > text.size()) return {0xFFFD, 1};
  char32_t c = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, 1};
    c = c << 6 | (byte(i) & 0x3F);
  }
  // Longer than need be, half of a pair of UTF-16, or beyond the last: no UTF-8 either.
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xD800 && c < 0xE000;
  if (c < least[length] || surrogate || c > 0x10FFFF) return {0xFFFD, 1};
  return {c, length};
}

namespace {

enum class Kind { letter, digit, space, other };

// \s, \p{L} and \p{N} of Unicode, as the pattern's own regular expressions have them.
Kind kind_of(char32_t c) {
  if (c < 0x80) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Kind::letter;
    if (c >= '0' && c <= '9') return Kind::digit;
    return c == ' ' || (c >= '\t' && c <= '\r') ? Kind::space : Kind::other;
  }
  const auto point = static_cast<UChar32>(c);
  if (u_isUWhiteSpace(point) != 0) return Kind::space;
  const std::uint32_t category = U_GET_GC_MASK(point);
  if ((category & U_GC_L_MASK) != 0) return Kind::letter;
  return (category & U_GC_N_MASK) != 0 ? Kind::digit : Kind::other;
}

// The end of the word that begins at `at`, as
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t word_end(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (text.substr(at, ending.size()) == ending) return at + ending.size();
  const auto kind_at = [&](std::size_t i) { return kind_of(character_at(text, i).first); };
  std::size_t begin = at;
  if (text[at] == ' ' && at + 1 < text.size() && kind_at(at + 1) != Kind::space) begin = at + 1;
  const Kind kind = kind_at(begin);
  std::size_t end = begin;
  std::size_t last = begin;  // where the last character begins
  while (end < text.size() && kind_at(end) == kind) {
    last = end;
    end += character_at(text, end).second;
  }
  // White space before a word leaves its last character to the word.
  if (kind == Kind::space && end < text.size() && last > at) return last;
  return end;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

BpeVocabulary::BpeVocabulary(const std::string& folder) : spelled_(byte_spelling()) {
  read_vocabulary(folder + "/vocab.json");
  for (std::size_t byte = 0; byte < spelled_.size(); ++byte) {
    const auto found = number_.find(spelled_[byte]);
    if (found == number_.end())
      throw UserError(folder + "/vocab.json", 0, "has no token '" + spelled_[byte] + "'",
                      "a token for each byte, as GPT-2's has");
    byte_token_[byte] = found->second;
  }
  read_merges(folder + "/merges.txt");
}

void BpeVocabulary::read_vocabulary(const std::string& file) {
  const std::string text = read_file(file);
  const LargeJson json = parse_large_json(text, file);
  if (!json.is_object()) throw UserError(file, 1, "is no JSON object", "token to number");
  for (const auto& [token, number] : json.items()) {
    if (!number.is_number_unsigned() ||
        number.get<std::uint64_t>() >= static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
      throw UserError(file, line_of_key(text, token), "a token has no number", "numbers from 0");
    const auto value = number.get<std::int32_t>();
    number_[token] = value;
    if (!token_.emplace(value, token).second)
      throw UserError(file, line_of_key(text, token), fmt::format("two tokens have number {}", value),
                      "one each");
    largest_ = std::max(largest_, value);
  }
}

void BpeVocabulary::read_merges(const std::string& file) {
  const std::string text = read_file(file);
  int line = 0;
  int rank = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view words(text.data() + at, end - at);
    at = end + 1;
    ++line;
    if (!words.empty() && words.back() == '\r') words.remove_suffix(1);
    if (words.empty() || (line == 1 && words.rfind("#version", 0) == 0)) continue;
    const std::size_t blank = words.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == words.size() ||
        words.find(' ', blank + 1) != std::string_view::npos)
      throw UserError(file, line, "is no pair of tokens", "two tokens with a blank between them");
    if (rank >= kMaxMerges) throw UserError(file, line, "has too many merges", "at most 4,000,000");
    const auto number = [&](const std::string& token) {
      const auto found = number_.find(token);
      if (found == number_.end())
        throw UserError(file, line, fmt::format("has '{}', a token that vocab.json does not have", token),
                        "a pair of files that belong together");
      return found->second;
    };
    const std::string first(words.substr(0, blank));
    const std::string second(words.substr(blank + 1));
    merges_.add(number(first), number(second), number(first + second));
    ++rank;
  }
}

std::vector<std::int32_t> BpeVocabulary::encode_word(std::string_view word) const {
  std::vector<std::int32_t> parts;
  for (const char byte : word) parts.push_back(byte_token_[static_cast<unsigned char>(byte)]);
  return merges_.merged(parts);
}

std::vector<std::int32_t> BpeVocabulary::encode(std::string_view text) const {
  constexpr std::size_t kRemembered = 64;  // bytes: longer words hardly come twice
  std::unordered_map<std::string, std::vector<std::int32_t>> known;
  std::vector<std::int32_t> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    const std::string_view word = text.substr(at, end - at);
    at = end;
    if (word.size() > kRemembered) {
      const auto its = encode_word(word);
      tokens.insert(tokens.end(), its.begin(), its.end());
      continue;
    }
    const auto [found, first_seen] = known.try_emplace(std::string(word));
    if (first_seen) found->second = encode_word(word);
    tokens.insert(tokens.end(), found->second.begin(), found->second.end());
  }
  return tokens;
}

std::string BpeVocabulary::decode(const std::vector<std::int32_t>& tokens) const {
  std::unordered_map<std::string, char> byte_of;
  for (int byte = 0; byte < 256; ++byte)
    byte_of[spelled_[static_cast<std::size_t>(byte)]] = static_cast<char>(byte);
  std::string text;
  for (const std::int32_t token : tokens) {
    const auto found = token_.find(token);
    ORRERY_CHECK(found != token_.end(), "no such token");
    const std::string& spelled = found->second;
    for (std::size_t at = 0; at < spelled.size();) {
      const std::size_t length = character_at(spelled, at).second;
      const auto byte = byte_of.find(spelled.substr(at, length));
      if (byte != byte_of.end()) text += byte->second;  // special tokens are spelled in plain characters
      at += length;
    }
  }
  return text;
}

}  // namespace orrery::exec
