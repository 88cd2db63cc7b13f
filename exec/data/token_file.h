// A file of text or of tokens, mapped and not read: a rank holds in memory what it has just used, however
// large the file is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::exec {

class TokenFile {
 public:
  // A text is its bytes. What is called `….bin` is tokens: with an index `….idx` beside it Megatron's indexed
  // data set (megatron/core/datasets/indexed_dataset.py), its documents one after another; with the header of
  // llm.c (dev/data/data_common.py: 256 numbers of 32 bits, the first 20240520 or 20240801) that; else
  // nanoGPT's (data/*/prepare.py), tokens of 16 bits and nothing else. Throws UserError with the file.
  explicit TokenFile(const std::string& file);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  bool is_text() const { return text_; }
  std::string_view text() const { return {data_ + begin_, size_ - begin_}; }
  std::int64_t tokens() const { return static_cast<std::int64_t>((size_ - begin_) / width_); }
  // 0 <= at < tokens(). Negative numbers and those beyond 31 bits come as -1.
  std::int32_t token(std::int64_t at) const;
  const std::string& file() const { return file_; }

 private:
  void read_index(const std::string& index);

  std::string file_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t begin_ = 0;  // of the tokens, behind a header
  std::size_t width_ = 1;  // bytes of a token
  bool text_ = true;
  bool signed_ = false;
};

}  // namespace orrery::exec
