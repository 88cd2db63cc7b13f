#include "evidence/words/rules.h"

#include <catch2/catch.hpp>
#include <set>

#include "evidence/row.h"
#include "evidence/words/machines.h"
#include "evidence/words/models.h"
#include "evidence/words/pattern.h"
#include "proto/evidence.pb.h"
#include "proto/plan.pb.h"
#include "proto/runtime_profile.pb.h"
#include "proto/textproto.h"
#include "topologies/named_network.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;
using namespace orrery::evidence;

namespace {

template <typename Message>
void check_text(const std::string& text) {
  Message message;
  merge_textproto(substitute(text, [](std::string_view) { return std::string("1"); }), "a rule", &message);
}

}  // namespace

TEST_CASE("a pattern takes numbers where its text stands") {
  using Taken = std::map<std::string, std::string>;
  CHECK(match_pattern("{ports} ?x ?{gigabits} ?Gb", "8x200Gb/s HDR IB") ==
        Taken{{"ports", "8"}, {"gigabits", "200"}});
  CHECK(match_pattern("{ports} ?x ?{gigabits} ?Gb", "nodes of 4 x 100 Gb") ==
        Taken{{"ports", "4"}, {"gigabits", "100"}});
  CHECK(match_pattern("{gigabits} Gb/s Ethernet", "100Gb/s Ethernet") == std::nullopt);
  CHECK(match_pattern("{ports}x ?{}{gigabits} ?Gb", "10GB/Sec, 8x ConnectX-5 IB EDR 100Gb/Sec") ==
        Taken{{"ports", "8"}, {"gigabits", "100"}});
  CHECK(match_pattern("{ports}x ?{}{gigabits} ?Gb", "1x Ethernet, 100Gb") == std::nullopt);
  CHECK(match_pattern("cut points [{cuts,}]", "pipeline cut points [0, 8, 14]; 20") ==
        Taken{{"cuts", "0, 8, 14"}});
  CHECK(match_pattern("Omni-Path", "1x Omni-Path") == Taken{});
  CHECK(match_pattern("a{", "xa{") == Taken{});  // no name without its end
  CHECK(match_pattern("{", "8") == std::nullopt);
  CHECK(substitute("a: {x} b { c: {y} }", [](std::string_view name) { return std::string(name) + "!"; }) ==
        "a: x! b { c: y! }");
}

TEST_CASE("a rule applies where all its conditions hold, and says why") {
  proto::Assumptions rules;
  parse_textproto(R"(
    assume {
      when { column: "notes" pattern: "FSDP={shards}" }
      when { column: "shards" at_least: 2 }
      choices: "zero: 3 shard_group: {shards}" why: "it is stated"
    }
    assume { when { column: "notes" any: "alone" none: "FSDP" } skip: "no more than {notes}" }
    assume { when { column: "framework" equals: "a" } columns { key: "framework" value: "b" } profile: "jax" }
    assume { when { column: "framework" equals: "b" } when { column: "runtime" equals: "jax" } runtime: "dropout: true" }
  )",
                  "test", &rules);
  const CsvTable table = parse_csv("framework,notes\na,FSDP=4 alone\nc,FSDP=1\nc,alone\n", "t.csv");
  const auto found = [&](int row) {
    Fields fields(table, table.rows[row]);
    return apply_rules(rules, &fields);
  };
  CHECK(found(0).choices == std::vector<std::string>{"zero: 3 shard_group: 4"});
  CHECK(found(0).runtime == std::vector<std::string>{"dropout: true"});
  CHECK(found(0).skip.empty());
  REQUIRE(found(0).assumed.size() == 3);
  CHECK(found(0).assumed[0].what == "plan zero: 3 shard_group: 4");
  CHECK(found(0).assumed[0].why == "it is stated");
  CHECK(found(1).assumed.empty());
  CHECK(found(2).skip == "no more than alone");
}

TEST_CASE("what a pattern takes is gone with the rule that does not apply") {
  proto::Assumptions rules;
  parse_textproto(R"(
    assume {
      when { column: "notes" pattern: "FSDP={shards}" }
      when { column: "framework" equals: "a" }
      choices: "zero: 3"
    }
    assume { when { column: "shards" stated: true } choices: "shard_group: {shards}" }
    assume {
      when { column: "notes" pattern: "width {gpus}" }
      when { column: "gpus" at_least: 9 }
      skip: "no more"
    }
  )",
                  "test", &rules);
  const CsvTable table =
      parse_csv("framework,gpus,notes\na,8,FSDP=4\nb,8,FSDP=4\nb,8,width 4\nb,8,width 16\n", "t.csv");
  const auto found = [&](int row, std::string* gpus) {
    Fields fields(table, table.rows[row]);
    const Findings findings = apply_rules(rules, &fields);
    *gpus = fields.text("gpus");
    return findings;
  };
  std::string gpus;
  CHECK(found(0, &gpus).choices == std::vector<std::string>{"zero: 3", "shard_group: 4"});
  CHECK(found(1, &gpus).choices.empty());
  CHECK(found(2, &gpus).skip.empty());
  CHECK(gpus == "8");  // the column's own word stands again
  CHECK(found(3, &gpus).skip == "no more");
  CHECK(gpus == "16");
}

