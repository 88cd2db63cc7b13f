// The tensors of one step and where they live in memory. A Program is static, so lifetimes are known before
// the first step runs: every value gets a fixed place in one arena, and values that are not alive together
// share it. Recomputation and sequence parallelism save memory here without a rule of their own: a value that
// is written again before it is read again dies in between.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "program/program.h"

namespace orrery::exec {

// Under sequence parallelism a tensor exists with all rows and with this rank's part of them.
enum class Form : std::uint8_t { whole, shard };

struct Key {
  TensorKind kind = TensorKind::activation;
  std::int32_t index = 0;
  std::int32_t micro_batch = 0;
  Form form = Form::whole;
  std::int32_t block = -1;  // of ring attention
  auto operator<=>(const Key&) const = default;
};

class Values {
 public:
  using Id = std::int32_t;

  // Building: the walk through a step, in the order in which it will run.
  Id define(const Key& key, std::size_t bytes);  // a new value; what the key named before is forgotten
  Id use(const Key& key);
  Id change(const Key& key);  // modified in place; other names of the value may not be used after it
  void alias(const Key& key, Id value);
  bool has(const Key& key) const { return bindings_.count(key) > 0; }
  void forget(const Key& key) { bindings_.erase(key); }
  int position() const { return position_; }
  void advance() { ++position_; }
  void keep_until(Id value, int position);

  // After building. Best fit in order of time.
  std::size_t plan();  // bytes of the arena
  void bind(void* arena) { arena_ = static_cast<std::byte*>(arena); }
  void* at(Id value) const { return arena_ + values_[static_cast<std::size_t>(value)].offset; }
  float* floats(Id value) const { return static_cast<float*>(at(value)); }

 private:
  struct Value {
    std::size_t bytes = 0;
    std::size_t offset = 0;
    int first = 0;
    int last = 0;
    int changes = 0;
  };
  struct Binding {
    Id value = 0;
    int changes = 0;  // of the value when the key was bound
  };
  Binding& binding(const Key& key);

  std::vector<Value> values_;
  std::map<Key, Binding> bindings_;
  int position_ = 0;
  std::byte* arena_ = nullptr;
};

}  // namespace orrery::exec
