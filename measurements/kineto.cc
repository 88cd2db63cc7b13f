// Traces that PyTorch's profiler exports (Kineto's ChromeTraceLogger, github.com/pytorch/kineto,
// libkineto/src/output_json.cpp), read event by event: memory does not grow with the file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <istream>
#include <streambuf>

#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "measurements/kinds.h"
#include "measurements/trace_events.h"

namespace orrery::measurements {
namespace {

// No name of a kernel is longer, and the parser keeps one token at a time.
constexpr std::size_t kMostTokenBytes = 4 << 20;
constexpr std::size_t kMostWordBytes = 100;  // that is kept, or shown to people
constexpr std::size_t kMostDimensions = 16, kMostInputs = 16;
constexpr double kMostElements = 1e15;
constexpr int kMostRanks = 1 << 18;  // more than any job has

// A source's pieces as a stream that holds no token beyond kMostTokenBytes.
class PieceBuffer : public std::streambuf {
 public:
  explicit PieceBuffer(const Source& source) : name_(source.name()), pieces_(source.pieces()) {}

 protected:
  int_type underflow() override {
    const std::string_view piece = pieces_->next();
    if (piece.empty()) return traits_type::eof();
    for (const char c : piece) watch(c);
    char* begin = const_cast<char*>(piece.data());  // a streambuf's; nobody puts back
    setg(begin, begin, begin + piece.size());
    return traits_type::to_int_type(*begin);
  }

 private:
  void watch(char c) {
    const bool ends = in_string_
                          ? c == '"' && !escaped_
                          : c == '"' || c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}';
    escaped_ = in_string_ && c == '\\' && !escaped_;
    if (c == '"' && ends) in_string_ = !in_string_;
    token_bytes_ = ends ? 0 : token_bytes_ + 1;
    if (token_bytes_ > kMostTokenBytes)
      throw UserError(name_, 0, "holds a word of more than 4 MiB", "a profiler's trace");
  }

  const std::string& name_;
  std::unique_ptr<Pieces> pieces_;
  bool in_string_ = false, escaped_ = false;
  std::size_t token_bytes_ = 0;
};

// What is looked at of one event.
struct Event {
  std::string phase, category, name;
  double begin_us = 0, length_us = -1;
  std::int64_t thread = 0, correlation = -1, stream = -1;
  std::string collective, dtype, ranks;
  double in_elements = 0, out_elements = 0, group_size = 0;
  bool unequal = false;
  std::vector<std::vector<double>> dims;
  std::vector<std::string> types;
};

std::optional<DType> precision_of(const std::string& type) {
  if (type == "float") return DType::fp32;
  if (type == "c10::Half" || type == "at::Half") return DType::fp16;
  if (type == "c10::BFloat16" || type == "at::BFloat16") return DType::bf16;
  if (type.find("Float8") != std::string::npos) return DType::fp8;
  return std::nullopt;
}

// Bytes of an element of a tensor on the wire, by c10's names of scalar types; 0: another.
int element_bytes(const std::string& dtype) {
  if (dtype == "Float" || dtype == "Int") return 4;
  if (dtype == "Half" || dtype == "BFloat16" || dtype == "Short") return 2;
  if (dtype == "Double" || dtype == "Long") return 8;
  if (dtype == "Byte" || dtype == "Char" || dtype == "Bool" || dtype.starts_with("Float8")) return 1;
  return 0;
}

// "[0, 1, 2]"; of many the first are printed, evenly apart: "[0, 8, 16, ...]". Empty: not to be told.
std::vector<int> ranks_of(const Event& event, int world) {
  std::vector<int> ranks;
  const auto size = static_cast<int>(std::clamp<double>(event.group_size, 0, kMostRanks));
  std::string text = event.ranks;
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ' '; });
  bool more = false;
  for (const std::string& part : split(text)) {
    more = more || part == "...";
    if (const auto rank = parse_whole(part); rank && *rank >= 0 && *rank < kMostRanks)
      ranks.push_back(static_cast<int>(*rank));
  }
  if (ranks.empty() && size > 1 && size == world)
    for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  if (more && ranks.size() > 1) {
    const int apart = ranks[1] - ranks[0];
    for (std::size_t i = 1; i < ranks.size(); ++i)
      if (ranks[i] - ranks[i - 1] != apart) return {};
    if (apart <= 0 || static_cast<double>(apart) * size > kMostRanks) return {};
    while (static_cast<int>(ranks.size()) < size) ranks.push_back(ranks.back() + apart);
  }
  std::sort(ranks.begin(), ranks.end());
  const bool twice = std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
  return twice || (size > 0 && static_cast<int>(ranks.size()) != size) ? std::vector<int>{} : ranks;
}

