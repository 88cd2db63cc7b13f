#include "measurements/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/parse.h"
#include "base/statistics.h"

namespace orrery::measurements {
namespace {

constexpr double kMicro = 1e-6;
// A kernel that starts so soon after its launch found an idle device.
constexpr double kSoonUs = 20;
// From launch to launch; more is no launching.
constexpr double kMostLaunchUs = 1000;

struct Interval {
  double begin = 0, end = 0;
};

// What the intervals cover, in order, apart from each other.
std::vector<Interval> merged(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::vector<Interval> apart;
  for (const Interval& one : all) {
    if (apart.empty() || one.begin > apart.back().end)
      apart.push_back(one);
    else
      apart.back().end = std::max(apart.back().end, one.end);
  }
  return apart;
}

double length_of(const std::vector<Interval>& apart) {
  double sum = 0;
  for (const Interval& one : apart) sum += one.end - one.begin;
  return sum;
}

double common_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return sum;
}

}  // namespace

std::string_view name_of(KernelClass kernel) {
  static constexpr std::array<std::string_view, kKernelClasses> names = {
      "products", "attention", "norms", "optimizer", "copies", "collectives", "others"};
  return names[static_cast<std::size_t>(kernel)];
}

KernelClass class_of(std::string_view kernel_name) {
  std::string name = lower_case(kernel_name);
  const auto without = [&name](std::string_view word) {
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at))
      name.erase(at, word.size());
  };
  without("lambda");  // what C++ writes between a kernel's parameters is no LAMB
  const auto any = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return name.find(word) != std::string::npos; });
  };
  if (any({"nccl", "rccl"})) return KernelClass::collective;
  // cuDNN's: the core, the row sums before and the cast behind its gradient.
  if (any({"flash", "fmha", "attention", "attn", "sdpa", "dot_do_o", "convert_dq"}))
    return KernelClass::attention;
  if (any({"multi_tensor_apply", "adam", "sgd", "lamb"})) return KernelClass::optimizer;
  if (any({"layer_norm", "layernorm", "rms_norm", "rmsnorm", "batch_norm", "batchnorm", "group_norm", "bn_fw",
           "bn_bw", "ln_fwd", "ln_bwd", "gammabeta"}))
    return KernelClass::norm;
  without("convert");  // no convolution, but a part of what CUTLASS calls its products
  if (any({"gemm", "gemv", "cublas", "cutlass", "cijk", "nvjet", "matmul", "splitk", "conv", "xmma", "wgrad",
           "dgrad", "winograd"}))
    return KernelClass::product;
  if (any({"memcpy", "memset"})) return KernelClass::copy;
  return KernelClass::other;
}

std::optional<CollectiveKind> collective_named(std::string_view name) {
  const std::string collective = lower_case(name);
  const auto holds = [&](std::string_view word) { return collective.find(word) != std::string::npos; };
  if (holds("reduce_scatter") || holds("reducescatter")) return CollectiveKind::reduce_scatter;
  if (holds("allreduce") || holds("all_reduce")) return CollectiveKind::all_reduce;
  if (holds("allgather") || holds("all_gather")) return CollectiveKind::all_gather;
  if (holds("all_to_all") || holds("alltoall")) return CollectiveKind::all_to_all;
  if (holds("broadcast")) return CollectiveKind::broadcast;
  if (collective == "reduce" || holds("kernel_reduce_")) return CollectiveKind::reduce;
  return std::nullopt;
}

std::string activity_of(std::string_view name, int members) {
  const auto kind = collective_named(name);
  if (kind && members > 1) return fmt::format("{} over {}", orrery::name_of(*kind), members);
  if (kind) return std::string(orrery::name_of(*kind));
  const std::string word = lower_case(name);
  const bool sent = word.find("send") != std::string::npos || word.find("recv") != std::string::npos;
  return std::string(sent ? kSendReceive : name_of(KernelClass::collective));
}

void TraceEvents::add_kernel(Span span, KernelClass kernel, std::int64_t correlation, bool narrow_floats,
                             std::string_view stream, std::string_view kind) {
  const std::uint16_t track =
      track_of(stream, kind.empty() ? name_of(kernel) : kind, kernel == KernelClass::collective);
  keep(&kernels_,
       Kernel{span.begin_us, static_cast<float>(span.length_us), kernel, narrow_floats, track, correlation});
}

