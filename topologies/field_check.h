// Checks of the figures of one message, with errors that name file, line and field.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

// Stands for one message inside a textproto. Every check throws UserError(file, line of the field, …); where
// the field itself is not written, the line is that of the innermost enclosing message that is.
class FieldCheck {
 public:
  // `path` of the message from the top of `text` ("groups[1].node"); empty: the top itself.
  FieldCheck(std::string_view file, std::string_view text, std::string path = {})
      : file_(file), text_(text), path_(std::move(path)) {}

  FieldCheck inside(std::string_view field, int index = -1) const;

  [[noreturn]] void fail(std::string_view field, std::string_view what, std::string_view expected) const;

  double positive(std::string_view field, double value) const;      // > 0, finite
  double not_negative(std::string_view field, double value) const;  // >= 0, finite
  double fraction(std::string_view field, double value) const;      // (0, 1]
  int within(std::string_view field, int value, int lowest, int highest) const;
  const std::string& named(std::string_view field, const std::string& value) const;  // not empty

 private:
  std::string full(std::string_view field) const;

  std::string_view file_;
  std::string_view text_;
  std::string path_;
};

}  // namespace orrery
