// Foreign JSON, read with bounds so that a hostile file cannot exhaust memory or the stack.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace orrery {

using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 64;
constexpr std::size_t kMaxJsonValues = 1'000'000;

// Throws UserError with file:line on a syntax error, nesting beyond kMaxJsonDepth or more than kMaxJsonValues
// values. `file` only names the source in messages.
Json parse_json(std::string_view text, std::string_view file);

// The same of objects with hundreds of thousands of members, which are found by name and whose order says
// nothing: Json looks through all of an object's members for each that is added.
using LargeJson = nlohmann::json;
constexpr std::size_t kMaxLargeJsonValues = 32'000'000;
LargeJson parse_large_json(std::string_view text, std::string_view file);

Json read_json(const std::filesystem::path& path);

// What an object says under a key, or a list at a place, where it is of the kind that is expected.
double number_in(const Json& object, const char* key);  // 0: none, or no finite number
std::string text_in(const Json& object, const char* key);
std::string text_at(const Json& list, std::size_t at);
const Json& list_in(const Json& object, const char* key);    // an empty one where there is none
const Json& object_in(const Json& object, const char* key);  // the same

// Whether a text begins as an object does.
bool begins_object(std::string_view text);

// The 1-based line on which `"key"` first stands in `text`, or 0.
int line_of_key(std::string_view text, std::string_view key);

}  // namespace orrery
