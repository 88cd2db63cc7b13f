// Messages between ranks: what a transport must provide so that Orrery's own collectives
// (exec/communicators/collectives.h) run over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::exec {

// A message under way; dead once `done` has returned true.
using Ticket = std::int64_t;

// Messages between a pair with the same tag arrive in the order in which they were sent. Buffers belong to
// the caller until `done`. Failures become InternalError naming the call and the rank.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Ticket send(int peer, const void* data, std::size_t bytes, int tag) = 0;
  virtual Ticket receive(int peer, void* data, std::size_t bytes, int tag) = 0;
  virtual bool done(Ticket ticket) = 0;  // makes progress
  virtual void idle() = 0;               // between two polls that found nothing: may yield the core
  // Messages of the new group never meet this one's. Collective over `members` alone; members in the order of
  // their new ranks. `key` tells apart groups that are made at the same time by overlapping members.
  virtual std::unique_ptr<PointToPoint> split(const std::vector<int>& members, int key) = 0;
};

}  // namespace orrery::exec
