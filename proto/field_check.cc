#include "proto/field_check.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "proto/textproto.h"

namespace orrery {
namespace {

// No figure of a machine or a model lies beyond, in whatever unit: what does would overflow in a product, or
// never come to an end.
constexpr double kLeast = 1e-30, kMost = 1e30;
constexpr double kSlowest = 1e6, kFastest = 1e21;  // bytes or operations a second

bool implausible(double value) {
  return value != 0 && !(value >= kLeast && value <= kMost);
}

// As fields' names end.
std::string_view unit_of_rate(std::string_view field) {
  return field.ends_with("flops_per_s") ? "operations/s" : "bytes/s";
}

// "25 GB/s" written as 25.
std::string meant(double rate) {
  return rate >= 1 && rate <= 1e5 ? fmt::format("; did you mean {}e9?", rate) : std::string();
}

}  // namespace

std::string FieldCheck::full(std::string_view field) const {
  return path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
}

FieldCheck FieldCheck::inside(std::string_view field, int index) const {
  FieldCheck check = *this;
  check.path_ = full(field);
  if (index >= 0) check.path_ += fmt::format("[{}]", index);
  return check;
}

int FieldCheck::line(std::string_view field) const {
  std::string path = full(field);
  int line = line_of_field(text_, *type_, path);
  while (line == 0 && path.find('.') != std::string::npos) {
    path.resize(path.rfind('.'));
    line = line_of_field(text_, *type_, path);
  }
  return line;
}

void FieldCheck::fail(std::string_view field, std::string_view what, std::string_view expected) const {
  throw UserError(file_, line(field), what, expected);
}

double FieldCheck::positive(std::string_view field, double value) const {
  if (!(std::isfinite(value) && value > 0))
    fail(field, fmt::format("{} is {}", full(field), value), "expected a positive, finite number");
  if (implausible(value))
    fail(field, fmt::format("{} is {}", full(field), value),
         fmt::format("expected a number from {} to {}", kLeast, kMost));
  return value;
}

double FieldCheck::not_negative(std::string_view field, double value) const {
  if (!(std::isfinite(value) && value >= 0))
    fail(field, fmt::format("{} is {}", full(field), value), "expected a finite number, zero or more");
  if (implausible(value))
    fail(field, fmt::format("{} is {}", full(field), value),
         fmt::format("expected zero, or a number from {} to {}", kLeast, kMost));
  return value;
}

double FieldCheck::rate(std::string_view field, double value) const {
  if (not_negative(field, value) > 0 && !(value >= kSlowest && value <= kFastest))
    fail(field, fmt::format("{} is {}", full(field), value),
         fmt::format("expected a number from {} to {} {}; 25 GB/s is 25e9, 100 Gb/s 12.5e9{}", kSlowest,
                     kFastest, unit_of_rate(field), meant(value)));
  return value;
}

double FieldCheck::latency(std::string_view field, double value) const {
  constexpr double kMost = 10;
  if (not_negative(field, value) > kMost)
    fail(field, fmt::format("{} is {}", full(field), value), "expected seconds, at most 10");
  return value;
}

double FieldCheck::fraction(std::string_view field, double value) const {
  if (!(value >= kLeastFraction && value <= 1))
    fail(field, fmt::format("{} is {}", full(field), value),
         fmt::format("expected a fraction from {} to 1", kLeastFraction));
  return value;
}

int FieldCheck::within(std::string_view field, int value, int lowest, int highest) const {
  if (value < lowest || value > highest)
    fail(field, fmt::format("{} is {}", full(field), value),
         fmt::format("expected a count from {} to {}", lowest, highest));
  return value;
}

const std::string& FieldCheck::named(std::string_view field, const std::string& value) const {
  if (value.empty()) fail(field, fmt::format("{} is missing", full(field)), "expected a name");
  return value;
}

}  // namespace orrery
