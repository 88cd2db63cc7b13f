// tokenizer.json's normalisers and pre-tokenizers, by ICU: its normal forms, its categories, its regular
// expressions.
#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utext.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "exec/data/bpe.h"
#include "exec/data/tokenizer.h"

namespace orrery::exec {
namespace {

constexpr const char* kMetaspace = "\xE2\x96\x81";  // U+2581

const LargeJson* found_in(const LargeJson& json, const char* key) {
  const auto at = json.find(key);
  return at == json.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const LargeJson& json, const char* key, const std::string& fallback) {
  const LargeJson* found = found_in(json, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : fallback;
}

bool says(const LargeJson& json, const char* key, bool fallback) {
  const LargeJson* found = found_in(json, key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

std::string type_of(const LargeJson& json, const std::string& file, const char* what) {
  const std::string type = json.is_object() ? text_of(json, "type", "") : "";
  if (type.empty()) throw UserError(file, 0, fmt::format("has a {} without a type", what), "a type");
  return type;
}

const LargeJson& list_in(const LargeJson& json, const char* key, const std::string& file) {
  const LargeJson* found = found_in(json, key);
  if (found == nullptr || !found->is_array())
    throw UserError(file, 0, fmt::format("has a sequence without {}", key), "a list");
  return *found;
}

// Calls change(character, its bytes, result) for each character of the text.
template <typename Change>
std::string by_character(const std::string& text, Change change) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, length] = character_at(text, at);
    change(c, std::string_view(text).substr(at, length), &result);
    at += length;
  }
  return result;
}

// Line by line, or so: what follows a line's end is never joined with it, and ICU's texts are bounded.
std::string normal_form(const icu::Normalizer2& form, const std::string& text, const std::string& file) {
  constexpr std::size_t kPart = 1 << 20;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.size(), at + kPart);
    end = end < text.size() ? text.find('\n', end) : end;
    end = end == std::string::npos ? text.size() : end;
    UErrorCode code = U_ZERO_ERROR;
    const auto part = icu::UnicodeString::fromUTF8({text.data() + at, static_cast<std::int32_t>(end - at)});
    form.normalize(part, code).toUTF8String(result);
    if (U_FAILURE(code) != 0) throw UserError(file, 0, "its normal form cannot be made", "Unicode text");
    at = end;
  }
  return result;
}

const icu::Normalizer2& normaliser_of(const std::string& type) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* form = type == "NFC"    ? icu::Normalizer2::getNFCInstance(code)
                                 : type == "NFD"  ? icu::Normalizer2::getNFDInstance(code)
                                 : type == "NFKC" ? icu::Normalizer2::getNFKCInstance(code)
                                                  : icu::Normalizer2::getNFKDInstance(code);
  ORRERY_CHECK(U_SUCCESS(code) != 0 && form != nullptr, "ICU has no normal forms");
  return *form;
}

std::string lower(const std::string& text) {
  return by_character(text, [](char32_t c, std::string_view bytes, std::string* result) {
    if (c < 0x80) {
      result->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    } else if (c == 0xFFFD) {
      *result += bytes;  // or no character at all
    } else {
      icu::UnicodeString(static_cast<UChar32>(c)).toLower(icu::Locale::getRoot()).toUTF8String(*result);
    }
  });
}

bool in_category(char32_t c, std::uint32_t mask) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask) != 0;
}

std::string without(const std::string& text, std::uint32_t categories) {
  return by_character(text, [=](char32_t c, std::string_view bytes, std::string* result) {
    if (!in_category(c, categories)) *result += bytes;
  });
}

