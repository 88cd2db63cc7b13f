// Hugging Face's tokenizer.json: how a text becomes tokens (huggingface.co/docs/tokenizers).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"

namespace orrery::exec {

// A part of a text, for whoever wants it next; it lives as long as the call.
using TextSink = std::function<void(std::string_view)>;

// How words become tokens: byte pairs, WordPiece, Unigram.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;
  virtual void encode(std::string_view word, std::vector<std::int32_t>* tokens) const = 0;
};

// `file` is for errors: UserError where there is something that is not done here.
std::unique_ptr<TokenModel> token_model(const LargeJson& model, const std::string& file);
using TextChange = std::function<std::string(std::string)>;
TextChange text_normaliser(const LargeJson& normaliser, const std::string& file);
// `first`: whether the part begins the text.
using TextSplit = std::function<void(std::string_view part, bool first, const TextSink& sink)>;
TextSplit text_splitter(const LargeJson& splitter, const std::string& file);

// Bytes of white space at the end of a text, and at its beginning.
std::size_t white_at_end(std::string_view text);
std::size_t white_at_begin(std::string_view text);
// Whether it ends, or begins, with a letter, mark, digit or underscore (a regular expression's word
// characters).
bool ends_in_word(std::string_view text);
bool begins_in_word(std::string_view text);

class Tokenizer {
 public:
  // Normalisers NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer;
  // pre-tokenizers ByteLevel, Split, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit, Digits,
  // Punctuation; sequences of these; models BPE, WordPiece, Unigram. Throws UserError with the file for
  // anything else, and for what is damaged.
  // A file whose name ends in .txt is BERT's vocabulary, a token a line; a tokenizer_config.json beside it
  // says whether letters are lowered.
  explicit Tokenizer(const std::string& file);

  // Added tokens that the text holds are these tokens. What a post-processor puts around a text (beginning
  // and end) is left out: the text is one stream.
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::int32_t largest() const { return largest_; }
  std::optional<std::int32_t> mask() const { return mask_; }  // [MASK] or <mask>

 private:
  struct Added {
    std::string text;
    std::int32_t token = 0;
    bool single_word = false;                         // only where no letters or digits stand beside it
    bool takes_before = false, takes_behind = false;  // white space there belongs to it
  };
  using AddedTokens = std::unordered_map<char, std::vector<Added>>;  // by their first byte, longest first

  // Hands on the parts of the text between these tokens, empty ones too, and the tokens.
  void split_at(const AddedTokens& added, std::string_view text,
                const std::function<void(std::string_view)>& part, std::vector<std::int32_t>* tokens) const;
  void encode_words(std::string_view part, bool first, std::vector<std::int32_t>* tokens) const;
  void read_added(const LargeJson& json, const std::string& file);

  std::string file_;
  TextChange normalise_;
  TextSplit split_;
  std::unique_ptr<TokenModel> model_;
  // Found in the text as it is, and, `normalized`, in what the normaliser makes of the rest, as it makes
  // them.
  AddedTokens added_, added_normalised_;
  std::int32_t largest_ = 0;
  std::optional<std::int32_t> mask_;
};

}  // namespace orrery::exec
