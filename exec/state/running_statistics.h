// Batch norms' running statistics: what inference takes in place of a batch's own. Training does not read
// them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/device/device.h"
#include "program/plan.h"
#include "program/program.h"

namespace orrery::exec {

// Each rank keeps those of its own samples; the first one's are written, as DistributedDataParallel keeps the
// buffers of rank 0. Norms that tensor ranks split keep the first tensor rank's samples' in every rank.
class RunningStatistics {
 public:
  // Of the norms that this rank computes; they begin as torch.nn.BatchNorm2d's do.
  RunningStatistics(const Plan& plan, const Program& program, Device& device);
  ~RunningStatistics();
  RunningStatistics(const RunningStatistics&) = delete;
  RunningStatistics& operator=(const RunningStatistics&) = delete;

  // Of batches that every norm has seen (micro-batches, not those that are computed once more).
  std::int64_t batches() const { return batches_; }
  void set_batches(std::int64_t batches) { batches_ = batches; }

  // Takes in a batch's, as Device::batch_norm_forward leaves them. `samples`: of a channel.
  void update(int op, const float* mean, const float* variance, std::int64_t samples);

  // One mean or variance, of all channels or of those that this rank has, in the device's memory.
  struct Tensor {
    std::string name;           // "bn1.running_mean"
    std::int64_t channels = 0;  // of the norm
    std::int64_t begin = 0;     // this rank's
    std::int64_t elements = 0;
    float* data = nullptr;  // null: not on this rank
    bool written = false;   // from this rank, into files
  };
  // Of the whole network, in the order of its operators; the same names on all ranks.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::vector<float> values(const Tensor& tensor) const;  // this rank's
  void set(const Tensor& tensor, const std::vector<float>& all_channels);
  // The norms' names: "bn1".
  const std::vector<std::string>& norms() const { return norms_; }

 private:
  Device& device_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> norms_;
  std::map<int, std::size_t> mean_of_;  // by operator: its mean's place; its variance is the next
  std::int64_t batches_ = 0;
};

}  // namespace orrery::exec
