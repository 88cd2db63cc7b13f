#include "exec/state/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/fuzz.h"

namespace orrery::exec {
namespace {

const std::string kSound =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"mask":{"dtype":"BOOL","shape":[2],"data_offsets":[32,34]}})";

bool refused(const std::string& header, std::uint64_t bytes = 34) {
  try {
    parse_safetensors_header(header, bytes, "file");
    return false;
  } catch (const UserError&) {
    return true;
  }
}

}  // namespace

TEST_CASE("a safetensors header says where tensors lie, and types that are not trained are left out") {
  const auto tensors = parse_safetensors_header(kSound, 34, "file");
  REQUIRE(tensors.size() == 2);
  CHECK(tensors.at("a").elements() == 6);
  CHECK(tensors.at("b").begin == 24);
  CHECK(tensors.at("b").type == StoredType::bf16);
}

TEST_CASE("safetensors headers that lie are refused") {
  CHECK(refused(kSound, 33));  // beyond the file
  CHECK(refused("[]"));
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})"));   // too few bytes
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"));  // negative
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})"));   // ends before it begins
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})"));
  CHECK(
      refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"));  // overflows
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})"));  // overlap
  CHECK_FALSE(refused(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})"));
  CHECK_FALSE(refused("{}"));
}

TEST_CASE("weights go through a pipe, which stays one") {
  const TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  SafetensorsWriter writer(pipe, {{"a", {2}}});
  writer.write(std::vector<float>{1, 2});
  writer.finish();
  std::array<char, 4096> read{};
  CHECK(::read(reader, read.data(), read.size()) > 8);
  close(reader);
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("damaged safetensors headers are read or refused, never worse") {
  const int bad = testing::survive(kSound, 4000, [](const std::string& text) {
    for (const auto& [name, tensor] : parse_safetensors_header(text, 34, "file")) {
      ORRERY_CHECK(tensor.begin <= tensor.end && tensor.end <= 34, "beyond the data: " + name);
      ORRERY_CHECK(tensor.elements() <= 34, "more elements than bytes: " + name);
    }
  });
  CHECK(bad > 1000);
}

}  // namespace orrery::exec
