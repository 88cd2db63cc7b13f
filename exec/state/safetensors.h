// The safetensors format: an 8-byte little-endian length, a JSON header of that length with each tensor's
// dtype, shape and place, and the tensors' bytes one after another (github.com/huggingface/safetensors,
// README "Format").
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace orrery::exec {

constexpr std::uint64_t kMaxSafetensorsHeader = 100ULL << 20;  // the reference implementation's limit

enum class StoredType { f32, bf16, f16, i64 };

struct StoredTensor {
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
  std::int64_t elements() const;
};

// What a header says, checked: every figure in bounds, no two tensors overlap, nothing lies beyond
// `data_bytes`. Tensors of other types are left out (masks as booleans: nothing that is trained). Throws
// UserError.
std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view header,
                                                             std::uint64_t data_bytes, std::string_view file);

// A model as people keep it: a file, a folder with model.safetensors, or one with
// model.safetensors.index.json and the files that it names.
class SafetensorsModel {
 public:
  // Reads headers only. Throws UserError.
  explicit SafetensorsModel(const std::filesystem::path& path);

  struct Found {
    std::filesystem::path file;
    std::uint64_t data_begin = 0;  // of the file's data
    StoredTensor tensor;
  };
  // By the name, or by the name with or without the model's own prefix ("transformer.", "model."), with which
  // or without which files are about equally common. Null where there is none.
  const Found* find(const std::string& name) const;
  // All elements as fp32, row-major. Throws UserError where the file is cut short.
  std::vector<float> read(const Found& found) const;
  // The one whole number of a tensor of these. Throws UserError where it is something else.
  std::int64_t read_count(const Found& found) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void add_file(const std::filesystem::path& file);
  std::filesystem::path path_;
  std::map<std::string, Found> tensors_;
};

// Writes tensors one after another, in the order in which they were announced; the file appears under
// its name when the last has been written.
class SafetensorsWriter {
 public:
  struct Announced {
    std::string name;
    std::vector<std::int64_t> shape;
    StoredType type = StoredType::f32;  // or i64
  };
  SafetensorsWriter(std::filesystem::path path, const std::vector<Announced>& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  void write(std::span<const float> values);  // of the next tensor, or a part of it
  void write(std::int64_t count);             // the next tensor, of one whole number
  void finish();

 private:
  void write_bytes(const char* at, std::size_t bytes);
  void fail(const std::string& what);
  std::filesystem::path path_;
  FileInMaking making_;
  std::uint64_t left_ = 0;  // bytes still to come
  int file_ = -1;
};

}  // namespace orrery::exec
