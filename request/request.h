// What a user asks of a search: words and values as they were given, and what they mean. The one way from the
// command line, `whatif --vary` or a library's caller to a Job and the Pins of a search.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/option.h"
#include "planner/search/search.h"
#include "planner/space/offload.h"
#include "planner/space/pins.h"
#include "program/plan.h"
#include "topologies/node_counts.h"

namespace orrery {

// What is empty is left to the documented defaults.
struct Request {
  std::string workload, cluster;    // each a file or a name of the catalog
  std::optional<NodeCounts> nodes;  // of these two at most one
  std::optional<int> gpus;
  std::string device;  // of the catalog, in the place of the cluster's own; empty: those
  std::string runtime;
  std::optional<std::int64_t> global_batch;
  std::optional<int> seq_len;
  std::string lengths;  // "lognormal:MEAN,SD" or a file
  bool packed = false, balanced = false;
  std::optional<double> sample_bytes;
  std::optional<DType> precision;
  std::optional<Optimizer> optimizer;
  std::optional<bool> fused_attention;
  std::optional<planner::Offload> offload;
  std::optional<bool> overlap_tensor;
  std::optional<int> lora_rank, freeze;
  std::optional<std::uint8_t> lora_targets;
  std::optional<double> lora_alpha;
  bool dora = false;
  std::optional<BaseType> quantize_base;
  std::string from_peft;                                   // a file
  std::string from_megatron;                               // a shell-quoted list of Megatron-LM's arguments
  std::string from_deepspeed, from_torchtitan, from_nemo;  // a file each
  planner::Pins pins;
  planner::SearchOptions search;
};

// A request's options, each record with where its value goes; `request` must outlive them.
std::vector<Setting> request_options(Request& request);
// Those of them that say how large the cluster is.
std::vector<Setting> size_options(std::optional<NodeCounts>& nodes, std::optional<int>& gpus);
// The option `key` of `request` from its text, as the command line reads it. Throws UserError where there is
// no such option or `text` is none of its values.
void set(Request& request, std::string_view key, const std::string& text);

// The devices that `nodes` or `gpus` leave of a cluster, as what was measured on it has it
// (topologies/readers/site_calibration.h). Throws UserError, also where its nodes are not
// connected.
Cluster sized_cluster(const std::string& file_or_name, const std::optional<NodeCounts>& nodes,
                      std::optional<int> gpus);

// A request that has been read, ready to be searched.
struct Question {
  std::shared_ptr<const Job> job;
  planner::Pins pins;
  planner::SearchOptions search;
  bool default_batch = false;  // the job's global batch is that of its devices, for nothing says another
  // What of another system's settings says nothing of a plan, each with the reason.
  std::vector<std::string> ignored;
  int settings_read = 0;             // of such settings, that were not
  std::vector<std::string> assumed;  // where neither they nor the request say it, or both say otherwise
};
// Whether it says of a setting that it changes nothing of a plan, or that something else says it: who does
// not ask for details need not read it.
bool is_harmless(std::string_view ignored);
// Reads the inputs and fills what was left open. Throws UserError.
Question question_of(const Request& request);

}  // namespace orrery
