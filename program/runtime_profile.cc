#include "program/runtime_profile.h"

#include <cmath>

#include "base/embedded.h"
#include "base/error.h"
#include "proto/field_check.h"
#include "proto/runtime_profile.pb.h"
#include "proto/textproto.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_runtimes();

namespace {

// What a field of a file may say: each returns the value to go on with. The names stand in the list of
// fields.
class Accepted {
 public:
  explicit Accepted(const FieldCheck& at) : at_(at) {}

  template <typename Value>
  const Value& any(const char*, const Value& value) const {
    return value;
  }
  const std::string& named(const char* field, const std::string& value) const {
    if (value.empty()) fail(field, "is missing", "a runtime profile's name");
    return value;
  }
  double at_least_zero(const char* field, double value) const {
    if (!std::isfinite(value) || value < 0)
      fail(field, "is not a number of at least 0", "a finite number >= 0");
    return value;
  }
  double factor(const char* field, double value) const {
    at_least_zero(field, value);
    if (value > 2) fail(field, "is no plausible efficiency", "a fraction up to 2 of the device's model");
    return value == 0 ? 1 : value;
  }
  double fraction(const char* field, double value) const {
    at_least_zero(field, value);
    if (value > 1) fail(field, "is above 1", "a fraction of allocated memory");
    return value;
  }
  int count(const char* field, int value) const {
    if (value < 0) fail(field, "is negative", "a number of at least 0");
    return value;
  }
  int zero_stage(const char* field, int value) const {
    if (value < 0 || value > 3) fail(field, "is no ZeRO stage", "0, 1, 2 or 3");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* field, const std::string& what, const std::string& expected) const {
    at_.fail(field, std::string(field) + " " + what, expected);
  }

  const FieldCheck& at_;
};

}  // namespace

RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, std::string_view file,
                                          std::string_view text) {
  return runtime_profile_from_proto(message, FieldCheck(file, text, *proto::RuntimeProfile::descriptor()));
}

RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, const FieldCheck& at) {
  const Accepted read(at);
  RuntimeProfile profile;
#define ORRERY_READ(type, name, initial, accepted) profile.name = read.accepted(#name, message.name());
  ORRERY_RUNTIME_PROFILE_FIELDS(ORRERY_READ)
#undef ORRERY_READ
  profile.frameworks.assign(message.frameworks().begin(), message.frameworks().end());
  return profile;
}

void to_proto(const RuntimeProfile& profile, proto::RuntimeProfile* message) {
  message->Clear();
#define ORRERY_WRITE(type, name, initial, accepted) message->set_##name(profile.name);
  ORRERY_RUNTIME_PROFILE_FIELDS(ORRERY_WRITE)
#undef ORRERY_WRITE
  for (const std::string& name : profile.frameworks) message->add_frameworks(name);
}

std::vector<std::string> catalog_runtimes() {
  std::vector<std::string> names;
  for (const EmbeddedFile& entry : embedded_runtimes()) names.emplace_back(entry.name);
  return names;
}

RuntimeProfile catalog_runtime(std::string_view name) {
  std::string known;
  for (const EmbeddedFile& entry : embedded_runtimes()) {
    if (entry.name == name) {
      proto::RuntimeProfile message;
      const std::string file = "runtimes/" + std::string(name) + ".textproto";
      parse_textproto(entry.content, file, &message);
      return runtime_profile_from_proto(message, file, entry.content);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw UserError("unknown runtime '" + std::string(name) + "'", "one of " + known);
}

}  // namespace orrery
