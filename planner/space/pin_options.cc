#include "planner/space/pin_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "base/parse.h"

namespace orrery::planner {
namespace {

template <typename T>
using Pin = std::optional<T> Pins::*;

// `own` where it says something, else `other`.
template <typename T>
auto take(Pin<T> pin) {
  return [pin](Pins& merged, const Pins& own, const Pins& other) {
    if (!(own.*pin)) merged.*pin = other.*pin;
  };
}

// What the plan has, where it means something: always, unless `meant` says when.
using Meant = bool (*)(const Choices& choices);
template <typename T>
auto hold(Pin<T> pin, T Choices::*choice, Meant meant = nullptr) {
  return [pin, choice, meant](Pins& pins, const Plan& plan) {
    if (meant == nullptr || meant(plan.choices)) pins.*pin = plan.choices.*choice;
  };
}

PlanField field(const std::string& key, int Choices::*choice) {
  return {key, [choice](const Plan& plan) { return FieldValue(std::int64_t{plan.choices.*choice}); }};
}
PlanField field(const std::string& key, bool Choices::*choice) {
  return {key, [choice](const Plan& plan) { return FieldValue(plan.choices.*choice); }};
}
PlanField field(const std::string& key, double Choices::*choice) {
  return {key, [choice](const Plan& plan) { return FieldValue(plan.choices.*choice); }};
}
template <typename Enum>
PlanField field(const std::string& key, Enum Choices::*choice) {
  return {key, [choice](const Plan& plan) { return FieldValue(std::string(name_of(plan.choices.*choice))); }};
}

Option dimension(std::string key, std::string unit, std::string help, std::string fallback = {}) {
  Option option;
  option.key = std::move(key);
  option.unit = std::move(unit);
  option.help = std::move(help);
  option.fallback = std::move(fallback);
  option.group = "Dimensions (each is searched unless given)";
  option.pinned = option.varied = true;
  return option;
}

PinOption count(Option option, Pin<int> pin, int Choices::*choice, const Counts& counts = {},
                Meant meant = nullptr) {
  option.range = range_of(counts);
  std::vector<PlanField> fields = {field(option.key, choice)};
  return {std::move(option),
          [pin, counts](Pins& pins, const std::string& text) {
            const auto number = read_count(text, counts);
            if (number) pins.*pin = static_cast<int>(*number);
            return number.has_value();
          },
          take(pin), hold(pin, choice, meant), std::move(fields)};
}

PinOption on_off(Option option, Pin<bool> pin, bool Choices::*choice, Meant meant = nullptr) {
  option.range = "on or off";
  std::vector<PlanField> fields = {field(option.key, choice)};
  return {std::move(option),
          [pin](Pins& pins, const std::string& text) {
            const auto on = parse_switch(text);
            if (on) pins.*pin = on;
            return on.has_value();
          },
          take(pin), hold(pin, choice, meant), std::move(fields)};
}

template <typename Enum>
PinOption name(Option option, Pin<Enum> pin, Enum Choices::*choice, Enum (*from_name)(std::string_view),
               Meant meant = nullptr) {
  std::vector<PlanField> fields = {field(option.key, choice)};
  return {std::move(option),
          [pin, from_name](Pins& pins, const std::string& text) {
            pins.*pin = from_name(lower_case(text));
            return true;
          },
          take(pin), hold(pin, choice, meant), std::move(fields)};
}

// Not a dimension itself: whether one is searched that is not by default.
PinOption search_switch(Option option, bool Pins::*wanted) {
  option.pinned = false;
  return {std::move(option),
          [wanted](Pins& pins, const std::string& text) {
            const auto on = parse_switch(text);
            if (on) pins.*wanted = *on;
            return on.has_value();
          },
          [](Pins&, const Pins&, const Pins&) {},
          [](Pins&, const Plan&) {},
          {}};
}

PinOption micro_batch() {
  PinOption pin = count(dimension("micro_batch", "N", "samples in a micro-batch of one replica"),
                        &Pins::micro_batch, &Choices::micro_batch);
  pin.fields.push_back({"micro_batches", [](const Plan& plan) { return FieldValue(plan.micro_batches()); },
                        "of a replica in a step"});
  return pin;
}

PinOption interleave() {
  PinOption pin =
      count(dimension("interleave", "V", "model chunks per stage"), &Pins::interleave, &Choices::interleave);
  // Another schedule than the other's has its own.
  pin.fill = [](Pins& merged, const Pins& own, const Pins& other) {
    if (!own.schedule && !own.interleave) merged.interleave = other.interleave;
  };
  return pin;
}

bool read_recompute(Pins& pins, const std::string& text) {
  constexpr std::string_view kSome = "full:", kOf = "selective:";
  int layers = 0;
  ModuleSet modules = 0;
  if (text.starts_with(kSome)) {
    const auto count = read_count(text.substr(kSome.size()), {});
    if (!count) return false;
    layers = static_cast<int>(*count);
    pins.recompute = Recompute::full;
  } else if (text.starts_with(kOf)) {
    modules = modules_from_names(lower_case(text.substr(kOf.size())));
    pins.recompute = Recompute::selective;
  } else {
    pins.recompute = recompute_from_name(lower_case(text));
  }
  pins.recompute_layers = layers;
  pins.recompute_modules = modules;
  return true;
}

PinOption recompute() {
  PinOption pin = name(
      dimension("recompute", "none|selective|selective:M,M,...|full|full:K",
                "activations recomputed in the backward pass; selective: of modules M (" +
                    fmt::format("{}", fmt::join(kSelectiveModules, " ")) +
                    "), else of those that the runtime has; full:K: in the first K layers of each stage"),
      &Pins::recompute, &Choices::recompute, recompute_from_name);
  pin.option.range =
      "none, selective, selective: and modules by commas or plus signs, full, or full:K with a number of "
      "layers from 1";
  pin.read = read_recompute;
  pin.fill = [](Pins& merged, const Pins& own, const Pins& other) {
    if (own.recompute) return;
    merged.recompute = other.recompute;
    merged.recompute_layers = other.recompute_layers;
    merged.recompute_modules = other.recompute_modules;
  };
  pin.hold = [](Pins& pins, const Plan& plan) {
    pins.recompute = plan.choices.recompute;
    pins.recompute_layers = plan.choices.recompute_layers;
    pins.recompute_modules = plan.choices.recompute_modules;
  };
  pin.fields.push_back(field("recompute_layers", &Choices::recompute_layers));
  pin.fields.back().what = "with full recomputation: the first layers of a stage that are; 0: all";
  pin.fields.push_back(
      {"recompute_modules",
       [](const Plan& plan) { return FieldValue(names_of(plan.choices.recompute_modules)); },
       "with selective recomputation: what is run again; empty: what the runtime runs again"});
  return pin;
}

bool read_stage_layers(Pins& pins, const std::string& text) {
  std::vector<int> stages;
  for (const std::string& part : split(text)) {
    const auto layers = read_count(part, {.least = 0});
    if (!layers) return false;
    stages.push_back(static_cast<int>(*layers));
  }
  pins.stage_layers = std::move(stages);
  return true;
}

PinOption stage_layers() {
  Option option = dimension(
      "stage_layers", "A,B,...",
      "layers of each pipeline stage; where stages have several chunks, of each, in the model's order",
      "even");
  option.range = "whole numbers of layers from 0, separated by commas";
  const auto held = [](Pins& pins, const Plan& plan) {
    if (plan.choices.pp > 1) pins.stage_layers = layers_by_part(plan);
  };
  const auto shown = [](const Plan& plan) {
    const std::vector<int> layers = layers_by_part(plan);
    return FieldValue(std::vector<std::int64_t>(layers.begin(), layers.end()));
  };
  return {std::move(option), read_stage_layers, take(&Pins::stage_layers), held, {{"stage_layers", shown}}};
}

bool read_order(Pins& pins, const std::string& text) {
  const auto names = split(text);
  std::array<Dimension, 5> order{};
  std::array<bool, 5> seen{};
  if (names.size() != order.size()) return false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = dimension_from_name(names[i]);
    if (std::exchange(seen[static_cast<std::size_t>(order[i])], true)) return false;
  }
  pins.order = order;
  return true;
}

PinOption order() {
  Option option =
      dimension("order", "tp,cp,ep,dp,pp",
                "order in which the dimensions are laid over the devices, innermost first", "as shown");
  option.range = "tp, cp, ep, dp and pp, each once, innermost first";
  const auto names = [](const Plan& plan) {
    std::vector<std::string> names;
    for (const Dimension one : plan.choices.order) names.emplace_back(name_of(one));
    return FieldValue(std::move(names));
  };
  const auto batches = [](const Plan& plan) { return FieldValue(plan.choices.replica_batches); };
  return {std::move(option),
          read_order,
          take(&Pins::order),
          hold(&Pins::order, &Choices::order),
          {{"order", names}, {"replica_batches", batches}}};
}

PinOption bucket_bytes() {
  Option option = dimension("bucket_bytes", "B",
                            "gradient bytes that are reduced together; K, M, G are binary", "the runtime's");
  option.range = "at least 1 byte: a number with an optional K, M, G or T (binary)";
  const auto read = [](Pins& pins, const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes < 1) return false;
    pins.bucket_bytes = bytes;
    return true;
  };
  const auto held = [](Pins& pins, const Plan& plan) {
    constexpr double kEverything = 1e18;  // one bucket holds all gradients
    pins.bucket_bytes = plan.bucket_bytes() > 0 ? plan.bucket_bytes() : kEverything;
  };
  const auto shown = [](const Plan& plan) { return FieldValue(plan.bucket_bytes()); };
  return {std::move(option), read, take(&Pins::bucket_bytes), held, {{"bucket_bytes", shown}}};
}

