#include "program/runtime_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "base/suggest.h"
#include "program/plan.h"
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
  const std::string& modules(const char* field, const std::string& value) const {
    for (std::string_view rest = value; !rest.empty();) {
      const std::string_view name = rest.substr(0, rest.find(','));
      module(field, name);
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    }
    return value;
  }
  double at_least_zero(const char* field, double value) const { return at_.not_negative(field, value); }
  double factor(const char* field, double value) const {
    at_least_zero(field, value);
    if (value != 0 && !(value >= FieldCheck::kLeastFraction && value <= 2))
      fail(field, fmt::format("is {}, no plausible efficiency", value),
           fmt::format("a fraction of the device's model, from {} to 2", FieldCheck::kLeastFraction));
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

  void abilities(const proto::Abilities& said) const {
    for (const std::string& name : said.schedule()) schedule_from_name(name);  // throws where it is none
    for (const auto* stages : {&said.zero(), &said.zero_in_pipeline()})
      for (const int stage : *stages) zero_stage("abilities", stage);
    constexpr std::array<std::string_view, 4> kDimensions = {"tp", "pp", "cp", "ep"};
    for (const std::string& name : said.dimension())
      if (std::find(kDimensions.begin(), kDimensions.end(), name) == kDimensions.end())
        fail("abilities", "names '" + name + "'", "tp, pp, cp or ep");
    constexpr std::array<std::string_view, 8> kWithout = {
        "sequence_parallel",         "selective",
        "zero_0_beside_others",      "compiled_split_backward",
        "whole_sequences",           "whole_sequences_beside_experts",
        "shard_groups_below_zero_3", "reduction_beside_pipeline"};
    for (const std::string& name : said.without())
      if (std::find(kWithout.begin(), kWithout.end(), name) == kWithout.end())
        fail("abilities", "is without '" + name + "'", fmt::format("one of {}", fmt::join(kWithout, ", ")));
    for (const std::string& name : said.recompute_module()) module("abilities", name);
  }

  // At most so many names of fields that hold a number.
  void scalars(const char* field, const std::vector<std::string>& names) const {
    if (names.size() > kMostFitted)
      fail(field, fmt::format("has {} names", names.size()), fmt::format("at most {}", kMostFitted));
    for (const std::string& name : names) {
      const auto* known = proto::RuntimeProfile::descriptor()->FindFieldByName(name);
      if (known == nullptr || known->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE)
        fail(field, "names '" + name + "'", "fields of a runtime profile that hold a number");
    }
  }

 private:
  void module(const char* field, std::string_view name) const {
    if (module_bit(name) == 0)
      fail(field, fmt::format("names '{}'", name), fmt::format("{}", fmt::join(kSelectiveModules, ", ")));
  }
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
  if (!message.based_on().empty())
    at.fail("based_on", "based_on stands in a profile that is part of a larger file",
            "a whole profile, or a file of its own");
  RuntimeProfile profile;
#define ORRERY_READ(type, name, initial, accepted) profile.name = read.accepted(#name, message.name());
  ORRERY_RUNTIME_PROFILE_FIELDS(ORRERY_READ)
#undef ORRERY_READ
  profile.fitted.assign(message.fitted().begin(), message.fitted().end());
  read.scalars("fitted", profile.fitted);
  if (message.has_abilities()) {
    const proto::Abilities& said = message.abilities();
    read.abilities(said);
    profile.abilities = Abilities{{said.schedule().begin(), said.schedule().end()},
                                  {said.zero().begin(), said.zero().end()},
                                  {said.zero_in_pipeline().begin(), said.zero_in_pipeline().end()},
                                  {said.dimension().begin(), said.dimension().end()},
                                  said.shard_groups(),
                                  {said.without().begin(), said.without().end()},
                                  {said.recompute_module().begin(), said.recompute_module().end()}};
  }
  return profile;
}

