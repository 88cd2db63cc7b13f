// Hugging Face's tokenizer.json: each part by what it says, models against plain references.
#include "exec/data/tokenizer.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "exec/data/bpe.h"
#include "exec/data/data.h"

namespace orrery::exec {
namespace {

using Tokens = std::vector<std::int32_t>;
using Pieces = std::vector<std::string>;

class TokenizerFile {
 public:
  explicit TokenizerFile(const Json& json)
      : path_(std::filesystem::temp_directory_path() /
              ("orrery-tokenizer-" + std::to_string(getpid()) + "-" + std::to_string(count_++) + ".json")) {
    write_file_atomically(path_, json.dump());
  }
  ~TokenizerFile() { std::filesystem::remove(path_); }
  TokenizerFile(const TokenizerFile&) = delete;
  TokenizerFile& operator=(const TokenizerFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

Tokens encoded(const Json& json, std::string_view text) {
  const TokenizerFile file(json);
  return Tokenizer(file.path()).encode(text);
}

std::string fault_of(const Json& json) {
  try {
    encoded(json, "a");
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

Pieces pieces(const std::string& splitter, std::string_view text) {
  Pieces all;
  text_splitter(parse_json(splitter, "test"), "test")(text, true,
                                                      [&](std::string_view part) { all.emplace_back(part); });
  return all;
}

std::string changed(const std::string& normaliser, const std::string& text) {
  return text_normaliser(parse_json(normaliser, "test"), "test")(text);
}

Json vocabulary_of(const Pieces& tokens) {
  Json all = Json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) all[tokens[i]] = i;
  return all;
}

const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Letters, marks, digits, blanks of many kinds, bytes that are no UTF-8.
std::string mixed_text(std::uint64_t seed, bool valid) {
  static const Pieces parts = {"a",  "the",    "Z",      "\u00e9", "e\u0301", "\u0e01\u0e33", "\u4e2d",
                               "1",  "\u0663", "\u00bd", " ",      "  ",      "\u00a0",       "\u2003",
                               "\n", "\t",     "\r\n",   "\v",     "\u0085",  "'s",           "'S",
                               "!",  "_",      "\u2019", "\u0130", "\u03a3",  "\xff",         "\xc3"};
  const CounterRandom random(seed, 5);
  std::string text;
  for (std::uint64_t i = 0; i < 60; ++i) text += parts[random.bits(i) % (parts.size() - (valid ? 2 : 0))];
  return text;
}

}  // namespace

TEST_CASE("ICU cuts texts by GPT-2's pattern as the byte-pair encoder here does, on mixed characters") {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kGpt2}}}, {"behavior", "Isolated"}, {"invert", false}};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = mixed_text(seed, true);
    Pieces words;
    for (const std::string_view word : words_of(text)) words.emplace_back(word);
    CHECK(pieces(split.dump(), text) == words);
  }
}

