#include "planner/space/pin_options.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "planner/space/space.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

// A value of each dimension that is not a plan's by default.
const std::map<std::string, std::string>& samples() {
  static const std::map<std::string, std::string> texts = {
      {"tp", "2"},
      {"pp", "2"},
      {"dp", "2"},
      {"cp", "2"},
      {"ep", "2"},
      {"etp", "2"},
      {"micro_batch", "4"},
      {"schedule", "gpipe"},
      {"interleave", "3"},
      {"zero", "3"},
      {"shard_group", "4"},
      {"recompute", "full:5"},
      {"stage_layers", "5,7"},
      {"order", "dp,tp,cp,ep,pp"},
      {"sequence_parallel", "on"},
      {"overlap_experts", "on"},
      {"overlap_grad_reduce", "off"},
      {"bucket_bytes", "25M"},
      {"grad_compression", "topk:0.5"},
      {"sync", "parameter-server"},
      {"servers", "2"},
      {"staleness", "3"},
      {"capacity_factor", "1.25"},
  };
  return texts;
}

TEST_CASE("every dimension that can be pinned is read, and none reads another's") {
  Pins all;
  for (const PinOption& pin : pin_options()) {
    if (!pin.option.pinned) continue;
    INFO(pin.option.key);
    Pins alone;
    REQUIRE(pin.read(alone, samples().at(pin.option.key)));
    CHECK_FALSE(alone == Pins{});
    CHECK(merged(Pins{}, alone) == alone);
    CHECK(merged(alone, Pins{}) == alone);
    REQUIRE(pin.read(all, samples().at(pin.option.key)));
    CHECK(pin.option.varied);
    CHECK_FALSE(pin.fields.empty());
    CHECK(pin.fields.front().key == pin.option.key);
  }
  CHECK(all.recompute_layers == 5);
  CHECK(all.topk_ratio == 0.5);
  CHECK(all.stage_layers == std::vector<int>{5, 7});
  // No member is without its option: what says all of them stays as it is beside another that says all.
  Pins other = all;
  other.tp = 8;
  CHECK(merged(all, other) == all);
  CHECK(merged(Pins{}, all) == all);
}

TEST_CASE("the pins of a plan leave that plan alone, and name no dimension that it does not use") {
  auto job = test::make_job("gpt2", "dgx-a100", 8, 16, 128);
  std::vector<Choices> plans;
  Choices plain;
  plain.dp = 8;
  plain.micro_batch = 2;
  plans.push_back(plain);
  Choices layered = plain;
  layered.tp = layered.pp = layered.dp = 2;
  layered.micro_batch = 1;
  layered.sequence_parallel = true;
  layered.schedule = Schedule::interleaved;
  layered.interleave = 3;
  layered.recompute = Recompute::full;
  layered.recompute_layers = 2;
  layered.zero = 1;
  layered.bucket_bytes = 25e6;
  layered.overlap_grad_reduce = false;
  plans.push_back(layered);
  Choices chosen = plain;
  chosen.recompute = Recompute::selective;
  chosen.recompute_modules = modules_from_names("core_attn,mlp");
  plans.push_back(chosen);
  Choices served = plain;
  served.micro_batch = 1;
  served.sync = Sync::async_parameter_server;
  served.servers = 2;
  served.staleness = 1;
  plans.push_back(served);
  Choices compressed = plain;
  compressed.grad_compression = Compression::topk;
  compressed.topk_ratio = 0.25;
  plans.push_back(compressed);
  for (const Choices& choices : plans) {
    const Plan plan{job, choices};
    const std::vector<Choices> found = enumerate(job, pins_of(plan));
    REQUIRE(found.size() == 1);
    CHECK(pins_of({job, found.front()}) == pins_of(plan));
  }
  const Pins pins = pins_of({job, plain});
  CHECK_FALSE(pins.stage_layers);
  CHECK_FALSE(pins.sequence_parallel);
  CHECK_FALSE(pins.shard_group);
  CHECK_FALSE(pins.servers);
  CHECK_FALSE(pins.staleness);
  CHECK_FALSE(pins.topk_ratio);
  CHECK_FALSE(pins.capacity_factor);
}

TEST_CASE("what is said outright wins over what is imported, with what belongs to it") {
  Pins own, imported;
  imported.schedule = Schedule::interleaved;
  imported.interleave = 4;
  imported.recompute = Recompute::full;
  imported.recompute_layers = 7;
  imported.recompute_modules = 0;
  imported.tp = 2;
  own.schedule = Schedule::gpipe;
  own.recompute = Recompute::full;
  const Pins both = merged(own, imported);
  CHECK(both.schedule == Schedule::gpipe);
  CHECK_FALSE(both.interleave);
  CHECK_FALSE(both.recompute_layers);
  CHECK_FALSE(both.recompute_modules);
  CHECK(both.tp == 2);
}

TEST_CASE("texts outside a dimension's range are refused") {
  const std::map<std::string, std::vector<std::string>> bad = {
      {"tp", {"0", "two", "1.5", "99999999"}},
      {"zero", {"4", "-1"}},
      {"recompute", {"full:0", "full:", "sideways", "selective:", "selective:mlp,sideways"}},
      {"stage_layers", {"6,,6", "6,-6", ""}},
      {"order", {"tp,tp,ep,dp,pp", "tp,cp", "sideways"}},
      {"sequence_parallel", {"sideways"}},
      {"bucket_bytes", {"0", "many"}},
      {"grad_compression", {"topk:0", "topk:2", "topk:nan", "sideways"}},
      {"capacity_factor", {"-1", "nan", "inf"}},
  };
  Pins pins;
  for (const Setting& setting : pin_settings(pins)) {
    if (bad.count(setting.option.key) == 0) continue;
    for (const std::string& text : bad.at(setting.option.key)) {
      INFO(setting.option.key << " " << text);
      CHECK_THROWS_AS(set(setting, text), UserError);
    }
  }
}

TEST_CASE("a plan's fields have its values, each under one key") {
  Plan plan{test::make_job("gpt2", "dgx-a100", 16, 64, 1024), {}};
  plan.choices.pp = 2;
  plan.choices.dp = 4;
  plan.choices.micro_batch = 2;
  plan.choices.recompute = Recompute::full;
  std::map<std::string, FieldValue> values;
  for (const PinOption& pin : pin_options())
    for (const PlanField& field : pin.fields) CHECK(values.emplace(field.key, field.value(plan)).second);
  CHECK(values.at("dp") == FieldValue(std::int64_t{4}));
  CHECK(values.at("micro_batches") == FieldValue(std::int64_t{8}));
  CHECK(values.at("recompute") == FieldValue(std::string("full")));
  CHECK(values.at("stage_layers") == FieldValue(std::vector<std::int64_t>{6, 6}));
  CHECK(values.at("order") == FieldValue(std::vector<std::string>{"tp", "cp", "ep", "dp", "pp"}));
  CHECK(values.at("sequence_parallel") == FieldValue(false));
}

}  // namespace
}  // namespace orrery::planner
