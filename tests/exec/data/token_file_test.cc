#include "exec/data/token_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "exec/data/data.h"
#include "tests/support/fuzz.h"

namespace orrery::exec {
namespace {

std::string bytes_of(std::initializer_list<std::int32_t> values) {
  std::string bytes(values.size() * sizeof(std::int32_t), 0);
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

// Numbers or one clear refusal; whatever is in the files.
void read_all(const std::string& file) {
  try {
    const TokenFile tokens(file);
    for (std::int64_t at = 0; at < tokens.tokens(); ++at) CHECK(tokens.token(at) >= -1);
    const TextData data(file, 4, 1, 2, "", 300);
    std::vector<std::int32_t> some(4);
    std::vector<std::int32_t> next(4);
    for (std::int64_t step = 0; step < 20; ++step) data.sample(step, 1, some, next);
  } catch (const UserError&) {
  }
}

TEST_CASE("a model of few tokens takes files of such tokens, and no text's bytes") {
  const TemporaryFolder folder;
  const std::string tokens = folder.path() + "/a.bin", text = folder.path() + "/a.txt";
  write_file_atomically(tokens, bytes_of({1, 2, 3, 4, 5, 6, 7, 8}));
  write_file_atomically(text, "ab ba ab ba");
  std::vector<std::int32_t> some(4), next(4);
  TextData(tokens, 4, 1, 1, "", 9).sample(0, 0, some, next);
  CHECK_THROWS_WITH(TextData(text, 4, 1, 1, "", 255), Catch::Contains("a.txt: is a text, whose bytes"));
  CHECK_NOTHROW(TextData(text, 4, 1, 1, "", 256));
}

TEST_CASE("damaged files of tokens and their indexes are read or refused") {
  const auto folder = std::filesystem::temp_directory_path() / ("orrery-tokens-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string tokens = bytes_of({1, 2, 3, 70000, -5, 6, 7, 8, 9, 10, 11, 12});
  const std::string index = std::string("MMIDIDX\0\0", 9) + std::string("\1\0\0\0\0\0\0\0\4", 9) +
                            std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16);
  std::string header = bytes_of({20240520, 1, 24}) + std::string(253 * 4, 0);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    write_file_atomically(folder / "a.bin", testing::damaged(tokens, seed));
    write_file_atomically(folder / "a.idx", testing::damaged(index, seed + 1000));
    read_all(folder / "a.bin");
    write_file_atomically(folder / "b.bin", testing::damaged(header + tokens, seed));
    read_all(folder / "b.bin");
  }
  write_file_atomically(folder / "a.bin", tokens);
  write_file_atomically(folder / "a.idx", index);
  const TokenFile whole(folder / "a.bin");
  CHECK(whole.tokens() == 12);
  CHECK(whole.token(3) == 70000);
  CHECK(whole.token(4) == -1);
  std::filesystem::remove_all(folder);
  CHECK_THROWS_AS(TokenFile("/nonexistent"), UserError);
  CHECK_THROWS_AS(TokenFile("/tmp"), UserError);
}

}  // namespace
}  // namespace orrery::exec
