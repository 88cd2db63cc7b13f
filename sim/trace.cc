#include "sim/trace.h"

#include "sim/bytes.h"

namespace orrery::sim {
namespace {

template <typename Bytes, typename T>
void move_trace_fields(Bytes& bytes, T& trace) {
  bytes(trace.step_ends_s);
  bytes.each(trace.rank_step_ends_s, [&](auto& ends) { bytes(ends); });
  bytes(trace.events);
  bytes(trace.flow_bytes);
  bytes(trace.moved);
  bytes(trace.activities);
  bytes(trace.end_s);
  bytes(trace.late_steps);
  bytes(trace.late_s);
}

}  // namespace

std::string to_bytes(const Trace& trace) {
  ByteWriter out;
  move_trace_fields(out, trace);
  return out.take();
}

Trace trace_from_bytes(const std::string& bytes) {
  ByteReader in(bytes);
  Trace trace;
  move_trace_fields(in, trace);
  return trace;
}

}  // namespace orrery::sim
