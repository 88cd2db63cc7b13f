#include "exec/state/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace orrery::exec {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian numbers");

constexpr std::size_t kMaxDimensions = 16;
constexpr std::uint64_t kMaxElements = 1ULL << 48;

std::uint64_t size_of(StoredType type) {
  return type == StoredType::i64 ? 8 : type == StoredType::f32 ? 4 : 2;
}

[[noreturn]] void refuse(std::string_view file, const std::string& name, const std::string& what) {
  throw UserError(file, 0, fmt::format("tensor '{}' {}", name.substr(0, 200), what),
                  "expected a sound safetensors file");
}

std::uint64_t count_of(const Json& value, std::string_view file, const std::string& name, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxElements)
    refuse(file, name, fmt::format("has {} that is no sound number", what));
  return value.get<std::uint64_t>();
}

// fp16 to fp32: exact (IEEE 754).
float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  std::uint32_t exponent = (half >> 10) & 0x1FU;
  std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((fraction & 0x400U) == 0) {  // a subnormal half is a normal float
      fraction <<= 1;
      --exponent;
    }
    fraction &= 0x3FFU;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

float from_brain(std::uint16_t brain) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16);
}

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) product *= d;
  return product;
}

std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view header,
                                                             std::uint64_t data_bytes,
                                                             std::string_view file) {
  const Json json = parse_json(header, file);
  if (!json.is_object())
    throw UserError(file, 0, "the header is no JSON object", "expected a safetensors file");
  std::map<std::string, StoredTensor> tensors;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets") || !entry["dtype"].is_string() || !entry["shape"].is_array() ||
        !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
        entry["shape"].size() > kMaxDimensions)
      refuse(file, name, "is not described by dtype, shape and data_offsets");
    StoredTensor tensor;
    std::uint64_t elements = 1;
    for (const Json& dimension : entry["shape"]) {
      const std::uint64_t size = count_of(dimension, file, name, "a dimension");
      if (size > 0 && elements > kMaxElements / size) refuse(file, name, "is larger than any machine");
      elements *= size;
      tensor.shape.push_back(static_cast<std::int64_t>(size));
    }
    tensor.begin = count_of(entry["data_offsets"][0], file, name, "an offset");
    tensor.end = count_of(entry["data_offsets"][1], file, name, "an offset");
    if (tensor.begin > tensor.end || tensor.end > data_bytes)
      refuse(file, name, fmt::format("lies at bytes {} to {} of {}", tensor.begin, tensor.end, data_bytes));
    places.emplace_back(tensor.begin, tensor.end);
    const auto type = entry["dtype"].get<std::string>();
    if (type == "F32")
      tensor.type = StoredType::f32;
    else if (type == "BF16")
      tensor.type = StoredType::bf16;
    else if (type == "F16")
      tensor.type = StoredType::f16;
    else if (type == "I64")
      tensor.type = StoredType::i64;
    else
      continue;
    if (tensor.end - tensor.begin != elements * size_of(tensor.type))
      refuse(file, name,
             fmt::format("has {} elements of {} in {} bytes", elements, type, tensor.end - tensor.begin));
    if (!tensors.emplace(name, std::move(tensor)).second) refuse(file, name, "is described twice");
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].second)
      throw UserError(file, 0,
                      fmt::format("two tensors share bytes {} to {}", places[i].first,
                                  std::min(places[i].second, places[i - 1].second)),
                      "expected each tensor in a place of its own");
  return tensors;
}

SafetensorsModel::SafetensorsModel(const fs::path& path) : path_(path) {
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    add_file(path);
    return;
  }
  const fs::path index = path / "model.safetensors.index.json";
  if (!fs::exists(index, code)) {
    add_file(path / "model.safetensors");
    return;
  }
  const Json json = read_json(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw UserError(index.string(), 0, "has no weight_map", "an index of safetensors files");
  std::map<std::string, bool> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>())
      throw UserError(index.string(), line_of_key(json.dump(0), name), "names no file beside it",
                      "names of files in the same folder");
    files[file.get<std::string>()] = true;
  }
  for (const auto& [file, wanted] : files) add_file(path / file);
}