TEST_CASE("the same vocabulary and merges make the same tokens from tokenizer.json as from GPT-2's files") {
  const auto spelled = byte_spelling();
  Json vocab = Json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[spelled[byte]] = byte;
  Json merges = Json::array(), old_merges = Json::array();
  std::string lines = "#version: 0.2\n";
  for (const auto& [first, second] :
       std::initializer_list<std::pair<std::string, std::string>>{{"t", "h"},
                                                                  {"th", "e"},
                                                                  {"\u0120", "the"},
                                                                  {"\u0120", "a"},
                                                                  {"e", "t"},
                                                                  {spelled[0xC3], spelled[0xA9]}}) {
    vocab[first + second] = vocab.size();
    merges.push_back({first, second});
    old_merges.push_back(first + " " + second);
    lines += first + " " + second + "\n";
  }
  const auto folder = std::filesystem::temp_directory_path() / ("orrery-both-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "vocab.json", vocab.dump());
  write_file_atomically(folder / "merges.txt", lines);
  const BpeVocabulary expected(folder.string());
  for (const Json& pairs : {merges, old_merges}) {
    const TokenizerFile file({{"normalizer", nullptr},
                              {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}});
    const Tokenizer got(file.path());
    CHECK(got.largest() == expected.largest());
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = mixed_text(seed, false);
      CHECK(got.encode(text) == expected.encode(text));
    }
    CHECK(got.encode(read_file(kDefaultText)) == expected.encode(read_file(kDefaultText)));
  }
  // A folder with both is read by its tokenizer.json.
  write_file_atomically(folder / "tokenizer.json",
                        Json{{"model", {{"type", "WordPiece"}, {"vocab", {{"[UNK]", 0}, {"the", 1}}}}},
                             {"pre_tokenizer", {{"type", "Whitespace"}}}}
                            .dump());
  CHECK(TextData(kDefaultText, 8, 1, 1, folder.string()).largest_token() == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("Llama 3's pattern cuts numbers by three, and keeps lines' ends together") {
  const Json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"}};
  CHECK(pieces(split.dump(), "I'LL pay 12345 $!\n\n  x  y\u0085z") ==
        Pieces{"I", "'LL", " pay", " ", "123", "45", " $!\n\n", " ", " x", " ", " y", "\u0085z"});
}

TEST_CASE("each pre-tokenizer cuts as it says") {
  CHECK(pieces(R"({"type": "Whitespace"})", "It's 3_4, \u00e9t\u00e9!") ==
        Pieces{"It", "'", "s", "3_4", ",", "\u00e9t\u00e9", "!"});
  CHECK(pieces(R"({"type": "WhitespaceSplit"})", " a\u2003b,c \n") == Pieces{"a", "b,c"});
  CHECK(pieces(R"({"type": "BertPreTokenizer"})", "don't\u3002 x$") ==
        Pieces{"don", "'", "t", "\u3002", "x", "$"});
  CHECK(pieces(R"({"type": "Digits", "individual_digits": true})", "a12\u00bd") ==
        Pieces{"a", "1", "2", "\u00bd"});
  CHECK(pieces(R"({"type": "Digits", "individual_digits": false})", "a12b3") == Pieces{"a", "12", "b", "3"});
  CHECK(pieces(R"({"type": "Punctuation", "behavior": "MergedWithPrevious"})", "a,b!!") ==
        Pieces{"a,", "b!", "!"});
  CHECK(pieces(R"({"type": "Punctuation", "behavior": "MergedWithNext"})", "a,b!!c") ==
        Pieces{"a", ",b", "!", "!c"});
  CHECK(pieces(R"({"type": "Punctuation", "behavior": "Contiguous"})", "a,b!!") ==
        Pieces{"a", ",", "b", "!!"});
  CHECK(pieces(R"({"type": "Punctuation", "behavior": "Removed"})", "a,b!!") == Pieces{"a", "b"});
  CHECK(pieces(R"({"type": "Metaspace"})", "a  b") == Pieces{"\u2581a", "\u2581", "\u2581b"});
  CHECK(pieces(R"({"type": "Metaspace", "prepend_scheme": "never", "split": false})", "a b") ==
        Pieces{"a\u2581b"});
  CHECK(pieces(R"({"type": "Split", "pattern": {"String": "--"}, "behavior": "Removed", "invert": false})",
               "a--b-") == Pieces{"a", "b-"});
  CHECK(pieces(R"({"type": "Split", "pattern": {"String": "ab"}, "behavior": "Removed", "invert": true})",
               "xabyab") == Pieces{"ab", "ab"});
  CHECK(pieces(R"({"type": "ByteLevel", "add_prefix_space": true})", "a \u00e9") ==
        Pieces{"\u0120a", "\u0120\u00c3\u00a9"});
  CHECK(pieces(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits",
                  "individual_digits": true}]})",
               "a1 22") == Pieces{"a", "1", "2", "2"});
}

TEST_CASE("each normaliser changes texts as it says") {
  CHECK(changed(R"({"type": "NFC"})", "e\u0301\ufb01") == "\u00e9\ufb01");
  CHECK(changed(R"({"type": "NFKC"})", "e\u0301\ufb01\u2460") == "\u00e9fi1");
  CHECK(changed(R"({"type": "NFD"})", "\u00e9") == "e\u0301");
  CHECK(changed(R"({"type": "Lowercase"})", "A\u00c9\u03a3\u0130") == "a\u00e9\u03c3i\u0307");
  CHECK(changed(R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]})",
                "\u00e9\u00e0z") == "eaz");
  CHECK(changed(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"})", "a  b c   ") ==
        "a_b c_");
  CHECK(changed(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \u2003a b\n ") == "a b");
  CHECK(changed(R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a ") == " a");
  CHECK(changed(R"({"type": "Strip", "strip_left": true, "strip_right": true})", "  ") == "");
  CHECK(
      changed(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}, {"type": "Replace",
                   "pattern": {"String": " "}, "content": "_"}]})",
              "a b") == "_a_b");
  const char* bert = R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                         "strip_accents": null, "lowercase": true})";
  CHECK(changed(bert, std::string("\u00c9t\u0301\u4e2dX\u200b\t", 13)) == "et \u4e2d x ");
  CHECK(changed(R"({"type": "BertNormalizer", "lowercase": false})", "\u00c9") == "\u00c9");
  // Long texts are normalised in parts, which must not show.
  std::string lines, composed;
  for (int i = 0; i < 200'000; ++i) {
    lines += i % 7 == 0 ? "\n" : "e\u0301 ";
    composed += i % 7 == 0 ? "\n" : "\u00e9 ";
  }
  CHECK(changed(R"({"type": "NFC"})", lines) == composed);
}

