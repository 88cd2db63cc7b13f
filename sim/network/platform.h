// SimGrid as the thing that shares the network: the only file (with its .cc) that sees SimGrid.
//
// Each constraint of a FlowSystem is a SimGrid link and each flow a transfer whose route crosses the links
// that it loads, a link of weight k k times, behind a private link that carries the flow's rate bound
// (in 3.32 Comm::set_rate is ignored by host-to-host transfers). SimGrid's link latencies are all zero: true
// latencies are spent before the transfer starts, because SimGrid shares by round-trip time and we share
// equally.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/network/flow_system.h"

namespace orrery::sim {

// One a process. Never throws through SimGrid.
class Platform {
 public:
  explicit Platform(const FlowSystem& flows);
  ~Platform();
  Platform(const Platform&) = delete;
  Platform& operator=(const Platform&) = delete;

  double now_s() const;
  int running() const;
  // From inside a callback only. `token` names the transfer; each is used once at a time.
  void start(int flow, double bytes, int token);
  // Takes a transfer back and returns its bytes that are left; nothing when it has just arrived. To go on,
  // start the rest: SimGrid 3.32 gives a resumed transfer its route's latency, here 0, as sharing penalty,
  // with which it never moves again.
  std::optional<double> stop(int token);
  // `on_time` is called at `time_s` (not before now).
  void wake_at(double time_s);

  // Runs until nothing is left. `on_done(tokens)`: these transfers ended now, ascending. `on_time()`: a time
  // asked for has come. Both may start transfers and ask for times.
  void run(const std::function<void()>& on_time, const std::function<void(const std::vector<int>&)>& on_done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The settings that we pin, for the record: "network/model:CM02 network/crosstraffic:0 …".
const std::vector<std::string>& simgrid_settings();

}  // namespace orrery::sim
