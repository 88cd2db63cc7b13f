#include "exec/math/values.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kAlignment = 64;

std::string describe(const Key& key) {
  return std::string(name_of(key.kind)) + " " + std::to_string(key.index) + " of micro-batch " +
         std::to_string(key.micro_batch) + (key.form == Form::shard ? " (shard)" : "") +
         (key.block >= 0 ? " block " + std::to_string(key.block) : "");
}

// Free parts of an arena that grows when nothing fits.
class Arena {
 public:
  std::size_t take(std::size_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    if (best == free_.end()) {
      // Extend the last free part where it reaches the end.
      std::size_t offset = size_;
      if (!free_.empty()) {
        const auto last = std::prev(free_.end());
        if (last->first + last->second == size_) {
          offset = last->first;
          free_.erase(last);
        }
      }
      size_ = offset + bytes;
      return offset;
    }
    const auto [offset, length] = *best;
    free_.erase(best);
    if (length > bytes) free_[offset + bytes] = length - bytes;
    return offset;
  }
  void give_back(std::size_t offset, std::size_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }
  std::size_t size() const { return size_; }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset: bytes
  std::size_t size_ = 0;
};

}  // namespace

Values::Binding& Values::binding(const Key& key) {
  const auto found = bindings_.find(key);
  ORRERY_CHECK(found != bindings_.end(), "the Program reads " + describe(key) + " before it is written");
  return found->second;
}

// Logits are activations like others: what is summed up over them is kept in fp32 beside them.
DType Values::type_of(TensorKind kind) const {
  switch (kind) {
    case TensorKind::activation:
    case TensorKind::activation_gradient:
    case TensorKind::key_value:
    case TensorKind::key_value_gradient:
    case TensorKind::batch:  // pictures
      return activations_;
    default:
      return DType::fp32;
  }
}

Values::Id Values::define_value(DType type, std::size_t bytes) {
  const auto id = static_cast<Id>(values_.size());
  Value value;
  value.type = type;
  value.bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  value.first = value.last = position_;
  values_.push_back(value);
  return id;
}

Values::Id Values::define_unnamed(DType type, std::int64_t elements) {
  return define_value(type, Numbers(nullptr, type).bytes(elements));
}

Values::Id Values::define_as(DType type, const Key& key, std::int64_t elements) {
  const Id id = define_unnamed(type, elements);
  bindings_[key] = {id, 0};
  return id;
}

Values::Id Values::define_bytes(const Key& key, std::size_t bytes) {
  const Id id = define_value(DType::int8, bytes);
  bindings_[key] = {id, 0};
  return id;
}

bool Values::defined_here(const Key& key) const {
  const auto found = bindings_.find(key);
  return found != bindings_.end() &&
         values_[static_cast<std::size_t>(found->second.value)].first == position_;
}

Values::Id Values::define_dynamic(const Key& key) {
  const Id id = define(key, 0);
  values_.back().dynamic = true;
  dynamic_.push_back(id);
  return id;
}

Numbers Values::provide(Id value, std::int64_t elements) {
  Value& v = values_[static_cast<std::size_t>(value)];
  ORRERY_CHECK(v.dynamic && v.memory == nullptr, "memory provided to what has some");
  v.bytes = Numbers(nullptr, v.type).bytes(elements);
  v.memory = pool_->take(v.bytes);
  return numbers(value);
}

void Values::expire(int position) {
  for (; expired_ < dynamic_.size(); ++expired_) {
    Value& v = values_[static_cast<std::size_t>(dynamic_[expired_])];
    if (v.last >= position) return;
    if (v.memory != nullptr) pool_->give_back(std::exchange(v.memory, nullptr));
  }
}

Values::Id Values::use(const Key& key) {
  const Binding& found = binding(key);
  Value& value = values_[static_cast<std::size_t>(found.value)];
  ORRERY_CHECK(value.changes == found.changes,
               describe(key) + " is read after its memory was given to another");
  value.last = std::max(value.last, position_);
  return found.value;
}

Values::Id Values::change(const Key& key) {
  const Id id = use(key);
  binding(key).changes = ++values_[static_cast<std::size_t>(id)].changes;
  return id;
}

void Values::alias(const Key& key, Id value) {
  bindings_[key] = {value, values_[static_cast<std::size_t>(value)].changes};
}

void Values::keep_until(Id value, int position) {
  int& last = values_[static_cast<std::size_t>(value)].last;
  last = std::max(last, position);
}

std::size_t Values::plan() {
  std::vector<std::vector<Id>> dies(static_cast<std::size_t>(position_) + 2);
  Arena arena;
  int now = 0;
  std::stable_sort(dynamic_.begin(), dynamic_.end(), [this](Id a, Id b) {
    return values_[static_cast<std::size_t>(a)].last < values_[static_cast<std::size_t>(b)].last;
  });
  for (Id id = 0; id < static_cast<Id>(values_.size()); ++id) {  // in order of `first`
    Value& value = values_[static_cast<std::size_t>(id)];
    if (value.dynamic) continue;
    for (; now < value.first; ++now)
      for (const Id dead : dies[static_cast<std::size_t>(now)]) {
        const Value& d = values_[static_cast<std::size_t>(dead)];
        arena.give_back(d.offset, d.bytes);
      }
    value.offset = arena.take(value.bytes);
    dies[static_cast<std::size_t>(std::min(value.last, position_))].push_back(id);
  }
  return arena.size();
}

}  // namespace orrery::exec
