// What shares the network among transfers: SimGrid, which only sim/simgrid sees.
//
// SimGrid is a module, loaded by the first who needs it: Debian's brings all of ns-3, whose loading takes
// longer than most answers of a program that simulates nothing.
//
// Each constraint of a FlowSystem is a SimGrid link and each flow a transfer whose route crosses the links
// that it loads, a link of weight k k times, behind a private link that carries the flow's rate bound
// (in 3.32 Comm::set_rate is ignored by host-to-host transfers). SimGrid's link latencies are all zero: true
// latencies are spent before the transfer starts, because SimGrid shares by round-trip time and we share
// equally.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/network/flow_system.h"

namespace orrery::sim {

// Never throws through SimGrid.
class Platform {
 public:
  virtual ~Platform() = default;

  virtual double now_s() const = 0;
  virtual int running() const = 0;
  // From inside a callback only. `token` names the transfer; each is used once at a time.
  virtual void start(int flow, double bytes, int token) = 0;
  // Takes a transfer back and returns its bytes that are left; nothing when it has just arrived. To go on,
  // start the rest: SimGrid 3.32 gives a resumed transfer its route's latency, here 0, as sharing penalty,
  // with which it never moves again.
  virtual std::optional<double> stop(int token) = 0;
  // `on_time` is called at `time_s` (not before now).
  virtual void wake_at(double time_s) = 0;

  // Runs until nothing is left. `on_done(tokens)`: these transfers ended now, ascending. `on_time()`: a time
  // asked for has come. Both may start transfers and ask for times.
  virtual void run(const std::function<void()>& on_time,
                   const std::function<void(const std::vector<int>&)>& on_done) = 0;
};

// One a process. Throws InternalError where the module is not where it was installed.
std::unique_ptr<Platform> make_platform(const FlowSystem& flows);

// Done by make_platform(). A process that forks several which simulate does it once, for all of them.
void load_simgrid();

// The module's one symbol.
constexpr const char* kPlatformSymbol = "orrery_make_platform";
using PlatformMaker = Platform* (*)(const FlowSystem&);

// The settings that we pin. Without TCP's window, acknowledgement traffic and efficiency factors:
// efficiencies stand in our own profiles, where they can be seen.
constexpr std::array<std::string_view, 5> kSimgridSettings = {"network/model:CM02", "network/crosstraffic:0",
                                                              "network/TCP-gamma:1e20", "surf/precision:1e-9",
                                                              "maxmin/precision:1e-9"};

}  // namespace orrery::sim
