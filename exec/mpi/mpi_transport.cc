#include "exec/mpi/mpi_transport.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "exec/mpi/process_manager.h"

namespace orrery::exec {
namespace {

// MPI counts are int: longer messages go in pieces.
constexpr std::size_t kMaxPiece = 1U << 30;
// With more ranks than cores a yield brings the waiting rank back only when the computing ones' time slices
// are used up; one that sleeps is woken by the timer ahead of them. (4 and 8 ranks on 2 cores: 20 to 25%
// shorter steps than with yields alone.)
constexpr unsigned kPollsBeforeSleep = 8;
// Over TCP a poll asks the kernel for every connection and costs tens of microseconds of somebody's core: who
// has waited long sleeps longer, by a small part of what it has waited.
constexpr unsigned kPollsBeforeSleepOverTcp = 1;
constexpr int kPollsToDoubleSleep = 32;
constexpr std::chrono::microseconds kLongestSleep{1000};
constexpr std::chrono::microseconds kSleep{100};
constexpr unsigned kPollsBeforeYield = 64;
// Whoever asks about one cut message moves all of them on: for the others asked about next there is nothing
// new.
constexpr std::chrono::microseconds kNewsAfter{30};

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
// several hosts. And so must who shares them with other programs: Open MPI's own parameter says that.
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
  const char* yields = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  if (yields != nullptr && std::string_view(yields) == "1") return true;
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

// Long messages over TCP, in pieces that leave unasked. Left to itself the library asks before it sends a
// long message, and its answer waits in line behind what the answering rank is itself sending to that peer:
// two ranks that exchange then use one direction after the other, and a receiver that computes answers late.
// Here whoever posts a receive says so at once, ahead of its own data, and the sender goes on without asking.
constexpr std::size_t kPiece = 60U << 10;  // below Open MPI's eager limit for TCP (64 KiB with its header)
constexpr std::size_t kUnaskedPieces = 2;  // leave before the receiver has said that it is there
// Handed to the library at once; more would delay what is said after it.
constexpr std::size_t kSendWindow = 4;
constexpr std::size_t kReceiveWindow = 32;

// A message in pieces: [0, given) have been given to the library, whose unfinished ones are `requests`.
struct Cut {
  bool sends = false;
  int peer = 0;
  int tag = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
  std::size_t given = 0;  // bytes
  bool empty_given = false;
  std::deque<MPI_Request> requests;
  MPI_Request word = MPI_REQUEST_NULL;  // that the receiver is there
  bool welcome = true;                  // sender: more than the unasked pieces may go

