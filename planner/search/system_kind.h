// The kinds of systems that people train with, and the best plan of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "program/plan.h"

namespace orrery::planner {

enum class SystemKind : std::uint8_t {
  all_reduce,     // data parallelism, whole states everywhere
  sharded,        // data parallelism with sharded states
  three_d,        // tensor, pipeline, context or expert parallelism
  async_servers,  // asynchronous parameter servers, one beside every worker
};
std::string_view name_of(SystemKind kind);  // "all-reduce" "sharded" "3d" "async-parameter-server"
// For people, with frameworks of the kind that they may know (planner/search/systems.textproto).
std::string_view spoken(SystemKind kind);
SystemKind system_kind_of(const Choices& choices);

struct System {
  SystemKind kind = SystemKind::all_reduce;
  std::optional<Choices> choices;     // its best plan by the closed form; none where none can be had
  std::optional<double> step_time_s;  // simulated
  double short_bytes = 0;             // where none fits: what its smallest plan lacks on a device
  // Of asynchronous servers: a bound in closed form, and what sets it: "computation" or "traffic". It stands
  // alone where simulating them would take long.
  double bound_s = 0;
  std::string bound_by;
  std::string refusal;  // why there is none; empty where there is one
};

}  // namespace orrery::planner
