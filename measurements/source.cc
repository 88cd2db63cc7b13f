#include "measurements/source.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr int kGzip = 16;  // of inflateInit2: a gzip header, and no other

bool is_gzip(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

// Members of a gzip file one after another, as gzip -d takes them.
class Unpacker {
 public:
  Unpacker(const std::string& name, std::uint64_t packed_bytes) : name_(name), packed_bytes_(packed_bytes) {
    ORRERY_CHECK(inflateInit2(&stream_, MAX_WBITS + kGzip) == Z_OK, "zlib does not start");
  }
  ~Unpacker() { inflateEnd(&stream_); }
  Unpacker(const Unpacker&) = delete;

  void give(std::string_view packed) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
  }

  // What comes of what was given; empty: it wants more.
  std::string_view next() {
    // What is left in zlib's window comes out where the buffer was full.
    while (stream_.avail_in > 0 || full_) {
      if (ended_) {
        if (inflateReset(&stream_) != Z_OK) fail("is no sound gzip file");
        ended_ = false;
      }
      stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) fail("is no sound gzip file");
      ended_ = result == Z_STREAM_END;
      const std::size_t got = buffer_.size() - stream_.avail_out;
      full_ = stream_.avail_out == 0 && !ended_;
      unpacked_bytes_ += got;
      if (unpacked_bytes_ > kMostUnpackedBytes ||
          (unpacked_bytes_ > kSmallBytes && unpacked_bytes_ / kMostTimesPacked > packed_bytes_))
        fail("unpacks to far more than any measurement (a gzip bomb)");
      if (got > 0) return {buffer_.data(), got};
      if (result == Z_BUF_ERROR) break;
    }
    return {};
  }
  bool ended() const { return ended_; }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(name_, 0, what, "expected a gzip file");
  }

  const std::string& name_;
  std::uint64_t packed_bytes_, unpacked_bytes_ = 0;
  z_stream stream_{};
  std::vector<char> buffer_ = std::vector<char>(kPieceBytes);
  bool ended_ = false, full_ = false;
};

class FilePieces : public Pieces {
 public:
  FilePieces(const std::string& name, std::unique_ptr<std::istream> file, std::uint64_t packed_bytes)
      : name_(name), file_(std::move(file)), packed_bytes_(packed_bytes) {
    if (!*file_) throw UserError(name_, 0, "cannot be read", "");
  }

  std::string_view next() override {
    while (true) {
      if (unpacker_ != nullptr)
        if (const std::string_view piece = unpacker_->next(); !piece.empty()) return piece;
      file_->read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
      const std::string_view got(buffer_.data(), static_cast<std::size_t>(file_->gcount()));
      if (got.empty()) break;
      if (first_ && is_gzip(got)) unpacker_ = std::make_unique<Unpacker>(name_, packed_bytes_);
      first_ = false;
      if (unpacker_ == nullptr) return got;
      unpacker_->give(got);
    }
    if (unpacker_ != nullptr && !unpacker_->ended())
      throw UserError(name_, 0, "ends in the middle", "expected a whole gzip file");
    return {};
  }

 private:
  const std::string& name_;
  std::unique_ptr<std::istream> file_;
  std::uint64_t packed_bytes_;
  std::vector<char> buffer_ = std::vector<char>(kPieceBytes);
  std::unique_ptr<Unpacker> unpacker_;
  bool first_ = true;
};

}  // namespace

Source::Source(const std::filesystem::path& path) : name_(path.string()), path_(path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) throw UserError(name_, 0, "there is no such file", "");
  if (!std::filesystem::is_regular_file(path, code)) throw UserError(name_, 0, "is no regular file", "");
  packed_bytes_ = std::filesystem::file_size(path, code);
  std::string begin(2, '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), 2);
  packed_ = is_gzip(begin);
  read([this](std::string_view piece) {
    head_ += piece.substr(0, kHeadBytes - head_.size());
    return head_.size() < kHeadBytes;
  });
}

Source::Source(std::string name, std::string bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {
  packed_bytes_ = bytes_.size();
  read([this](std::string_view piece) {
    head_ += piece.substr(0, kHeadBytes - head_.size());
    return head_.size() < kHeadBytes;
  });
}

std::string Source::text() const {
  std::string all;
  read([&](std::string_view piece) {
    if (all.size() + piece.size() > kMaxTextBytes)
      throw UserError(name_, 0, "is larger than any such file", "expected at most 64 MiB of text");
    all += piece;
    return true;
  });
  return all;
}

std::unique_ptr<Pieces> Source::pieces() const {
  std::unique_ptr<std::istream> file;
  if (path_.empty())
    file = std::make_unique<std::istringstream>(bytes_);
  else
    file = std::make_unique<std::ifstream>(path_, std::ios::binary);
  return std::make_unique<FilePieces>(name_, std::move(file), packed_bytes_);
}

void Source::read(const std::function<bool(std::string_view)>& piece) const {
  const std::unique_ptr<Pieces> all = pieces();
  for (std::string_view one = all->next(); !one.empty(); one = all->next())
    if (!piece(one)) return;
}

}  // namespace orrery::measurements
