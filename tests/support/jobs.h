// Jobs of catalog workloads on catalog clusters, for tests that plan.
#pragma once

#include <memory>
#include <string>

#include "program/plan.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery::test {

// `seq_len` 0 for models without sequences.
inline std::shared_ptr<Job> make_job(const std::string& workload, const std::string& cluster, int devices,
                                     std::int64_t global_batch, int seq_len,
                                     const std::string& runtime = "megatron-core") {
  auto job = std::make_shared<Job>();
  job->workload = load_workload(workload);
  job->cluster = with_devices(load_cluster(cluster), devices);
  job->runtime = catalog_runtime(runtime);
  job->training.global_batch = global_batch;
  job->training.seq_len = seq_len;
  job->training.fused_attention = job->runtime.fused_attention;
  const bool gpu = job->cluster.profiles[job->cluster.groups.front().node.profile].kind == DeviceKind::gpu;
  job->training.precision = gpu ? DType::bf16 : DType::fp32;
  return job;
}

}  // namespace orrery::test
