// A small tree of XML elements with their lines: what the readers of foreign topology files share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

constexpr int kMaxXmlDepth = 64;
constexpr std::size_t kMaxXmlElements = 2'000'000;
constexpr std::size_t kMaxXmlAttributes = 64;  // of one element

struct XmlElement {
  std::string name;
  int line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  // Empty where there is none.
  std::string_view attribute(std::string_view name) const;
};

// Text between elements is dropped; a DOCTYPE is accepted and not fetched; entities of one's own are refused.
// Throws UserError(file, line, …) on a syntax error and beyond the bounds above.
XmlElement parse_xml(std::string_view text, std::string_view file);

}  // namespace orrery