bool read_compression(Pins& pins, const std::string& text) {
  constexpr std::string_view kSome = "topk:";
  if (text.starts_with(kSome)) {
    const auto ratio = read_number(text.substr(kSome.size()), {.open = true, .most = 1});
    if (!ratio) return false;
    pins.grad_compression = Compression::topk;
    pins.topk_ratio = ratio;
  } else {
    pins.grad_compression = compression_from_name(lower_case(text));
    pins.topk_ratio.reset();
  }
  return true;
}

PinOption grad_compression() {
  PinOption pin =
      name(dimension("grad_compression", "none|fp16|int8|topk:RATIO",
                     "compress gradients before their reduction; lossy, so never chosen unasked", "none"),
           &Pins::grad_compression, &Choices::grad_compression, compression_from_name);
  pin.option.range = "none, fp16, int8 or topk:RATIO with a ratio above 0, at most 1";
  pin.read = read_compression;
  pin.fill = [](Pins& merged, const Pins& own, const Pins& other) {
    if (own.grad_compression) return;
    merged.grad_compression = other.grad_compression;
    merged.topk_ratio = other.topk_ratio;
  };
  pin.hold = [](Pins& pins, const Plan& plan) {
    pins.grad_compression = plan.choices.grad_compression;
    if (plan.choices.grad_compression == Compression::topk) pins.topk_ratio = plan.choices.topk_ratio;
  };
  pin.fields.push_back(field("topk_ratio", &Choices::topk_ratio));
  pin.fields.back().what = "with topk compression: the share of gradients that is sent";
  return pin;
}