// Which two inputs a call multiplies.
std::optional<TracedProduct> product_of(const Event& event) {
  std::size_t left = 0;
  if (event.name == "aten::addmm" || event.name == "aten::baddbmm")
    left = 1;
  else if (event.name != "aten::mm" && event.name != "aten::bmm" && event.name != "aten::_scaled_mm")
    return std::nullopt;
  if (event.dims.size() < left + 2 || event.types.size() < left + 2) return std::nullopt;
  std::vector<double> a = event.dims[left], b = event.dims[left + 1];
  const auto precision = precision_of(event.types[left]);
  TracedProduct product;
  if (!precision || a.size() != b.size() || a.size() < 2 || a.size() > 3) return std::nullopt;
  if (a.size() == 3) {
    product.count = a[0];
    if (a[0] != b[0]) return std::nullopt;
    a.erase(a.begin());
    b.erase(b.begin());
  }
  product.m = a[0];
  product.k = a[1];
  product.n = b[1];
  product.precision = *precision;
  const bool sound = a[1] == b[0] && product.m >= 1 && product.n >= 1 && product.k >= 1 &&
                     product.count >= 1 && product.m * product.n * product.count < kMostElements &&
                     product.k < kMostElements;
  return sound ? std::optional(product) : std::nullopt;
}

// "ProfilerStep#12".
std::optional<std::int64_t> step_of(const Event& event) {
  constexpr std::string_view kStep = "ProfilerStep#";
  if (!event.name.starts_with(kStep) || event.category.starts_with("gpu")) return std::nullopt;
  return parse_whole(std::string_view(event.name).substr(kStep.size()));
}

