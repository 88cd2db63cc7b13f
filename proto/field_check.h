// Checks of the figures of one message, with errors that name file, line and field.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
}

namespace orrery {

// Stands for one message inside a textproto. Every check throws UserError(file, line of the field, …); where
// the field itself is not written, the line is that of the innermost enclosing message that is.
class FieldCheck {
 public:
  // Of the message that all of `text` is, a message of `type` (X::descriptor()). Both outlive the check.
  // `text` is empty where the message was not read from a file: lines are 0.
  FieldCheck(std::string_view file, std::string_view text, const google::protobuf::Descriptor& type)
      : file_(file), text_(text), type_(&type) {}

  // Of the message in a field of this one; `index` of a repeated field.
  FieldCheck inside(std::string_view field, int index = -1) const;

  std::string_view file() const { return file_; }
  std::string full(std::string_view field) const;  // its path from the top of the file
  int line(std::string_view field) const;          // see above; 0 where nothing is written
  [[noreturn]] void fail(std::string_view field, std::string_view what, std::string_view expected) const;

  double positive(std::string_view field, double value) const;      // > 0, finite
  double not_negative(std::string_view field, double value) const;  // >= 0, finite
  // Of bytes or operations a second: 0, or at least 1e6. Less is another unit (25 for 25 GB/s).
  double rate(std::string_view field, double value) const;
  double latency(std::string_view field, double value) const;  // seconds, from 0 to 10
  static constexpr double kLeastFraction = 1e-6;
  double fraction(std::string_view field, double value) const;  // from kLeastFraction to 1
  int within(std::string_view field, int value, int lowest, int highest) const;
  const std::string& named(std::string_view field, const std::string& value) const;  // not empty

 private:
  std::string_view file_;
  std::string_view text_;
  const google::protobuf::Descriptor* type_;  // of the text
  std::string path_;  // of this message from the top of the text; empty: the top itself
};

}  // namespace orrery