  bool all_given() const { return bytes == 0 ? empty_given : given == bytes; }
};

class MpiTransport : public PointToPoint {
 public:
  // Owns `comm` and `words` (MPI_COMM_NULL: no message is cut). `cut_to`: by rank, whether messages
  // to it are.
  MpiTransport(MPI_Comm comm, MPI_Comm words, std::vector<char> cut_to, bool yields,
               std::shared_ptr<int> waited = std::make_shared<int>(0))
      : comm_(comm), words_(words), cut_to_(std::move(cut_to)), yields_(yields), waited_(std::move(waited)) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    if (words_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(words_, MPI_ERRORS_RETURN);
  }
  ~MpiTransport() override {
    MPI_Comm_free(&comm_);
    if (words_ != MPI_COMM_NULL) MPI_Comm_free(&words_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Ticket send(int peer, const void* data, std::size_t bytes, int tag) override {
    if (is_cut(peer)) return start_cut(true, peer, const_cast<void*>(data), bytes, tag);
    return start(bytes, [&](std::size_t offset, int count, MPI_Request* request) {
      check(MPI_Isend(static_cast<const char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, request),
            "MPI_Isend", rank_);
    });
  }
  Ticket receive(int peer, void* data, std::size_t bytes, int tag) override {
    if (is_cut(peer)) return start_cut(false, peer, data, bytes, tag);
    return start(bytes, [&](std::size_t offset, int count, MPI_Request* request) {
      check(MPI_Irecv(static_cast<char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, request),
            "MPI_Irecv", rank_);
    });
  }
  bool done(Ticket ticket) override {
    Pending& pending = pending_[static_cast<std::size_t>(ticket)];
    if (pending.cut) {
      if (ticket == asked_ || std::chrono::steady_clock::now() - advanced_ > kNewsAfter) {
        asked_ = ticket;
        advance();
      }
      if (std::find(cuts_.begin(), cuts_.end(), ticket) != cuts_.end()) return false;
      pending.cut.reset();
      *waited_ = 0;
    } else {
      int finished = 0;
      check(MPI_Testall(static_cast<int>(pending.pieces.size()), pending.pieces.data(), &finished,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall", rank_);
      if (finished == 0) return false;
      pending.pieces.clear();
    }
    free_.push_back(ticket);
    return true;
  }
  void idle() override {
    ++polls_;
    const unsigned polls = words_ != MPI_COMM_NULL ? kPollsBeforeSleepOverTcp : kPollsBeforeSleep;
    if (yields_ && polls_ % polls == 0)
      std::this_thread::sleep_for(
          words_ == MPI_COMM_NULL
              ? kSleep
              : std::min(kSleep + kSleep * (*waited_)++ / kPollsToDoubleSleep, kLongestSleep));
    else if (yields_ || polls_ % kPollsBeforeYield == 0)
      sched_yield();
  }
  std::unique_ptr<PointToPoint> split(const std::vector<int>& members, int key) override {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm words = MPI_COMM_NULL;
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group", rank_);
    check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some), "MPI_Group_incl",
          rank_);
    check(MPI_Comm_create_group(comm_, some, key, &made), "MPI_Comm_create_group", rank_);
    // Not by MPI_Comm_create_group out of words_: with MPICH 4.0.2 that crashed.
    if (words_ != MPI_COMM_NULL) check(MPI_Comm_dup(made, &words), "MPI_Comm_dup", rank_);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    std::vector<char> cut_to;
    for (const int member : members) cut_to.push_back(cut_to_[static_cast<std::size_t>(member)]);
    return std::make_unique<MpiTransport>(made, words, std::move(cut_to), yields_, waited_);
  }

 private:
  struct Pending {
    std::vector<MPI_Request> pieces;
    std::unique_ptr<Cut> cut;
  };

  bool is_cut(int peer) const {
    return words_ != MPI_COMM_NULL && cut_to_[static_cast<std::size_t>(peer)] != 0;
  }

  Ticket new_ticket() {
    if (free_.empty()) {
      pending_.emplace_back();
      return static_cast<Ticket>(pending_.size()) - 1;
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    return ticket;
  }

  template <typename Start>
  Ticket start(std::size_t bytes, Start start_piece) {
    const Ticket ticket = new_ticket();
    std::vector<MPI_Request>& pieces = pending_[static_cast<std::size_t>(ticket)].pieces;
    std::size_t offset = 0;
    do {
      const std::size_t piece = std::min(bytes - offset, kMaxPiece);
      start_piece(offset, static_cast<int>(piece), &pieces.emplace_back(MPI_REQUEST_NULL));
      offset += piece;
    } while (offset < bytes);
    return ticket;
  }

  Ticket start_cut(bool sends, int peer, void* data, std::size_t bytes, int tag) {
    const Ticket ticket = new_ticket();
    auto cut = std::make_unique<Cut>();
    cut->sends = sends;
    cut->peer = peer;
    cut->tag = tag;
    cut->data = static_cast<char*>(data);
    cut->bytes = bytes;
    if (bytes > kUnaskedPieces * kPiece) {
      if (sends) {
        cut->welcome = false;
        check(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, words_, &cut->word), "MPI_Irecv", rank_);
      } else {
        check(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, words_, &cut->word), "MPI_Isend", rank_);
      }
    }
    pending_[static_cast<std::size_t>(ticket)].cut = std::move(cut);
    cuts_.push_back(ticket);
    asked_ = ticket;
    advance();
    return ticket;
  }

  // Moves every cut message on and forgets those that are done. Pieces of two messages between the same pair
  // with the same tag must not mix: the later one waits until all of the earlier one has been given.
  void advance() {
    advanced_ = std::chrono::steady_clock::now();
    std::erase_if(cuts_, [&](Ticket ticket) {
      Cut& cut = *pending_[static_cast<std::size_t>(ticket)].cut;
      take_back(cut);
      if (!first_of_its_kind(ticket, cut)) return false;
      give(cut);
      return cut.all_given() && cut.requests.empty() && cut.word == MPI_REQUEST_NULL;
    });
  }

  bool first_of_its_kind(Ticket ticket, const Cut& cut) const {
    for (const Ticket earlier : cuts_) {
      if (earlier == ticket) return true;
      const Cut& other = *pending_[static_cast<std::size_t>(earlier)].cut;
      if (other.sends == cut.sends && other.peer == cut.peer && other.tag == cut.tag && !other.all_given())
        return false;
    }
    return true;
  }

  void take_back(Cut& cut) const {
    int finished = 1;
    while (!cut.requests.empty() && finished != 0) {
      check(MPI_Test(&cut.requests.front(), &finished, MPI_STATUS_IGNORE), "MPI_Test", rank_);
      if (finished != 0) cut.requests.pop_front();
    }
    if (cut.word == MPI_REQUEST_NULL) return;
    check(MPI_Test(&cut.word, &finished, MPI_STATUS_IGNORE), "MPI_Test", rank_);
    if (finished != 0) cut.welcome = true;
  }

  void give(Cut& cut) const {
    const std::size_t window = cut.sends ? kSendWindow : kReceiveWindow;
    const std::size_t allowed = cut.welcome ? cut.bytes : std::min(cut.bytes, kUnaskedPieces * kPiece);
    while (cut.requests.size() < window && (cut.bytes == 0 ? !cut.empty_given : cut.given < allowed)) {
      const auto count = static_cast<int>(std::min(kPiece, cut.bytes - cut.given));
      MPI_Request& request = cut.requests.emplace_back(MPI_REQUEST_NULL);
      if (cut.sends)
        check(MPI_Isend(cut.data + cut.given, count, MPI_BYTE, cut.peer, cut.tag, comm_, &request),
              "MPI_Isend", rank_);
      else
        check(MPI_Irecv(cut.data + cut.given, count, MPI_BYTE, cut.peer, cut.tag, comm_, &request),
              "MPI_Irecv", rank_);
      cut.given += static_cast<std::size_t>(count);
      cut.empty_given = true;
    }
  }

  MPI_Comm comm_;
  MPI_Comm words_;
  std::vector<char> cut_to_;
  bool yields_;
  int rank_ = 0;
  int size_ = 1;
  unsigned polls_ = 0;
  std::shared_ptr<int> waited_;   // sleeps since a message of any group was done
  std::vector<Pending> pending_;  // by ticket
  std::vector<Ticket> free_;
  std::chrono::steady_clock::time_point advanced_;
  Ticket asked_ = -1;         // about which, when all were last moved on
  std::vector<Ticket> cuts_;  // under way, in the order in which they were started
};

// By rank: whether it is on another machine as MPI sees it (shared memory does not reach there).
std::vector<char> elsewhere(MPI_Comm comm) {
  MPI_Comm here = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type",
        rank);
  int first = rank;  // the least rank of a machine names it
  check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, here), "MPI_Allreduce", rank);
  MPI_Comm_free(&here);
  std::vector<int> machines(static_cast<std::size_t>(size));
  check(MPI_Allgather(&first, 1, MPI_INT, machines.data(), 1, MPI_INT, comm), "MPI_Allgather", rank);
  std::vector<char> result;
  for (const int machine : machines) result.push_back(machine != first ? 1 : 0);
  return result;
}

}  // namespace

