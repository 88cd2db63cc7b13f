#include "sim/network/platform.h"

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
#include <unordered_map>

namespace orrery::sim {
namespace sg4 = simgrid::s4u;

static_assert(SIMGRID_VERSION_MAJOR == 3 && SIMGRID_VERSION_MINOR == 32,
              "our use of SimGrid is tested against 3.32 only");

const std::vector<std::string>& simgrid_settings() {
  // Without TCP's window, acknowledgement traffic and efficiency factors: efficiencies stand in our own
  // profiles, where they can be seen.
  static const std::vector<std::string> settings = {"network/model:CM02", "network/crosstraffic:0",
                                                    "network/TCP-gamma:1e20", "surf/precision:1e-9",
                                                    "maxmin/precision:1e-9"};
  return settings;
}

struct Platform::Impl {
  std::unique_ptr<sg4::Engine> engine;
  std::vector<sg4::Host*> host_of_flow;  // null: the flow has nothing to share
  sg4::Host* sink = nullptr;
  struct Live {
    int token = 0;
    sg4::CommPtr comm;
  };
  std::unordered_map<const sg4::Activity*, Live> live;  // keeps them alive; looked up only
  std::unordered_map<int, const sg4::Activity*> by_token;
  std::vector<sg4::CommPtr> retired;  // SimGrid still uses the object after its completion signal
  std::unordered_map<const sg4::Activity*, sg4::CommPtr> stopped;  // until SimGrid has let go of them
  std::vector<int> done;
  bool flush_armed = false;
  double wake = std::numeric_limits<double>::infinity();
  std::function<void()> on_time;
  std::function<void(const std::vector<int>&)> on_done;

  void complete(const sg4::Activity& activity) {
    const auto at = live.find(&activity);
    if (at == live.end()) {
      const auto gone = stopped.find(&activity);
      if (gone == stopped.end()) return;
      retired.push_back(std::move(gone->second));
      stopped.erase(gone);
      return;
    }
    done.push_back(at->second.token);
    by_token.erase(at->second.token);
    retired.push_back(std::move(at->second.comm));
    live.erase(at);
    if (flush_armed) return;
    flush_armed = true;
    // After all completions of this instant, so that their order does not matter.
    simgrid::kernel::timer::Timer::set(sg4::Engine::get_clock(), [this] { flush(); });
  }
  void flush() {
    flush_armed = false;
    retired.clear();
    std::vector<int> tokens;
    tokens.swap(done);
    std::sort(tokens.begin(), tokens.end());
    on_done(tokens);
  }
};

Platform::Platform(const FlowSystem& flows) : impl_(std::make_unique<Impl>()) {
  xbt_log_control_set("root.thresh:warning");
  impl_->engine = std::make_unique<sg4::Engine>("orrery");
  for (const std::string& setting : simgrid_settings()) sg4::Engine::set_config(setting);
  sg4::NetZone* zone = sg4::create_star_zone("cluster");
  impl_->sink = zone->create_host("sink", 1.0)->seal();
  std::vector<sg4::LinkInRoute> links;
  for (std::size_t c = 0; c < flows.constraints().size(); ++c)
    links.emplace_back(
        zone->create_link("link" + std::to_string(c), flows.constraints()[c].capacity_bytes_per_s)->seal());
  impl_->host_of_flow.assign(flows.flows().size(), nullptr);
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
    zone->add_bypass_route(host->get_netpoint(), impl_->sink->get_netpoint(), nullptr, nullptr, route);
    impl_->host_of_flow[f] = host;
  }
  zone->seal();
  sg4::Activity::on_completion_cb(
      [impl = impl_.get()](const sg4::Activity& activity) { impl->complete(activity); });
}

Platform::~Platform() = default;

double Platform::now_s() const {
  return sg4::Engine::get_clock();
}

int Platform::running() const {
  return static_cast<int>(impl_->live.size());
}

void Platform::start(int flow, double bytes, int token) {
  sg4::CommPtr comm =
      sg4::Comm::sendto_init(impl_->host_of_flow[static_cast<std::size_t>(flow)], impl_->sink);
  // A transfer of no bytes would not start.
  comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(bytes))));
  impl_->by_token[token] = comm.get();
  impl_->live.emplace(comm.get(), Impl::Live{token, comm});
  comm->vetoable_start();
}

std::optional<double> Platform::stop(int token) {
  const auto at = impl_->by_token.find(token);
  if (at == impl_->by_token.end()) return std::nullopt;
  const auto live = impl_->live.find(at->second);
  const sg4::CommPtr comm = live->second.comm;
  const double left = comm->get_remaining();
  impl_->by_token.erase(at);
  impl_->live.erase(live);
  impl_->stopped.emplace(comm.get(), comm);
  comm->cancel();
  return left;
}

void Platform::wake_at(double time_s) {
  // An earlier wake-up asks for the later one again when it comes.
  if (impl_->wake <= time_s) return;
  impl_->wake = time_s;
  simgrid::kernel::timer::Timer::set(std::max(time_s, now_s()), [this, time_s] {
    if (impl_->wake == time_s) impl_->wake = std::numeric_limits<double>::infinity();
    impl_->on_time();
  });
}

void Platform::run(const std::function<void()>& on_time,
                   const std::function<void(const std::vector<int>&)>& on_done) {
  impl_->on_time = on_time;
  impl_->on_done = on_done;
  impl_->engine->run();
}

}  // namespace orrery::sim
