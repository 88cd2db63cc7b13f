// What executors answer: they write it, `orrery` knows it by these records (and links no executor).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/answer/record.h"

namespace orrery::exec {

struct StepTimes {
  double median_s = 0, least_s = 0, most_s = 0;
};
struct DigestOfTensor {
  double norm = 0;
  std::vector<double> projections;
};
struct PaceOfRun {
  double before = 0, after = 0, least = 0, most = 0;
  double step_time_s = 0;
};
struct EvaluationDone {
  std::int64_t step = 0;
  double loss = 0, perplexity = 0;
};
struct AsynchronousRun {
  std::vector<std::int64_t> batches_of_ranks;
  double mean_stale = 0, most_stale = 0;
  double most_steps_ahead = 0;
  std::vector<int> lost_ranks;
};

struct RoutingOfRun {
  std::int64_t dispatches = 0;
  double fullest_share = 0, spread = 0;
};

// Of `run`, by rank 0.
struct RunAnswer {
  std::string workload, cluster, runtime;
  int devices = 0;
  std::string backend, library, device, data;
  std::int64_t ranks = 0, steps = 0, first_step = 0, skipped_steps = 0;
  StepTimes step_time;
  double samples_per_s = 0, tokens_per_s = 0;
  std::vector<double> loss;
  double memory_bytes = 0, allocated_bytes = 0, context_bytes = 0, resident_bytes = 0;
  std::int64_t critical_rank = 0;
  std::map<std::string, double> by_kind_s;
  std::vector<std::map<std::string, double>> by_kind_of_ranks_s;
  std::optional<AsynchronousRun> asynchronous;
  std::optional<RoutingOfRun> routing;
  std::map<std::string, DigestOfTensor> parameters_digest;
  std::optional<std::vector<EvaluationDone>> evaluations;
  std::optional<std::int64_t> stopped_after;
  std::optional<PaceOfRun> machine_pace;
};

// Of `calibrate` without a cluster: this machine's cores, memory and links.
struct MachineAnswer {
  std::string machine, file;
  double wall_s = 0;
  std::int64_t observations = 0;
  double products_error = 0, attention_error = 0, other_error = 0;
  double memory_bandwidth_bytes_per_s = 0;
  std::vector<double> concurrency_scale;
  double least_pace = 0, most_pace = 0;
  double reference_s = 0;
  double message_latency_s = 0, message_bytes_per_s = 0;
};

// Of `calibrate CLUSTER`: the links between its hosts.
struct PairMeasured {
  std::string from, to;
  double described_bytes_per_s = 0, one_way_bytes_per_s = 0, exchange_bytes_per_s = 0;
};
struct NetworkAnswer {
  int nodes = 0;
  double network_latency_s = 0, network_efficiency = 0, network_exchange_efficiency = 0;
  double network_processor_s_per_byte = 0, network_flow_spread = 0, ring_efficiency = 0;
  std::vector<PairMeasured> pairs;
};

const Record<RunAnswer>& run_record();
const Record<MachineAnswer>& machine_record();
const Record<NetworkAnswer>& network_record();

}  // namespace orrery::exec
