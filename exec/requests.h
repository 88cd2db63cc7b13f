// Requests made of others.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "exec/communicator.h"

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

}  // namespace orrery::exec