class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(const Source& source, const Context& context, Measurements* measurements)
      : source_(source), context_(context), measurements_(measurements) {
    trace_.file = source.name();
    trace_.profiled = true;
  }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value), value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value), static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return number(value, std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : 0);
  }
  bool binary(binary_t& /*value*/) override { return true; }
  bool string(string_t& value) override {
    take_string(value);
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ < keys_.size()) keys_[depth_] = value.substr(0, 64);
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    enter();
    if (in_event() && depth_ == kEvent) event_ = {};
    if (depth_ >= kEvent && depth_ < keys_.size()) keys_[depth_].clear();
    return true;
  }
  bool end_object() override {
    if (in_event() && depth_ == kEvent) take_event();
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    enter();
    if (in_argument("Input Dims") && depth_ == kInner && event_.dims.size() < kMostInputs)
      event_.dims.emplace_back();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw UserError(source_.name(), 0, fmt::format("is no sound JSON at byte {}", position),
                    "a whole trace, as the profiler exports it");
  }

  void finish() {
    if (!any_event_) throw UserError(source_.name(), 0, "holds no event", "a trace of PyTorch's profiler");
    if (events_.left_out() > 0)
      measurements_->ignore(source_.name(), 0,
                            fmt::format("{} events beyond what is kept of a trace", events_.left_out()));
    events_.finish(&trace_);
    measurements_->traces.push_back(std::move(trace_));
  }

 private:
  // {"traceEvents": [{"name": …, "args": {"Input Dims": [[…]]}}]}
  static constexpr std::size_t kRoot = 1, kSection = 2, kEvent = 3, kArguments = 4, kArray = 5, kInner = 6;

  void enter() {
    if (++depth_ > kMaxJsonDepth)
      throw UserError(source_.name(), 0, "JSON is nested too deeply",
                      fmt::format("expected at most {} levels", kMaxJsonDepth));
  }
  bool in_event() const { return keys_[kRoot] == "traceEvents"; }
  bool in_argument(std::string_view name) const {
    return in_event() && depth_ >= kArguments && keys_[kEvent] == "args" && keys_[kArguments] == name;
  }

  bool number(double value, std::int64_t whole) {
    const std::string& key = keys_[std::min(depth_, keys_.size() - 1)];
    if (!in_event()) {
      const int small = static_cast<int>(std::clamp<std::int64_t>(whole, -1, kMostRanks));
      if (depth_ == kSection && keys_[kRoot] == "distributedInfo" && key == "rank") trace_.rank = small;
      if (depth_ == kSection && keys_[kRoot] == "distributedInfo" && key == "world_size")
        trace_.world = std::max(0, small);
      return true;
    }
    if (depth_ == kEvent) {
      if (key == "ts") event_.begin_us = value;
      if (key == "dur") event_.length_us = value;
      if (key == "tid") event_.thread = whole;
    } else if (depth_ == kArguments && keys_[kEvent] == "args") {
      if (key == "correlation") event_.correlation = whole;
      if (key == "stream") event_.stream = whole;
      if (key == "In msg nelems") event_.in_elements = value;
      if (key == "Out msg nelems") event_.out_elements = value;
      if (key == "Group size") event_.group_size = value;
    } else if (depth_ == kInner && in_argument("Input Dims") && !event_.dims.empty() &&
               event_.dims.back().size() < kMostDimensions) {
      event_.dims.back().push_back(value);
    }
    return true;
  }

  void take_string(string_t& value) {
    const std::string& key = keys_[std::min(depth_, keys_.size() - 1)];
    if (!in_event()) {
      if (depth_ == kEvent && keys_[kRoot] == "deviceProperties" && key == "name" && trace_.device.empty()) {
        trace_.device = value.substr(0, kMostWordBytes);
        check_device(trace_.device, context_, source_.name(), 0);
      }
      return;
    }
    if (depth_ == kEvent) {
      if (key == "ph") event_.phase = value;
      if (key == "cat") event_.category = value;
      if (key == "name") event_.name = std::move(value);
      // Threads have had names for numbers.
      if (key == "tid") event_.thread = parse_whole(value).value_or(-1);
    } else if (depth_ == kArguments && keys_[kEvent] == "args") {
      if (key == "Collective name") event_.collective = value;
      if (key == "dtype") event_.dtype = value;
      if (key == "Process Group Ranks") event_.ranks = value;
      if (key == "In split size" || key == "Out split size")
        event_.unequal = event_.unequal || value.find_first_of("0123456789") != std::string::npos;
    } else if (depth_ == kArray && in_argument("Input type") && event_.types.size() < kMostInputs) {
      event_.types.push_back(value);
    }
  }

  void take_event() {
    if (event_.phase != "X") return;
    any_event_ = true;
    if (!std::isfinite(event_.begin_us) || !(event_.length_us >= 0) || event_.length_us > 1e12) return;
    const TraceEvents::Span span{event_.begin_us, event_.length_us};
    std::string category = event_.category;
    std::transform(category.begin(), category.end(), category.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (const auto step = step_of(event_)) {
      events_.add_step(span, *step);
    } else if (category == "kernel") {
      take_kernel(span);
    } else if (category.find("memcpy") != std::string::npos || category.find("memset") != std::string::npos) {
      events_.add_kernel(span, KernelClass::copy, event_.correlation, false, stream());
    } else if (category == "cpu_op" || category == "operator") {
      if (const auto product = product_of(event_)) events_.add_product(span, event_.thread, *product);
    } else if (category.ends_with("runtime") || category.ends_with("driver")) {
      if (event_.name.find("Launch") != std::string::npos && event_.correlation >= 0)
        events_.add_launch(span, event_.thread, event_.correlation);
    }
  }

  std::string stream() const {
    return fmt::format("stream {}", event_.stream >= 0 ? event_.stream : event_.thread);
  }

  void take_kernel(const TraceEvents::Span& span) {
    const KernelClass kernel = class_of(event_.name);
    // NVIDIA's names of kernels that multiply fp32 in TF32: s1688, tensorop_s….
    const bool narrow = event_.name.find("tf32") != std::string::npos ||
                        event_.name.find("s1688") != std::string::npos ||
                        event_.name.find("tensorop_s") != std::string::npos;
    events_.add_kernel(
        span, kernel, event_.correlation, narrow, stream(),
        kernel == KernelClass::collective
            ? activity_of(event_.collective.empty() ? event_.name : event_.collective,
                          static_cast<int>(std::clamp<double>(event_.group_size, 0, kMostRanks)))
            : std::string());
    if (kernel != KernelClass::collective) return;
    const auto ignore = [&](const std::string& why) { measurements_->ignore(source_.name(), 0, why); };
    if (event_.collective.empty())
      return ignore("a collective whose kind and size the trace does not say (PyTorch before 2.2)");
    const auto kind = collective_named(event_.collective);
    TracedCollective one;
    if (!events_.keeps_collectives()) return events_.add_collective(span, one);  // counted
    one.bytes = std::max(event_.in_elements, event_.out_elements) * element_bytes(event_.dtype);
    one.ranks = ranks_of(event_, trace_.world);
    if (!kind) {
      if (unmodelled_.empty()) unmodelled_ = event_.collective.substr(0, kMostWordBytes);
      return ignore(fmt::format("a collective without a model ('{}' and others)", unmodelled_));
    }
    if (!(one.bytes > 0) || one.bytes > kMostElements || span.length_us <= 0)
      return ignore("a collective of no size, or of no known type");
    if (event_.unequal) return ignore("a collective of unequal parts");
    if (one.ranks.size() < 2) return ignore("a collective whose ranks the trace does not say");
    one.kind = *kind;
    events_.add_collective(span, one);
  }

  const Source& source_;
  const Context& context_;
  Measurements* measurements_;
  std::array<std::string, kInner + 1> keys_;  // by depth
  std::size_t depth_ = 0;
  Event event_;
  bool any_event_ = false;
  std::string unmodelled_;  // the first
  TraceEvents events_;
  RankTrace trace_;
};

}  // namespace

bool is_kineto(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  if (!begins_object(head) || !holds("\"traceEvents\"")) return false;
  // What tools for such traces write has events first, or nothing else.
  const bool events = holds("\"cpu_op\"") || holds("\"cuda_runtime\"") || holds("\"kernel\"");
  return holds("\"schemaVersion\"") || holds("\"deviceProperties\"") || (events && !is_own_trace(head));
}

void read_kineto(const Source& source, const Context& context, Measurements* measurements) {
  PieceBuffer buffer(source);
  std::istream stream(&buffer);
  Handler handler(source, context, measurements);
  if (!Json::sax_parse(stream, &handler))
    throw UserError(source.name(), 0, "is no sound JSON", "a whole trace, as the profiler exports it");
  handler.finish();
}

}  // namespace orrery::measurements
