#include "exec/communicators/collectives.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

#include "base/error.h"
#include "exec/cpu/kernels.h"
#include "exec/cpu/narrow.h"

namespace orrery::exec {
namespace {

using Byte = unsigned char;

// Without a choice from the cost model: rings above this size (one L2 cache's worth), where bandwidth matters
// more than the number of steps.
constexpr double kRingBytes = 64 << 10;
constexpr int kCollectiveTags = 16384;

template <typename T>
void reduce_elements(T* into, const T* from, std::size_t count, Reduction op) {
  for (std::size_t i = 0; i < count; ++i)
    into[i] = op == Reduction::sum ? into[i] + from[i] : std::max(into[i], from[i]);
}

// into = into op from.
void reduce_into(void* into, const void* from, std::size_t count, DType type, Reduction op) {
  switch (type) {
    case DType::fp32:
    case DType::tf32:
      if (op == Reduction::sum)
        cpu::add(static_cast<float*>(into), static_cast<const float*>(from), count);
      else
        cpu::maximum(static_cast<float*>(into), static_cast<const float*>(from), count);
      return;
    case DType::fp16:
    case DType::bf16:
      cpu::reduce_narrow(type, op, static_cast<std::uint16_t*>(into), static_cast<const std::uint16_t*>(from),
                         count);
      return;
    case DType::int32:
      reduce_elements(static_cast<std::int32_t*>(into), static_cast<const std::int32_t*>(from), count, op);
      return;
    case DType::int64:
      reduce_elements(static_cast<std::int64_t*>(into), static_cast<const std::int64_t*>(from), count, op);
      return;
    default:
      throw InternalError("cannot reduce elements of type " + std::string(name_of(type)) + " over MPI");
  }
}

// Scratch memory that is kept between collectives: fresh pages would cost more than the reduction.
class ScratchPool {
 public:
  std::vector<Byte> take(std::size_t bytes) {
    std::vector<Byte> buffer;
    if (!free_.empty()) {
      auto best = std::max_element(free_.begin(), free_.end(),
                                   [](const auto& a, const auto& b) { return a.capacity() < b.capacity(); });
      std::swap(buffer, *best);
      free_.erase(best);
    }
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer;
  }
  void give_back(std::vector<Byte> buffer) { free_.push_back(std::move(buffer)); }

 private:
  std::vector<std::vector<Byte>> free_;
};

struct Message {
  int peer;
  void* data;
  std::size_t bytes;
  bool send;
  int tag;
};

// After a round's messages: into = into op from, or a copy.
struct Local {
  void* into;
  const void* from;
  std::size_t count;  // elements
  bool reduces;
};

struct Round {
  std::vector<Local> before;
  std::vector<Message> messages;
  std::vector<Local> after;
};

// A collective as rounds: all messages of a round are started together; the next round begins when they are
// done.
class RoundsRequest : public Request {
 public:
  RoundsRequest(PointToPoint* transport, ScratchPool* pool, DType type, Reduction op)
      : transport_(transport), pool_(pool), type_(type), op_(op) {}
  ~RoundsRequest() override {
    try {
      wait();
    } catch (const std::exception&) {
      // A failed transport was reported by the call that met it.
    }
    for (auto& buffer : scratch_) pool_->give_back(std::move(buffer));
  }
  RoundsRequest(const RoundsRequest&) = delete;
  RoundsRequest& operator=(const RoundsRequest&) = delete;

  Byte* scratch(std::size_t bytes) {
    scratch_.push_back(pool_->take(bytes));
    return scratch_.back().data();
  }
  Round& round() { return rounds_.emplace_back(); }
  void start() { begin(); }

  bool test() override {
    while (at_ < rounds_.size()) {
      while (!tickets_.empty()) {
        if (!transport_->done(tickets_.back())) return false;
        tickets_.pop_back();
      }
      apply(rounds_[at_].after);
      ++at_;
      begin();
    }
    return true;
  }
  void wait() override {
    while (!test()) transport_->idle();
  }

