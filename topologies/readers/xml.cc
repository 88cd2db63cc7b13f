#include "topologies/readers/xml.h"

#include <expat.h>
#include <fmt/format.h>

#include <memory>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"

namespace orrery {
namespace {

// Expat is C: nothing may be thrown through it, so a handler that says no stops the parser and leaves its
// reason.
struct Build {
  XML_Parser parser = nullptr;
  XmlElement top;                 // holds the root as its only child
  std::vector<XmlElement*> open;  // from the top to the element that is being read
  std::size_t elements = 0;
  std::string refused;
  std::string expected;

  void refuse(std::string what, std::string instead) {
    if (!refused.empty()) return;
    refused = std::move(what);
    expected = std::move(instead);
    XML_StopParser(parser, XML_FALSE);
  }
};

void start_element(void* data, const XML_Char* name, const XML_Char** attributes) {
  auto& build = *static_cast<Build*>(data);
  if (!build.refused.empty()) return;
  if (build.open.size() > kMaxXmlDepth)
    return build.refuse("XML is nested too deeply", fmt::format("expected at most {} levels", kMaxXmlDepth));
  if (++build.elements > kMaxXmlElements)
    return build.refuse("XML holds too many elements", fmt::format("expected at most {}", kMaxXmlElements));
  XmlElement element;
  element.name = name;
  element.line = static_cast<int>(XML_GetCurrentLineNumber(build.parser));
  for (; *attributes != nullptr; attributes += 2) {
    if (element.attributes.size() >= kMaxXmlAttributes)
      return build.refuse(fmt::format("<{}> has too many attributes", element.name),
                          fmt::format("expected at most {}", kMaxXmlAttributes));
    element.attributes.emplace_back(attributes[0], attributes[1]);
  }
  auto& siblings = build.open.back()->children;
  siblings.push_back(std::move(element));
  build.open.push_back(&siblings.back());  // stays put: its siblings come only after it is closed
}

void end_element(void* data, const XML_Char*) {
  auto& build = *static_cast<Build*>(data);
  if (build.open.size() > 1) build.open.pop_back();
}

void entity(void* data, const XML_Char*, int, const XML_Char*, int, const XML_Char*, const XML_Char*,
            const XML_Char*, const XML_Char*) {
  static_cast<Build*>(data)->refuse("XML declares an entity of its own", "expected none");
}

}  // namespace

std::string_view XmlElement::attribute(std::string_view wanted) const {
  for (const auto& [key, value] : attributes) {
    if (key == wanted) return value;
  }
  return {};
}

XmlElement parse_xml(std::string_view text, std::string_view file) {
  if (text.size() > kMaxTextBytes) throw UserError(file, 0, "is too large", "expected at most 64 MiB");
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate(nullptr), &XML_ParserFree);
  if (!parser) throw InternalError("expat cannot make a parser");
  Build build;
  build.parser = parser.get();
  build.open.push_back(&build.top);
  XML_SetUserData(parser.get(), &build);
  XML_SetElementHandler(parser.get(), start_element, end_element);
  XML_SetEntityDeclHandler(parser.get(), entity);
  // Fixed, so that a hash of attribute names costs the same in every run.
  XML_SetHashSalt(parser.get(), 0x0B5E55ED);
  const auto status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), /*isFinal=*/1);
  const int line = static_cast<int>(XML_GetCurrentLineNumber(parser.get()));
  if (!build.refused.empty()) throw UserError(file, line, build.refused, build.expected);
  if (status != XML_STATUS_OK || build.top.children.empty())
    throw UserError(file, line,
                    fmt::format("is not valid XML: {}", XML_ErrorString(XML_GetErrorCode(parser.get()))),
                    "expected one element with its end");
  return std::move(build.top.children[0]);
}

}  // namespace orrery