// Of more than are kept the rest counts as one of its class.
std::uint16_t TraceEvents::track_of(std::string_view stream, std::string_view kind, bool communication) {
  constexpr std::size_t kMostNameBytes = 64;
  std::pair<std::string, std::string> key(stream.substr(0, kMostNameBytes), kind.substr(0, kMostNameBytes));
  auto at = track_at_.find(key);
  if (at != track_at_.end()) return at->second;
  if (tracks_.size() + 2 >= kMostTracks) {
    key = {"other streams", communication ? "other collectives" : "other computation"};
    at = track_at_.find(key);
    if (at != track_at_.end()) return at->second;
  }
  const auto index = static_cast<std::uint16_t>(tracks_.size());
  tracks_.push_back({key.first, key.second, communication});
  track_at_.emplace(std::move(key), index);
  return index;
}
void TraceEvents::add_launch(Span span, std::int64_t thread, std::int64_t correlation) {
  keep(&launches_, Launch{span.begin_us, static_cast<float>(span.length_us), thread, correlation});
}
void TraceEvents::add_product(Span span, std::int64_t thread, const TracedProduct& product) {
  if (calls_.size() < kMostEvents / 8)
    calls_.push_back({span, thread, product});
  else
    ++left_out_;
}
bool TraceEvents::keeps_collectives() const {
  return collectives_.size() < kMostEvents / 64 && group_members_ < kMostGroupMembers;
}
void TraceEvents::add_collective(Span span, const TracedCollective& collective) {
  if (!keeps_collectives()) {
    ++left_out_;
    return;
  }
  group_members_ += collective.ranks.size();
  collectives_.emplace_back(span.begin_us, collective);
  collectives_.back().second.seconds = {span.length_us * kMicro};
}
void TraceEvents::add_step(Span span, std::int64_t number) {
  keep(&steps_, Step{span, number});
}

void TraceEvents::finish(RankTrace* trace) {
  for (const Kernel& kernel : kernels_) {
    KernelTotal& total = trace->kernels[static_cast<std::size_t>(kernel.kernel)];
    ++total.kernels;
    total.seconds += kernel.length_us * kMicro;
  }
  steps_of(trace);
  occupation_of(trace);
  activities_of(trace);
  launches_of(trace);
  products_of(trace);
  std::stable_sort(collectives_.begin(), collectives_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<std::tuple<CollectiveKind, double, std::vector<int>>, std::size_t> known;
  for (auto& [begin, one] : collectives_) {
    const auto [at, fresh] = known.try_emplace({one.kind, one.bytes, one.ranks}, trace->collectives.size());
    if (fresh)
      trace->collectives.push_back(std::move(one));
    else
      trace->collectives[at->second].seconds.push_back(one.seconds.front());
  }
}

// From a step's begin to the next one's, where both are marked: the host may run ahead within one.
void TraceEvents::steps_of(RankTrace* trace) {
  std::sort(steps_.begin(), steps_.end(),
            [](const Step& a, const Step& b) { return a.span.begin_us < b.span.begin_us; });
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i)
    if (steps_[i + 1].number == steps_[i].number + 1 && steps_[i + 1].span.begin_us > steps_[i].span.begin_us)
      trace->steps_s.push_back((steps_[i + 1].span.begin_us - steps_[i].span.begin_us) * kMicro);
  if (!trace->steps_s.empty()) return;
  for (const Step& step : steps_)
    if (step.span.length_us > 0) trace->steps_s.push_back(step.span.length_us * kMicro);
}

void TraceEvents::occupation_of(RankTrace* trace) const {
  if (kernels_.empty()) return;
  double from = 0, to = 0;
  if (steps_.empty()) {
    from = kernels_.front().begin_us;
    for (const Kernel& kernel : kernels_) {
      from = std::min(from, kernel.begin_us);
      to = std::max(to, kernel.begin_us + kernel.length_us);
    }
  } else {
    from = steps_.front().span.begin_us;
    for (const Step& step : steps_) to = std::max(to, step.span.begin_us + step.span.length_us);
  }
  std::vector<Interval> compute, collective;
  for (const Kernel& kernel : kernels_) {
    const Interval one{std::max(from, kernel.begin_us), std::min(to, kernel.begin_us + kernel.length_us)};
    if (one.end > one.begin) (kernel.kernel == KernelClass::collective ? collective : compute).push_back(one);
  }
  compute = merged(std::move(compute));
  collective = merged(std::move(collective));
  const double both = common_length(compute, collective);
  trace->window_s = (to - from) * kMicro;
  trace->compute_s = length_of(compute) * kMicro;
  trace->collective_s = length_of(collective) * kMicro;
  trace->both_s = both * kMicro;
  trace->idle_s = std::max(0.0, trace->window_s - trace->compute_s - trace->collective_s + trace->both_s);
}

