// Messages over MPI. Compiled once per MPI implementation; the rest of the executor never sees mpi.h.
#pragma once

#include <memory>
#include <string>

#include "exec/point_to_point.h"

namespace orrery::exec {

// MPI_Init on construction, MPI_Finalize on destruction; one a process.
class MpiWorld {
 public:
  MpiWorld(int* argc, char*** argv);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  std::unique_ptr<PointToPoint> transport() const;  // over all ranks
  int rank() const;
  std::string library() const;  // "Open MPI v4.1.4"
  // Ends the whole job: a rank that fails must not leave the others waiting.
  [[noreturn]] void abort(int code) const;
};

}  // namespace orrery::exec
