#include "measurements/source.h"

#include <zlib.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"

using namespace orrery;
using measurements::Source;

namespace {

std::string packed(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

TEST_CASE("a file reads the same plain, packed and packed in two members") {
  std::string text;
  for (int i = 0; text.size() < 2'000'000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string half = text.substr(0, 300'000), rest = text.substr(300'000);
  for (const std::string& bytes : {text, packed(text), packed(half) + packed(rest)}) {
    const Source source("a", bytes);
    CHECK(source.text() == text);
    CHECK(source.head() == text.substr(0, measurements::kHeadBytes));
  }
  const TemporaryFolder folder;
  write_file_atomically(folder.path() + "/a.gz", packed(text));
  CHECK(Source(std::filesystem::path(folder.path() + "/a.gz")).text() == text);
  CHECK_THROWS_AS(Source(std::filesystem::path(folder.path() + "/b.gz")), UserError);
  CHECK_THROWS_AS(Source(std::filesystem::path(folder.path())), UserError);
}

TEST_CASE("what is cut short, damaged or unpacks to far too much is refused") {
  const std::string whole = packed(std::string(100'000, 'a') + "b");
  CHECK_THROWS_AS(Source("a", whole.substr(0, whole.size() - 12)).text(), UserError);
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x55;
  CHECK_THROWS_AS(Source("a", damaged).text(), UserError);
  const Source bomb("bomb", packed(std::string(150 << 20, '\0')));
  CHECK_THROWS_WITH(bomb.text(), Catch::Contains("bomb"));
  // Read piece by piece it ends, too: deflate packs a thousand to one at most, so only nested bombs would
  // not.
  std::uint64_t bytes = 0;
  bool refused = false;
  try {
    bomb.read([&](std::string_view piece) {
      bytes += piece.size();
      return true;
    });
  } catch (const UserError&) {
    refused = true;
  }
  CHECK((refused || bytes == 150 << 20));
}
