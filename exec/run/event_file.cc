// Event files as TensorBoard reads them: records of a length, its check sum, a proto::Event and its check
// sum (TensorFlow's TFRecord; CRC-32C, rotated and shifted).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "exec/run/progress.h"
#include "proto/event.pb.h"

namespace orrery::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths and check sums are written as they lie");

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint32_t masked_crc(const void* data, std::size_t bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data, bytes);
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xA282EAD8U;
}

void append(std::FILE* file, const proto::Event& event, const std::string& folder) {
  const std::string data = event.SerializeAsString();
  const auto length = static_cast<std::uint64_t>(data.size());
  const std::uint32_t of_length = masked_crc(&length, sizeof(length));
  const std::uint32_t of_data = masked_crc(data.data(), data.size());
  std::string record;
  const auto add = [&](const void* of, std::size_t bytes) {
    record.append(static_cast<const char*>(of), bytes);
  };
  add(&length, sizeof(length));
  add(&of_length, sizeof(of_length));
  add(data.data(), data.size());
  add(&of_data, sizeof(of_data));
  if (std::fwrite(record.data(), 1, record.size(), file) != record.size() || std::fflush(file) != 0)
    throw UserError(folder, 0, std::string("cannot be written into: ") + std::strerror(errno), "a folder");
}

}  // namespace

EventFile::EventFile(const std::string& folder) : folder_(folder) {
  const double now_s = seconds_since_1970();
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  // Several runs into one folder are several files, which TensorBoard joins by their steps.
  const std::string path = fmt::format("{}/events.out.tfevents.{:010.0f}.{}.{}", folder, now_s, host.data(),
                                       static_cast<long>(::getpid()));
  file_ = std::fopen(path.c_str(), "wbxe");
  if (file_ == nullptr)
    throw UserError(folder, 0, std::string("cannot be written into: ") + std::strerror(errno), "a folder");
  proto::Event first;
  first.set_wall_time(now_s);
  first.set_file_version("brain.Event:2");
  append(file_, first, folder_);
}

EventFile::~EventFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventFile::write(std::int64_t step, std::initializer_list<std::pair<const char*, double>> values) {
  proto::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  for (const auto& [tag, value] : values) {
    proto::EventValue* one = event.mutable_summary()->add_value();
    one->set_tag(tag);
    constexpr double kMost = std::numeric_limits<float>::max();
    one->set_simple_value(static_cast<float>(std::clamp(value, -kMost, kMost)));
  }
  append(file_, event, folder_);
}

}  // namespace orrery::exec
