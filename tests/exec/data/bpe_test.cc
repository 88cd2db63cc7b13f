#include "exec/data/bpe.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "exec/data/data.h"
#include "tests/support/fuzz.h"

namespace orrery::exec {
namespace {

// A vocabulary as GPT-2's files have it: the 256 bytes as they are spelled there, and a few merges.
class Vocabulary {
 public:
  Vocabulary()
      : folder_(std::filesystem::temp_directory_path() / ("orrery-bpe-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::int32_t number = 0;
    const auto add = [&](const std::string& token) { vocab[token] = number++; };
    const auto spell = [](int c) {
      if (c < 0x80) return std::string(1, static_cast<char>(c));
      return std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    };
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte)
      add(spell((byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD) ? byte : next++));
    for (const char* token : {"th", "the", "\u0120the", "in", "\u0120t", "\u00C3\u00A9"}) add(token);
    merges = "#version: 0.2\nt h\nth e\n\u0120 the\ni n\n\u00C3 \u00A9\n";
    write();
  }
  ~Vocabulary() { std::filesystem::remove_all(folder_); }
  void write() const {
    write_file_atomically(folder_ / "vocab.json", vocab.dump());
    write_file_atomically(folder_ / "merges.txt", merges);
  }
  std::string folder() const { return folder_.string(); }
  std::int32_t number(const std::string& token) const { return vocab.at(token).get<std::int32_t>(); }
  Json vocab;
  std::string merges;

 private:
  std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("byte pairs are merged best first, inside words, blank before the word") {
  const Vocabulary files;
  const BpeVocabulary bpe(files.folder());
  CHECK(bpe.encode("the") == std::vector<std::int32_t>{files.number("the")});
  CHECK(bpe.encode("in the") == std::vector<std::int32_t>{files.number("in"), files.number("\u0120the")});
  // Two blanks: the first is a word of its own.
  CHECK(bpe.encode("in  the") ==
        std::vector<std::int32_t>{files.number("in"), files.number("\u0120"), files.number("\u0120the")});
  // Not across a digit or a mark.
  CHECK(bpe.encode("t1h").size() == 3);
  CHECK(bpe.encode("\u00E9") == std::vector<std::int32_t>{files.number("\u00C3\u00A9")});
  CHECK(bpe.encode("").empty());
}

std::string beside(const char* name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/exec/data/" + name;
}

std::string utf8(std::uint32_t c) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)),
          byte(0x80 | (c & 0x3F))};
}

// By how it is cut: letters and digits go on, white space ends a word.
char kind_of(std::uint32_t c) {
  const std::string one = utf8(c);
  if (words_of("x" + one + "x").size() == 1) return 'L';
  if (words_of("1" + one + "1").size() == 1) return 'N';
  return words_of("!" + one + "!").size() == 1 ? 'O' : 'S';
}

// Round by round over strings, as GPT-2's released encoder has it.
std::vector<std::int32_t> merged_by_rounds(const Vocabulary& files, const std::string& word) {
  std::vector<std::pair<std::string, std::string>> order;
  std::istringstream lines(files.merges);
  std::string line;
  std::getline(lines, line);
  for (std::string a, b; lines >> a >> b;) order.emplace_back(a, b);
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& [a, b] : order) {
      std::vector<std::string> next;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const bool pair = i + 1 < parts.size() && parts[i] == a && parts[i + 1] == b;
        next.push_back(pair ? a + b : parts[i]);
        i += pair ? 1 : 0;
      }
      merged = next.size() < parts.size();
      parts = std::move(next);
      if (merged) break;
    }
  }
  std::vector<std::int32_t> tokens;
  for (const std::string& part : parts) tokens.push_back(files.number(part));
  return tokens;
}

TEST_CASE("words of any length are merged as GPT-2's encoder merges them, round by round") {
  Vocabulary files;
  files.merges = "#version: 0.2\n";
  auto number = static_cast<std::int32_t>(files.vocab.size());
  // Also pairs that stand before those that make them, which no trained vocabulary has.
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"aa", "b"},
                                                                             {"a", "b"},
                                                                             {"b", "b"},
                                                                             {"a", "a"},
                                                                             {"ab", "ab"},
                                                                             {"bb", "a"},
                                                                             {"aa", "aa"},
                                                                             {"abab", "b"}})
    if (!files.vocab.contains(a + b)) files.vocab[a + b] = number++;
  files.merges += "aa b\na b\nb b\na a\nab ab\nbb a\naa aa\nabab b\n";
  files.write();
  const BpeVocabulary bpe(files.folder());
  std::mt19937_64 random(7);
  for (std::size_t length : {1, 2, 3, 5, 17, 63, 64, 65, 1000, 1024, 1025, 1500, 3000})
    for (int draw = 0; draw < 8; ++draw) {
      std::string word;
      while (word.size() < length) word += "aabac"[random() % 5];
      CHECK(bpe.encode(word) == merged_by_rounds(files, word));
    }
  std::string endless(2'000'000, 'a');
  CHECK(bpe.encode(endless).size() == endless.size() / 4);
}

