// Whether persistent requests (MPI_Send_init, MPI_Recv_init, MPI_Startall) are quicker than new ones for what
// a step of a ring or pipeline does: one message to a neighbour and one from it, waited for by polling. Both
// kinds by turns in one run; the median of the ratios of neighbours, by size.
//   mpirun -np 2 persistent_requests
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <vector>

#include "base/statistics.h"
#include "exec/communicators/clock.h"

namespace orrery::exec {
namespace {

constexpr int kPairs = 400;
constexpr int kMessages = 50;  // of a turn

class Exchange {
 public:
  Exchange(int peer, int bytes) : peer_(peer), sent_(bytes), received_(bytes) {
    MPI_Recv_init(received_.data(), bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &persistent_[0]);
    MPI_Send_init(sent_.data(), bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &persistent_[1]);
  }
  ~Exchange() {
    for (MPI_Request& request : persistent_) MPI_Request_free(&request);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Seconds of one exchange.
  double turn(bool persistent) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin_s = steady_seconds();
    for (int message = 0; message < kMessages; ++message) {
      if (persistent)
        MPI_Startall(2, persistent_.data());
      else
        start();
      std::array<MPI_Request, 2>& requests = persistent ? persistent_ : fresh_;
      for (int done = 0; done == 0;) MPI_Testall(2, requests.data(), &done, MPI_STATUSES_IGNORE);
    }
    return (steady_seconds() - begin_s) / kMessages;
  }

 private:
  void start() {
    const int bytes = static_cast<int>(sent_.size());
    MPI_Irecv(received_.data(), bytes, MPI_BYTE, peer_, 2, MPI_COMM_WORLD, &fresh_[0]);
    MPI_Isend(sent_.data(), bytes, MPI_BYTE, peer_, 2, MPI_COMM_WORLD, &fresh_[1]);
  }

  int peer_;
  std::vector<char> sent_, received_;
  std::array<MPI_Request, 2> persistent_{}, fresh_{};
};

void measure(int rank, int bytes) {
  Exchange exchange(1 - rank, bytes);
  std::vector<double> ratios, fresh_s, persistent_s;
  for (int pair = 0; pair < kPairs; ++pair) {
    if (pair % 2 == 0) persistent_s.push_back(exchange.turn(true));
    fresh_s.push_back(exchange.turn(false));
    if (pair % 2 != 0) persistent_s.push_back(exchange.turn(true));
    ratios.push_back(persistent_s.back() / fresh_s.back());
  }
  if (rank == 0)
    fmt::print("{:>8} bytes: new {:8.2f} us, persistent {:8.2f} us, ratio {:.3f}\n", bytes,
               1e6 * median(fresh_s), 1e6 * median(persistent_s), median(ratios));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 2)
    for (const int bytes : {0, 256, 4096, 16384, 65536, 262144, 1048576}) measure(rank, bytes);
  else if (rank == 0)
    fmt::print(stderr, "persistent_requests: {} ranks (2)\n", size);
  MPI_Finalize();
  return size == 2 ? 0 : 2;
}

}  // namespace
}  // namespace orrery::exec

int main(int argc, char** argv) {
  return orrery::exec::main(argc, argv);
}
