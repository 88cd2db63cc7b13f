// Collectives between ranks: MPI over host memory, NCCL over device memory. One object per group.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "program/program.h"

namespace orrery::exec {

// An operation under way. `wait` returns when its buffers may be used (MPI) or makes the device's compute
// stream wait for it (NCCL). Destroying an unfinished request waits.
class Request {
 public:
  virtual ~Request() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;  // makes progress; true when finished
};

struct MessageSpec {
  int peer = 0;  // member of the group
  void* data = nullptr;
  std::size_t bytes = 0;
  int tag = 0;
  bool send = false;
};

// Buffers belong to the caller and must live until the request has finished. Counts are elements. In-place
// where `send == receive`. Errors of the library become InternalError naming the call and the rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Communicator> split(
      const std::vector<int>& members) = 0;  // collective over this one
  virtual std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                              Reduction op) = 0;
  virtual std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count_per_rank,
                                                  DType type, Reduction op) = 0;
  virtual std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count_per_rank,
                                              DType type) = 0;
  virtual std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                              void* receive, std::span<const std::size_t> receive_counts,
                                              DType type) = 0;
  virtual std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) = 0;
  virtual std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                          Reduction op, int root) = 0;
  virtual std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) = 0;
  virtual void barrier() = 0;
};

}  // namespace orrery::exec
