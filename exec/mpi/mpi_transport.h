// Messages over MPI. Compiled once per MPI implementation; the rest of the executor never sees mpi.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "exec/communicators/point_to_point.h"

namespace orrery::exec {

// Which long messages go in pieces that need no asking: right where machines are joined by TCP; tests cut
// all.
enum class Cutting { never, between_machines, always };

// Whose MPI this program has, as the program's own name says it: "openmpi", "mpich".
std::string_view mpi_name();

// MPI_Init on construction, the end of MPI on destruction; one a process.
class MpiWorld {
 public:
  MpiWorld(int* argc, char*** argv);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  // Over all ranks, which must agree on `cutting`.
  std::unique_ptr<PointToPoint> transport(Cutting cutting) const;
  int rank() const;
  std::string library() const;  // "Open MPI v4.1.4"
  // Ends the whole job: a rank that fails must not leave the others waiting.
  [[noreturn]] void abort(int code) const;
};

}  // namespace orrery::exec
