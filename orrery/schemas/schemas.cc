#include "orrery/schemas/schemas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/answer/answer.h"
#include "base/error.h"
#include "base/suggest.h"
#include "exec/launch/answers.h"
#include "orrery/records.h"

namespace orrery {
namespace {

// The page is made of it and may change with every version: of it only the title is published.
const Record<std::string>& report_record() {
  static const auto record =
      Record<std::string>().value("title", "of the page", [](const std::string& t) { return t; });
  return record;
}

struct Published {
  std::string_view verb, what;
  std::vector<const Fields*> (*forms)();
  bool open = false;  // further fields are nobody's to rely on
};

const std::vector<Published>& published() {
  using Forms = std::vector<const Fields*>;
  static const std::vector<Published> all = {
      {"catalog", "what is known by name", [] { return Forms{&catalog_record()}; }},
      {"describe", "what a workload is", [] { return Forms{&description_record()}; }},
      {"discover", "a machine as a cluster", [] { return Forms{&cluster_record()}; }},
      {"plan", "the ranked plans of a search", [] { return Forms{&plan_record()}; }},
      {"whatif", "a plan for each combination of varied options", [] { return Forms{&whatif_record()}; }},
      {"simulate", "a plan in virtual time", [] { return Forms{&simulated_record()}; }},
      {"collective", "an operation by size", [] { return Forms{&collective_record()}; }},
      {"run", "a plan in real time", [] { return Forms{&exec::run_record()}; }},
      {"calibrate", "this machine, the links of a cluster, what files taught, or what validations taught",
       [] {
         return Forms{&exec::machine_record(), &exec::network_record(), &site_record(), &refitted_record()};
       }},
      {"validate", "of a plan run here, beside files, of what was validated, or of published tables",
       [] {
         return Forms{&measured_record(), &against_record(), &history_record(), &published_record(),
                      &published_collectives_record()};
       }},
      {"export", "a plan in another system's files", [] { return Forms{&export_record()}; }},
      {"goodput", "a whole run on devices that fail", [] { return Forms{&goodput_record()}; }},
      {"device", "a device that somebody describes", [] { return Forms{&device_record()}; }},
      {"measurements", "kinds of files that calibrations read", [] { return Forms{&kinds_record()}; }},
      {"report", "what the page shows", [] { return Forms{&report_record()}; }, true},
      {"trace-diff", "two traces beside each other", [] { return Forms{&trace_diff_record()}; }},
      {"compare", "ways of training side by side", [] { return Forms{&compare_record()}; }}};
  return all;
}

}  // namespace

std::vector<std::string_view> verbs_with_schemas() {
  std::vector<std::string_view> verbs;
  for (const Published& one : published()) verbs.push_back(one.verb);
  return verbs;
}

Json schema_of(std::string_view verb) {
  const auto& all = published();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Published& one) { return one.verb == verb; });
  if (found == all.end()) {
    std::vector<std::string> verbs;
    for (const Published& one : all) verbs.emplace_back(one.verb);
    throw UserError(fmt::format("`verb` {}: no verb that answers in JSON", verb),
                    suggestion(std::string(verb), verbs));
  }
  Json schema = answer_schema(verb, found->what, found->forms());
  if (found->open)
    for (Json& form : schema["anyOf"]) form["additionalProperties"] = true;
  return schema;
}

}  // namespace orrery