std::string_view mpi_name() {
  return ORRERY_MPI_NAME;
}

MpiWorld::MpiWorld(int* argc, char*** argv) {
  // No fetching of long messages over TCP: the requests for the pieces would wait behind the requester's own
  // data on the one connection. In place: what is sent is not copied, and is done when the kernel has it.
  setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
  // A rank that nobody has launched is alone on this host: Open MPI would look for an ssh that it never
  // needs, and give up without one.
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr && std::getenv("PMIX_RANK") == nullptr)
    setenv("OMPI_MCA_plm", "isolated", 0);
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    throw InternalError("MPI_Init_thread failed");
}

MpiWorld::~MpiWorld() {
#ifdef MPICH_VERSION
  // MPICH 4.0.2 over UCX and TCP: MPI_Finalize asks every peer for an answer, waits for these, and then for
  // all ranks without giving any more. A rank whose question comes after its peer has gone that far is not
  // answered, and the job never ends: one run in sixty on busy processors, also where all begin together. So
  // nobody begins: once nothing is under way, the ranks wait for one another at the process manager's.
  MPI_Barrier(MPI_COMM_WORLD);
  if (leave_job_together()) return;
#endif
  MPI_Finalize();
}

std::unique_ptr<PointToPoint> MpiWorld::transport(Cutting cutting) const {
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm words = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup", rank());
  std::vector<char> cut = elsewhere(world);
  if (cutting == Cutting::always) std::fill(cut.begin(), cut.end(), 1);
  if (cutting != Cutting::never) check(MPI_Comm_dup(MPI_COMM_WORLD, &words), "MPI_Comm_dup", rank());
  return std::make_unique<MpiTransport>(world, words, std::move(cut), oversubscribed(MPI_COMM_WORLD));
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