 private:
  void begin() {
    if (at_ >= rounds_.size()) return;
    apply(rounds_[at_].before);
    // Receives first: a message that finds its buffer is not copied twice.
    for (const Message& m : rounds_[at_].messages)
      if (!m.send) tickets_.push_back(transport_->receive(m.peer, m.data, m.bytes, m.tag));
    for (const Message& m : rounds_[at_].messages)
      if (m.send) tickets_.push_back(transport_->send(m.peer, m.data, m.bytes, m.tag));
  }
  void apply(const std::vector<Local>& locals) const {
    for (const Local& l : locals) {
      if (l.count == 0) continue;
      if (l.reduces)
        reduce_into(l.into, l.from, l.count, type_, op_);
      else if (l.into != l.from)
        std::memmove(l.into, l.from, l.count * static_cast<std::size_t>(bytes_of(type_)));
    }
  }

  PointToPoint* transport_;
  ScratchPool* pool_;
  DType type_;
  Reduction op_;
  std::deque<Round> rounds_;
  std::size_t at_ = 0;
  std::vector<Ticket> tickets_;
  std::vector<std::vector<Byte>> scratch_;
};

// Elements [begin, end) of part i when `count` elements are cut into n nearly equal parts.
struct Part {
  std::size_t begin;
  std::size_t count;
};
Part part_of(std::size_t count, int n, int i) {
  const std::size_t base = count / n;
  const std::size_t rest = count % n;
  const auto k = static_cast<std::size_t>(i);
  return {k * base + std::min(k, rest), base + (k < rest ? 1 : 0)};
}

class PointToPointCommunicator : public Communicator {
 public:
  explicit PointToPointCommunicator(std::unique_ptr<PointToPoint> transport)
      : transport_(std::move(transport)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members, int key) override {
    return make_communicator(transport_->split(members, key));
  }
  CommunicationLibrary library() const override { return CommunicationLibrary::mpi; }
  void set_algorithms(AlgorithmChoice choice) override { choice_ = std::move(choice); }

