// Requests made of others.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

// Finishes another request and then does something.
class ThenRequest : public Request {
 public:
  ThenRequest(std::unique_ptr<Request> inner, std::function<void()> then)
      : inner_(std::move(inner)), then_(std::move(then)) {}
  void wait() override {
    inner_->wait();
    finish();
  }
  bool test() override {
    if (!inner_->test()) return false;
    finish();
    return true;
  }

 private:
  void finish() {
    if (then_) std::exchange(then_, nullptr)();
  }
  std::unique_ptr<Request> inner_;
  std::function<void()> then_;
};

// A request over memory of its own: holds what is sent and what is received until `arrive` has had the
// latter.
template <typename Buffer>
class BufferedRequest final : public Request {
 public:
  using Element = typename Buffer::value_type;
  BufferedRequest(Buffer sent, Buffer received, std::function<void(const Element*)> arrive)
      : sent_(std::move(sent)), received_(std::move(received)), arrive_(std::move(arrive)) {}
  ~BufferedRequest() override { inner_.reset(); }  // before the memory that it uses
  BufferedRequest(const BufferedRequest&) = delete;
  BufferedRequest& operator=(const BufferedRequest&) = delete;

  Element* sent() { return sent_.data(); }
  Element* received() { return received_.data(); }
  void start(std::unique_ptr<Request> inner) { inner_ = std::move(inner); }

  void wait() override {
    if (inner_) inner_->wait();
    finish();
  }
  bool test() override {
    if (inner_ && !inner_->test()) return false;
    finish();
    return true;
  }

 private:
  void finish() {
    inner_.reset();
    if (arrive_) std::exchange(arrive_, nullptr)(received_.data());
  }

  Buffer sent_;
  Buffer received_;
  std::function<void(const Element*)> arrive_;
  std::unique_ptr<Request> inner_;
};

// One request after another; the second is made when the first has finished.
class ChainRequest : public Request {
 public:
  ChainRequest(std::unique_ptr<Request> first, std::function<std::unique_ptr<Request>()> second)
      : current_(std::move(first)), second_(std::move(second)) {}
  void wait() override {
    current_->wait();
    if (advance()) current_->wait();
  }
  bool test() override {
    if (!current_->test()) return false;
    return !advance() || current_->test();
  }

 private:
  bool advance() {
    if (!second_) return false;
    current_ = std::exchange(second_, nullptr)();
    return true;
  }
  std::unique_ptr<Request> current_;
  std::function<std::unique_ptr<Request>()> second_;
};

}  // namespace orrery::exec
