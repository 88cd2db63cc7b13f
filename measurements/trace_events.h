// The events of a trace, kept as little as they have to be until all of them were seen, and what they come
// to.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "measurements/trace.h"

namespace orrery::measurements {

// Of each kind of event as many are kept: below 1 GiB in all.
inline constexpr std::size_t kMostEvents = 4 << 20;
inline constexpr std::size_t kMostGroupMembers = 16 << 20;  // of all collectives

class TraceEvents {
 public:
  // Times in microseconds.
  struct Span {
    double begin_us = 0, length_us = 0;
  };
  void add_kernel(Span span, KernelClass kernel, std::int64_t correlation, bool narrow_floats);
  void add_launch(Span span, std::int64_t thread, std::int64_t correlation);
  void add_product(Span span, std::int64_t thread, const TracedProduct& product);
  void add_collective(Span span, const TracedCollective& collective);
  bool keeps_collectives() const;  // whether another one is kept
  void add_step(Span span, std::int64_t number);
  // Events beyond kMostEvents of their kind.
  std::int64_t left_out() const { return left_out_; }

  void finish(RankTrace* trace);

 private:
  struct Kernel {
    double begin_us;
    float length_us;
    KernelClass kernel;
    bool narrow_floats;  // products of fp32 in TF32
    std::int64_t correlation;
  };
  struct Launch {
    double begin_us;
    float length_us;
    std::int64_t thread, correlation;
  };
  struct Call {  // of a product
    Span span;
    std::int64_t thread;
    TracedProduct product;  // without seconds
    double device_us = 0;
    bool narrow_floats = false;
  };
  struct Step {
    Span span;
    std::int64_t number;
  };

  template <typename One>
  void keep(std::vector<One>* all, One one) {
    if (all->size() < kMostEvents)
      all->push_back(std::move(one));
    else
      ++left_out_;
  }
  void steps_of(RankTrace* trace);
  void occupation_of(RankTrace* trace) const;
  void launches_of(RankTrace* trace);
  void products_of(RankTrace* trace);

  std::vector<Kernel> kernels_;
  std::vector<Launch> launches_;
  std::vector<Call> calls_;
  std::vector<Step> steps_;
  std::vector<std::pair<double, TracedCollective>> collectives_;
  std::size_t group_members_ = 0;
  std::int64_t left_out_ = 0;
};

}  // namespace orrery::measurements
