// Collectives between ranks: MPI over host memory, NCCL over device memory. One object per group.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "cost/collective_cost.h"
#include "program/program.h"
#include "topologies/cluster.h"

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
  int lane = -1;  // see Lane; -1: of none
};

// Messages from one member to another that follow each other in the same order at both ends, and wait for
// nothing but each other.
struct Lane {
  int sender = 0;
  int receiver = 0;
  int number = 0;  // several between the same two
  auto operator<=>(const Lane&) const = default;
};

// How a collective of so many bytes (nccl-tests' size) was planned, so that what is simulated is executed.
using AlgorithmChoice = std::function<CollectivePlan(CollectiveKind, double bytes)>;

// Buffers belong to the caller and must live until the request has finished. Counts are elements. Operations
// start in the order of the calls on every member; several may be under way at once. In place: all_reduce and
// reduce where send == receive, all_gather where send is the member's own part of receive; reduce_scatter's
// receive may lie anywhere inside send. Errors of the library become InternalError naming the call and the
// rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective over `members` (in the order of their new ranks), of which this rank is one. `key` tells apart
  // groups with the same members.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members, int key) = 0;
  // Whose algorithms a choice may name.
  virtual CommunicationLibrary library() const = 0;
  // Before the first collective, the same on all members; without it, by size. The library chooses where it
  // has not what is chosen.
  virtual void set_algorithms(AlgorithmChoice choice) = 0;

  virtual std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                              Reduction op) = 0;
  virtual std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count_per_rank,
                                                  DType type, Reduction op) = 0;
  virtual std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count_per_rank,
                                              DType type) = 0;
  // send_counts and receive_counts: one a member, in elements; parts follow each other without gaps.
  virtual std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                              void* receive, std::span<const std::size_t> receive_counts,
                                              DType type) = 0;
  virtual std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) = 0;
  virtual std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                          Reduction op, int root) = 0;
  // Before the first exchange, in increasing order, with every lane that this rank is an end of: exchanges
  // that are of one lane alone then wait for no others, where a library runs what it is given one by one
  // (NCCL).
  virtual void open_lanes(std::span<const Lane>) {}
  // Messages between a pair with the same tag arrive in order; exchanges never meet collectives.
  virtual std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) = 0;
  // The same members over host memory, for short messages beside the data: itself where that is what it
  // carries.
  virtual Communicator& on_host() { return *this; }
  virtual void barrier() = 0;
  virtual void idle() {}  // between two polls that found nothing: may yield the core
};

}  // namespace orrery::exec