// Kernels count in the windows of the steps that they run in, cut at their ends.
void TraceEvents::activities_of(RankTrace* trace) const {
  if (kernels_.empty()) return;
  struct Window {
    Interval at;
    TracedStep step;
    std::vector<Activity> by_track;
  };
  std::vector<Interval> busy;
  for (const Kernel& kernel : kernels_) busy.push_back({kernel.begin_us, kernel.begin_us + kernel.length_us});
  busy = merged(std::move(busy));
  std::vector<Window> windows;
  trace->marked = !steps_.empty();
  // Kernels of no length, or so late that theirs is lost beside it, are no step.
  if (steps_.empty() && busy.back().end > busy.front().begin)
    windows.push_back({{busy.front().begin, busy.back().end}, {}, {}});
  for (std::size_t i = 0; i < steps_.size() && windows.size() < kMostStepsKept; ++i) {
    const Span& span = steps_[i].span;
    const bool followed = i + 1 < steps_.size() && steps_[i + 1].number == steps_[i].number + 1;
    double end = followed ? steps_[i + 1].span.begin_us : span.begin_us + span.length_us;
    if (i + 1 < steps_.size()) end = std::min(end, steps_[i + 1].span.begin_us);
    if (end <= span.begin_us) continue;
    windows.push_back({{span.begin_us, end}, {}, {}});
    windows.back().step.number = steps_[i].number;
  }
  for (Window& window : windows) window.by_track = tracks_;
  for (const Kernel& kernel : kernels_) {
    const Interval one{kernel.begin_us, kernel.begin_us + kernel.length_us};
    auto window = std::partition_point(windows.begin(), windows.end(),
                                       [&](const Window& w) { return w.at.end <= one.begin; });
    for (bool first = true; window != windows.end() && window->at.begin < one.end; ++window, first = false) {
      Activity& activity = window->by_track[kernel.track];
      activity.seconds +=
          std::max(0.0, std::min(one.end, window->at.end) - std::max(one.begin, window->at.begin)) * kMicro;
      if (first) ++activity.count;
    }
  }
  std::size_t from = 0;
  for (Window& window : windows) {
    while (from < busy.size() && busy[from].end <= window.at.begin) ++from;
    double busy_us = 0;
    for (std::size_t i = from; i < busy.size() && busy[i].begin < window.at.end; ++i)
      busy_us += std::min(busy[i].end, window.at.end) - std::max(busy[i].begin, window.at.begin);
    window.step.seconds = (window.at.end - window.at.begin) * kMicro;
    window.step.idle_s = std::max(0.0, window.step.seconds - busy_us * kMicro);
    for (Activity& activity : window.by_track)
      if (activity.count > 0) window.step.activities.push_back(std::move(activity));
    trace->steps.push_back(std::move(window.step));
  }
}

void TraceEvents::launches_of(RankTrace* trace) {
  std::sort(launches_.begin(), launches_.end(), [](const Launch& a, const Launch& b) {
    return std::tie(a.thread, a.begin_us, a.correlation) < std::tie(b.thread, b.begin_us, b.correlation);
  });
  std::unordered_map<std::int64_t, double> started;  // kernels, by correlation
  started.reserve(kernels_.size());
  for (const Kernel& kernel : kernels_) started.emplace(kernel.correlation, kernel.begin_us);
  const auto waited = [&](const Launch& launch) {
    const auto found = started.find(launch.correlation);
    return found != started.end() && found->second - launch.begin_us - launch.length_us < kSoonUs;
  };
  std::vector<double> apart;
  for (std::size_t i = 0; i + 1 < launches_.size(); ++i) {
    const double us = launches_[i + 1].begin_us - launches_[i].begin_us;
    if (launches_[i].thread == launches_[i + 1].thread && us > 0 && us < kMostLaunchUs &&
        waited(launches_[i]) && waited(launches_[i + 1]))
      apart.push_back(us * kMicro);
  }
  trace->launch_s = median(std::move(apart));
}

// Kernels belong to the call during which their thread launched them.
void TraceEvents::products_of(RankTrace* trace) {
  if (calls_.empty()) return;
  std::sort(calls_.begin(), calls_.end(), [](const Call& a, const Call& b) {
    return std::tie(a.thread, a.span.begin_us) < std::tie(b.thread, b.span.begin_us);
  });
  std::unordered_map<std::int64_t, std::size_t> call_of;  // by correlation
  for (const Launch& launch : launches_) {
    const auto behind = std::upper_bound(
        calls_.begin(), calls_.end(), std::pair(launch.thread, launch.begin_us),
        [](const auto& at, const Call& call) { return at < std::pair(call.thread, call.span.begin_us); });
    if (behind == calls_.begin()) continue;
    const Call& call = *(behind - 1);
    if (call.thread != launch.thread || launch.begin_us > call.span.begin_us + call.span.length_us) continue;
    const auto [at, fresh] =
        call_of.emplace(launch.correlation, static_cast<std::size_t>(behind - 1 - calls_.begin()));
    if (!fresh) at->second = calls_.size();  // twice: of traces that somebody merged
  }
  std::vector<bool> multiplied(calls_.size());
  for (const Kernel& kernel : kernels_) {
    const auto found = call_of.find(kernel.correlation);
    if (found == call_of.end() || found->second == calls_.size() || kernel.kernel == KernelClass::collective)
      continue;
    Call& call = calls_[found->second];
    call.device_us += kernel.length_us;
    call.narrow_floats = call.narrow_floats || kernel.narrow_floats;
    if (kernel.kernel == KernelClass::product) multiplied[found->second] = true;
  }
  std::map<std::tuple<double, double, double, double, DType>, std::size_t> known;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (!multiplied[i] || calls_[i].device_us <= 0) continue;
    TracedProduct one = calls_[i].product;
    if (one.precision == DType::fp32 && calls_[i].narrow_floats) one.precision = DType::tf32;
    const auto [at, fresh] =
        known.try_emplace({one.m, one.n, one.k, one.count, one.precision}, trace->products.size());
    if (fresh) trace->products.push_back(one);
    trace->products[at->second].seconds.push_back(calls_[i].device_us * kMicro);
  }
}

}  // namespace orrery::measurements