bool is_white(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

// Unicode's word characters, as Rust's regular expressions have it.
bool is_word(char32_t c) {
  const auto code = static_cast<UChar32>(c);
  return u_hasBinaryProperty(code, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL) != 0 ||
         in_category(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK);
}

// Where the last character begins.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

bool is_ideograph(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kRanges = {{{0x4E00, 0x9FFF},
                                                                     {0x3400, 0x4DBF},
                                                                     {0x20000, 0x2A6DF},
                                                                     {0x2A700, 0x2B73F},
                                                                     {0x2B740, 0x2B81F},
                                                                     {0x2B920, 0x2CEAF},
                                                                     {0xF900, 0xFAFF},
                                                                     {0x2F800, 0x2FA1F}}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

// BERT's own cleaning (google-research/bert, tokenization.py).
TextChange bert_normaliser(const LargeJson& json, const std::string& file) {
  const bool clean = says(json, "clean_text", true), chinese = says(json, "handle_chinese_chars", true);
  const bool lowers = says(json, "lowercase", true);
  const bool strips = says(json, "strip_accents", lowers);
  return [=](std::string text) {
    text = by_character(text, [=](char32_t c, std::string_view bytes, std::string* result) {
      const bool control = c != '\t' && c != '\n' && c != '\r' && in_category(c, U_GC_C_MASK);
      if (clean && (c == 0 || c == 0xFFFD || control)) return;
      if (clean && is_white(c)) {
        result->push_back(' ');
      } else if (chinese && is_ideograph(c)) {
        *result += " ";
        *result += bytes;
        *result += " ";
      } else {
        *result += bytes;
      }
    });
    if (strips) text = without(normal_form(normaliser_of("NFD"), text, file), U_GC_MN_MASK);
    return lowers ? lower(text) : text;
  };
}

// ICU's \s is narrower than that of the regular expressions which these patterns were written for.
std::unique_ptr<icu::RegexPattern> compiled(const std::string& pattern, const std::string& file) {
  std::string own;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] != '\\' || at + 1 == pattern.size()) {
      own += pattern[at];
      continue;
    }
    const char next = pattern[++at];
    own += next == 's' ? "\\p{White_Space}" : next == 'S' ? "\\P{White_Space}" : std::string("\\") + next;
  }
  UErrorCode code = U_ZERO_ERROR;
  UParseError where;
  std::unique_ptr<icu::RegexPattern> result(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(own), 0, where, code));
  if (U_FAILURE(code) != 0)
    throw UserError(
        file, 0, fmt::format("has the pattern {}, which ICU does not read ({})", pattern, u_errorName(code)),
        "a regular expression");
  return result;
}

using Span = std::pair<std::size_t, std::size_t>;

// Where the pattern is found, each from where the one before it ends.
std::vector<Span> matches_of(const icu::RegexPattern& pattern, std::string_view text,
                             const std::string& file) {
  UErrorCode code = U_ZERO_ERROR;
  std::unique_ptr<icu::RegexMatcher> matcher(pattern.matcher(code));
  UText opened = UTEXT_INITIALIZER;
  utext_openUTF8(&opened, text.data(), static_cast<std::int64_t>(text.size()), &code);
  std::vector<Span> spans;
  if (U_SUCCESS(code) != 0) {
    matcher->reset(&opened);
    while (matcher->find(code) != 0 && U_SUCCESS(code) != 0) {
      const auto begin = static_cast<std::size_t>(matcher->start64(code));
      const auto end = static_cast<std::size_t>(matcher->end64(code));
      if (end > begin) spans.emplace_back(begin, end);
    }
  }
  utext_close(&opened);
  if (U_FAILURE(code) != 0)
    throw UserError(file, 0, fmt::format("its pattern cannot cut the text ({})", u_errorName(code)),
                    "a pattern that ends");
  return spans;
}

using Finder = std::function<std::vector<Span>(std::string_view)>;

