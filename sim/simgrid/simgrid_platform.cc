// The module that brings SimGrid (sim/network/platform.h says why it is one): of Orrery's it has headers
// alone.

// In this order: SimGrid's C headers need what s4u.hpp declares.
// clang-format off
#include <simgrid/s4u.hpp>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/version.h>
#include <xbt/log.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

#include "sim/network/platform.h"

namespace orrery::sim {
namespace {
namespace sg4 = simgrid::s4u;

static_assert(SIMGRID_VERSION_MAJOR == 3 && SIMGRID_VERSION_MINOR == 32,
              "our use of SimGrid is tested against 3.32 only");

class SimgridPlatform final : public Platform {
 public:
  explicit SimgridPlatform(const FlowSystem& flows);

  double now_s() const override { return sg4::Engine::get_clock(); }
  int running() const override { return static_cast<int>(live_.size()); }
  void start(int flow, double bytes, int token) override;
  std::optional<double> stop(int token) override;
  void wake_at(double time_s) override;
  void run(const std::function<void()>& on_time,
           const std::function<void(const std::vector<int>&)>& on_done) override;

 private:
  struct Live {
    int token = 0;
    sg4::CommPtr comm;
  };

  void complete(const sg4::Activity& activity);
  void flush();

  std::unique_ptr<sg4::Engine> engine_;
  std::vector<sg4::Host*> host_of_flow_;  // null: the flow has nothing to share
  sg4::Host* sink_ = nullptr;
  std::unordered_map<const sg4::Activity*, Live> live_;  // keeps them alive; looked up only
  std::unordered_map<int, const sg4::Activity*> by_token_;
  std::vector<sg4::CommPtr> retired_;  // SimGrid still uses the object after its completion signal
  std::unordered_map<const sg4::Activity*, sg4::CommPtr> stopped_;  // until SimGrid has let go of them
  std::vector<int> done_;
  bool flush_armed_ = false;
  double wake_ = std::numeric_limits<double>::infinity();
  std::function<void()> on_time_;
  std::function<void(const std::vector<int>&)> on_done_;
};

SimgridPlatform::SimgridPlatform(const FlowSystem& flows) {
  xbt_log_control_set("root.thresh:warning");
  engine_ = std::make_unique<sg4::Engine>("orrery");
  for (const std::string_view setting : kSimgridSettings) sg4::Engine::set_config(std::string(setting));
  sg4::NetZone* zone = sg4::create_star_zone("cluster");
  sink_ = zone->create_host("sink", 1.0)->seal();
  std::vector<sg4::LinkInRoute> links;
  for (std::size_t c = 0; c < flows.constraints().size(); ++c)
    links.emplace_back(
        zone->create_link("link" + std::to_string(c), flows.constraints()[c].capacity_bytes_per_s)->seal());
  host_of_flow_.assign(flows.flows().size(), nullptr);
  for (std::size_t f = 0; f < flows.flows().size(); ++f) {
    const std::vector<int>& shared = flows.constraints_of(static_cast<int>(f));
    if (shared.empty()) continue;
    const std::string name = "flow" + std::to_string(f);
    sg4::Host* host = zone->create_host(name, 1.0)->seal();
    std::vector<sg4::LinkInRoute> route;
    // A fat pipe bounds each transfer by itself: a flow of no queue may run several times at once.
    route.emplace_back(zone->create_link(name + "_bound", flows.lone_rate(static_cast<int>(f)))
                           ->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE)
                           ->seal());
    for (const int c : shared)
      for (const auto& [pattern, weight] : flows.constraints()[static_cast<std::size_t>(c)].weights)
        if (pattern == flows.flows()[f].pattern)
          route.insert(route.end(), static_cast<std::size_t>(weight), links[static_cast<std::size_t>(c)]);
    zone->add_bypass_route(host->get_netpoint(), sink_->get_netpoint(), nullptr, nullptr, route);
    host_of_flow_[f] = host;
  }
  zone->seal();
  sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) { complete(activity); });
}

void SimgridPlatform::complete(const sg4::Activity& activity) {
  const auto at = live_.find(&activity);
  if (at == live_.end()) {
    const auto gone = stopped_.find(&activity);
    if (gone == stopped_.end()) return;
    retired_.push_back(std::move(gone->second));
    stopped_.erase(gone);
    return;
  }
  done_.push_back(at->second.token);
  by_token_.erase(at->second.token);
  retired_.push_back(std::move(at->second.comm));
  live_.erase(at);
  if (flush_armed_) return;
  flush_armed_ = true;
  // After all completions of this instant, so that their order does not matter.
  simgrid::kernel::timer::Timer::set(sg4::Engine::get_clock(), [this] { flush(); });
}

void SimgridPlatform::flush() {
  flush_armed_ = false;
  retired_.clear();
  std::vector<int> tokens;
  tokens.swap(done_);
  std::sort(tokens.begin(), tokens.end());
  on_done_(tokens);
}

void SimgridPlatform::start(int flow, double bytes, int token) {
  sg4::CommPtr comm = sg4::Comm::sendto_init(host_of_flow_[static_cast<std::size_t>(flow)], sink_);
  // A transfer of no bytes would not start.
  comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(bytes))));
  by_token_[token] = comm.get();
  live_.emplace(comm.get(), Live{token, comm});
  comm->vetoable_start();
}

std::optional<double> SimgridPlatform::stop(int token) {
  const auto at = by_token_.find(token);
  if (at == by_token_.end()) return std::nullopt;
  const auto live = live_.find(at->second);
  const sg4::CommPtr comm = live->second.comm;
  const double left = comm->get_remaining();
  by_token_.erase(at);
  live_.erase(live);
  stopped_.emplace(comm.get(), comm);
  comm->cancel();
  return left;
}

void SimgridPlatform::wake_at(double time_s) {
  // An earlier wake-up asks for the later one again when it comes.
  if (wake_ <= time_s) return;
  wake_ = time_s;
  simgrid::kernel::timer::Timer::set(std::max(time_s, now_s()), [this, time_s] {
    if (wake_ == time_s) wake_ = std::numeric_limits<double>::infinity();
    on_time_();
  });
}

void SimgridPlatform::run(const std::function<void()>& on_time,
                          const std::function<void(const std::vector<int>&)>& on_done) {
  on_time_ = on_time;
  on_done_ = on_done;
  engine_->run();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Platform* orrery_make_platform(const FlowSystem& flows) {
  return new SimgridPlatform(flows);
}

}  // namespace orrery::sim
