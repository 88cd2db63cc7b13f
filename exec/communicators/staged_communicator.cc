#include "exec/communicators/staged_communicator.h"

#include <functional>
#include <numeric>
#include <utility>

#include "exec/communicators/requests.h"

namespace orrery::exec {
namespace {

using Bytes = std::vector<std::byte>;

struct CopyBack {
  void* device_data = nullptr;
  std::size_t offset = 0;  // in the receive buffer
  std::size_t bytes = 0;
};

using StagedRequest = BufferedRequest<Bytes>;

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Device& device, std::unique_ptr<Communicator> host)
      : device_(device), host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members, int key) override {
    return std::make_unique<StagedCommunicator>(device_, host_->split(members, key));
  }
  CommunicationLibrary library() const override { return host_->library(); }
  void set_algorithms(AlgorithmChoice choice) override { host_->set_algorithms(std::move(choice)); }

  std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                      Reduction op) override {
    const std::size_t bytes = count * width(type);
    auto request = stage(send, bytes, receive, bytes);
    request->start(host_->all_reduce(request->sent(), request->received(), count, type, op));
    return request;
  }
  std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count_per_rank,
                                          DType type, Reduction op) override {
    const std::size_t bytes = count_per_rank * width(type);
    auto request = stage(send, bytes * static_cast<std::size_t>(size()), receive, bytes);
    request->start(host_->reduce_scatter(request->sent(), request->received(), count_per_rank, type, op));
    return request;
  }
  std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count_per_rank,
                                      DType type) override {
    const std::size_t bytes = count_per_rank * width(type);
    auto request = stage(send, bytes, receive, bytes * static_cast<std::size_t>(size()));
    request->start(host_->all_gather(request->sent(), request->received(), count_per_rank, type));
    return request;
  }
  std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                      void* receive, std::span<const std::size_t> receive_counts,
                                      DType type) override {
    const auto total = [&](std::span<const std::size_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * width(type);
    };
    auto request = stage(send, total(send_counts), receive, total(receive_counts));
    request->start(
        host_->all_to_all(request->sent(), send_counts, request->received(), receive_counts, type));
    return request;
  }
  std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) override {
    const std::size_t bytes = count * width(type);
    auto request = stage(nullptr, 0, data, bytes);
    if (rank() == root) device_.copy_to_host(request->received(), data, bytes);
    request->start(host_->broadcast(request->received(), count, type, root));
    return request;
  }
  std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                  Reduction op, int root) override {
    const std::size_t bytes = count * width(type);
    auto request = stage(send, bytes, receive, rank() == root ? bytes : 0);
    request->start(host_->reduce(request->sent(), request->received(), count, type, op, root));
    return request;
  }
  std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) override {
    std::size_t out = 0;
    std::size_t in = 0;
    for (const MessageSpec& message : messages) (message.send ? out : in) += message.bytes;
    Bytes sent(out);
    std::vector<CopyBack> results;
    std::vector<std::size_t> offsets;
    out = in = 0;
    for (const MessageSpec& message : messages) {
      std::size_t& offset = message.send ? out : in;
      offsets.push_back(offset);
      if (message.send)
        device_.copy_to_host(sent.data() + offset, message.data, message.bytes);
      else
        results.push_back({message.data, offset, message.bytes});
      offset += message.bytes;
    }
    auto request =
        std::make_unique<StagedRequest>(std::move(sent), Bytes(in), copying_back(std::move(results)));
    std::vector<MessageSpec> staged(messages.begin(), messages.end());
    for (std::size_t i = 0; i < staged.size(); ++i)
      staged[i].data = (staged[i].send ? request->sent() : request->received()) + offsets[i];
    request->start(host_->exchange(staged));
    return request;
  }
  Communicator& on_host() override { return *host_; }
  void barrier() override {
    device_.synchronize();
    host_->barrier();
  }

  void idle() override { host_->idle(); }

 private:
  std::function<void(const std::byte*)> copying_back(std::vector<CopyBack> results) {
    return [&device = device_, results = std::move(results)](const std::byte* received) {
      for (const CopyBack& result : results)
        device.copy_to_device(result.device_data, received + result.offset, result.bytes);
    };
  }

  static std::size_t width(DType type) { return static_cast<std::size_t>(bytes_of(type)); }

  // A request whose send buffer holds `send` already and whose receive buffer goes to `receive` when it ends.
  std::unique_ptr<StagedRequest> stage(const void* send, std::size_t send_bytes, void* receive,
                                       std::size_t receive_bytes) {
    Bytes sent(send_bytes);
    if (send_bytes > 0) device_.copy_to_host(sent.data(), send, send_bytes);
    std::vector<CopyBack> results;
    if (receive_bytes > 0) results.push_back({receive, 0, receive_bytes});
    return std::make_unique<StagedRequest>(std::move(sent), Bytes(receive_bytes),
                                           copying_back(std::move(results)));
  }

  Device& device_;
  std::unique_ptr<Communicator> host_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Device& device, std::unique_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(device, std::move(host));
}

}  // namespace orrery::exec
