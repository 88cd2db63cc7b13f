// The events of a trace, kept as little as they have to be until all of them were seen, and what they come
// to.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "measurements/trace.h"

namespace orrery::measurements {

// Of each kind of event as many are kept: below 1 GiB in all.
inline constexpr std::size_t kMostEvents = 4 << 20;
inline constexpr std::size_t kMostGroupMembers = 16 << 20;  // of all collectives
inline constexpr std::size_t kMostTracks = 4096;            // pairs of a stream and a kind
inline constexpr std::size_t kMostStepsKept = 1000;         // with what was done in them

class TraceEvents {
 public:
  // Times in microseconds.
  struct Span {
    double begin_us = 0, length_us = 0;
  };
  // `kind`: Activity's, where its class does not say it all.
  void add_kernel(Span span, KernelClass kernel, std::int64_t correlation, bool narrow_floats,
                  std::string_view stream, std::string_view kind = {});
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
    bool narrow_floats;   // products of fp32 in TF32
    std::uint16_t track;  // index in tracks_
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
  void activities_of(RankTrace* trace) const;
  std::uint16_t track_of(std::string_view stream, std::string_view kind, bool communication);
  void launches_of(RankTrace* trace);
  void products_of(RankTrace* trace);

  std::vector<Activity> tracks_;  // without count and seconds
  std::map<std::pair<std::string, std::string>, std::uint16_t, std::less<>> track_at_;
  std::vector<Kernel> kernels_;
  std::vector<Launch> launches_;
  std::vector<Call> calls_;
  std::vector<Step> steps_;
  std::vector<std::pair<double, TracedCollective>> collectives_;
  std::size_t group_members_ = 0;
  std::int64_t left_out_ = 0;
};

}  // namespace orrery::measurements
