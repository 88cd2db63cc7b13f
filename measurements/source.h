// A file that somebody else's program wrote, plain or gzip: read in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::measurements {

// More than any trace: what unpacks to it is refused, as is what unpacks to a thousand times its size
// (deflate's most, which only the monotonous reach).
inline constexpr std::uint64_t kMostUnpackedBytes = 64ULL << 30;
inline constexpr std::uint64_t kMostTimesPacked = 1000, kSmallBytes = 64ULL << 20;

// By so much of it, unpacked, kinds of files are recognised: what a hundred ranks print before the first that
// counts.
inline constexpr std::size_t kHeadBytes = 1 << 20;

// A file's bytes, unpacked, one piece after another.
class Pieces {
 public:
  virtual ~Pieces() = default;
  // Empty behind the last; good until the next. Throws UserError on a gzip bomb, or what ends in the middle.
  virtual std::string_view next() = 0;
};

class Source {
 public:
  // Throws UserError where there is no such file, or it is no regular one.
  explicit Source(const std::filesystem::path& path);
  // Of bytes in memory: tests and fuzzing.
  Source(std::string name, std::string bytes);

  const std::string& name() const { return name_; }
  // Its beginning: up to kHeadBytes.
  const std::string& head() const { return head_; }
  // Empty where it is packed, or bytes in memory.
  std::filesystem::path plain_file() const { return packed_ ? std::filesystem::path() : path_; }
  // All of it. Throws UserError beyond base/file.h's kMaxTextBytes.
  std::string text() const;
  // From its beginning; must not outlive the source.
  std::unique_ptr<Pieces> pieces() const;
  // Piece by piece, until `piece` says false. Throws as Pieces::next does.
  void read(const std::function<bool(std::string_view piece)>& piece) const;

 private:
  std::string name_, bytes_, head_;
  std::filesystem::path path_;
  std::uint64_t packed_bytes_ = 0;
  bool packed_ = false;
};

}  // namespace orrery::measurements