PinOption capacity_factor() {
  Option option =
      dimension("capacity_factor", "F",
                "tokens that an expert's buffer holds, as a multiple of its even share: beyond it "
                "tokens are dropped, what they leave is padding that costs time; 0: all, no buffer",
                "0");
  option.range = range_of(Numbers{});
  const auto read = [](Pins& pins, const std::string& text) {
    const auto factor = read_number(text, {});
    if (factor) pins.capacity_factor = factor;
    return factor.has_value();
  };
  const auto meant = [](const Choices& c) { return c.capacity_factor > 0; };  // of models with experts
  std::vector<PlanField> fields = {field(option.key, &Choices::capacity_factor)};
  return {std::move(option), read, take(&Pins::capacity_factor),
          hold(&Pins::capacity_factor, &Choices::capacity_factor, meant), std::move(fields)};
}

PinOption shard_group() {
  PinOption pin =
      count(dimension("shard_group", "N",
                      "ranks that ZeRO shards over; with zero 0, ranks that sum their gradients first",
                      "all of dp*cp"),
            &Pins::shard_group, &Choices::shard_group);
  pin.hold = [](Pins& pins, const Plan& plan) {
    const Choices& c = plan.choices;
    if (c.zero > 0 || c.hybrid()) pins.shard_group = c.shard_group > 0 ? c.shard_group : c.dp * c.cp;
  };
  return pin;
}

