// What the host has decided (where tokens go, how many), where the device can read it.
#pragma once

#include <vector>

#include "exec/device/device.h"

namespace orrery::exec {

// One list of values. Memory of the host serves as it is where the device reads it; elsewhere there is a
// copy, which grows and is kept for the next list.
class OnDevice {
 public:
  explicit OnDevice(Device& device) : device_(&device) {}
  ~OnDevice() { device_->release(copy_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // `values` must stay until they have been used.
  template <class T>
  void put(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    if (device_->host_memory()) {
      at_ = values.data();
      return;
    }
    device_->copy_to_device(reserve(bytes), values.data(), bytes);
    at_ = copy_;
  }
  // Device memory for so many bytes, of its own.
  void* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      device_->release(copy_);
      copy_ = device_->allocate(bytes);
      bytes_ = bytes;
    }
    return copy_;
  }
  template <class T>
  const T* at() const {
    return static_cast<const T*>(at_);
  }

 private:
  Device* device_;
  const void* at_ = nullptr;
  void* copy_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace orrery::exec