TEST_CASE("byte pairs of characters fall back to bytes, to the unknown, or are left out, as Llama 2's do") {
  Json vocab = vocabulary_of({"<unk>", "\u2581", "a", "b", "\u2581a", "\u2581ab", "c</w>"});
  const Json merges = {"\u2581 a", "\u2581a b"};
  const auto model = [&](const Json& more) {
    Json json = {
        {"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"unk_token", "<unk>"}, {"fuse_unk", true}};
    json.update(more);
    return Json{{"normalizer",
                 {{"type", "Sequence"},
                  {"normalizers",
                   {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                    {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
                {"model", json}};
  };
  CHECK(encoded(model(Json::object()), "ab a") == Tokens{5, 4});
  CHECK(encoded(model(Json::object()), "axyb") == Tokens{4, 0, 3});
  CHECK(encoded(model({{"fuse_unk", false}}), "axyb") == Tokens{4, 0, 0, 3});
  CHECK(encoded(model({{"unk_token", nullptr}}), "axyb") == Tokens{5});  // nothing lies between them then
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    vocab[name] = 100 + byte;
  }
  CHECK(encoded(model({{"byte_fallback", true}}), "a\u00e9") == Tokens{4, 100 + 0xC3, 100 + 0xA9});
  CHECK(encoded(model({{"end_of_word_suffix", "</w>"}, {"merges", Json::array()}}), "c") == Tokens{1, 6});
  const Json whole = {{"model",
                       {{"type", "BPE"},
                        {"vocab", vocabulary_of({"a", "b", "ab", "abb"})},
                        {"merges", {"a b"}},
                        {"ignore_merges", true}}}};
  CHECK(encoded(whole, "abb") == Tokens{3});
  CHECK(encoded(whole, "abba") == Tokens{2, 1, 0});
}

TEST_CASE("WordPiece takes the longest beginning each time, and knows no word that it cannot make") {
  const Json json = {{"normalizer", {{"type", "BertNormalizer"}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 12},
                       {"vocab", vocabulary_of({"[PAD]", "[UNK]", "un", "##aff", "##able", "##a", "able", "!",
                                                "##\u00e9", "\u4e2d", "[MASK]"})}}},
                     {"added_tokens", {{{"id", 10}, {"content", "[MASK]"}, {"special", true}}}}};
  CHECK(encoded(json, "Unaffable able!") == Tokens{2, 3, 4, 6, 7});
  CHECK(encoded(json, "unaffx un\u4e2d") == Tokens{1, 2, 9});
  CHECK(encoded(json, "unaaaaaaaaaaaaaaaa un [MASK]un") == Tokens{1, 2, 10, 2});
  const TokenizerFile file(json);
  CHECK(Tokenizer(file.path()).mask() == 10);
}

TEST_CASE("BERT's tokens of mixed texts are those of its own algorithm, by tokenizer.json and by vocab.txt") {
  const Json given =
      read_json(std::string(ORRERY_SOURCE_DIR) + "/tests/exec/data/wordpiece.json");  // by wordpiece.py
  REQUIRE(given.at("cases").size() > 1000);
  std::string lines;
  for (const Json& token : given.at("vocabulary")) lines += token.get<std::string>() + "\n";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("orrery-wordpiece-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string vocabulary = (folder / "vocab.txt").string();
  write_file_atomically(vocabulary, lines);
  std::map<bool, std::vector<Tokenizer>> tokenizers;
  for (const bool lowers : {true, false}) {
    const TokenizerFile file(
        {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lowers}, {"strip_accents", nullptr}}},
         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
         {"model",
          {{"type", "WordPiece"},
           {"unk_token", "[UNK]"},
           {"continuing_subword_prefix", "##"},
           {"max_input_chars_per_word", 100},
           {"vocab", vocabulary_of(given.at("vocabulary").get<Pieces>())}}}});
    tokenizers[lowers].emplace_back(file.path());
    if (!lowers)
      write_file_atomically((folder / "tokenizer_config.json").string(), R"({"do_lower_case": false})");
    tokenizers[lowers].emplace_back(vocabulary);
    CHECK(tokenizers[lowers].back().mask() == 5);
  }
  for (const Json& one : given.at("cases")) {
    const auto text = one.at("text").get<std::string>();
    CAPTURE(one.dump());
    for (const Tokenizer& tokenizer : tokenizers[one.at("lowercase").get<bool>()])
      CHECK(tokenizer.encode(text) == one.at("tokens").get<Tokens>());
  }
  write_file_atomically(vocabulary, "a\nb\n");
  CHECK_THROWS_WITH(Tokenizer(vocabulary), Catch::Contains("has no line '[UNK]'"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("Unigram finds the most likely tokens of all ways to cut a word") {
  const Pieces tokens = {"<unk>", "a", "b", "c", "ab", "bc", "abc", "ca", "\u00e9", "b\u00e9", "cab", "aa"};
  const CounterRandom random(11, 2);
  std::vector<double> scores;
  Json vocab = Json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    scores.push_back(i == 0 ? 0 : -1 - 9 * random.uniform(i));
    vocab.push_back({tokens[i], scores.back()});
  }
  const Json json = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
  const TokenizerFile file(json);
  const Tokenizer tokenizer(file.path());
  const Pieces letters = {"a", "b", "c", "\u00e9"};
  for (std::uint64_t draw = 0; draw < 400; ++draw) {
    std::string word;
    for (std::uint64_t i = 0; i < 1 + draw % 9; ++i)
      word += letters[random.bits(1000 + 16 * draw + i) % letters.size()];
    // Every way.
    double best = -INFINITY;
    const std::function<void(std::size_t, double)> cut = [&](std::size_t at, double score) {
      if (at == word.size()) best = std::max(best, score);
      for (std::size_t t = 1; t < tokens.size(); ++t)
        if (word.compare(at, tokens[t].size(), tokens[t]) == 0) cut(at + tokens[t].size(), score + scores[t]);
    };
    cut(0, 0);
    double got = 0;
    std::string again;
    for (const std::int32_t token : tokenizer.encode(word)) {
      got += scores[static_cast<std::size_t>(token)];
      again += tokens[static_cast<std::size_t>(token)];
    }
    CHECK(again == word);
    CHECK(got == Approx(best).margin(1e-9));
  }
  CHECK(tokenizer.encode("axyzb") == Tokens{1, 0, 2});  // side by side unknown: one token
}

TEST_CASE("added tokens are found wherever they stand, the longest first, and the text between by itself") {
  const Json json = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary_of({"a", "b", "ab"})}, {"merges", {"a b"}}}},
      {"added_tokens",
       {{{"id", 7}, {"content", "<|end|>"}},
        {{"id", 8}, {"content", "<|end|>>"}},
        {{"id", 9}, {"content", "<pad>"}}}}};
  CHECK(encoded(json, "ab<|end|>>a<|end|>b") == Tokens{2, 8, 0, 7, 1});
  CHECK(encoded(json, "<|end|>") == Tokens{7});
}

TEST_CASE("added tokens are found in the text as it is, or as it is normalised, as they say") {
  // As tokenizers' AddedVocabulary: those that are not normalised first, in the text; the others, normalised
  // themselves, in what the normaliser makes of what is left.
  Json json = {{"normalizer", {{"type", "Lowercase"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", vocabulary_of({"a", "b", "x", "y", "n", "e", "w"})},
                 {"merges", Json::array()}}},
               {"added_tokens",
                {{{"id", 10}, {"content", "New"}, {"normalized", true}},
                 {{"id", 11}, {"content", "X"}, {"normalized", false}},
                 {{"id", 12}, {"content", "y"}}}}};
  CHECK(encoded(json, "aNEWb") == Tokens{0, 10, 1});
  CHECK(encoded(json, "anewbX") == Tokens{0, 10, 1, 11});
  CHECK(encoded(json, "axb") == Tokens{0, 2, 1});  // X alone is the token, not what becomes x
  CHECK(encoded(json, "aYb") == Tokens{0, 3, 1});  // nor y what was Y
  CHECK(encoded(json, "nyew") == Tokens{4, 12, 5, 6});
  CHECK(encoded(json, "neXw") == Tokens{4, 5, 11, 6});  // cut before it is normalised
  json["added_tokens"][0]["normalized"] = false;
  CHECK(encoded(json, "aNEWbNew") == Tokens{0, 4, 5, 6, 1, 10});
}

TEST_CASE("added tokens take the white space that is theirs, and stand alone where they must") {
  const auto with = [](const char* key) {
    Json json = {
        {"model",
         {{"type", "BPE"}, {"vocab", vocabulary_of({"a", "b", " ", "_", "-"})}, {"merges", Json::array()}}},
        {"added_tokens", {{{"id", 9}, {"content", "<m>"}}}}};
    if (*key != 0) json["added_tokens"][0][key] = true;
    return json;
  };
  CHECK(encoded(with(""), "a  <m> b") == Tokens{0, 2, 2, 9, 2, 1});
  CHECK(encoded(with("lstrip"), "a  <m> b") == Tokens{0, 9, 2, 1});
  CHECK(encoded(with("rstrip"), "a <m>  <m> b") == Tokens{0, 2, 9, 9, 1});
  CHECK(encoded(with("lstrip"), "<m> <m>") == Tokens{9, 9});
  CHECK(encoded(with("single_word"), "-<m> <m>-").size() == 5);
  Json word = with("single_word");
  word["added_tokens"][0]["content"] = "b";
  CHECK(encoded(word, "b a b-b") == Tokens{9, 2, 0, 2, 9, 4, 9});
  CHECK(encoded(word, "ab ba b_ b") == Tokens{0, 1, 2, 1, 0, 2, 1, 3, 2, 9});
}

TEST_CASE("a vocabulary of today's size, merges in pairs, is read in seconds") {
  // 256,000 tokens and half a million pairs: more values than other JSON may hold.
  constexpr int kTokens = 256'000, kPairs = 500'000;
  std::string text = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2)";
  for (int token = 3; token < kTokens; ++token)
    text += ", \"t" + std::to_string(token) + "\": " + std::to_string(token);
  text += R"(}, "merges": [["a", "b"])";
  for (int pair = 1; pair < kPairs; ++pair) text += R"(, ["a", "b"])";
  text += "]}}";
  const auto path = std::filesystem::temp_directory_path() / ("orrery-large-" + std::to_string(getpid()));
  write_file_atomically(path, text);
  const std::clock_t begin = std::clock();
  const Tokenizer tokenizer(path.string());
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::filesystem::remove(path);
  CHECK(tokenizer.largest() == kTokens - 1);
  CHECK(tokenizer.encode("aba") == Tokens{2, 0});
  CHECK(seconds < 60);  // a minute for the keys alone where each is looked for among all before it
}

TEST_CASE("what a tokenizer.json asks for and is not done is refused by its name") {
  const Json model = {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}};
  CHECK(fault_of({{"model", model}}).empty());
  CHECK(fault_of({{"model", model}, {"normalizer", {{"type", "Precompiled"}}}}).find("Precompiled") !=
        std::string::npos);
  CHECK(
      fault_of({{"model", model}, {"pre_tokenizer", {{"type", "UnicodeScripts"}}}}).find("UnicodeScripts") !=
      std::string::npos);
  CHECK(fault_of({{"model", {{"type", "WordLevel"}}}}).find("WordLevel") != std::string::npos);
  Json dropping = model;
  dropping["dropout"] = 0.1;
  CHECK(fault_of({{"model", dropping}}).find("dropped") != std::string::npos);
  const Json bad[] = {
      Json::array(),
      {{"model", nullptr}},
      {{"model", {{"type", "BPE"}}}},
      {{"model", {{"type", "BPE"}, {"vocab", {{"a", -1}}}, {"merges", Json::array()}}}},
      {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a b"}}}}},
      {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {3}}}}},
      {{"model", {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}}}},
      {{"model", {{"type", "Unigram"}, {"vocab", {{"a", "x"}}}}}},
      {{"model", {{"type", "Unigram"}, {"unk_id", 4}, {"vocab", {{"a", -1.0}}}}}},
      {{"model", model}, {"added_tokens", {{{"content", "x"}}}}},
      {{"model", model}, {"pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}}}},
      {{"model", model}, {"pre_tokenizer", 4}},
      {{"model", model},
       {"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(("}}}, {"behavior", "Isolated"}}}}};
  for (const Json& json : bad) {
    INFO(json.dump());
    CHECK_FALSE(fault_of(json).empty());
  }
}

}  // namespace orrery::exec
