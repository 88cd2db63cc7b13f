// One JSON object of a Hugging Face configuration, read key by key.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "workloads/workload.h"

namespace orrery::internal {

// By transformers' name of it; none where that is none, or no function that is planned.
std::optional<Activation> activation_named(std::string_view name);

// Remembers which keys were read. Every value is checked; what is wrong is a UserError with the file, the
// line and the key.
class Config {
 public:
  // `start`: offset of the object in the text, so that a nested object's keys are found behind it. The
  // object, the text and the file's name must outlive this.
  Config(const Json& object, std::string_view text, std::size_t start, std::string_view file)
      : object_(object), text_(text), start_(start), file_(file) {}

  // What is read where the object lacks a key (null in the object is null). Must outlive this.
  void take_defaults(const Json& defaults) { defaults_ = &defaults; }

  // A model_type that is not known, which every failure is then said to come with. Must outlive this.
  void suspect(std::string_view model_type) { suspect_ = model_type; }

  [[noreturn]] void fail(std::string_view key, std::string_view what, std::string_view expected) const;

  // Null where the key is absent or null.
  const Json* find(std::string_view key);
  bool in_file(std::string_view key) const { return object_.contains(std::string(key)); }
  bool has(std::string_view key) const {
    return in_file(key) || (defaults_ != nullptr && defaults_->contains(std::string(key)));
  }

  int integer(std::string_view key, int fallback, int least, int most);
  int required(std::string_view key, int most);
  bool boolean(std::string_view key, bool fallback);
  double real(std::string_view key, double fallback, double least, double most);
  std::string text(std::string_view key, std::string_view fallback);
  // The first of `architectures`, transformers' class; empty where none is said.
  std::string first_class();
  void use(std::string_view key) { used_.insert(std::string(key)); }

  // Without those that say nothing about shapes or cost.
  std::vector<std::string> unread() const;
  std::vector<std::string> read() const;  // of the object's keys those that say something, in its order

 private:
  int line_of(std::string_view key) const;
  int integer_of(const Json& value, std::string_view key, int least, int most) const;

  const Json& object_;
  const Json* defaults_ = nullptr;
  std::string_view text_;
  std::size_t start_;
  std::string_view file_;
  std::string_view suspect_;
  std::set<std::string> used_;
};

}  // namespace orrery::internal