void add_layout(std::vector<PinOption>& all) {
  all.push_back(count(dimension("tp", "N", "tensor-parallel ranks"), &Pins::tp, &Choices::tp));
  all.push_back(count(dimension("pp", "N", "pipeline stages"), &Pins::pp, &Choices::pp));
  all.push_back(count(dimension("dp", "N", "data-parallel replicas"), &Pins::dp, &Choices::dp));
  all.push_back(count(dimension("cp", "N", "context-parallel ranks"), &Pins::cp, &Choices::cp));
  all.push_back(count(
      dimension("ep", "N", "expert-parallel ranks; divides dp*cp; with sequence parallelism, tp/etp*dp*cp"),
      &Pins::ep, &Choices::ep));
  all.push_back(count(
      dimension("etp", "N", "tensor-parallel ranks that share each expert; divides tp", "1, not searched"),
      &Pins::etp, &Choices::etp));
  all.push_back(micro_batch());
}

void add_stages_and_shards(std::vector<PinOption>& all) {
  all.push_back(
      name(dimension("schedule", "gpipe|1f1b|interleaved|zero-bubble|dualpipe-v", "pipeline schedule"),
           &Pins::schedule, &Choices::schedule, schedule_from_name));
  all.push_back(interleave());
  all.push_back(
      count(dimension("zero", "0|1|2|3",
                      "what ZeRO shards: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too"),
            &Pins::zero, &Choices::zero, {0, 3}));
  all.push_back(shard_group());
  all.push_back(recompute());
  all.push_back(stage_layers());
  all.push_back(order());
  all.push_back(search_switch(
      dimension("any_runtime", "",
                "also search plans that the runtime cannot run (schedules, ZeRO stages, dimensions)"),
      &Pins::any_runtime));
}

void add_gradients(std::vector<PinOption>& all) {
  all.push_back(on_off(dimension("overlap_experts", "on|off",
                                 "overlap one micro-batch's expert traffic with another's computation",
                                 "searched where the runtime can"),
                       &Pins::overlap_experts, &Choices::overlap_experts));
  all.push_back(on_off(
      dimension("sequence_parallel", "on|off", "shard norms and residuals over the tensor-parallel ranks"),
      &Pins::sequence_parallel, &Choices::sequence_parallel, [](const Choices& c) { return c.tp > 1; }));
  all.push_back(
      on_off(dimension("overlap_grad_reduce", "on|off", "overlap gradient reduction with the backward pass"),
             &Pins::overlap_grad_reduce, &Choices::overlap_grad_reduce));
  all.push_back(bucket_bytes());
  all.push_back(grad_compression());
  all.push_back(
      search_switch(dimension("search_compression", "",
                              "also search gradient compression (lossy: it changes what a step learns)"),
                    &Pins::search_compression));
}

void add_synchronisation(std::vector<PinOption>& all) {
  all.push_back(name(
      dimension("sync", "all-reduce|parameter-server|async-parameter-server|data-parallel-single-process",
                "how replicas are synchronised", "all-reduce"),
      &Pins::sync, &Choices::sync, sync_from_name));
  all.push_back(search_switch(dimension("search_sync", "",
                                        "also search parameter servers (1, one per node, one per device) and "
                                        "a single process; each is simulated rank by rank"),
                              &Pins::search_sync));
  const auto served = [](const Choices& c) { return c.has_servers(); };
  all.push_back(count(dimension("servers", "N", "number of parameter servers", "one beside every worker"),
                      &Pins::servers, &Choices::servers, {}, served));
  all.push_back(count(dimension("staleness", "K",
                                "steps that a replica may run ahead of the slowest, with parameter servers"),
                      &Pins::staleness, &Choices::staleness, {.least = 0}, served));
  all.push_back(capacity_factor());
}

}  // namespace

const std::vector<PinOption>& pin_options() {
  static const std::vector<PinOption> options = [] {
    std::vector<PinOption> all;
    add_layout(all);
    add_stages_and_shards(all);
    add_gradients(all);
    add_synchronisation(all);
    return all;
  }();
  return options;
}

std::vector<Setting> pin_settings(Pins& pins) {
  std::vector<Setting> settings;
  for (const PinOption& pin : pin_options())
    settings.push_back({pin.option, [&pins, &pin](const std::string& text) { return pin.read(pins, text); }});
  return settings;
}

Pins pins_of(const Plan& plan) {
  Pins pins;
  for (const PinOption& pin : pin_options()) pin.hold(pins, plan);
  return pins;
}

Pins merged(const Pins& own, const Pins& other) {
  Pins result = own;
  for (const PinOption& pin : pin_options()) pin.fill(result, own, other);
  return result;
}

}  // namespace orrery::planner
