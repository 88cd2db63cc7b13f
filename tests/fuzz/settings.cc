// Settings of other systems.
#include "handover/import.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/target.h"

namespace orrery::fuzz {
namespace {

// Pins that are sound, or a refusal.
void check_pins(const planner::Imported& read) {
  for (const auto* pin :
       {&read.pins.tp, &read.pins.pp, &read.pins.dp, &read.pins.cp, &read.pins.ep, &read.pins.etp,
        &read.pins.micro_batch, &read.pins.interleave, &read.pins.shard_group})
    possible(!*pin || **pin > 0, "an impossible pin");
  possible(read.global_batch.value_or(1) > 0 && read.seq_len.value_or(1) > 0, "an impossible batch");
  possible(!read.tuning || read.tuning->rank > 0, "adapters of no rank");
}

bool torchtitan(std::string_view bytes) {
  return sound_or_refused([&] { return planner::import_torchtitan(bytes, "fuzz", 32, 64); }, check_pins);
}
std::vector<std::string> torchtitan_seeds() {
  return folder_of("tests/data/import", ".toml");
}

bool nemo(std::string_view bytes) {
  return sound_or_refused([&] { return planner::import_nemo(bytes, "fuzz", 32, 64); }, check_pins);
}
std::vector<std::string> nemo_seeds() {
  return joined(folder_of("tests/data/import", ".yaml"),
                published_texts("logs", "mlm-ci__gpt3_7b_tp4_pp1_memory_speed__model"));
}

bool deepspeed(std::string_view bytes) {
  return sound_or_refused([&] { return planner::import_deepspeed(bytes, "fuzz"); }, check_pins);
}
std::vector<std::string> deepspeed_seeds() {
  return folder_of("tests/data/import", ".json");
}

bool megatron(std::string_view bytes) {
  return sound_or_refused([&] { return planner::import_megatron(bytes, 32, 64); }, check_pins);
}
std::vector<std::string> megatron_seeds() {
  return {data_file("import/megatron_flags.txt")};
}

bool peft(std::string_view bytes) {
  return sound_or_refused(
      [&] {
        std::vector<std::string> ignored;
        return planner::import_peft(bytes, "fuzz", 32, FineTuning{}, &ignored);
      },
      [](const FineTuning& read) { possible(read.rank > 0, "adapters of no rank"); });
}
std::vector<std::string> peft_seeds() {
  return {own_seed("adapter_config.json")};
}

}  // namespace

std::vector<Target> settings() {
  return {{"torchtitan", torchtitan, torchtitan_seeds, 2000},
          {"nemo", nemo, nemo_seeds, 2000},
          {"deepspeed", deepspeed, deepspeed_seeds, 1000},
          {"megatron", megatron, megatron_seeds, 1000},
          {"peft", peft, peft_seeds, 1000}};
}

}  // namespace orrery::fuzz
