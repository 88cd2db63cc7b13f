#include "base/answer/answer.h"

#include <fmt/format.h>

namespace orrery {
namespace {

std::string name_of_schema(std::string_view verb) {
  return fmt::format("orrery/{}/{}", verb, kSchemaVersion);
}

// Absolute, as an identifier must be that references inside the schema are resolved against: validators of
// the 4.10 generation of python3-jsonschema take a relative one for an address to fetch.
std::string identifier_of(std::string_view verb) {
  return fmt::format("urn:orrery:{}:{}", verb, kSchemaVersion);
}

Json head_properties(std::string_view verb) {
  return {{"schema", {{"const", name_of_schema(verb)}, {"description", "this schema, with its version"}}},
          {"verb", {{"const", verb}, {"description", "what was asked of orrery"}}},
          {"version", {{"type", "string"}, {"description", "of the program that answered"}}}};
}

const Json& why_not() {
  static const Json shape = {
      {"type", "string"},
      {"description", "why the answer is no (exit code 3), in the words of the line on stderr"}};
  return shape;
}

}  // namespace

Json answer_head(std::string_view verb, std::string_view version) {
  return {{"schema", name_of_schema(verb)}, {"verb", verb}, {"version", version}};
}

Json answer_schema(std::string_view verb, std::string_view what, const std::vector<const Fields*>& forms) {
  Json definitions = Json::object(), any = Json::array(), known = head_properties(verb);
  const Json head = {"schema", "verb", "version"};
  for (const Fields* form : forms) {
    Json properties = head_properties(verb), required = head;
    properties.update(form->properties(definitions));
    for (const std::string& name : form->required()) required.push_back(name);
    properties["why_not"] = why_not();
    known.update(properties);
    any.push_back({{"type", "object"},
                   {"properties", std::move(properties)},
                   {"required", std::move(required)},
                   {"additionalProperties", false}});
  }
  known["why_not"] = why_not();
  Json no = head;
  no.push_back("why_not");
  any.push_back(
      {{"type", "object"}, {"properties", known}, {"required", no}, {"additionalProperties", false}});
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"$id", identifier_of(verb)},
          {"title", fmt::format("JSON of orrery {}: {}", verb, what)},
          {"anyOf", std::move(any)},
          {"$defs", std::move(definitions)}};
}

}  // namespace orrery
