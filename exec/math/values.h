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

#include "base/dtype.h"
#include "exec/device/memory_pool.h"
#include "exec/device/numbers.h"
#include "program/program.h"

namespace orrery::exec {

// Under sequence parallelism a tensor exists with all rows and with this rank's part of them; what a network
// on images splits between tensor ranks, with all rows of this rank's features, too.
enum class Form : std::uint8_t { whole, shard, features };

// Key::block of the residual's share of a gradient (Layers::stream_gradient).
constexpr std::int32_t kStreamShare = 1 << 20;

struct Key {
  TensorKind kind = TensorKind::activation;
  std::int32_t index = 0;
  std::int32_t micro_batch = 0;
  Form form = Form::whole;
  std::int32_t block = -1;  // of ring attention, or kStreamShare
  auto operator<=>(const Key&) const = default;
};

class Values {
 public:
  using Id = std::int32_t;

  // activations: as what the device holds them (Device::held_as).
  explicit Values(DType activations = DType::fp32) : activations_(activations) {}
  DType activations() const { return activations_; }
  // What numbers of a kind are, unless one says otherwise.
  DType type_of(TensorKind kind) const;

  // Building: the walk through a step, in the order in which it will run.
  // A new value; what the key named before is forgotten.
  Id define(const Key& key, std::int64_t elements) { return define_as(type_of(key.kind), key, elements); }
  Id define_as(DType type, const Key& key, std::int64_t elements);
  Id define_bytes(const Key& key, std::size_t bytes);
  Id define_unnamed(DType type, std::int64_t elements);  // that nobody asks for by a key
  // One whose size is known only when it is written: `provide` gives it memory in every step.
  Id define_dynamic(const Key& key);
  Id use(const Key& key);
  Id change(const Key& key);  // modified in place; other names of the value may not be used after it
  void alias(const Key& key, Id value);
  bool has(const Key& key) const { return bindings_.count(key) > 0; }
  void forget(const Key& key) { bindings_.erase(key); }
  int position() const { return position_; }
  bool defined_here(const Key& key) const;  // at the current position
  void advance() { ++position_; }
  void keep_until(Id value, int position);

  // After building. Best fit in order of time.
  std::size_t plan();  // bytes of the arena
  void bind(void* arena) { arena_ = static_cast<std::byte*>(arena); }
  void* at(Id value) const {
    const Value& v = values_[static_cast<std::size_t>(value)];
    return v.dynamic ? v.memory : arena_ + v.offset;
  }
  DType type(Id value) const { return values_[static_cast<std::size_t>(value)].type; }
  Numbers numbers(Id value) const { return {at(value), type(value)}; }
  float* floats(Id value) const { return numbers(value).floats(); }

  // While a step runs; only where there are dynamic values.
  void set_pool(MemoryPool* pool) { pool_ = pool; }
  Numbers provide(Id value, std::int64_t elements);
  std::size_t bytes(Id value) const { return values_[static_cast<std::size_t>(value)].bytes; }
  void begin_step() { expired_ = 0; }
  // Gives back the memory of dynamic values that nothing at or after `position` uses.
  void expire(int position);

 private:
  struct Value {
    DType type = DType::fp32;
    std::size_t bytes = 0;
    std::size_t offset = 0;
    int first = 0;
    int last = 0;
    int changes = 0;
    bool dynamic = false;
    void* memory = nullptr;  // of a dynamic value
  };
  struct Binding {
    Id value = 0;
    int changes = 0;  // of the value when the key was bound
  };
  Binding& binding(const Key& key);
  Id define_value(DType type, std::size_t bytes);

  DType activations_;
  std::vector<Value> values_;
  std::map<Key, Binding> bindings_;
  int position_ = 0;
  std::byte* arena_ = nullptr;
  MemoryPool* pool_ = nullptr;
  std::vector<Id> dynamic_;  // in order of their last use, once planned
  std::size_t expired_ = 0;  // of them, in this step
};

}  // namespace orrery::exec
