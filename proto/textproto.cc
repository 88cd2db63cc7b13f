#include "proto/textproto.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <map>
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

constexpr std::size_t kMaxNesting = 32;

struct PathStep {
  std::string name;
  int index = -1;  // of a repeated field; -1: any
};

std::vector<PathStep> split_path(std::string_view path) {
  std::vector<PathStep> steps;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, dot - at);
    const std::size_t bracket = part.find('[');
    PathStep step{std::string(part.substr(0, bracket))};
    if (bracket != std::string_view::npos) {
      const std::string_view digits = part.substr(bracket + 1);
      std::from_chars(digits.data(), digits.data() + digits.size(), step.index);
    }
    steps.push_back(std::move(step));
    at = dot + 1;
  }
  return steps;
}

// A small recursive descent over protobuf's own tokens: it needs no message type and survives any layout.
class FieldFinder {
 public:
  FieldFinder(std::string_view text, std::vector<PathStep> wanted)
      : stream_(text.data(), static_cast<int>(text.size())),
        tokens_(&stream_, &errors_),
        wanted_(std::move(wanted)) {
    tokens_.set_comment_style(google::protobuf::io::Tokenizer::SH_COMMENT_STYLE);
  }

  int find() {
    if (tokens_.Next()) message(0, true);
    return line_;
  }

 private:
  using Tokenizer = google::protobuf::io::Tokenizer;

  bool at(std::string_view symbol) { return tokens_.current().text == symbol; }
  bool ended() { return tokens_.current().type == Tokenizer::TYPE_END || line_ > 0; }

  // Fields up to the closing bracket. `on_path`: the fields that lead here are the wanted path's first
  // `depth`.
  void message(std::size_t depth, bool on_path) {
    std::map<std::string, int> seen;
    while (!ended() && !at("}") && !at(">")) {
      if (tokens_.current().type != Tokenizer::TYPE_IDENTIFIER) {  // separators, extension names
        tokens_.Next();
        continue;
      }
      const std::string name = tokens_.current().text;
      const int line = tokens_.current().line + 1;
      tokens_.Next();
      if (at(":")) tokens_.Next();
      if (!at("[")) {
        element(name, line, depth, on_path, seen);
        continue;
      }
      tokens_.Next();
      while (!ended() && !at("]")) {
        element(name, tokens_.current().line + 1, depth, on_path, seen);
        if (at(",")) tokens_.Next();
      }
      if (!ended()) tokens_.Next();
    }
  }

  void element(const std::string& name, int line, std::size_t depth, bool on_path,
               std::map<std::string, int>& seen) {
    const int index = seen[name]++;
    const bool matches = on_path && depth < wanted_.size() && wanted_[depth].name == name &&
                         (wanted_[depth].index < 0 || wanted_[depth].index == index);
    if (matches && depth + 1 == wanted_.size()) {
      line_ = line;
      return;
    }
    if (at("{") || at("<")) {
      tokens_.Next();
      if (depth < kMaxNesting) message(depth + 1, matches);
      if (!ended()) tokens_.Next();
      return;
    }
    if (at("-")) tokens_.Next();
    const bool is_string = tokens_.current().type == Tokenizer::TYPE_STRING;
    do {
      tokens_.Next();
    } while (is_string && tokens_.current().type == Tokenizer::TYPE_STRING);
  }

  FirstError errors_;
  google::protobuf::io::ArrayInputStream stream_;
  Tokenizer tokens_;
  std::vector<PathStep> wanted_;
  int line_ = 0;
};

}  // namespace

namespace {

using Parser = google::protobuf::TextFormat::Parser;

void read_text(std::string_view text, std::string_view file, google::protobuf::Message* message,
               bool (Parser::*read)(const std::string&, google::protobuf::Message*)) {
  FirstError errors;
  Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(static_cast<int>(kMaxNesting));
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

int line_of_field(std::string_view text, std::string_view field_path) {
  return FieldFinder(text, split_path(field_path)).find();
}

std::string to_textproto(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  ORRERY_CHECK(printer.PrintToString(message, &text), "textproto printing failed");
  return text;
}

}  // namespace orrery
