// Memory of the device for the length of a call; none where nothing is asked for.
#pragma once

#include "exec/device/device.h"

namespace orrery::exec {

class Scratch {
 public:
  Scratch(Device& device, std::size_t bytes)
      : device_(device), data_(bytes == 0 ? nullptr : device.allocate(bytes)) {}
  Scratch(Device& device, std::int64_t elements, int element_bytes)
      : Scratch(device, static_cast<std::size_t>(elements * element_bytes)) {}
  ~Scratch() { device_.release(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  Device& device_;
  void* data_;
};

}  // namespace orrery::exec
