// GPT-2's byte-level byte-pair encoding, from the two files that people have (Radford et al. 2019,
// section 2.2, and its released encoder): vocab.json (token to number) and merges.txt (pairs, best first).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/data/merges.h"

namespace orrery::exec {

// The text cut into words, as its encoder's pattern cuts it:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::vector<std::string_view> words_of(std::string_view text);

// Bytes as such vocabularies spell them: printable Latin-1 stands for itself, every other byte for the next
// character from U+0100 on.
std::array<std::string, 256> byte_spelling();
// The character at `at` and how many bytes it has; U+FFFD and one byte where there is no UTF-8.
std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t at);

class BpeVocabulary {
 public:
  // `folder` holds vocab.json and merges.txt. Throws UserError with file and line.
  explicit BpeVocabulary(const std::string& folder);

  // Text of any bytes. Words are cut as GPT-2 cuts them: a contraction ('s 't 're 've 'm 'll 'd), or one
  // blank at most and then letters, digits, or other characters, or white space. What is a letter, a digit or
  // white space is as Unicode's categories say (ICU); bytes that are no UTF-8 are other characters.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The bytes that tokens stand for. Throws InternalError on a number that is none.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  std::int32_t largest() const { return largest_; }  // number of a token

 private:
  void read_vocabulary(const std::string& file);
  void read_merges(const std::string& file);
  std::vector<std::int32_t> encode_word(std::string_view word) const;

  std::array<std::string, 256> spelled_;  // a byte as the vocabulary spells it: one printable character
  std::unordered_map<std::string, std::int32_t> number_;
  std::map<std::int32_t, std::string> token_;
  std::array<std::int32_t, 256> byte_token_ = {};
  Merges merges_;
  std::int32_t largest_ = 0;
};

}  // namespace orrery::exec