// What becomes of what a finder finds, and of what lies between.
TextSplit cutting(const Finder& finder, const std::string& behaviour, bool invert, const std::string& file) {
  constexpr std::array kKnown = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  if (std::find(kKnown.begin(), kKnown.end(), behaviour) == kKnown.end())
    throw UserError(file, 0, fmt::format("has a split of the behaviour '{}'", behaviour),
                    "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
  return [=](std::string_view part, bool, const TextSink& sink) {
    std::vector<std::pair<Span, bool>> pieces;  // and whether it is one that is found
    std::size_t at = 0;
    for (const Span& span : finder(part)) {
      if (span.first > at) pieces.push_back({{at, span.first}, invert});
      pieces.push_back({span, !invert});
      at = span.second;
    }
    if (at < part.size()) pieces.push_back({{at, part.size()}, invert});
    std::vector<Span> kept;
    bool before = false;  // whether the piece before is one that is found
    for (const auto& [span, found] : pieces) {
      const bool joins = !kept.empty() && kept.back().second == span.first &&
                         ((behaviour == "MergedWithPrevious" && found && !before) ||
                          (behaviour == "MergedWithNext" && before && !found) ||
                          (behaviour == "Contiguous" && found == before));
      before = found;
      if (found && behaviour == "Removed") continue;
      if (joins)
        kept.back().second = span.second;
      else
        kept.push_back(span);
    }
    for (const Span& span : kept) sink(part.substr(span.first, span.second - span.first));
  };
}

// Single characters of a kind.
template <typename Is>
Finder characters(Is is) {
  return [is](std::string_view text) {
    std::vector<Span> spans;
    for (std::size_t at = 0; at < text.size();) {
      const auto [c, length] = character_at(text, at);
      if (is(c)) spans.emplace_back(at, at + length);
      at += length;
    }
    return spans;
  };
}

bool is_punctuation(char32_t c) {
  const bool ascii =
      (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return ascii || (c >= 0x80 && in_category(c, U_GC_P_MASK));
}

Finder pattern_finder(const LargeJson& json, const std::string& file) {
  const LargeJson* pattern = found_in(json, "pattern");
  if (pattern != nullptr && pattern->is_object()) {
    if (const std::string plain = text_of(*pattern, "String", ""); !plain.empty())
      return [plain](std::string_view text) {
        std::vector<Span> spans;
        for (std::size_t at = text.find(plain); at != std::string_view::npos;
             at = text.find(plain, at + plain.size()))
          spans.emplace_back(at, at + plain.size());
        return spans;
      };
    if (const std::string regex = text_of(*pattern, "Regex", ""); !regex.empty()) {
      const std::shared_ptr<icu::RegexPattern> own = compiled(regex, file);
      return [own, file](std::string_view text) { return matches_of(*own, text, file); };
    }
  }
  throw UserError(file, 0, "has a part without a pattern", "a String or a Regex");
}

TextSplit byte_level(const LargeJson& json) {
  const bool prefix = says(json, "add_prefix_space", true), cuts = says(json, "use_regex", true);
  const auto spelled = byte_spelling();
  return [=](std::string_view part, bool, const TextSink& sink) {
    std::string own;
    if (prefix && !part.empty() && part.front() != ' ') {
      own = " " + std::string(part);
      part = own;
    }
    std::string word_spelled;
    const auto give = [&](std::string_view word) {
      word_spelled.clear();
      for (const char byte : word) word_spelled += spelled[static_cast<unsigned char>(byte)];
      sink(word_spelled);
    };
    if (!cuts) {
      give(part);
      return;
    }
    for (const std::string_view word : words_of(part)) give(word);
  };
}

TextSplit metaspace(const LargeJson& json) {
  const std::string mark = text_of(json, "replacement", kMetaspace);
  // Files of before 0.15 say add_prefix_space.
  const std::string scheme =
      text_of(json, "prepend_scheme", says(json, "add_prefix_space", true) ? "always" : "never");
  const bool cuts = says(json, "split", true);
  return [=](std::string_view part, bool first, const TextSink& sink) {
    std::string own;
    for (const char byte : part) {
      if (byte == ' ')
        own += mark;
      else
        own.push_back(byte);
    }
    const bool prepends = scheme == "always" || (scheme == "first" && first);
    if (prepends && own.compare(0, mark.size(), mark) != 0) own = mark + own;
    if (!cuts) {
      sink(own);
      return;
    }
    const std::string_view all = own;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = std::min(all.find(mark, at + 1), all.size());
      sink(all.substr(at, end - at));
      at = end;
    }
  };
}

}  // namespace

