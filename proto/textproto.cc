#include "proto/textproto.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <vector>

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

}  // namespace

void parse_textproto(std::string_view text, std::string_view file, google::protobuf::Message* message) {
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxNesting);
  const std::string copy(text);
  if (!parser.ParseFromString(copy, message))
    throw UserError(file, errors.line(), errors.message(),
                    fmt::format("expected a textproto of {}", message->GetDescriptor()->name()));
}

void read_textproto(const std::filesystem::path& path, google::protobuf::Message* message) {
  parse_textproto(read_file(path), path.string(), message);
}

int line_of_field(std::string_view text, std::string_view field_path) {
  // A small scan over protobuf's own tokens: it needs no message type and survives any layout.
  std::vector<std::string> wanted;
  for (std::size_t at = 0; at <= field_path.size();) {
    const std::size_t dot = std::min(field_path.find('.', at), field_path.size());
    wanted.emplace_back(field_path.substr(at, dot - at));
    at = dot + 1;
  }
  FirstError errors;
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  tokens.set_comment_style(google::protobuf::io::Tokenizer::SH_COMMENT_STYLE);
  std::vector<std::string> path;
  std::string last;
  int last_line = 0;
  const auto matches = [&](const std::string& name) {
    if (path.size() + 1 != wanted.size() || name != wanted.back()) return false;
    return std::equal(path.begin(), path.end(), wanted.begin());
  };
  while (tokens.Next()) {
    const auto& token = tokens.current();
    if (token.text == "{" || token.text == "<") {
      if (matches(last)) return last_line;
      path.push_back(last);
    } else if (token.text == "}" || token.text == ">") {
      if (!path.empty()) path.pop_back();
    } else if (token.text == ":") {
      if (matches(last)) return last_line;
    } else if (token.type == google::protobuf::io::Tokenizer::TYPE_IDENTIFIER) {
      last = token.text;
      last_line = token.line + 1;
    }
  }
  return 0;
}

std::string to_textproto(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  ORRERY_CHECK(printer.PrintToString(message, &text), "textproto printing failed");
  return text;
}

}  // namespace orrery
