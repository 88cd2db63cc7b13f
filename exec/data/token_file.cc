#include "exec/data/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace orrery::exec {
namespace {

constexpr char kIndexMagic[] = "MMIDIDX\x00";  // and the end's zero: nine bytes
constexpr std::int32_t kLlmC16 = 20240520;
constexpr std::int32_t kLlmC32 = 20240801;
constexpr std::size_t kLlmCHeader = 256 * sizeof(std::int32_t);

template <typename T>
T number_at(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

}  // namespace

TokenFile::TokenFile(const std::string& file) : file_(file) {
  const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (opened < 0 || ::fstat(opened, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string reason = opened < 0 ? std::strerror(errno) : "it is no regular file";
    if (opened >= 0) ::close(opened);
    throw UserError(file, 0, "cannot be opened: " + reason, "a file of text, or of tokens (.bin)");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened, 0);
    if (mapped == MAP_FAILED) {
      ::close(opened);
      throw UserError(file, 0, std::string("cannot be mapped: ") + std::strerror(errno), "a file on a disk");
    }
    data_ = static_cast<const char*>(mapped);
    ::madvise(mapped, size_, MADV_RANDOM);  // an epoch visits sequences in an order of its own
  }
  ::close(opened);
  if (std::filesystem::path(file).extension() != ".bin") return;
  text_ = false;
  width_ = sizeof(std::uint16_t);
  const std::string index = std::filesystem::path(file).replace_extension(".idx").string();
  if (std::filesystem::exists(index)) {
    read_index(index);
  } else if (size_ >= kLlmCHeader) {
    const auto magic = number_at<std::int32_t>(data_);
    const auto said = number_at<std::int32_t>(data_ + 2 * sizeof(std::int32_t));
    if (magic == kLlmC16 || magic == kLlmC32) {
      begin_ = kLlmCHeader;
      width_ = magic == kLlmC16 ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
      if (tokens() != said)
        throw UserError(file, 0, fmt::format("has {} tokens and its header says {}", tokens(), said),
                        "a whole file of llm.c's format");
    }
  }
  if ((size_ - begin_) % width_ != 0)
    throw UserError(file, 0, fmt::format("ends inside a token of {} bytes", width_), "a whole file");
}

TokenFile::~TokenFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void TokenFile::read_index(const std::string& index) {
  std::ifstream in(index, std::ios::binary);
  constexpr std::size_t kMagic = 9;
  constexpr std::size_t kHead = kMagic + sizeof(std::uint64_t) + 1;
  char head[kHead] = {};
  if (!in.read(head, kHead) || std::memcmp(head, kIndexMagic, kMagic) != 0 ||
      number_at<std::uint64_t>(head + kMagic) != 1)
    throw UserError(index, 0, "is no index of Megatron's data sets", "the .idx that belongs to the .bin");
  switch (head[kHead - 1]) {
    case 1:
      width_ = 1;
      break;
    case 2:
      width_ = 1;
      signed_ = true;
      break;
    case 3:
      width_ = 2;
      signed_ = true;
      break;
    case 4:
      width_ = 4;
      signed_ = true;
      break;
    case 5:
      width_ = 8;
      signed_ = true;
      break;
    case 8:
      width_ = 2;
      break;
    default:
      throw UserError(index, 0, fmt::format("has tokens of type {}", static_cast<int>(head[kHead - 1])),
                      "a type of whole numbers: 1 to 5 or 8");
  }
}

std::int32_t TokenFile::token(std::int64_t at) const {
  const char* from = data_ + begin_ + static_cast<std::size_t>(at) * width_;
  std::int64_t value = -1;
  switch (width_) {
    case 1:
      value =
          signed_ ? std::int64_t{number_at<std::int8_t>(from)} : std::int64_t{number_at<std::uint8_t>(from)};
      break;
    case 2:
      value = signed_ ? std::int64_t{number_at<std::int16_t>(from)}
                      : std::int64_t{number_at<std::uint16_t>(from)};
      break;
    case 4:
      value = signed_ ? std::int64_t{number_at<std::int32_t>(from)}
                      : std::int64_t{number_at<std::uint32_t>(from)};
      break;
    default:
      value = number_at<std::int64_t>(from);
  }
  const bool fits = value >= 0 && value <= std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(value) : -1;
}

}  // namespace orrery::exec
