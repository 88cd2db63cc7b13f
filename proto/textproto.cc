#include "proto/textproto.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace orrery {
namespace {

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (line_ >= 0) return;
    line_ = line;
    message_ = message;
  }
  void AddWarning(int, int, const std::string&) override {}
  int line() const { return line_ < 0 ? 0 : line_ + 1; }
  const std::string& message() const { return message_; }

 private:
  int line_ = -1;
  std::string message_;
};

constexpr int kMaxNesting = 32;

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// The line of the field's `index`-th value. The parser notes a list in brackets as one value: its elements
// stand where the last value before them does.
int line_of_value(const TextFormat::ParseInfoTree& tree, const FieldDescriptor& field, int index) {
  int line = -1;
  for (; index >= 0 && line < 0; --index)
    line = tree.GetLocation(&field, field.is_repeated() ? index : -1).line;
  return line + 1;
}

int line_in(const TextFormat::ParseInfoTree& tree, const Message& message, std::string_view path) {
  const std::size_t dot = std::min(path.find('.'), path.size());
  const std::string_view step = path.substr(0, dot);
  const std::size_t bracket = std::min(step.find('['), step.size());
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByName(std::string(step.substr(0, bracket)));
  if (field == nullptr) return 0;
  const auto& reflect = *message.GetReflection();
  int end = field->is_repeated() ? reflect.FieldSize(message, field) : 1;
  int index = 0;
  if (bracket < step.size()) {
    std::from_chars(step.data() + bracket + 1, step.data() + step.size(), index);
    end = std::min(end, index + 1);
  }
  for (; index < end; ++index) {
    if (dot == path.size()) return line_of_value(tree, *field, index);
    if (field->message_type() == nullptr) return 0;
    const TextFormat::ParseInfoTree* nested = tree.GetTreeForNested(field, field->is_repeated() ? index : -1);
    if (nested == nullptr) return 0;
    const Message& inner = field->is_repeated() ? reflect.GetRepeatedMessage(message, field, index)
                                                : reflect.GetMessage(message, field);
    if (const int line = line_in(*nested, inner, path.substr(dot + 1)); line > 0) return line;
  }
  return 0;
}

using Parser = TextFormat::Parser;

void read_text(std::string_view text, std::string_view file, google::protobuf::Message* message,
               bool (Parser::*read)(const std::string&, google::protobuf::Message*)) {
  FirstError errors;
  Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxNesting);
  // As Windows' editors write it, before anything else: it says what UTF-8 is anyway.
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::string copy(text);
  if (!(parser.*read)(copy, message))
    throw UserError(file, errors.line(), errors.message(),
                    fmt::format("expected a textproto of {}", message->GetDescriptor()->name()));
}

}  // namespace

void parse_textproto(std::string_view text, std::string_view file, google::protobuf::Message* message) {
  read_text(text, file, message, &Parser::ParseFromString);
}

void merge_textproto(std::string_view text, std::string_view file, google::protobuf::Message* message) {
  read_text(text, file, message, &Parser::MergeFromString);
}

void read_textproto(const std::filesystem::path& path, google::protobuf::Message* message) {
  parse_textproto(read_file(path), path.string(), message);
}

int line_of_field(std::string_view text, const Descriptor& type, std::string_view path) {
  FirstError errors;  // damaged text has lines up to the damage
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxNesting);
  parser.WriteLocationsTo(&tree);
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  parser.ParseFromString(std::string(text), message.get());
  return line_in(tree, *message, path);
}

std::string to_textproto(const google::protobuf::Message& message) {
  TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  ORRERY_CHECK(printer.PrintToString(message, &text), "textproto printing failed");
  return text;
}

}  // namespace orrery
