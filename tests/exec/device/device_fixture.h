// Every Device on this machine, and arrays on it, for the conformance suite.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "exec/device/device.h"

namespace orrery::exec::test {

template <typename T>
class Array {
 public:
  Array(Device& device, const std::vector<T>& values) : device_(&device), size_(values.size()) {
    data_ = device.allocate(bytes());
    device.copy_to_device(data_, values.data(), bytes());
  }
  Array(Device& device, std::size_t size, T value = {}) : Array(device, std::vector<T>(size, value)) {}
  ~Array() { device_->release(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator T*() const { return static_cast<T*>(data_); }  // NOLINT: reads as the pointer it stands for
  std::vector<T> values() const {
    std::vector<T> result(size_);
    device_->copy_to_host(result.data(), data_, bytes());
    return result;
  }
  double at(std::size_t i) const { return static_cast<double>(values()[i]); }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }
  Device* device_;
  std::size_t size_;
  void* data_;
};

// Numbers as a device holds activations of a type; read and written as fp32.
class Held {
 public:
  Held(Device& device, DType type, const std::vector<float>& values)
      : device_(&device), type_(device.held_as(type)), size_(values.size()) {
    data_ = device.allocate(size_ * sizeof(float));
    const Array<float> words(device, values);
    if (bytes_of(type_) == 2)
      device.narrow(type_, words, static_cast<std::uint16_t*>(data_), size_, 1, false);
    else
      device.copy(data_, words, size_ * sizeof(float));
  }
  Held(Device& device, DType type, std::size_t size, float value = 0)
      : Held(device, type, std::vector<float>(size, value)) {}
  ~Held() { device_->release(data_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  operator Numbers() const { return {data_, type_}; }       // NOLINT: as pointers do
  operator ConstNumbers() const { return {data_, type_}; }  // NOLINT: as pointers do
  Numbers operator+(std::int64_t elements) const { return Numbers(*this) + elements; }
  std::vector<float> values() const {
    if (bytes_of(type_) != 2) {
      std::vector<float> result(size_);
      device_->copy_to_host(result.data(), data_, size_ * sizeof(float));
      return result;
    }
    Array<float> words(*device_, size_);
    device_->widen(type_, static_cast<const std::uint16_t*>(data_), words, size_, 1);
    return words.values();
  }

 private:
  Device* device_;
  DType type_;
  std::size_t size_;
  void* data_;
};

inline std::vector<float> random_values(std::size_t count, std::uint64_t stream, double scale = 1) {
  const CounterRandom random(7, stream);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(scale * random.normal(i));
  return values;
}

// Largest |a - b| / (1 + |b|).
inline double difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]) / (1 + std::abs(b[i]));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

inline double weighted_sum(const std::vector<double>& y, const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(weights[i]);
  return sum;
}

using Doubles = std::vector<double>;

inline Doubles doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// d(weights . f(x))/dx by central differences of a double-precision f.
inline std::vector<double> numeric_gradient(
    const std::vector<float>& x, const std::vector<float>& weights,
    const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  std::vector<double> at(x.begin(), x.end());
  std::vector<double> gradient(x.size());
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = at[i];
    at[i] = middle + kStep;
    const double above = weighted_sum(f(at), weights);
    at[i] = middle - kStep;
    const double below = weighted_sum(f(at), weights);
    at[i] = middle;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

// What the suite is linked with says on what it runs: on_processors.cc, or on_gpu.cc (the first GPU, real or
// emulated).
std::vector<std::unique_ptr<Device>> devices();
// The same, and those that work through a batch in several parts.
std::vector<std::unique_ptr<Device>> image_devices();

}  // namespace orrery::exec::test