void to_proto(const RuntimeProfile& profile, proto::RuntimeProfile* message) {
  message->Clear();
#define ORRERY_WRITE(type, name, initial, accepted) message->set_##name(profile.name);
  ORRERY_RUNTIME_PROFILE_FIELDS(ORRERY_WRITE)
#undef ORRERY_WRITE
  for (const std::string& name : profile.fitted) message->add_fitted(name);
  if (!profile.abilities) return;
  const Abilities& own = *profile.abilities;
  proto::Abilities* said = message->mutable_abilities();
  said->mutable_schedule()->Assign(own.schedules.begin(), own.schedules.end());
  said->mutable_zero()->Assign(own.zero.begin(), own.zero.end());
  said->mutable_zero_in_pipeline()->Assign(own.zero_in_pipeline.begin(), own.zero_in_pipeline.end());
  said->mutable_dimension()->Assign(own.dimensions.begin(), own.dimensions.end());
  said->set_shard_groups(own.shard_groups);
  said->mutable_without()->Assign(own.without.begin(), own.without.end());
  said->mutable_recompute_module()->Assign(own.recompute_modules.begin(), own.recompute_modules.end());
}

std::vector<std::string> catalog_runtimes() {
  std::vector<std::string> names;
  for (const EmbeddedFile& entry : embedded_runtimes()) names.emplace_back(entry.name);
  return names;
}

namespace {

const EmbeddedFile& catalog_entry(std::string_view name) {
  std::vector<std::string> known;
  for (const EmbeddedFile& entry : embedded_runtimes()) {
    if (entry.name == name) return entry;
    known.emplace_back(entry.name);
  }
  throw UserError("unknown runtime '" + std::string(name) + "'", suggestion(name, known));
}

}  // namespace

RuntimeProfile catalog_runtime(std::string_view name) {
  return runtime_from_text(catalog_entry(name).content, fmt::format("runtimes/{}.textproto", name));
}

namespace {

RuntimeProfile find_default(std::string_view kind) {
  for (const std::string& name : catalog_runtimes()) {
    RuntimeProfile profile = catalog_runtime(name);
    if (profile.default_for == kind) return profile;
  }
  throw InternalError("no runtime of the catalog is the default");
}

}  // namespace

RuntimeProfile default_runtime(RuntimeUse use) {
  // Every list of options names them all.
  static const std::array<RuntimeProfile, 5> found = {find_default("gpu"), find_default("gpu-graphs"),
                                                      find_default("gpu-images"), find_default("cpu"),
                                                      find_default("tpu")};
  return found[static_cast<std::size_t>(use)];
}

namespace {

// `text` on top of what it is based on, which may be based on another in turn.
proto::RuntimeProfile with_its_bases(std::string_view text, std::string_view file) {
  proto::RuntimeProfile message;
  parse_textproto(text, file, &message);
  if (message.based_on().empty()) return message;
  const std::string base = message.based_on();
  const bool own_abilities = message.has_abilities();
  const std::vector<std::string> known = catalog_runtimes();
  if (std::find(known.begin(), known.end(), base) == known.end())
    FieldCheck(file, text, *proto::RuntimeProfile::descriptor())
        .fail("based_on", fmt::format("unknown runtime '{}'", base),
              fmt::format("one of {}", fmt::join(known, ", ")));
  message = with_its_bases(catalog_entry(base).content, fmt::format("runtimes/{}.textproto", base));
  message.clear_default_for();
  message.clear_fitted();
  if (own_abilities) message.clear_abilities();
  merge_textproto(text, file, &message);
  message.clear_based_on();
  return message;
}

}  // namespace

RuntimeProfile runtime_from_text(std::string_view text, std::string_view file) {
  return runtime_profile_from_proto(with_its_bases(text, file), file, text);
}

RuntimeProfile load_runtime(const std::string& file_or_name) {
  if (file_or_name == "default") return default_runtime(RuntimeUse::gpu);
  if (!file_or_name.ends_with(".textproto")) return catalog_runtime(file_or_name);
  return runtime_from_text(read_file(file_or_name), file_or_name);
}

}  // namespace orrery