TEST_CASE("bytes that are no UTF-8 are other characters: overlong, surrogates, beyond the last, cut off") {
  for (const std::string bytes : {"\xE0\x81\x81", "\xF0\x80\x81\x81", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                  "\xE0\xA0", "\xC1\x81", "\xF5\x80\x80\x80"}) {
    INFO(bytes.size());
    CHECK(words_of("!" + bytes + "!").size() == 1);
    CHECK(words_of("a" + bytes + "a").size() == 3);
  }
}

TEST_CASE("every code point is cut as GPT-2's pattern cuts it") {
  std::ifstream runs(beside("unicode_kinds.txt"));  // by unicode_words.py
  std::vector<std::pair<std::uint32_t, char>> starts;
  std::uint32_t start = 0;
  for (char kind = 0; runs >> std::hex >> start >> kind;) starts.emplace_back(start, kind);
  REQUIRE(starts.size() > 1000);
  starts.emplace_back(0x110000, 0);
  int wrong = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i)
    for (std::uint32_t c = starts[i].first; c < starts[i + 1].first; ++c)
      if (c < 0xD800 || c >= 0xE000) wrong += kind_of(c) == starts[i].second ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("texts of mixed characters are cut as GPT-2's pattern cuts them") {
  const Json texts = read_json(beside("unicode_words.json"));  // by unicode_words.py
  REQUIRE(texts.size() == 300);
  for (const Json& words : texts) {
    std::string text;
    for (const Json& word : words) text += word.get<std::string>();
    std::vector<std::string> cut;
    for (const std::string_view word : words_of(text)) cut.emplace_back(word);
    CHECK(cut == words.get<std::vector<std::string>>());
  }
}

TEST_CASE("what is encoded decodes to the same bytes, whatever they are") {
  const Vocabulary files;
  const BpeVocabulary bpe(files.folder());
  std::string text =
      "The thing's in there, isn't it?\n\n\t 42 caf\u00E9s \u65E5\u672C\u8A9E \xFF\xC3(\xE2\x82 end ";
  CHECK(bpe.decode(bpe.encode(text)) == text);
  for (int seed = 0; seed < 300; ++seed) {
    const std::string other = testing::damaged(text, static_cast<std::uint64_t>(seed));
    CHECK(bpe.decode(bpe.encode(other)) == other);
  }
}

TEST_CASE("vocabulary files that do not belong together are refused with file and line") {
  Vocabulary files;
  files.merges += "q q\n";
  files.write();
  CHECK_THROWS_WITH(BpeVocabulary(files.folder()), Catch::Contains("merges.txt:7"));
  files.merges = "th\n";
  files.write();
  CHECK_THROWS_AS(BpeVocabulary(files.folder()), UserError);
  files.merges = "";
  files.vocab.erase("a");
  files.write();
  CHECK_THROWS_WITH(BpeVocabulary(files.folder()), Catch::Contains("'a'"));
  CHECK_THROWS_AS(BpeVocabulary("/nonexistent"), UserError);
}

TEST_CASE("an epoch visits every sequence of the text once, and the next in another order") {
  const int seq_len = 64;
  const std::int64_t batch = 8;
  const TextData data(kDefaultText, seq_len, 3, batch);
  const std::string text = read_file(kDefaultText);
  REQUIRE(data.sequences() == static_cast<std::int64_t>((text.size() - 1) / seq_len));
  std::vector<std::int32_t> tokens(seq_len);
  std::vector<std::int32_t> targets(seq_len);
  std::vector<std::vector<std::int32_t>> first;
  std::vector<std::vector<std::int32_t>> second;
  for (std::int64_t sample = 0; sample < 2 * data.sequences(); ++sample) {
    data.sample(sample / batch, sample % batch, tokens, targets);
    (sample < data.sequences() ? first : second).push_back(tokens);
  }
  CHECK(first != second);
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    std::vector<std::int32_t> sequence;
    for (int t = 0; t < seq_len; ++t)
      sequence.push_back(static_cast<unsigned char>(text[static_cast<std::size_t>(i * seq_len + t)]));
    all.push_back(sequence);
  }
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::sort(all.begin(), all.end());
  CHECK(first == all);
  CHECK(second == all);
}

TEST_CASE("text by a vocabulary is shorter than by bytes") {
  const Vocabulary files;
  const TextData bytes(kDefaultText, 16, 1);
  const TextData words(kDefaultText, 16, 1, 1, files.folder());
  CHECK(words.sequences() < bytes.sequences());
  CHECK(words.largest_token() == 261);
}

}  // namespace orrery::exec
