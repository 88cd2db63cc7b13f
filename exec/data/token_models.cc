// tokenizer.json's models: byte pairs (arXiv 1508.07909), WordPiece (arXiv 1609.08144) and Unigram
// (arXiv 1804.10959).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "exec/data/bpe.h"
#include "exec/data/merges.h"
#include "exec/data/tokenizer.h"

namespace orrery::exec {
namespace {

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

class ModelReader {
 public:
  ModelReader(const LargeJson& json, const std::string& file) : json_(json), file_(file) {}

  [[noreturn]] void fail(const std::string& what, const std::string& expected) const {
    throw UserError(file_, 0, what, expected);
  }
  const LargeJson* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  std::string text(const char* key) const {
    const LargeJson* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_string()) fail(fmt::format("its model's {} is no text", key), "a text");
    return found->get<std::string>();
  }
  bool says(const char* key) const {
    const LargeJson* found = find(key);
    return found != nullptr && *found == true;
  }
  Vocabulary vocabulary() const {
    const LargeJson* found = find("vocab");
    if (found == nullptr || !found->is_object()) fail("its model has no vocab", "token to number");
    Vocabulary all;
    for (const auto& [token, number] : found->items()) {
      if (!number.is_number_unsigned() ||
          number.get<std::uint64_t>() >= static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
        fail(fmt::format("its token '{}' has no number", token), "numbers from 0");
      all.emplace(token, number.get<std::int32_t>());
    }
    return all;
  }
  std::int32_t number_of(const Vocabulary& vocabulary, const std::string& token) const {
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end())
      fail(fmt::format("its vocabulary has no '{}'", token), "a token that the model names");
    return found->second;
  }

 private:
  const LargeJson& json_;
  const std::string& file_;
};

// <0x00> … <0xFF>: what is in no vocabulary byte by byte. None where one of them is missing.
std::optional<std::array<std::int32_t, 256>> byte_tokens(const Vocabulary& vocabulary) {
  std::array<std::int32_t, 256> tokens{};
  for (std::size_t byte = 0; byte < tokens.size(); ++byte) {
    const auto found = vocabulary.find(fmt::format("<0x{:02X}>", byte));
    if (found == vocabulary.end()) return std::nullopt;
    tokens[byte] = found->second;
  }
  return tokens;
}

class BytePairs final : public TokenModel {
 public:
  explicit BytePairs(const ModelReader& read)
      : vocabulary_(read.vocabulary()),
        prefix_(read.text("continuing_subword_prefix")),
        suffix_(read.text("end_of_word_suffix")),
        whole_first_(read.says("ignore_merges")),
        fuses_unknown_(read.says("fuse_unk")) {
    if (const LargeJson* dropout = read.find("dropout"); dropout != nullptr && *dropout != 0)
      read.fail("its merges are dropped out", "no dropout");
    if (const std::string unknown = read.text("unk_token"); !unknown.empty())
      unknown_ = read.number_of(vocabulary_, unknown);
    if (read.says("byte_fallback")) bytes_ = byte_tokens(vocabulary_);
    const LargeJson* merges = read.find("merges");
    if (merges == nullptr || !merges->is_array()) read.fail("its model has no merges", "a list of pairs");
    for (const LargeJson& merge : *merges) {
      std::string first, second;
      if (merge.is_string()) {
        const auto both = merge.get<std::string>();
        const std::size_t blank = both.find(' ');
        if (blank != std::string::npos) first = both.substr(0, blank), second = both.substr(blank + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        first = merge[0].get<std::string>();
        second = merge[1].get<std::string>();
      }
      if (first.empty() || second.empty()) read.fail("one of its merges is no pair", "two tokens each");
      if (second.size() < prefix_.size()) read.fail("one of its merges lacks the prefix", "both tokens");
      merges_.add(read.number_of(vocabulary_, first), read.number_of(vocabulary_, second),
                  read.number_of(vocabulary_, first + second.substr(prefix_.size())));
    }
  }

  void encode(std::string_view word, std::vector<std::int32_t>* tokens) const override {
    if (whole_first_)
      if (const auto whole = vocabulary_.find(std::string(word)); whole != vocabulary_.end()) {
        tokens->push_back(whole->second);
        return;
      }
    std::vector<std::int32_t> parts;
    bool unknown_before = false;
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = character_at(word, at).second;
      std::string symbol(word.substr(at, length));
      if (at > 0) symbol = prefix_ + symbol;
      if (at + length == word.size()) symbol += suffix_;
      const auto found = vocabulary_.find(symbol);
      const bool unknown = found == vocabulary_.end() && !bytes_;
      if (found != vocabulary_.end()) {
        parts.push_back(found->second);
      } else if (bytes_) {
        for (const char byte : word.substr(at, length))
          parts.push_back((*bytes_)[static_cast<unsigned char>(byte)]);
      } else if (unknown_ && !(fuses_unknown_ && unknown_before)) {
        parts.push_back(*unknown_);
      }
      unknown_before = unknown;
      at += length;
    }
    const std::vector<std::int32_t> merged = merges_.merged(parts);
    tokens->insert(tokens->end(), merged.begin(), merged.end());
  }

