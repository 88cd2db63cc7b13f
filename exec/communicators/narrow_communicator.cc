#include "exec/communicators/narrow_communicator.h"

#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "exec/communicators/requests.h"
#include "exec/device/memory_pool.h"

namespace orrery::exec {
namespace {

// What travels, in the device's memory.
class Wire {
 public:
  using value_type = std::uint16_t;
  Wire(MemoryPool& pool, std::size_t count)
      : pool_(&pool),
        data_(count == 0 ? nullptr : static_cast<value_type*>(pool.take(count * sizeof(value_type)))) {}
  ~Wire() {
    if (data_ != nullptr) pool_->give_back(data_);
  }
  Wire(Wire&& other) noexcept : pool_(other.pool_), data_(std::exchange(other.data_, nullptr)) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  value_type* data() const { return data_; }

 private:
  MemoryPool* pool_;
  value_type* data_;
};

struct Arrival {
  float* to = nullptr;
  std::size_t offset = 0;  // in the wire's memory
  std::size_t count = 0;
};

using NarrowRequest = BufferedRequest<Wire>;

class NarrowCommunicator : public Communicator {
 public:
  NarrowCommunicator(Communicator& inner, Device& device, DType type)
      : inner_(inner), device_(device), pool_(device), type_(type) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Communicator> split(const std::vector<int>&, int) override {
    throw InternalError("a view of a communicator cannot be split");
  }
  CommunicationLibrary library() const override { return inner_.library(); }
  void set_algorithms(AlgorithmChoice choice) override { inner_.set_algorithms(std::move(choice)); }

  std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                      Reduction op) override {
    if (type != DType::fp32) return inner_.all_reduce(send, receive, count, type, op);
    auto request = stage(send, count, receive, count);
    request->start(inner_.all_reduce(request->sent(), request->received(), count, type_, op));
    return request;
  }
  std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count, DType type,
                                          Reduction op) override {
    if (type != DType::fp32) return inner_.reduce_scatter(send, receive, count, type, op);
    auto request = stage(send, count * members(), receive, count);
    request->start(inner_.reduce_scatter(request->sent(), request->received(), count, type_, op));
    return request;
  }
  std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count,
                                      DType type) override {
    if (type != DType::fp32) return inner_.all_gather(send, receive, count, type);
    auto request = stage(send, count, receive, count * members());
    request->start(inner_.all_gather(request->sent(), request->received(), count, type_));
    return request;
  }
  std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                      void* receive, std::span<const std::size_t> receive_counts,
                                      DType type) override {
    if (type != DType::fp32) return inner_.all_to_all(send, send_counts, receive, receive_counts, type);
    const auto total = [](std::span<const std::size_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    };
    auto request = stage(send, total(send_counts), receive, total(receive_counts));
    request->start(
        inner_.all_to_all(request->sent(), send_counts, request->received(), receive_counts, type_));
    return request;
  }
  std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) override {
    if (type != DType::fp32) return inner_.broadcast(data, count, type, root);
    auto request = stage(nullptr, 0, data, count);
    if (rank() == root)
      device_.narrow(type_, static_cast<const float*>(data), request->received(), count, 1, false);
    request->start(inner_.broadcast(request->received(), count, type_, root));
    return request;
  }
  std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                  Reduction op, int root) override {
    if (type != DType::fp32) return inner_.reduce(send, receive, count, type, op, root);
    auto request = stage(send, count, receive, rank() == root ? count : 0);
    request->start(inner_.reduce(request->sent(), request->received(), count, type_, op, root));
    return request;
  }
  std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) override {
    std::vector<Arrival> arrivals;
    std::vector<std::size_t> offsets;
    std::size_t out = 0;
    std::size_t in = 0;
    for (const MessageSpec& m : messages) {
      std::size_t& offset = m.send ? out : in;
      const std::size_t count = m.bytes / sizeof(float);
      if (!m.send) arrivals.push_back({static_cast<float*>(m.data), offset, count});
      offsets.push_back(offset);
      offset += count;
    }
    auto request =
        std::make_unique<NarrowRequest>(Wire(pool_, out), Wire(pool_, in), widening(std::move(arrivals)));
    for (std::size_t i = 0; i < messages.size(); ++i)
      if (messages[i].send)
        device_.narrow(type_, static_cast<const float*>(messages[i].data), request->sent() + offsets[i],
                       messages[i].bytes / sizeof(float), 1, false);
    std::vector<MessageSpec> narrow(messages.begin(), messages.end());
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      narrow[i].data = (narrow[i].send ? request->sent() : request->received()) + offsets[i];
      narrow[i].bytes /= 2;
    }
    request->start(inner_.exchange(narrow));
    return request;
  }
  void open_lanes(std::span<const Lane> lanes) override { inner_.open_lanes(lanes); }
  Communicator& on_host() override { return inner_.on_host(); }
  void barrier() override { inner_.barrier(); }
  void idle() override { inner_.idle(); }

 private:
  std::function<void(const std::uint16_t*)> widening(std::vector<Arrival> arrivals) {
    return [&device = device_, type = type_, arrivals = std::move(arrivals)](const std::uint16_t* wire) {
      for (const Arrival& a : arrivals) device.widen(type, wire + a.offset, a.to, a.count, 1);
    };
  }

  std::size_t members() const { return static_cast<std::size_t>(size()); }

  std::unique_ptr<NarrowRequest> stage(const void* send, std::size_t send_count, void* receive,
                                       std::size_t receive_count) {
    Wire sent(pool_, send_count);
    device_.narrow(type_, static_cast<const float*>(send), sent.data(), send_count, 1, false);
    std::vector<Arrival> arrivals;
    if (receive_count > 0) arrivals.push_back({static_cast<float*>(receive), 0, receive_count});
    return std::make_unique<NarrowRequest>(std::move(sent), Wire(pool_, receive_count),
                                           widening(std::move(arrivals)));
  }

  Communicator& inner_;
  Device& device_;
  MemoryPool pool_;
  DType type_;
};

}  // namespace

std::unique_ptr<Communicator> make_narrow_communicator(Communicator& inner, Device& device, DType type) {
  return std::make_unique<NarrowCommunicator>(inner, device, type);
}

}  // namespace orrery::exec
