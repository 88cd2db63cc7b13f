// What rows of published tables mean beyond their own columns: rules that are data (evidence/data, messages
// of proto/evidence.proto), applied here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/fields.h"

namespace orrery::proto {
class Assumptions;
class PublishedFrameworks;
class PublishedMachines;
class PublishedModels;
class Reading;
}  // namespace orrery::proto

namespace orrery::evidence {

// What was taken to hold of a row, and why.
struct Assumed {
  std::string what;
  std::string why;
};

// What the rules that match a row say together; later ones come later in the lists.
struct Findings {
  std::vector<std::string> runtime, transformer, training, choices;  // changes, as textproto
  std::shared_ptr<proto::Reading> reading;
  std::vector<Assumed> assumed;
  std::string skip;  // the first reason to leave the row out
};

// The rules of evidence/data/NAME.textproto. Throws UserError where the file holds nonsense.
const proto::Assumptions& rules(std::string_view name);
// Applies them from first to last. Columns that they set are set in `row`; a `profile` becomes its column
// `runtime`.
Findings apply_rules(const proto::Assumptions& rules, Fields* row);

// The other data files.
const proto::PublishedMachines& published_machines();
const proto::PublishedModels& published_models();
const proto::PublishedFrameworks& published_frameworks();

bool contains(std::string_view text, std::string_view part);
std::string lower(std::string text);

}  // namespace orrery::evidence
