// The page: a template, its style and scripts, the charts' library and the report's JSON in one file.
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/embedded.h"
#include "base/error.h"
#include "report/report.h"

namespace orrery {
const std::vector<EmbeddedFile>& page_files();

namespace {

std::string_view file_named(std::string_view name) {
  for (const EmbeddedFile& file : page_files())
    if (file.name == name) return file.content;
  throw InternalError(fmt::format("the page lacks {}", name));
}

using Replacements = std::initializer_list<std::pair<char, std::string_view>>;

std::string replaced(std::string_view text, Replacements replacements) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto at = std::find_if(replacements.begin(), replacements.end(),
                                 [c](const auto& replacement) { return replacement.first == c; });
    if (at == replacements.end())
      result += c;
    else
      result += at->second;
  }
  return result;
}

// JSON inside an element of HTML: nothing in it ends that element or begins another.
std::string in_html(const Json& json) {
  return replaced(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                  {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

std::string escaped(std::string_view text) {
  return replaced(text, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}});
}

// The scripts in the order in which they use each other.
constexpr std::array<std::string_view, 9> kScripts = {"format", "charts",  "answer",     "timeline", "memory",
                                                      "links",  "scaling", "validation", "main"};

}  // namespace

std::string page_scripts() {
  std::string scripts;
  for (const std::string_view name : kScripts) scripts += file_named(name);
  return scripts;
}

std::string_view page_style() {
  return file_named("style");
}

std::string_view charts_library() {
  return file_named("echarts");
}

std::string report_page(const Json& report) {
  const std::string scripts = page_scripts() + std::string(file_named("start"));
  std::string page;
  std::string_view rest = file_named("template");
  while (true) {
    const std::size_t begin = rest.find("{{");
    if (begin == std::string_view::npos) break;
    const std::size_t end = rest.find("}}", begin);
    if (end == std::string_view::npos) throw InternalError("the page's template has a place without an end");
    const std::string_view place = rest.substr(begin + 2, end - begin - 2);
    page += rest.substr(0, begin);
    if (place == "title")
      page += escaped(report.at("title").get<std::string>());
    else if (place == "style")
      page += page_style();
    else if (place == "charts")
      page += charts_library();
    else if (place == "scripts")
      page += scripts;
    else if (place == "report")
      page += in_html(report);
    else
      throw InternalError(fmt::format("the page's template has an unknown place {}", place));
    rest.remove_prefix(end + 2);
  }
  page += rest;
  return page;
}

}  // namespace orrery
