// Plain values through a socket between two copies of this process.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace orrery::sim {

// Writer and reader are called alike, so that one template says what both move.
class ByteWriter {
 public:
  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    (*this)(static_cast<std::uint64_t>(values.size()));
    out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void operator()(const std::string& text) { (*this)(std::vector<char>(text.begin(), text.end())); }
  void operator()(const std::map<std::string, double>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    for (const auto& [name, value] : values) {
      (*this)(name);
      (*this)(value);
    }
  }
  template <typename T, typename Move>
  void each(const std::vector<T>& values, const Move& move) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) move(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(const std::string& in) : in_(in) {}
  template <typename T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    read(&value, sizeof value);
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    values.resize(count_of(sizeof(T)));
    read(values.data(), values.size() * sizeof(T));
  }
  void operator()(std::string& text) {
    std::vector<char> characters;
    (*this)(characters);
    text.assign(characters.begin(), characters.end());
  }
  void operator()(std::map<std::string, double>& values) {
    for (std::uint64_t left = count_of(sizeof(double)); left > 0; --left) {
      std::string name;
      (*this)(name);
      (*this)(values[name]);
    }
  }
  template <typename T, typename Move>
  void each(std::vector<T>& values, const Move& move) {
    values.resize(count_of(1));
    for (T& value : values) move(value);
  }

 private:
  std::uint64_t count_of(std::size_t least_bytes) {
    std::uint64_t count = 0;
    (*this)(count);
    ORRERY_CHECK(count <= (in_.size() - at_) / least_bytes, "a result cut short");
    return count;
  }
  void read(void* to, std::size_t size) {
    ORRERY_CHECK(size <= in_.size() - at_, "a result cut short");
    if (size > 0) std::memcpy(to, in_.data() + at_, size);
    at_ += size;
  }
  const std::string& in_;
  std::size_t at_ = 0;
};

}  // namespace orrery::sim
