// What rows of published tables mean beyond their own columns: rules that are data (evidence/data, messages
// of proto/evidence.proto), applied here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/words/fields.h"

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
  // How far off it may be: the standard deviation that it adds to the logarithm of the step time; 0: what the
  // source says, in words or by its defaults.
  double widens = 0;
  bool shape = false;  // dimensions of the model, which nobody said
};

// Of all together, as if each were off by itself.
double widening(const std::vector<Assumed>& assumed);

// What the rules that match a row say together; later ones come later in the lists.
struct Findings {
  std::vector<std::string> runtime, transformer, training, choices;  // changes, as textproto
  std::vector<std::string> runtime_of_the_row;  // those of `runtime` that hold under any runtime
  std::shared_ptr<proto::Reading> reading;
  std::vector<Assumed> assumed;
  std::string skip;    // the first reason to leave the row out
  bool counts = true;  // a row that is left out is among those that ask for a prediction
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
