#include "evidence/words/pattern.h"

#include <algorithm>

namespace orrery::evidence {
namespace {

using Taken = std::map<std::string, std::string>;

// Whether the pattern matches at the beginning of the text.
bool match_here(std::string_view pattern, std::string_view text, Taken* taken) {
  while (!pattern.empty()) {
    if (pattern.starts_with(" ?")) {
      pattern.remove_prefix(2);
      if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    } else if (const std::size_t close = pattern.find('}');
               pattern.front() == '{' && close != std::string_view::npos) {
      std::string_view name = pattern.substr(1, close - 1);
      pattern.remove_prefix(close + 1);
      if (name.empty()) {
        for (std::size_t skipped = 0;; ++skipped) {
          Taken then = *taken;
          if (match_here(pattern, text.substr(skipped), &then)) {
            *taken = std::move(then);
            return true;
          }
          if (skipped == text.size() || text[skipped] == ',' || text[skipped] == '|') return false;
        }
      }
      const bool list = name.back() == ',';
      if (list) name.remove_suffix(1);
      const auto end = std::find_if(text.begin(), text.end(), [list](char c) {
        return !is_digit(c) && !(list && (c == ',' || c == ' '));
      });
      const auto size = static_cast<std::size_t>(end - text.begin());
      if (size == 0) return false;
      (*taken)[std::string(name)] = text.substr(0, size);
      text.remove_prefix(size);
    } else {
      if (text.empty() || text.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      text.remove_prefix(1);
    }
  }
  return true;
}

}  // namespace

std::optional<Taken> match_pattern(std::string_view pattern, std::string_view text) {
  for (std::size_t at = 0; at < std::max<std::size_t>(1, text.size()); ++at) {
    Taken taken;
    if (match_here(pattern, text.substr(at), &taken)) return taken;
  }
  return std::nullopt;
}

std::string substitute(std::string_view text, const std::function<std::string(std::string_view)>& lookup) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t end =
        text[at] == '{' ? text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 1) : at;
    if (end > at + 1 && end < text.size() && text[end] == '}') {
      result += lookup(text.substr(at + 1, end - at - 1));
      at = end;
    } else {
      result += text[at];
    }
  }
  return result;
}

}  // namespace orrery::evidence
