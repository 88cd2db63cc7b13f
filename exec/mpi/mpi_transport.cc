#include "exec/mpi/mpi_transport.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace orrery::exec {
namespace {

// MPI counts are int: longer messages go in pieces.
constexpr std::size_t kMaxPiece = 1U << 30;
// With more ranks than cores a yield brings the waiting rank back only when the computing ones' time slices
// are used up; one that sleeps is woken by the timer ahead of them. (4 and 8 ranks on 2 cores: 20 to 25%
// shorter steps than with yields alone.)
constexpr unsigned kPollsBeforeSleep = 8;
constexpr std::chrono::microseconds kSleep{100};
constexpr unsigned kPollsBeforeYield = 64;

void check(int code, const char* call, int rank) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw InternalError(std::string(call) + " failed on rank " + std::to_string(rank) + ": " +
                      std::string(text.data(), static_cast<std::size_t>(length)));
}

// The same for all containers of one machine, another on every machine and after every start.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// More ranks on this machine than cores (of all of them: a launcher may have bound each to its own): whoever
// waits must give way at once. Ranks in several containers of one machine count too, which MPI takes for
// several hosts.
bool oversubscribed(MPI_Comm comm) {
  struct Seat {
    std::array<char, 40> machine{};
    cpu_set_t cores{};
  };
  Seat mine;
  CPU_ZERO(&mine.cores);
  const std::string machine = boot_id();
  std::copy_n(machine.begin(), std::min(machine.size(), mine.machine.size()), mine.machine.begin());
  const bool known = sched_getaffinity(0, sizeof(mine.cores), &mine.cores) == 0;
  int size = 1;
  MPI_Comm_size(comm, &size);
  std::vector<Seat> all(static_cast<std::size_t>(size));
  if (MPI_Allgather(&mine, sizeof(Seat), MPI_BYTE, all.data(), sizeof(Seat), MPI_BYTE, comm) != MPI_SUCCESS ||
      !known)
    return true;
  int local = 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const Seat& seat : all) {
    if (seat.machine != mine.machine) continue;
    ++local;
    CPU_OR(&cores, &cores, &seat.cores);
  }
  return local > CPU_COUNT(&cores);
}

class MpiTransport : public PointToPoint {
 public:
  // Owns `comm`.
  MpiTransport(MPI_Comm comm, bool yields) : comm_(comm), yields_(yields) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~MpiTransport() override { MPI_Comm_free(&comm_); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Ticket send(int peer, const void* data, std::size_t bytes, int tag) override {
    return start(bytes, [&](std::size_t offset, int count, MPI_Request* request) {
      check(MPI_Isend(static_cast<const char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, request),
            "MPI_Isend", rank_);
    });
  }
  Ticket receive(int peer, void* data, std::size_t bytes, int tag) override {
    return start(bytes, [&](std::size_t offset, int count, MPI_Request* request) {
      check(MPI_Irecv(static_cast<char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, request),
            "MPI_Irecv", rank_);
    });
  }
  bool done(Ticket ticket) override {
    std::vector<MPI_Request>& pieces = pending_[static_cast<std::size_t>(ticket)];
    int finished = 0;
    check(MPI_Testall(static_cast<int>(pieces.size()), pieces.data(), &finished, MPI_STATUSES_IGNORE),
          "MPI_Testall", rank_);
    if (finished == 0) return false;
    pieces.clear();
    free_.push_back(ticket);
    return true;
  }
  void idle() override {
    ++polls_;
    if (yields_ && polls_ % kPollsBeforeSleep == 0)
      std::this_thread::sleep_for(kSleep);
    else if (yields_ || polls_ % kPollsBeforeYield == 0)
      sched_yield();
  }
  std::unique_ptr<PointToPoint> split(const std::vector<int>& members, int key) override {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group", rank_);
    check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some), "MPI_Group_incl",
          rank_);
    check(MPI_Comm_create_group(comm_, some, key, &made), "MPI_Comm_create_group", rank_);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    return std::make_unique<MpiTransport>(made, yields_);
  }

 private:
  template <typename Start>
  Ticket start(std::size_t bytes, Start start_piece) {
    Ticket ticket = static_cast<Ticket>(pending_.size());
    if (free_.empty()) {
      pending_.emplace_back();
    } else {
      ticket = free_.back();
      free_.pop_back();
    }
    std::vector<MPI_Request>& pieces = pending_[static_cast<std::size_t>(ticket)];
    std::size_t offset = 0;
    do {
      const std::size_t piece = std::min(bytes - offset, kMaxPiece);
      start_piece(offset, static_cast<int>(piece), &pieces.emplace_back(MPI_REQUEST_NULL));
      offset += piece;
    } while (offset < bytes);
    return ticket;
  }

  MPI_Comm comm_;
  bool yields_;
  int rank_ = 0;
  int size_ = 1;
  unsigned polls_ = 0;
  std::vector<std::vector<MPI_Request>> pending_;  // by ticket
  std::vector<Ticket> free_;
};

}  // namespace

MpiWorld::MpiWorld(int* argc, char*** argv) {
  // Over TCP with Open MPI's defaults, two ranks that exchange long messages were seen to use mostly one way
  // of a 100 Mb/s link at a time; sending pieces unasked used both. (Probably the receiver's requests for
  // pieces wait behind its own long message on the one connection: from reading, not from a trace.)
  setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    throw InternalError("MPI_Init_thread failed");
}

MpiWorld::~MpiWorld() {
  MPI_Finalize();
}

std::unique_ptr<PointToPoint> MpiWorld::transport() const {
  MPI_Comm world = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup", rank());
  return std::make_unique<MpiTransport>(world, oversubscribed(MPI_COMM_WORLD));
}

int MpiWorld::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::string MpiWorld::library() const {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

void MpiWorld::abort(int code) const {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();
}

}  // namespace orrery::exec