void SafetensorsModel::add_file(const fs::path& file) {
  std::error_code code;
  const std::uint64_t size = fs::file_size(file, code);
  if (code) throw UserError(file.string(), 0, "cannot be opened", "an existing safetensors file");
  std::ifstream in(file, std::ios::binary);
  std::uint64_t length = 0;
  if (!in.read(reinterpret_cast<char*>(&length), sizeof(length)) || length > kMaxSafetensorsHeader ||
      length > size - sizeof(length))
    throw UserError(file.string(), 0, "is no safetensors file: its header does not fit",
                    "a safetensors file");
  std::string header(length, '\0');
  if (!in.read(header.data(), static_cast<std::streamsize>(length)))
    throw UserError(file.string(), 0, "cannot be read", "a safetensors file");
  const std::uint64_t begin = sizeof(length) + length;
  for (auto& [name, tensor] : parse_safetensors_header(header, size - begin, file.string()))
    if (!tensors_.emplace(name, Found{file, begin, tensor}).second)
      throw UserError(file.string(), 0, "holds tensor '" + name + "' that another file of the model holds",
                      "it once");
}

const SafetensorsModel::Found* SafetensorsModel::find(const std::string& name) const {
  const auto at = [&](const std::string& key) -> const Found* {
    const auto found = tensors_.find(key);
    return found == tensors_.end() ? nullptr : &found->second;
  };
  if (const Found* found = at(name)) return found;
  for (const std::string prefix : {"transformer.", "model.", "bert."}) {
    if (name.compare(0, prefix.size(), prefix) == 0)
      if (const Found* found = at(name.substr(prefix.size()))) return found;
    if (const Found* found = at(prefix + name)) return found;
  }
  return nullptr;
}

std::vector<float> SafetensorsModel::read(const Found& found) const {
  std::ifstream in(found.file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(found.data_begin + found.tensor.begin));
  std::vector<float> values(static_cast<std::size_t>(found.tensor.elements()));
  const auto take = [&](void* into, std::size_t bytes) {
    if (!in.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes)))
      throw UserError(found.file.string(), 0, "is cut short", "the whole file");
  };
  if (found.tensor.type == StoredType::f32) {
    take(values.data(), values.size() * sizeof(float));
    return values;
  }
  std::vector<std::uint16_t> halves(values.size());
  take(halves.data(), halves.size() * sizeof(std::uint16_t));
  const auto convert = found.tensor.type == StoredType::bf16 ? from_brain : from_half;
  std::transform(halves.begin(), halves.end(), values.begin(), convert);
  return values;
}

std::int64_t SafetensorsModel::read_count(const Found& found) const {
  std::int64_t count = 0;
  std::ifstream in(found.file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(found.data_begin + found.tensor.begin));
  if (found.tensor.type != StoredType::i64 || found.tensor.elements() != 1 ||
      !in.read(reinterpret_cast<char*>(&count), sizeof(count)) || count < 0)
    throw UserError(found.file.string(), 0, "a count of batches is no whole number", "one I64, not negative");
  return count;
}

SafetensorsWriter::SafetensorsWriter(fs::path path, const std::vector<Announced>& tensors)
    : path_(std::move(path)), making_(path_) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  for (const auto& [name, shape, type] : tensors) {
    std::uint64_t bytes = size_of(type);
    for (const std::int64_t d : shape) bytes *= static_cast<std::uint64_t>(d);
    header[name] = {{"dtype", type == StoredType::i64 ? "I64" : "F32"},
                    {"shape", shape},
                    {"data_offsets", {left_, left_ + bytes}}};
    left_ += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors are aligned
  const std::uint64_t length = text.size();
  file_ = ::open(making_.written().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail(std::strerror(errno));
  const std::uint64_t data = left_;
  left_ = data + sizeof(length) + length;
  write_bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  write_bytes(text.data(), text.size());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ < 0) return;
  ::close(file_);
  making_.discard();
}

// A constructor that throws leaves no destructor to clean up.
void SafetensorsWriter::fail(const std::string& what) {
  if (file_ >= 0) {
    ::close(std::exchange(file_, -1));
    making_.discard();
  }
  throw UserError(path_.string(), 0, "cannot be written: " + what, "expected a writable place");
}

void SafetensorsWriter::write(std::span<const float> values) {
  write_bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void SafetensorsWriter::write(std::int64_t count) {
  write_bytes(reinterpret_cast<const char*>(&count), sizeof(count));
}

void SafetensorsWriter::write_bytes(const char* at, std::size_t bytes) {
  ORRERY_CHECK(bytes <= left_, "more tensors than announced");
  left_ -= bytes;
  while (bytes > 0) {
    const ssize_t written = ::write(file_, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(std::strerror(errno));
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void SafetensorsWriter::finish() {
  ORRERY_CHECK(left_ == 0, "fewer tensors than announced");
  // Of a pipe or device nothing is kept.
  if (!making_.in_place() && ::fsync(file_) != 0) fail(std::strerror(errno));
  ::close(std::exchange(file_, -1));
  if (const std::error_code code = making_.finish()) fail(code.message());
}

}  // namespace orrery::exec
