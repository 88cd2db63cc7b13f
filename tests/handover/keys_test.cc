// Every key of an exported file is one that its target has, of its type: held to descriptions that are
// checked in (name, type, meaning; the version and where it was read in their first lines): handover/keys/ of
// the systems whose files are read, too, tests/data/export/*_keys.txt of the others.
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/parse.h"
#include "handover/export.h"
#include "handover/keys/known_keys.h"
#include "handover/settings.h"
#include "tests/support/jobs.h"
#include "workloads/fine_tuning.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

// The type of a key; empty where nobody knows it.
using TypeOf = std::function<std::string(const std::string&)>;

TypeOf of_system(const char* system) {
  return [system](const std::string& name) {
    const KnownKey* key = known_key(system, name);
    return key == nullptr ? "" : std::string(key->type);
  };
}

TypeOf of_file(const std::string& file) {
  std::ifstream in(ORRERY_TEST_DATA "/export/" + file);
  REQUIRE(in);
  std::map<std::string, std::string> types;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string key, type, meaning;
    words >> key >> type >> meaning;
    INFO(line);
    CHECK_FALSE(meaning.empty());
    types[key] = type;
  }
  return [types](const std::string& name) {
    if (const auto found = types.find(name); found != types.end()) return found->second;
    for (const auto& [key, type] : types)
      if (key.starts_with("*") && name.ends_with(key.substr(1))) return type;
    return std::string();
  };
}

// "one:a|b", "each:a|b".
bool is_one_of(const std::string& type, const std::string& value) {
  return ("|" + type.substr(type.find(':') + 1) + "|").find("|" + value + "|") != std::string::npos;
}

void check_value(Settings& settings, const std::string& name, const std::string& type) {
  INFO(name << " " << type);
  if (type == "count") CHECK_NOTHROW(settings.count(name, -1, std::numeric_limits<int>::max()));
  if (type == "number") CHECK_NOTHROW(settings.number(name));
  if (type == "flag") CHECK_NOTHROW(settings.flag(name));
  if (type == "word") CHECK_NOTHROW(settings.text(name));
  if (type.starts_with("one:")) CHECK(is_one_of(type, settings.text(name).value_or("")));
  if (type.starts_with("each:"))
    for (const std::string& value : settings.list(name).value_or(std::vector<std::string>()))
      CHECK(is_one_of(type, value));
  if (type == "list") CHECK_NOTHROW(settings.list(name));
  if (type == "lists") CHECK_NOTHROW(settings.lists(name));
}

void check_keys(Settings settings, const TypeOf& type_of) {
  Settings all = settings;
  int seen = 0;
  std::string unknown;
  for (const std::string& left : all.rest("megatron")) {
    const std::string name = left.substr(0, left.find(':'));
    const std::string type = type_of(name);
    if (type.empty()) unknown += name + " ";
    check_value(settings, name, type);
    ++seen;
  }
  CHECK(unknown.empty());
  CHECK(seen > 3);
}

std::vector<Plan> plans() {
  std::vector<Plan> all;
  const auto add = [&](const char* model, int devices, Choices choices, const char* runtime,
                       DType precision) {
    auto job = std::make_shared<Job>(*test::make_job(model, "dgx-h100", devices, 128, 2048, runtime));
    job->training.precision = precision;
    choices.dp = devices / choices.tp / choices.pp / choices.cp;
    all.push_back({job, choices});
  };
  for (const char* runtime : {"megatron-core", "torchtitan", "deepspeed"})
    for (const int zero : {0, 1, 2, 3}) {
      Choices choices;
      choices.zero = zero;
      choices.micro_batch = 2;
      choices.bucket_bytes = zero == 1 ? 64e6 : 0;
      choices.shard_group = zero == 3 ? 8 : 0;
      choices.recompute = zero == 2 ? Recompute::full : zero == 3 ? Recompute::selective : Recompute::none;
      add("llama3-8b", 16, choices, runtime, zero == 1 ? DType::fp8 : DType::bf16);
      choices.tp = 2;
      choices.sequence_parallel = true;
      add("llama3-8b", 16, choices, runtime, DType::bf16);
      if (zero > 1) continue;
      choices.pp = 2;
      choices.recompute_layers = choices.recompute == Recompute::full ? 2 : 0;
      add("llama3-8b", 16, choices, runtime, zero == 1 ? DType::fp16 : DType::bf16);
      choices.stage_layers = {17, 15};
      choices.shard_group = 0;
      add("llama3-8b", 16, choices, runtime, DType::bf16);
      choices.stage_layers.clear();
      choices.pp = 1;
      choices.ep = 4;
      add("mixtral-8x7b", 16, choices, runtime, zero == 1 ? DType::fp8 : DType::bf16);
    }
  for (const char* model : {"deepseek-v3", "gpt-oss-20b", "minitron-4b"}) {
    Choices choices;
    choices.zero = 1;
    add((ORRERY_TEST_DATA "/huggingface/" + std::string(model) + ".json").c_str(), 16, choices,
        "megatron-core", DType::bf16);
  }
  for (const std::uint8_t targets : {std::uint8_t{kAllProjections}, std::uint8_t{kQuery | kValue}})
    for (const BaseType base : {BaseType::none, BaseType::nf4_dq}) {
      Choices choices;
      choices.zero = 3;
      add("llama3-8b", 8, choices, "megatron-core", DType::bf16);
      auto job = std::make_shared<Job>(*all.back().job);
      FineTuning tuning;
      tuning.rank = 16;
      tuning.targets = targets;
      tuning.base = base;
      fine_tune(job->workload, tuning);
      all.back().job = job;
    }
  return all;
}

