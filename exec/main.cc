#include <cstdio>

#include "exec/collectives.h"
#include "exec/mpi/mpi_transport.h"

int main(int argc, char** argv) {
  orrery::exec::MpiWorld world(&argc, &argv);
  auto comm = orrery::exec::make_communicator(world.transport());
  std::printf("%d/%d %s\n", comm->rank(), comm->size(), world.library().c_str());
}