TEST_CASE(
    "every rule that comes along holds messages that there are, and every word a machine that there is") {
  for (const char* name : {"steps", "throughput", "memory", "collectives"}) {
    CHECK(rules(name).assume_size() > 0);
    for (const proto::Assumption& rule : rules(name).assume()) {
      check_text<proto::RuntimeProfile>(rule.runtime());
      check_text<proto::Transformer>(rule.transformer());
      check_text<proto::Training>(rule.training());
      check_text<proto::Choices>(rule.choices());
      check_text<proto::Reading>(rule.reading());
      if (!rule.profile().empty()) CHECK(runtime_named(rule.profile()).name == rule.profile());
    }
  }
  for (const proto::PublishedDevice& device : published_machines().device()) {
    if (!device.cluster().empty()) CHECK(load_cluster(device.cluster()).devices() > 0);
    if (!device.device().empty()) CHECK_FALSE(catalog_device(device.device()).name.empty());
    if (!device.link().empty()) CHECK(find_link(device.link()).bandwidth_bytes_per_s() > 0);
  }
  for (const proto::PublishedFramework& framework : published_frameworks().framework()) {
    CHECK(runtime_named(framework.runtime()).name == framework.runtime());
    CHECK(framework.name_size() > 0);
    for (const std::string& name : framework.name()) CHECK(runtime_for(name) == framework.runtime());
  }
  for (const auto* networks : {&published_machines().network(), &published_machines().fabric()})
    for (const proto::PublishedNetwork& network : *networks)
      CHECK_NOTHROW(transport_from_name(network.transport()));
  for (const proto::PublishedModel& model : published_models().model()) {
    if (!model.catalog().empty()) CHECK(load_workload(model.catalog()).transformer.has_value());
    check_text<proto::Transformer>(model.changes());
  }
}

TEST_CASE("a site's own profile is read beside the catalog's, and has at most eight fitted scalars") {
  const RuntimeProfile profile = runtime_named("no-overlap");
  CHECK(runtime_for("Megatron-LM commit 23e00ed") == profile.name);
  CHECK(runtime_for("Megatron-LM") == "megatron-lm-2022");
  CHECK(runtime_for("hugging-face") == "hugging-face");
  CHECK(runtime_of_row("Megatron-LM", "", "ampere") == "megatron-lm-2022");
  CHECK(runtime_of_row("Megatron-LM", "", "") == "megatron-lm-2022");
  CHECK(runtime_of_row("Megatron-LM", "", "ada") == "megatron-core");
  CHECK(runtime_of_row("Megatron-LM", "2022", "hopper") == "megatron-lm-2022");
  CHECK(runtime_of_row("NeMo", "", "hopper") == runtime_for("NeMo"));
  CHECK(runtime_for("nobody's").empty());
  CHECK_FALSE(profile.overlap_grad_reduce);
  CHECK(profile.fp32_gradients);
  CHECK(profile.fitted.size() <= 8);
  CHECK_FALSE(profile.fitted.empty());
}

TEST_CASE("a model is the row's dimensions over those that its name stands for") {
  const Workload mixtral = workload_of({"Mixtral 8x22B", 4, 0, 0, 0, 0, 0, 4096});
  CHECK(mixtral.layers == 4);
  CHECK(mixtral.transformer->hidden == 6144);
  CHECK(mixtral.transformer->vocab == 32768);
  CHECK(workload_of({"Qwen3_30B_A3B", 0, 0, 0, 0, 0, 0, 4096}).transformer->head_dim == 128);
  CHECK(workload_of({"GPT 3.6B", 30, 3072, 32, 0, 0, 0, 2048}).transformer->vocab == 51200);
  CHECK_THROWS_AS(workload_of({"Llama 3", 0, 0, 0, 0, 0, 0, 4096}), Unreadable);
  CHECK_THROWS_AS(workload_of({"TransGAN", 2, 64, 4, 0, 0, 0, 64}), Unreadable);
  const Workload adapted = workload_of({"Llama 3 8B", 2, 4096, 32, 8, 14336, 0, 4096},
                                       {"fine_tuning { rank: 16 targets: 'qkv' }"});
  // On queries, keys and values of two layers: 16 rows of 4096 inputs each, and of 4096, 1024, 1024 outputs.
  CHECK(adapted.parameters() - workload_of({"Llama 3 8B", 2, 4096, 32, 8, 14336, 0, 4096}).parameters() ==
        2 * 16 * (3 * 4096 + 4096 + 2 * 1024));
}
