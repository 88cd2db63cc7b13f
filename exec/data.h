// Training data: sequences of bytes of a text file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace orrery::exec {

// The licence that every Debian system carries.
constexpr const char* kDefaultText = "/usr/share/common-licenses/GPL-3";

// A token is a byte; its target is the byte that follows.
class TextData {
 public:
  // Throws UserError where the file cannot be read or is shorter than seq_len + 1 bytes.
  TextData(const std::string& file, int seq_len, std::uint64_t seed);

  // Sample `index` of the global batch of `step`: drawn with replacement by (seed, step, index) alone, so
  // that every plan trains on the same batches. Both spans have seq_len elements.
  void sample(std::int64_t step, std::int64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;

 private:
  std::string text_;
  std::uint64_t seed_;
};

}  // namespace orrery::exec