TextChange text_normaliser(const LargeJson& json, const std::string& file) {
  if (json.is_null()) return [](std::string text) { return text; };
  const std::string type = type_of(json, file, "normalizer");
  if (type == "Sequence") {
    std::vector<TextChange> all;
    for (const LargeJson& one : list_in(json, "normalizers", file)) all.push_back(text_normaliser(one, file));
    return [all](std::string text) {
      for (const TextChange& change : all) text = change(std::move(text));
      return text;
    };
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    return [type, file](const std::string& text) { return normal_form(normaliser_of(type), text, file); };
  if (type == "Lowercase") return lower;
  if (type == "StripAccents") return [](const std::string& text) { return without(text, U_GC_M_MASK); };
  if (type == "BertNormalizer") return bert_normaliser(json, file);
  if (type == "Prepend")
    return [before = text_of(json, "prepend", "")](const std::string& text) {
      return text.empty() ? text : before + text;
    };
  if (type == "Strip")
    return
        [left = says(json, "strip_left", true), right = says(json, "strip_right", true)](std::string text) {
          std::size_t begin = 0, end = 0;
          bool leading = true;
          for (std::size_t at = 0; at < text.size();) {
            const auto [c, length] = character_at(text, at);
            at += length;
            leading = leading && is_white(c);
            if (leading) begin = at;
            if (!is_white(c)) end = at;
          }
          if (right) text.resize(std::max(end, left ? begin : end));
          return left ? text.substr(std::min(begin, text.size())) : text;
        };
  if (type == "Replace")
    return
        [finder = pattern_finder(json, file), with = text_of(json, "content", "")](const std::string& text) {
          std::string result;
          std::size_t at = 0;
          for (const auto& [begin, end] : finder(text)) {
            result.append(text, at, begin - at).append(with);
            at = end;
          }
          return result.append(text, at);
        };
  throw UserError(file, 0, fmt::format("has the normalizer '{}', which is not done", type),
                  "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer");
}

TextSplit text_splitter(const LargeJson& json, const std::string& file) {
  if (json.is_null()) return [](std::string_view part, bool, const TextSink& sink) { sink(part); };
  const std::string type = type_of(json, file, "pre_tokenizer");
  if (type == "Sequence") {
    TextSplit all = [](std::string_view part, bool, const TextSink& sink) { sink(part); };
    for (const LargeJson& one : list_in(json, "pretokenizers", file))
      all = [before = std::move(all), next = text_splitter(one, file)](std::string_view part, bool first,
                                                                       const TextSink& sink) {
        bool at_begin = first;
        before(part, first, [&](std::string_view piece) {
          next(piece, at_begin, sink);
          at_begin = false;
        });
      };
    return all;
  }
  if (type == "ByteLevel") return byte_level(json);
  if (type == "Metaspace") return metaspace(json);
  if (type == "Split")
    return cutting(pattern_finder(json, file), text_of(json, "behavior", ""), says(json, "invert", false),
                   file);
  const auto by_pattern = [&](const char* pattern, const std::string& behaviour, bool invert) {
    const std::shared_ptr<icu::RegexPattern> own = compiled(pattern, file);
    return cutting([own, file](std::string_view text) { return matches_of(*own, text, file); }, behaviour,
                   invert, file);
  };
  if (type == "Whitespace") return by_pattern(R"(\w+|[^\w\s]+)", "Removed", true);
  if (type == "WhitespaceSplit") return cutting(characters(is_white), "Removed", false, file);
  if (type == "Digits") {
    const bool each = says(json, "individual_digits", false);
    return cutting(characters([](char32_t c) { return in_category(c, U_GC_N_MASK); }),
                   each ? "Isolated" : "Contiguous", false, file);
  }
  if (type == "Punctuation")
    return cutting(characters(is_punctuation), text_of(json, "behavior", "Isolated"), false, file);
  if (type == "BertPreTokenizer")
    return [words = cutting(characters(is_white), "Removed", false, file),
            marks = cutting(characters(is_punctuation), "Isolated", false, file)](
               std::string_view part, bool first, const TextSink& sink) {
      words(part, first, [&](std::string_view word) { marks(word, first, sink); });
    };
  throw UserError(
      file, 0, fmt::format("has the pre_tokenizer '{}', which is not done", type),
      "ByteLevel, Split, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit, Digits, Punctuation");
}

std::size_t white_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t at = last_character(text.substr(0, end));
    if (!is_white(character_at(text, at).first)) break;
    end = at;
  }
  return text.size() - end;
}

std::size_t white_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto [c, length] = character_at(text, at);
    if (!is_white(c)) break;
    at += length;
  }
  return at;
}

bool ends_in_word(std::string_view text) {
  return !text.empty() && is_word(character_at(text, last_character(text)).first);
}

bool begins_in_word(std::string_view text) {
  return !text.empty() && is_word(character_at(text, 0).first);
}

}  // namespace orrery::exec