  std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                      Reduction op) override {
    auto request = begin(type, op);
    copy_first(*request, send, receive, count);
    if (size() > 1 && count > 0) {
      const auto bytes = static_cast<double>(count * bytes_of(type));
      const Algorithm chosen = choice_              ? choice_(CollectiveKind::all_reduce, bytes).algorithm
                               : bytes > kRingBytes ? Algorithm::ring
                                                    : Algorithm::recursive_doubling;
      if (chosen == Algorithm::ring)
        ring_all_reduce(*request, static_cast<Byte*>(receive), count, type);
      else
        recursive_doubling(*request, static_cast<Byte*>(receive), count, type);
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count, DType type,
                                          Reduction op) override {
    auto request = begin(type, op);
    const int n = size();
    const std::size_t bytes = count * bytes_of(type);
    const auto* from = static_cast<const Byte*>(send);
    const auto part = [&](int i) { return from + static_cast<std::size_t>(((i % n) + n) % n) * bytes; };
    if (n == 1 || count == 0) {
      copy_first(*request, send, receive, count);
    } else {
      // A part travels once around the ring and collects each member's share; two buffers take turns.
      Byte* buffers[2] = {request->scratch(bytes), request->scratch(bytes)};
      const int tag = next_tag();
      for (int step = 0; step < n - 1; ++step) {
        Round& round = request->round();
        Byte* into = buffers[step % 2];
        const void* out = step == 0 ? part(rank() - 1) : buffers[(step + 1) % 2];
        round.messages.push_back({(rank() + 1) % n, const_cast<void*>(out), bytes, true, tag});
        round.messages.push_back({(rank() + n - 1) % n, into, bytes, false, tag});
        round.after.push_back({into, part(rank() - step - 2), count, true});
        if (step == n - 2) round.after.push_back({receive, into, count, false});
      }
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count,
                                      DType type) override {
    auto request = begin(type, Reduction::sum);
    const int n = size();
    const std::size_t bytes = count * bytes_of(type);
    auto* into = static_cast<Byte*>(receive);
    const auto part = [&](int i) { return into + static_cast<std::size_t>(((i % n) + n) % n) * bytes; };
    copy_first(*request, send, part(rank()), count);
    if (count > 0) {
      const int tag = next_tag();
      for (int step = 0; step < n - 1; ++step) {
        Round& round = request->round();
        round.messages.push_back({(rank() + 1) % n, part(rank() - step), bytes, true, tag});
        round.messages.push_back({(rank() + n - 1) % n, part(rank() - step - 1), bytes, false, tag});
      }
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                      void* receive, std::span<const std::size_t> receive_counts,
                                      DType type) override {
    const auto n = static_cast<std::size_t>(size());
    ORRERY_CHECK(send_counts.size() == n && receive_counts.size() == n, "one count a member");
    auto request = begin(type, Reduction::sum);
    const std::size_t width = bytes_of(type);
    const auto* from = static_cast<const Byte*>(send);
    auto* into = static_cast<Byte*>(receive);
    const int tag = next_tag();
    Round& round = request->round();
    const Byte* own = nullptr;
    for (std::size_t i = 0; i < n; ++i) {
      if (static_cast<int>(i) == rank())
        own = from;
      else if (send_counts[i] > 0)
        round.messages.push_back(
            {static_cast<int>(i), const_cast<Byte*>(from), send_counts[i] * width, true, tag});
      from += send_counts[i] * width;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (static_cast<int>(i) == rank())
        round.before.push_back({into, own, receive_counts[i], false});
      else if (receive_counts[i] > 0)
        round.messages.push_back({static_cast<int>(i), into, receive_counts[i] * width, false, tag});
      into += receive_counts[i] * width;
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) override {
    auto request = begin(type, Reduction::sum);
    const int n = size();
    const std::size_t bytes = count * bytes_of(type);
    if (count > 0 && n > 1) {
      const int tag = next_tag();
      const int place = (rank() - root + n) % n;
      const auto member = [&](int p) { return (p + root) % n; };
      // Place p receives from p without its highest bit, and sends to p plus each higher bit.
      if (place > 0)
        request->round().messages.push_back(
            {member(place - static_cast<int>(std::bit_floor(static_cast<unsigned>(place)))), data, bytes,
             false, tag});
      Round& round = request->round();
      for (int bit = place == 0 ? 1 : 2 * static_cast<int>(std::bit_floor(static_cast<unsigned>(place)));
           place + bit < n; bit *= 2)
        round.messages.push_back({member(place + bit), data, bytes, true, tag});
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                  Reduction op, int root) override {
    auto request = begin(type, op);
    const int n = size();
    const std::size_t bytes = count * bytes_of(type);
    Byte* sum = rank() == root ? static_cast<Byte*>(receive) : request->scratch(bytes);
    copy_first(*request, send, sum, count);
    if (count > 0 && n > 1) {
      const int tag = next_tag();
      const int place = (rank() - root + n) % n;
      const auto member = [&](int p) { return (p + root) % n; };
      int bit = 1;
      for (; bit < n && (place & bit) == 0; bit *= 2) {
        if (place + bit >= n) continue;
        Byte* incoming = request->scratch(bytes);
        Round& round = request->round();
        round.messages.push_back({member(place + bit), incoming, bytes, false, tag});
        round.after.push_back({sum, incoming, count, true});
      }
      if (place != 0) request->round().messages.push_back({member(place - bit), sum, bytes, true, tag});
    }
    request->start();
    return request;
  }

  std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) override {
    auto request = begin(DType::int8, Reduction::sum);
    Round& round = request->round();
    for (const MessageSpec& m : messages)
      round.messages.push_back({m.peer, m.data, m.bytes, m.send, kCollectiveTags + m.tag});
    request->start();
    return request;
  }

  // Dissemination: in round k, tell the member 2^k further.
  void barrier() override {
    auto request = begin(DType::int8, Reduction::sum);
    const int n = size();
    const int tag = next_tag();
    for (int distance = 1; distance < n; distance *= 2) {
      Round& round = request->round();
      round.messages.push_back({(rank() + distance) % n, nullptr, 0, true, tag});
      round.messages.push_back({(rank() - distance % n + n) % n, nullptr, 0, false, tag});
    }
    request->start();
    request->wait();
  }

  void idle() override { transport_->idle(); }

 private:
  std::unique_ptr<RoundsRequest> begin(DType type, Reduction op) {
    return std::make_unique<RoundsRequest>(transport_.get(), &pool_, type, op);
  }
  int next_tag() { return static_cast<int>(sequence_++ % kCollectiveTags); }
  static void copy_first(RoundsRequest& request, const void* from, void* into, std::size_t count) {
    if (from != into) request.round().before.push_back({into, from, count, false});
  }

  void ring_all_reduce(RoundsRequest& request, Byte* data, std::size_t count, DType type) {
    const int n = size();
    const std::size_t width = bytes_of(type);
    const auto part = [&](int i) { return part_of(count, n, ((i % n) + n) % n); };
    Byte* incoming = request.scratch(part_of(count, n, 0).count * width);
    const int tag = next_tag();
    const int next = (rank() + 1) % n;
    const int previous = (rank() + n - 1) % n;
    for (int step = 0; step < n - 1; ++step) {
      const Part out = part(rank() - step);
      const Part in = part(rank() - step - 1);
      Round& round = request.round();
      if (out.count > 0)
        round.messages.push_back({next, data + out.begin * width, out.count * width, true, tag});
      if (in.count > 0) round.messages.push_back({previous, incoming, in.count * width, false, tag});
      round.after.push_back({data + in.begin * width, incoming, in.count, true});
    }
    for (int step = 0; step < n - 1; ++step) {
      const Part out = part(rank() + 1 - step);
      const Part in = part(rank() - step);
      Round& round = request.round();
      if (out.count > 0)
        round.messages.push_back({next, data + out.begin * width, out.count * width, true, tag});
      if (in.count > 0)
        round.messages.push_back({previous, data + in.begin * width, in.count * width, false, tag});
    }
  }

  // The largest power of two of members do the doubling; the others hand their data to a neighbour before and
  // get the result after (Thakur, Rabenseifner, Gropp 2005, section 4.1).
  void recursive_doubling(RoundsRequest& request, Byte* data, std::size_t count, DType type) {
    const int n = size();
    const std::size_t bytes = count * bytes_of(type);
    const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int extra = n - power;
    const int tag = next_tag();
    const bool folded = rank() < 2 * extra;
    if (folded && rank() % 2 == 0) {
      request.round().messages.push_back({rank() + 1, data, bytes, true, tag});
      request.round().messages.push_back({rank() + 1, data, bytes, false, tag});
      return;
    }
    Byte* incoming = request.scratch(bytes);
    if (folded) {
      Round& round = request.round();
      round.messages.push_back({rank() - 1, incoming, bytes, false, tag});
      round.after.push_back({data, incoming, count, true});
    }
    const int place = folded ? rank() / 2 : rank() - extra;
    for (int bit = 1; bit < power; bit *= 2) {
      const int other = place ^ bit;
      const int peer = other < extra ? 2 * other + 1 : other + extra;
      Round& round = request.round();
      round.messages.push_back({peer, data, bytes, true, tag});
      round.messages.push_back({peer, incoming, bytes, false, tag});
      round.after.push_back({data, incoming, count, true});
    }
    if (folded) request.round().messages.push_back({rank() - 1, data, bytes, true, tag});
  }

  std::unique_ptr<PointToPoint> transport_;
  ScratchPool pool_;
  AlgorithmChoice choice_;
  std::uint64_t sequence_ = 0;
};

class SelfTransport : public PointToPoint {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Ticket send(int, const void*, std::size_t, int) override {
    throw InternalError("a message to itself in a world of one rank");
  }
  Ticket receive(int, void*, std::size_t, int) override {
    throw InternalError("a message from itself in a world of one rank");
  }
  bool done(Ticket) override { return true; }
  void idle() override {}
  std::unique_ptr<PointToPoint> split(const std::vector<int>&, int) override {
    return std::make_unique<SelfTransport>();
  }
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<PointToPoint> transport) {
  return std::make_unique<PointToPointCommunicator>(std::move(transport));
}

std::unique_ptr<Communicator> make_self_communicator() {
  return make_communicator(std::make_unique<SelfTransport>());
}

}  // namespace orrery::exec
