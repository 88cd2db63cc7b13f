// The page: a template, its style and scripts, the charts' library and the report's JSON in one file.
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
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

// JSON inside an element of HTML: nothing in it ends that element or begins another.
std::string in_html(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      result += "\\u003c";
    else if (c == '>')
      result += "\\u003e";
    else if (c == '&')
      result += "\\u0026";
    else
      result += c;
  }
  return result;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

// The scripts in the order in which they use each other.
constexpr std::array<std::string_view, 9> kScripts = {"format", "charts",  "answer",     "timeline", "memory",
                                                      "links",  "scaling", "validation", "main"};

}  // namespace

std::string report_page(const Json& report) {
  std::string scripts;
  for (const std::string_view name : kScripts) scripts += file_named(name);
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
      page += file_named("style");
    else if (place == "charts")
      page += file_named("echarts");
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
