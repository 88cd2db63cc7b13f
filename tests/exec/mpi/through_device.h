// A communicator over device memory as one over the host's: what is sent goes to the device, what is received
// comes back once it is there.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"

namespace orrery::exec::test {

class ThroughDevice final : public Communicator {
 public:
  ThroughDevice(Device& device, std::unique_ptr<Communicator> inner)
      : device_(device), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members, int key) override {
    return std::make_unique<ThroughDevice>(device_, inner_->split(members, key));
  }
  CommunicationLibrary library() const override { return inner_->library(); }
  void set_algorithms(AlgorithmChoice choice) override { inner_->set_algorithms(std::move(choice)); }
  std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                      Reduction op) override {
    const std::size_t bytes = count * width(type);
    auto request = carry({{send, bytes}, {receive, bytes}});
    request->inner = inner_->all_reduce(request->at(send), request->at(receive), count, type, op);
    return request;
  }
  std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count, DType type,
                                          Reduction op) override {
    const std::size_t bytes = count * width(type);
    auto request = carry({{send, bytes * ranks()}, {receive, bytes}});
    request->inner = inner_->reduce_scatter(request->at(send), request->at(receive), count, type, op);
    return request;
  }
  std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count,
                                      DType type) override {
    const std::size_t bytes = count * width(type);
    auto request = carry({{receive, bytes * ranks()}, {send, bytes}});
    request->inner = inner_->all_gather(request->at(send), request->at(receive), count, type);
    return request;
  }
  std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                      void* receive, std::span<const std::size_t> receive_counts,
                                      DType type) override {
    const auto bytes = [type](std::span<const std::size_t> counts) {
      std::size_t sum = 0;
      for (const std::size_t count : counts) sum += count;
      return sum * width(type);
    };
    auto request = carry({{send, bytes(send_counts)}, {receive, bytes(receive_counts)}});
    request->inner =
        inner_->all_to_all(request->at(send), send_counts, request->at(receive), receive_counts, type);
    return request;
  }
  std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) override {
    auto request = carry({{data, count * width(type)}});
    request->inner = inner_->broadcast(request->at(data), count, type, root);
    return request;
  }
  std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                  Reduction op, int root) override {
    const std::size_t bytes = count * width(type);
    auto request = carry({{send, bytes}, {receive, bytes}});
    request->inner = inner_->reduce(request->at(send), request->at(receive), count, type, op, root);
    return request;
  }
  void open_lanes(std::span<const Lane> lanes) override { inner_->open_lanes(lanes); }
  std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) override {
    std::vector<Memory> memory;
    for (const MessageSpec& message : messages) memory.push_back({message.data, message.bytes});
    auto request = carry(memory);
    std::vector<MessageSpec> moved(messages.begin(), messages.end());
    for (MessageSpec& message : moved) message.data = request->at(message.data);
    request->inner = inner_->exchange(moved);
    return request;
  }
  Communicator& on_host() override { return inner_->on_host(); }
  void barrier() override { inner_->barrier(); }
  void idle() override { inner_->idle(); }

 private:
  struct Memory {
    const void* host = nullptr;
    std::size_t bytes = 0;
    char* device = nullptr;

    bool holds(const void* data) const {
      return !std::less<>()(data, host) && std::less<>()(data, static_cast<const char*>(host) + bytes);
    }
  };
  struct Carried final : Request {
    Device* on = nullptr;
    std::vector<Memory> memory;  // none in another
    std::unique_ptr<Request> inner;
    bool back = false;

    ~Carried() override {
      inner.reset();
      for (const Memory& part : memory) on->release(part.device);
    }
    char* at(const void* data) const {
      for (const Memory& part : memory)
        if (part.holds(data))
          return part.device + (static_cast<const char*>(data) - static_cast<const char*>(part.host));
      return nullptr;
    }
    void wait() override {
      inner->wait();
      bring_back();  // behind what the device's stream waits for
    }
    bool test() override {
      if (!inner->test()) return false;
      bring_back();
      return true;
    }
    void bring_back() {
      if (std::exchange(back, true)) return;
      for (const Memory& part : memory)
        if (part.bytes > 0) on->copy_to_host(const_cast<void*>(part.host), part.device, part.bytes);
    }
  };

  static std::size_t width(DType type) { return static_cast<std::size_t>(bytes_of(type)); }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  // Those first that may hold others.
  std::unique_ptr<Carried> carry(const std::vector<Memory>& all) {
    auto request = std::make_unique<Carried>();
    request->on = &device_;
    for (Memory part : all) {
      if (part.bytes == 0 || request->at(part.host) != nullptr) continue;
      part.device = static_cast<char*>(device_.allocate(part.bytes));
      device_.copy_to_device(part.device, part.host, part.bytes);
      request->memory.push_back(part);
    }
    return request;
  }

  Device& device_;
  std::unique_ptr<Communicator> inner_;
};

}  // namespace orrery::exec::test
