// Chakra execution traces of one rank (MLCommons; proto/chakra.proto has as much of the schema as is needed),
// as Chakra's converter links them with a profiler's times, or as Orrery exports them: messages behind their
// lengths, the first of which is GlobalMetadata. Where no node says when it started, each starts when what it
// depends on has ended.
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "measurements/kinds.h"
#include "measurements/trace_events.h"
#include "proto/chakra.pb.h"

namespace orrery::measurements {
namespace {

namespace chakra = ChakraProtoMsg;

constexpr std::size_t kMostMessageBytes = 16 << 20;
constexpr double kMostMicroseconds = 1e15;

// The number at the beginning, and how many bytes it takes; 0: it is not all there. Longer ones are none.
struct Varint {
  std::uint64_t value = 0;
  std::size_t bytes = 0;
};
Varint varint(std::string_view text) {
  Varint result;
  for (std::size_t i = 0; i < text.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    result.value |= static_cast<std::uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      result.bytes = i + 1;
      break;
    }
  }
  return result;
}

const chakra::AttributeProto* attribute(const chakra::Node& node, std::string_view name) {
  const auto found = std::find_if(node.attr().begin(), node.attr().end(),
                                  [&](const chakra::AttributeProto& one) { return one.name() == name; });
  return found == node.attr().end() ? nullptr : &*found;
}

std::string kind_of_node(const chakra::Node& node) {
  if (node.type() != chakra::COMM_COLL_NODE) return std::string(kSendReceive);
  const chakra::AttributeProto* type = attribute(node, "comm_type");
  const std::int64_t number = type == nullptr          ? -1
                              : type->has_int64_val()  ? type->int64_val()
                              : type->has_uint64_val() ? static_cast<std::int64_t>(type->uint64_val())
                              : type->has_int32_val()  ? type->int32_val()
                                                       : -1;
  if (number < 0 ||
      !chakra::CollectiveCommType_IsValid(static_cast<int>(std::min<std::int64_t>(number, 1000))))
    return activity_of(node.name(), 0);
  return lower_case(chakra::CollectiveCommType_Name(static_cast<chakra::CollectiveCommType>(number)));
}

class Reader {
 public:
  Reader(const Source& source, Measurements* measurements) : source_(source), measurements_(measurements) {}

  void read() {
    std::string rest;
    source_.read([&](std::string_view piece) {
      rest += piece;
      std::size_t at = 0;
      while (true) {
        const Varint length = varint(std::string_view(rest).substr(at));
        if (length.bytes == 0 && rest.size() - at >= 10) fail("has no length where a message begins");
        if (length.bytes == 0) break;
        if (length.value > kMostMessageBytes) fail("holds a message of more than 16 MiB");
        if (rest.size() - at - length.bytes < length.value) break;
        take(std::string_view(rest).substr(at + length.bytes, length.value));
        at += length.bytes + length.value;
      }
      rest.erase(0, at);
      return true;
    });
    if (!rest.empty()) fail("ends in the middle");
    if (nodes_ == 0) fail("holds no node that takes time on a device");
    finish();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(source_.name(), 0, what,
                    "a whole Chakra execution trace, linked with a profiler's times");
  }

  void take(std::string_view bytes) {
    if (messages_++ == 0) return;  // GlobalMetadata
    chakra::Node node;
    if (!node.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) fail("holds what is no node");
    if (ends_us_.size() >= kMostEvents) {
      ++left_out_;
      return;
    }
    const auto length_us = static_cast<double>(node.duration_micros());
    auto begin_us = static_cast<double>(node.start_time_micros());
    if (length_us > kMostMicroseconds || begin_us > kMostMicroseconds) fail("holds an impossible time");
    started_ = started_ || node.start_time_micros() > 0;
    if (!started_)
      for (const auto& all : {node.ctrl_deps(), node.data_deps()})
        for (const std::uint64_t other : all)
          if (const auto end = ends_us_.find(other); end != ends_us_.end())
            begin_us = std::max(begin_us, end->second);
    ends_us_[node.id()] = begin_us + length_us;
    add(node, {begin_us, length_us});
  }

  void add(const chakra::Node& node, TraceEvents::Span span) {
    const chakra::AttributeProto* host = attribute(node, "is_cpu_op");
    const bool on_device = host == nullptr || !(host->bool_val() || host->int32_val() != 0);
    if (span.length_us <= 0 || !on_device) return;
    switch (node.type()) {
      case chakra::COMP_NODE:
        ++nodes_;
        return events_.add_kernel(span, class_of(node.name()), -1, false, "compute");
      case chakra::MEM_LOAD_NODE:
      case chakra::MEM_STORE_NODE:
        ++nodes_;
        return events_.add_kernel(span, KernelClass::copy, -1, false, "memory");
      case chakra::COMM_SEND_NODE:
      case chakra::COMM_RECV_NODE:
      case chakra::COMM_COLL_NODE:
        ++nodes_;
        return events_.add_kernel(span, KernelClass::collective, -1, false, "communication",
                                  kind_of_node(node));
      default:
        return;
    }
  }

  // The converter's and our own names end in the rank: "trace.3.et".
  int rank_by_name() const {
    std::string name = source_.name();
    if (name.ends_with(".gz")) name.resize(name.size() - 3);
    if (!name.ends_with(".et")) return -1;
    name.resize(name.size() - 3);
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    return static_cast<int>(std::clamp<std::int64_t>(
        parse_whole(std::string_view(name).substr(digits)).value_or(-1), -1, 1 << 24));
  }

  void finish() {
    if (left_out_ > 0)
      measurements_->ignore(source_.name(), 0,
                            fmt::format("{} nodes beyond what is kept of a trace", left_out_));
    RankTrace trace;
    trace.file = source_.name();
    trace.rank = rank_by_name();
    events_.finish(&trace);
    measurements_->traces.push_back(std::move(trace));
  }

  const Source& source_;
  Measurements* measurements_;
  TraceEvents events_;
  std::unordered_map<std::uint64_t, double> ends_us_;  // by node
  std::int64_t messages_ = 0, nodes_ = 0, left_out_ = 0;
  bool started_ = false;
};

bool is_observed(std::string_view head) {
  return begins_object(head) && head.substr(0, 4096).find("-chakra.") != std::string_view::npos &&
         head.find("\"nodes\"") != std::string_view::npos;
}

}  // namespace

bool is_chakra(std::string_view head) {
  if (is_observed(head)) return true;
  // A length, GlobalMetadata's first field and the schema's version, "0.0.4".
  const Varint length = varint(head);
  if (length.bytes == 0 || length.value < 5 || length.value > kMostMessageBytes) return false;
  const std::string_view metadata = head.substr(length.bytes);
  if (metadata.size() < 4 || metadata[0] != '\x0A') return false;
  const auto size = static_cast<unsigned char>(metadata[1]);
  const std::string_view version = metadata.substr(2, size);
  return size >= 3 && size < 32 && version.size() == size &&
         version.find_first_not_of("0123456789.") == std::string_view::npos &&
         version.find('.') != std::string_view::npos;
}

void read_chakra(const Source& source, const Context& /*context*/, Measurements* measurements) {
  if (is_observed(source.head()))
    throw UserError(source.name(), 0,
                    "is an execution trace without a device's times (PyTorch's observer wrote it)",
                    "the profiler's trace, or both linked by Chakra's converter");
  const google::protobuf::LogSilencer quiet;  // of damaged messages we say ourselves what is wrong
  Reader(source, measurements).read();
}

}  // namespace orrery::measurements
