#include "handover/keys/known_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/embedded.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_keys();
}

namespace orrery::planner {
namespace {

constexpr std::array<std::string_view, 5> kEffects = {"plan", "model", "runtime", "unplanned", "none"};

// The first word of `line`, which it loses.
std::string_view take_word(std::string_view& line) {
  const std::size_t blank = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, blank);
  line.remove_prefix(std::min(blank + 1, line.size()));
  return word;
}

KnownKey key_of(std::string_view system, std::string_view line) {
  std::string_view rest = line;
  KnownKey key;
  key.name = take_word(rest);
  key.type = take_word(rest);
  const auto* const effect = std::find(kEffects.begin(), kEffects.end(), take_word(rest));
  key.meaning = rest;
  if (effect == kEffects.end() || key.meaning.empty())
    throw InternalError(fmt::format("handover/keys/{}.txt: '{}'", system, line));
  key.effect = static_cast<KeyEffect>(effect - kEffects.begin());
  return key;
}

struct System {
  std::vector<KnownKey> keys;
  std::map<std::string_view, std::size_t> exact;
  std::vector<std::size_t> patterns;  // the longest first
};

std::map<std::string_view, System> read_all() {
  std::map<std::string_view, System> systems;
  for (const EmbeddedFile& file : embedded_keys()) {
    System& system = systems[file.name];
    std::string_view text = file.content;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.empty() || line.front() == '#') continue;
      system.keys.push_back(key_of(file.name, line));
      const KnownKey& key = system.keys.back();
      if (key.name.find('*') != std::string_view::npos)
        system.patterns.push_back(system.keys.size() - 1);
      else if (!system.exact.emplace(key.name, system.keys.size() - 1).second)
        throw InternalError(fmt::format("handover/keys/{}.txt: {} twice", file.name, key.name));
    }
    std::stable_sort(system.patterns.begin(), system.patterns.end(), [&](std::size_t a, std::size_t b) {
      return system.keys[a].name.size() > system.keys[b].name.size();
    });
  }
  return systems;
}

const System& system_of(std::string_view name) {
  static const std::map<std::string_view, System> systems = read_all();
  const auto found = systems.find(name);
  if (found == systems.end()) throw InternalError(fmt::format("no keys of '{}'", name));
  return found->second;
}

// Each * of the pattern stands for any text. No recursion: names come from files.
bool fits(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, in = 0;
  std::optional<std::size_t> star;
  std::size_t behind = 0;  // where the name went on after the last *
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      behind = in;
    } else if (at < pattern.size() && pattern[at] == name[in]) {
      ++at, ++in;
    } else if (star) {
      at = *star + 1;
      in = ++behind;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

// Of names that nobody described: NeMo 1's, Megatron Bridge's, a fork's. The first reason that has a part of
// the name counts.
struct Guess {
  std::vector<std::string_view> parts;
  KeyEffect effect;
};

const std::array<Guess, 4>& guesses() {
  static const std::array<Guess, 4> all = {{
      {{"offload"}, KeyEffect::unplanned},
      {{"fusion", "fused",   "compile",   "cuda_graph",   "cuda-graph", "overlap", "transformer_engine",
        "_te_",   "amp_o2",  "comm_hook", "async_tensor", "p2p",        "sharp",   "float8",
        "nccl",   "backend", "dtype",     "autocast",     "fp8",        "gather",  "bucket"},
       KeyEffect::runtime},
      {{"lr",        "weight_decay", "beta",        "eps",      "warmup", "sched",      "data",
        "tokenizer", "path",         "log",         "save",     "load",   "checkpoint", "ckpt",
        "wandb",     "tensorboard",  "seed",        "eval",     "val_",   "iters",      "steps",
        "epoch",     "profil",       "name",        "job",      "metric", "exp_",       "resume",
        "_target_",  "init",         "workers",     "timer",    "print",  "monitor",    "loss_scale",
        "devices",   "nodes",        "accelerator", "callback", "dir",    "validation"},
       KeyEffect::none},
      {{"num_layers", "hidden",   "heads",    "head_dim",   "ffn",   "attention",        "rope",
        "rotary",     "norm",     "position", "swiglu",     "bias",  "expert",           "moe",
        "query",      "channels", "vocab",    "activation", "gated", "share_embeddings", "model"},
       KeyEffect::model},
  }};
  return all;
}

constexpr std::string_view kOfTheModel = ": the workload says what the model is";
constexpr std::string_view kOfTheRuntime = ": the runtime profile says it (--runtime)";
constexpr std::string_view kOfNothing = ": changes no time and no memory of a step";

std::string said(const std::string& name, KeyEffect effect, std::string_view meaning) {
  switch (effect) {
    case KeyEffect::model:
      return name + std::string(kOfTheModel);
    case KeyEffect::runtime:
      return name + std::string(kOfTheRuntime);
    case KeyEffect::none:
      return name + std::string(kOfNothing);
    case KeyEffect::unplanned:
      return meaning.empty()
                 ? name + ": changes time or memory, and is not planned"
                 : fmt::format("{}: changes time or memory, and is not planned ({})", name, meaning);
    case KeyEffect::plan:
      break;
  }
  return name + ": has no effect beside the other settings";
}

// The one known name that differs from this in a letter or two; empty: none, or several.
std::string misspelt(std::string_view system, const std::string& name) {
  constexpr std::size_t kShort = 6, kLong = 12;  // letters of a name in which one, and two, may be wrong
  std::string meant;
  if (name.size() < kShort) return meant;
  const std::size_t most = name.size() < kLong ? 1 : 2;
  for (const KnownKey& key : system_of(system).keys) {
    if (key.name.find('*') != std::string::npos || edits_between(name, key.name) > most) continue;
    if (!meant.empty()) return {};
    meant = key.name;
  }
  return meant;
}

}  // namespace

const std::vector<KnownKey>& known_keys(std::string_view system) {
  return system_of(system).keys;
}

const KnownKey* known_key(std::string_view system, std::string_view name) {
  const System& known = system_of(system);
  if (const auto found = known.exact.find(name); found != known.exact.end())
    return &known.keys[found->second];
  for (const std::size_t pattern : known.patterns)
    if (fits(known.keys[pattern].name, name)) return &known.keys[pattern];
  if (system != "nemo") return nullptr;
  std::string flag =
      "--" + std::string(name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1));
  std::replace(flag.begin(), flag.end(), '_', '-');
  const System& megatron = system_of("megatron");
  const auto found = megatron.exact.find(flag);
  return found == megatron.exact.end() ? nullptr : &megatron.keys[found->second];
}

std::string ignored_because(std::string_view system, const std::string& name) {
  if (const KnownKey* key = known_key(system, name)) return said(name, key->effect, key->meaning);
  if (const std::string meant = misspelt(system, name); !meant.empty())
    return fmt::format("{}: not known here; did you mean {}?", name, meant);
  const std::string lower = lower_case(name);
  for (const Guess& guess : guesses())
    for (const std::string_view part : guess.parts)
      if (lower.find(part) != std::string::npos) return said(name, guess.effect, "");
  return name + ": not known here";
}

bool is_harmless(std::string_view ignored) {
  return ignored.ends_with(kOfTheModel) || ignored.ends_with(kOfTheRuntime) || ignored.ends_with(kOfNothing);
}

std::string misspelt_plan_setting(std::string_view system, const std::string& name) {
  if (known_key(system, name) != nullptr) return {};
  const std::string meant = misspelt(system, name);
  return !meant.empty() && known_key(system, meant)->effect == KeyEffect::plan ? meant : std::string();
}

}  // namespace orrery::planner
