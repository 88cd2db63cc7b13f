// Plain values through a pipe between two copies of this process.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace orrery::sim {

class ByteWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(static_cast<std::uint64_t>(values.size()));
    out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void put(const std::string& text) { put(std::vector<char>(text.begin(), text.end())); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(const std::string& in) : in_(in) {}
  template <typename T>
  void get(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    read(&value, sizeof value);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    std::uint64_t count = 0;
    get(count);
    ORRERY_CHECK(count <= (in_.size() - at_) / sizeof(T), "a result cut short");
    values.resize(count);
    read(values.data(), count * sizeof(T));
  }
  void get(std::string& text) {
    std::vector<char> characters;
    get(characters);
    text.assign(characters.begin(), characters.end());
  }

 private:
  void read(void* to, std::size_t size) {
    ORRERY_CHECK(size <= in_.size() - at_, "a result cut short");
    if (size > 0) std::memcpy(to, in_.data() + at_, size);
    at_ += size;
  }
  const std::string& in_;
  std::size_t at_ = 0;
};

}  // namespace orrery::sim