 private:
  Vocabulary vocabulary_;
  std::string prefix_, suffix_;
  bool whole_first_, fuses_unknown_;
  std::optional<std::int32_t> unknown_;
  std::optional<std::array<std::int32_t, 256>> bytes_;
  Merges merges_;
};

class WordPieces final : public TokenModel {
 public:
  explicit WordPieces(const ModelReader& read)
      : vocabulary_(read.vocabulary()),
        prefix_(read.find("continuing_subword_prefix") == nullptr ? "##"
                                                                  : read.text("continuing_subword_prefix")) {
    const std::string unknown = read.text("unk_token");
    unknown_ = read.number_of(vocabulary_, unknown.empty() ? "[UNK]" : unknown);
    if (const LargeJson* most = read.find("max_input_chars_per_word"); most != nullptr) {
      if (!most->is_number_unsigned()) read.fail("its max_input_chars_per_word is no number", "a number");
      most_ = most->get<std::size_t>();
    }
    for (const auto& [token, number] : vocabulary_) longest_ = std::max(longest_, token.size());
  }

  // The longest token that the rest begins with, again and again; a word that cannot be made is unknown.
  void encode(std::string_view word, std::vector<std::int32_t>* tokens) const override {
    std::vector<std::size_t> ends;  // of characters
    for (std::size_t at = 0; at < word.size(); ends.push_back(at)) at += character_at(word, at).second;
    std::vector<std::int32_t> parts;
    std::size_t begin = 0;
    if (ends.size() > most_) begin = word.size() + 1;
    while (begin < word.size()) {
      auto end = std::upper_bound(ends.begin(), ends.end(), begin + longest_);
      const auto least = std::upper_bound(ends.begin(), ends.end(), begin);
      for (; end != least; --end) {
        const std::string piece =
            (begin > 0 ? prefix_ : "") + std::string(word.substr(begin, *(end - 1) - begin));
        if (const auto found = vocabulary_.find(piece); found != vocabulary_.end()) {
          parts.push_back(found->second);
          break;
        }
      }
      if (end == least) break;
      begin = *(end - 1);
    }
    if (begin != word.size()) parts = {unknown_};
    tokens->insert(tokens->end(), parts.begin(), parts.end());
  }

