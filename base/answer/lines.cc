#include "base/answer/lines.h"

#include <algorithm>

namespace orrery {
namespace {

constexpr std::string_view kIndent = "  ";

// "…. Next": a full stop behind which a capital begins. "1.5", "e.g. of" do not end one.
std::size_t end_of_sentence(std::string_view text) {
  for (std::size_t i = 0; i + 2 < text.size(); ++i)
    if (text[i] == '.' && text[i + 1] == ' ' && text[i + 2] >= 'A' && text[i + 2] <= 'Z') return i + 1;
  return text.size();
}

void add_line(std::string_view line, std::size_t columns, std::string& result) {
  if (columns_of(line) <= columns) {
    result += line;
    return;
  }
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::string further = std::string(line.substr(0, begin)) + std::string(kIndent);
  std::string current(line.substr(0, begin));
  bool empty = true;
  std::size_t at = begin;
  while (at < line.size()) {
    const std::size_t gap = line.find_first_not_of(' ', at);  // spaces within a line stay
    if (gap == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(' ', gap), line.size());
    const std::string_view word = line.substr(gap, end - gap);
    const std::string_view space = line.substr(at, gap - at);
    if (!empty && columns_of(current) + columns_of(space) + columns_of(word) > columns) {
      result += current + "\n";
      current = further;
    } else {
      current += space;
    }
    current += word;
    empty = false;
    at = end;
  }
  result += current;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {  // to the letter that ends it
      while (i + 1 < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++columns;
  }
  return columns;
}

std::string cut_in_the_middle(std::string_view name, std::size_t columns) {
  if (columns_of(name) <= columns || columns == 0) return std::string(name);
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const std::size_t last = (columns - 1) / 2, first = columns - 1 - last;
  std::size_t end = 0, rest = name.size();
  for (std::size_t letters = 0; end < name.size(); ++end)
    if (begins(name[end]) && letters++ == first) break;
  for (std::size_t letters = 0; letters < last;)
    if (begins(name[--rest])) ++letters;
  return std::string(name.substr(0, end)) + "…" + std::string(name.substr(rest));
}

std::string wrapped(std::string_view text, std::size_t columns) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    add_line(text.substr(at, end - at), columns, result);
    if (end < text.size()) result += '\n';
    at = end + 1;
  }
  return result;
}

std::string sentences(std::string_view text, std::size_t columns) {
  std::string result;
  while (!text.empty()) {
    const std::string_view first = first_sentence(text);
    result += wrapped(first, columns) + "\n";
    text.remove_prefix(std::min(first.size() + 1, text.size()));
  }
  return result;
}

std::string_view first_sentence(std::string_view text) {
  return text.substr(0, end_of_sentence(text));
}

}  // namespace orrery
