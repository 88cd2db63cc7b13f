// What the live page asks: names of the catalogs and bounded numbers. No file is ever named, and none read
// that a request has a say in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "orrery/orrery.h"
#include "serve/http.h"

namespace orrery::serve {

constexpr int kMostDevices = 8192;
constexpr std::int64_t kMostBatch = 1 << 17;
constexpr int kMostTokens = 1 << 20;  // of a sequence

// A whole run, where the page says how much is trained and how often devices fail.
struct RunQuestion {
  double amount = 0;  // tokens, or samples of a model without sequences
  double mtbf_device_hours = 0;
  std::optional<double> checkpoint_bandwidth_bytes_per_s;
};

struct LiveQuestion {
  Question question;
  std::optional<RunQuestion> run;
};

// Throws UserError on keys that the page does not have, a key twice, names that no catalog has and numbers
// out of range.
LiveQuestion read_question(const Query& query);
// That it may be read at all: quickly, and without looking at any model or cluster.
void check_keys(const Query& query);
// The same of the same question, whatever the order of its keys.
std::string canonical(const Query& query);

// Throws UserError where none is called so; `localhost`, which would be discovered, is none here.
void check_workload(const std::string& name);
void check_cluster(const std::string& name);

// What the page's controls choose among: `workloads`, `clusters`, `devices`, `runtimes`, `keys` (what a
// question may hold), `most` of what is bounded.
Json choices_json();

}  // namespace orrery::serve
