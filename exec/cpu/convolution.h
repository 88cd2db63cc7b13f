// Convolutions on the CPU, by oneDNN: the one place that knows it.
#pragma once

#include <memory>

#include "exec/device/device.h"

namespace orrery::exec::cpu {

// As exec/device/device.h says. oneDNN's own layouts and what it needs beside stand in one buffer of the
// device's memory, which grows to what the largest convolution needs.
class Convolutions {
 public:
  explicit Convolutions(Device& device);
  ~Convolutions();
  Convolutions(const Convolutions&) = delete;
  Convolutions& operator=(const Convolutions&) = delete;

  void forward(const WindowSize& size, const float* x, const float* weight, const float* bias, float* y);
  void backward_input(const WindowSize& size, const float* dy, const float* weight, float* dx);
  void backward_weight(const WindowSize& size, const float* x, const float* dy, float* dweight, float* dbias,
                       bool accumulate);

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // made at first use
  Library& library();
  Device& device_;
};

}  // namespace orrery::exec::cpu