 private:
  Vocabulary vocabulary_;
  std::string prefix_;
  std::int32_t unknown_ = 0;
  std::size_t most_ = 100;  // characters of a word
  std::size_t longest_ = 0;
};

class Unigrams final : public TokenModel {
 public:
  explicit Unigrams(const ModelReader& read) {
    const LargeJson* all = read.find("vocab");
    if (all == nullptr || !all->is_array() || all->empty())
      read.fail("its model has no vocab", "pairs of token and score");
    double least = std::numeric_limits<double>::infinity();
    nodes_.emplace_back();
    Vocabulary vocabulary;
    for (const LargeJson& pair : *all) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number())
        read.fail("one of its tokens has no score", "pairs of token and score");
      const auto number = static_cast<std::int32_t>(scores_.size());
      scores_.push_back(pair[1].get<double>());
      least = std::min(least, scores_.back());
      const auto token = pair[0].get<std::string>();
      vocabulary.emplace(token, number);
      std::size_t at = 0;
      for (const char byte : token) {
        const auto key = static_cast<unsigned char>(byte);
        auto next = nodes_[at].next.find(key);
        if (next == nodes_[at].next.end()) {
          next = nodes_[at].next.emplace(key, nodes_.size()).first;
          nodes_.emplace_back();
          at = nodes_.size() - 1;
        } else {
          at = next->second;
        }
      }
      if (at > 0) nodes_[at].token = number;
    }
    if (const LargeJson* unknown = read.find("unk_id"); unknown != nullptr) {
      if (!unknown->is_number_unsigned() || unknown->get<std::size_t>() >= scores_.size())
        read.fail("its unk_id is no token", "a token's number");
      unknown_ = unknown->get<std::int32_t>();
    }
    if (read.says("byte_fallback")) bytes_ = byte_tokens(vocabulary);
    constexpr double kUnknownPenalty = 10;
    unknown_score_ = least - kUnknownPenalty;
  }

  // The most likely tokens (Viterbi); characters that no token has are unknown, side by side one token.
  void encode(std::string_view word, std::vector<std::int32_t>* tokens) const override {
    struct Best {
      double score = -std::numeric_limits<double>::infinity();
      std::size_t begin = 0;
      std::int32_t token = -1;  // -1: unknown
    };
    std::vector<Best> best(word.size() + 1);
    best[0].score = 0;
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = character_at(word, at).second;
      bool single = false;
      const auto consider = [&](std::size_t end, double score, std::int32_t token) {
        if (best[at].score + score > best[end].score) best[end] = {best[at].score + score, at, token};
      };
      std::size_t node = 0;
      for (std::size_t end = at; end < word.size();) {
        const auto next = nodes_[node].next.find(static_cast<unsigned char>(word[end]));
        if (next == nodes_[node].next.end()) break;
        node = next->second;
        ++end;
        const std::int32_t token = nodes_[node].token;
        if (token < 0) continue;
        consider(end, scores_[static_cast<std::size_t>(token)], token);
        single = single || end == at + length;
      }
      if (!single) consider(at + length, unknown_score_, -1);
      at += length;
    }
    std::vector<std::pair<std::size_t, std::size_t>> parts;  // begin, end
    for (std::size_t end = word.size(); end > 0; end = best[end].begin)
      parts.emplace_back(best[end].begin, end);
    bool unknown_before = false;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const std::int32_t token = best[part->second].token;
      if (token >= 0 && !(unknown_ && token == *unknown_)) {
        tokens->push_back(token);
      } else if (bytes_) {
        for (const char byte : word.substr(part->first, part->second - part->first))
          tokens->push_back((*bytes_)[static_cast<unsigned char>(byte)]);
      } else if (unknown_ && !unknown_before) {
        tokens->push_back(*unknown_);
      }
      unknown_before = token < 0;
    }
  }

 private:
  struct Node {
    std::unordered_map<unsigned char, std::size_t> next;
    std::int32_t token = -1;
  };
  std::vector<Node> nodes_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<std::int32_t> unknown_;
  std::optional<std::array<std::int32_t, 256>> bytes_;
};

}  // namespace

std::unique_ptr<TokenModel> token_model(const LargeJson& model, const std::string& file) {
  const ModelReader read(model, file);
  std::string type = read.text("type");
  // Files of before types were said.
  if (type.empty())
    type = read.find("merges") != nullptr                     ? "BPE"
           : read.find("max_input_chars_per_word") != nullptr ? "WordPiece"
                                                              : "Unigram";
  if (type == "BPE") return std::make_unique<BytePairs>(read);
  if (type == "WordPiece") return std::make_unique<WordPieces>(read);
  if (type == "Unigram") return std::make_unique<Unigrams>(read);
  read.fail(fmt::format("its model is of the type '{}'", type), "BPE, WordPiece or Unigram");
}

}  // namespace orrery::exec