// Of every plan that the target takes.
void check_target(ExportTarget target, const std::string& file, const TypeOf& known, int least,
                  Settings (*read)(std::string_view, const std::string&)) {
  int taken = 0;
  for (const Plan& plan : plans()) {
    std::vector<ExportedFile> files;
    try {
      files = export_plan(plan, target);
    } catch (const UserError&) {
      continue;
    }
    for (const ExportedFile& one : files) {
      if (one.name != file) continue;
      ++taken;
      INFO(one.content);
      check_keys(read(one.content, file), known);
    }
  }
  CHECK(taken >= least);
}

}  // namespace

TEST_CASE("every key handed to torchtitan is one that it has, of its type") {
  check_target(ExportTarget::torchtitan, "train.toml", of_system("torchtitan"), 10, Settings::from_toml);
}

TEST_CASE("every key handed to DeepSpeed is one that it has, of its type") {
  check_target(ExportTarget::deepspeed, "ds_config.json", of_system("deepspeed"), 20, Settings::from_json);
}

TEST_CASE("every key handed to NeMo is one that it has, of its type") {
  check_target(ExportTarget::nemo, "recipe.yaml", of_system("nemo"), 20, Settings::from_yaml);
}

TEST_CASE("a misspelt key is said to be one") {
  CHECK(ignored_because("deepspeed", "zero_optimization.overlap_com") ==
        "zero_optimization.overlap_com: not known here; did you mean zero_optimization.overlap_comm?");
  CHECK(ignored_because("megatron", "--recompute-granularty")
            .ends_with("did you mean --recompute-granularity?"));
  CHECK(ignored_because("nemo", "model.mystery_overlap").find("did you mean") == std::string::npos);
}

TEST_CASE("every key handed to torchtune is one that it has, of its type") {
  check_target(ExportTarget::torchtune, "config.yaml", of_file("torchtune_keys.txt"), 10,
               Settings::from_yaml);
}

TEST_CASE("every key handed to Horovod is one that it has, of its type") {
  check_target(ExportTarget::horovod, "horovod.yaml", of_file("horovod_keys.txt"), 20, Settings::from_yaml);
}

TEST_CASE("every flag handed to Megatron-LM is one that it has, with a value of its type") {
  std::set<std::string> given;
  for (const Plan& plan : plans()) {
    std::string script;
    try {
      script = export_plan(plan, ExportTarget::megatron).front().content;
    } catch (const UserError&) {
      continue;
    }
    auto words = shell_words(script.substr(script.find("pretrain_gpt.py") + 15));
    REQUIRE(words);
    for (std::size_t at = 0; at < words->size(); ++at) {
      const std::string& flag = (*words)[at];
      if (flag == "$@") continue;  // the person's own
      INFO(flag);
      REQUIRE(flag.starts_with("--"));
      const KnownKey* key = known_key("megatron", flag);
      REQUIRE(key != nullptr);
      CHECK(key->name == flag);
      given.insert(flag);
      std::vector<std::string> values;
      while (at + 1 < words->size() && !(*words)[at + 1].starts_with("--") && (*words)[at + 1] != "$@")
        values.push_back((*words)[++at]);
      const std::string type(key->type);
      INFO(type << " " << (values.empty() ? "" : values.front()));
      CHECK((type == "list" ? !values.empty() : values.size() == (type == "flag" ? 0U : 1U)));
      if (type == "count") CHECK(parse_whole(values.at(0)));
      if (type == "number") CHECK(parse_number(values.at(0)));
      if (type.starts_with("one:")) CHECK(is_one_of(type, values.at(0)));
    }
  }
  CHECK(given.size() > 50);
}

TEST_CASE("descriptions of keys are whole: a type that is known, a meaning, each name once") {
  for (const char* system : {"deepspeed", "megatron", "nemo", "torchtitan"}) {
    std::set<std::string_view> names;
    for (const KnownKey& key : known_keys(system)) {
      INFO(system << " " << key.name);
      CHECK(names.insert(key.name).second);
      CHECK_FALSE(key.meaning.empty());
      const std::set<std::string_view> types = {"count", "number", "flag", "word", "list", "lists", "any"};
      CHECK((types.count(key.type) == 1 || key.type.starts_with("one:") || key.type.starts_with("each:")));
    }
    CHECK(names.size() > 70);
  }
  CHECK(known_key("megatron", "--tp-comm-overlap")->effect == KeyEffect::plan);
  CHECK(known_key("megatron", "--rl-generation-lag")->name == "--rl-*");
  CHECK(known_key("megatron", "--no-such-flag") == nullptr);
  CHECK(known_key("nemo", "model.config.hidden_size")->name == "--hidden-size");
  CHECK_THROWS_AS(known_keys("mesh-tensorflow"), InternalError);
}
