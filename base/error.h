// The three ways in which Orrery says "no", by who is to blame; each has its exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace orrery {

// The user's input or usage is wrong. Becomes `orrery: FILE:LINE: what is wrong (what was expected)`, exit
// code 2.
class UserError : public std::runtime_error {
 public:
  // `file` may be empty (an option on the command line) and `line` 0 (unknown or meaningless).
  UserError(std::string_view file, int line, std::string_view what, std::string_view expected);
  // An error of usage that belongs to no file.
  explicit UserError(std::string_view what, std::string_view expected = {});
};

// The question was sound and the answer is "no": no plan fits, validation outside its tolerance. Exit code 3.
class NoAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A defect of ours or a failure of a library or of the machine. Exit code 1.
class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws InternalError naming `condition`, `file` and `line`; in release builds too.
[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& detail);

}  // namespace orrery

// A broken invariant of ours. `detail` is any expression convertible to std::string; evaluated only on
// failure.
#define ORRERY_CHECK(condition, detail) \
  ((condition) ? void(0) : ::orrery::fail_check(#condition, __FILE__, __LINE__, (detail)))
