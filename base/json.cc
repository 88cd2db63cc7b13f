#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "base/error.h"
#include "base/file.h"

namespace orrery {
namespace {

int line_at(std::string_view text, std::size_t offset) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + std::min(offset, text.size()), '\n'));
}

// A text's characters. Of templates that rooms share, the linker takes whichever room's comes first, and most
// rooms are optimised little: what parses by an iterator of this file alone is compiled here.
struct Character {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;

  reference operator*() const { return *at; }
  Character& operator++() {
    ++at;
    return *this;
  }
  bool operator==(const Character&) const = default;
};

template <typename AnyJson>
AnyJson parse_bounded(std::string_view text, std::string_view file, std::size_t most) {
  std::size_t values = 0;
  const auto bounded = [&](int depth, typename AnyJson::parse_event_t, AnyJson&) {
    if (depth > kMaxJsonDepth)
      throw UserError(file, 0, "JSON is nested too deeply",
                      fmt::format("expected at most {} levels", kMaxJsonDepth));
    if (++values > most)
      throw UserError(file, 0, "JSON holds too many values", fmt::format("expected at most {}", most));
    return true;
  };
  try {
    return AnyJson::parse(Character{text.data()}, Character{text.data() + text.size()}, bounded);
  } catch (const typename AnyJson::parse_error& error) {
    throw UserError(file, line_at(text, error.byte), "is not valid JSON", "expected a JSON object");
  } catch (const typename AnyJson::exception&) {  // a number beyond a double's range
    throw UserError(file, 0, "holds a number out of range", "expected numbers that fit a double");
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view file) {
  return parse_bounded<Json>(text, file, kMaxJsonValues);
}

LargeJson parse_large_json(std::string_view text, std::string_view file) {
  return parse_bounded<LargeJson>(text, file, kMaxLargeJsonValues);
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

bool begins_object(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

double number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(value) ? value : 0;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string text_at(const Json& list, std::size_t at) {
  return list.is_array() && at < list.size() && list[at].is_string() ? list[at].get<std::string>() : "";
}

const Json& list_in(const Json& object, const char* key) {
  static const Json none = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

const Json& object_in(const Json& object, const char* key) {
  static const Json none = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : none;
}

int line_of_key(std::string_view text, std::string_view key) {
  const auto at = text.find(fmt::format("\"{}\"", key));
  return at == std::string_view::npos ? 0 : line_at(text, at);
}

}  // namespace orrery
