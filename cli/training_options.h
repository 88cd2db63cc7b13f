// The contract's training options: from words on the command line to a Job and the Pins of a search.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "orrery/orrery.h"

namespace orrery::cli {

class TrainingOptions {
 public:
  void add_options(CLI::App& verb);  // WORKLOAD CLUSTER --nodes --gpus --runtime … and every pin

  // Reads the inputs and fills what was left open with the documented defaults. Throws UserError.
  std::shared_ptr<const Job> job() const;
  planner::Pins pins() const;
  planner::SearchOptions search_options() const;
  bool default_batch() const;  // the job's global batch is that of its devices, for nothing says another
  // On stderr, what of --from-megatron or --from-deepspeed was not read, if anything.
  void say_what_is_ignored() const;

 private:
  // What --from-megatron or --from-deepspeed says; empty where neither is given.
  planner::Imported imported() const;

  std::string from_megatron_, from_deepspeed_;
  std::string workload_, cluster_, runtime_, precision_, optimizer_, attention_, objective_ = "step-time";
  std::string sample_bytes_;
  std::optional<int> nodes_, gpus_, seq_len_;
  std::optional<std::int64_t> global_batch_;
  int top_ = 10;
  double budget_s_ = planner::SearchOptions{}.budget_s;
  planner::Pins numbers_;  // the pins that are plain numbers; the others stand below as words
  std::string schedule_, recompute_, stage_layers_, order_, sequence_parallel_, overlap_grad_reduce_,
      bucket_bytes_, grad_compression_, sync_;
};

// The devices that --nodes or --gpus leave of a cluster. Throws UserError.
Cluster sized_cluster(const std::string& file_or_name, std::optional<int> nodes, std::optional<int> gpus);
void add_size_options(CLI::App& verb, std::optional<int>& nodes, std::optional<int>& gpus);

}  // namespace orrery::cli
