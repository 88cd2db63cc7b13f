#include "exec/narrow_communicator.h"

#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "exec/requests.h"

namespace orrery::exec {
namespace {

using Wire = std::vector<std::uint16_t>;

struct Arrival {
  float* to = nullptr;
  std::size_t offset = 0;  // in the wire's memory
  std::size_t count = 0;
};

using NarrowRequest = BufferedRequest<std::uint16_t>;

class NarrowCommunicator : public Communicator {
 public:
  NarrowCommunicator(Communicator& inner, Device& device, DType type)
      : inner_(inner), device_(device), type_(type) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Communicator> split(const std::vector<int>&, int) override {
    throw InternalError("a view of a communicator cannot be split");
  }
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
    Wire sent;
    std::vector<Arrival> arrivals;
    std::vector<std::size_t> offsets;
    std::size_t in = 0;
    for (const MessageSpec& m : messages) {
      const std::size_t count = m.bytes / sizeof(float);
      if (m.send) {
        offsets.push_back(sent.size());
        sent.resize(sent.size() + count);
        device_.narrow(type_, static_cast<const float*>(m.data), sent.data() + offsets.back(), count, 1,
                       false);
      } else {
        offsets.push_back(in);
        arrivals.push_back({static_cast<float*>(m.data), in, count});
        in += count;
      }
    }
    auto request = std::make_unique<NarrowRequest>(std::move(sent), in, widening(std::move(arrivals)));
    std::vector<MessageSpec> narrow(messages.begin(), messages.end());
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      narrow[i].data = (narrow[i].send ? request->sent() : request->received()) + offsets[i];
      narrow[i].bytes /= 2;
    }
    request->start(inner_.exchange(narrow));
    return request;
  }
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
    Wire sent(send_count);
    if (send_count > 0)
      device_.narrow(type_, static_cast<const float*>(send), sent.data(), send_count, 1, false);
    std::vector<Arrival> arrivals;
    if (receive_count > 0) arrivals.push_back({static_cast<float*>(receive), 0, receive_count});
    return std::make_unique<NarrowRequest>(std::move(sent), receive_count, widening(std::move(arrivals)));
  }

  Communicator& inner_;
  Device& device_;
  DType type_;
};

}  // namespace

std::unique_ptr<Communicator> make_narrow_communicator(Communicator& inner, Device& device, DType type) {
  return std::make_unique<NarrowCommunicator>(inner, device, type);
}

}  // namespace orrery::exec
