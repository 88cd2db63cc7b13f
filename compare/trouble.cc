#include "compare/trouble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "compare/quantity.h"

namespace orrery::comparison {
namespace {

constexpr std::array<std::string_view, 8> kKinds = {"slow-device", "slow-link", "neighbour", "lognormal",
                                                    "on-off",      "dies",      "leaves",    "joins"};
constexpr std::array<std::string_view, 8> kForms = {"slow-device=RANK:SPEED",
                                                    "slow-link=NODE:SPEED",
                                                    "neighbour=NODE:SHARE[:ON_S:OFF_S]",
                                                    "lognormal=SIGMA",
                                                    "on-off=RANK:SPEED:ON_S:OFF_S",
                                                    "dies=worker:RANK@S, dies=chief@S or dies=server:RANK@S",
                                                    "leaves=DEVICES@S",
                                                    "joins=DEVICES@S"};
constexpr std::array<std::string_view, 3> kRoles = {"worker", "chief", "server"};
constexpr double kMostSigma = 3;
constexpr std::uint64_t kTurnStreams = std::uint64_t{1} << 40;  // beyond those of workers

class Reader {
 public:
  Reader(std::string_view text, const Cluster& cluster) : text_(text), cluster_(cluster) {}

  Trouble read() {
    Trouble trouble;
    trouble.text = text_;
    const auto equals = text_.find('=');
    const std::string name = lower_case(text_.substr(0, equals));
    const auto kind = std::find(kKinds.begin(), kKinds.end(), name);
    if (equals == std::string_view::npos || kind == kKinds.end()) refuse_kind(name);
    trouble.kind = static_cast<TroubleKind>(kind - kKinds.begin());
    form_ = kForms.at(static_cast<std::size_t>(trouble.kind));
    std::string_view rest = text_.substr(equals + 1);
    if (trouble.is_event()) {
      const auto at = rest.find('@');
      if (at == std::string_view::npos) refuse();
      trouble.when_s = seconds(rest.substr(at + 1));
      rest = rest.substr(0, at);
    }
    parts_ = split(rest, ':');
    fill(&trouble);
    return trouble;
  }

 private:
  // With the form of the kind that was meant, or of all.
  [[noreturn]] void refuse_kind(const std::string& name) const {
    const std::string meant = suggestion(name, {kKinds.begin(), kKinds.end()});
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](std::string_view one) {
      return meant.starts_with(fmt::format("did you mean '{}'?", one));
    });
    throw UserError(
        fmt::format("`trouble` '{}' is unknown", text_),
        kind == kKinds.end()
            ? fmt::format("expected one of {}", fmt::join(kForms, "; "))
            : fmt::format("did you mean {}?", kForms.at(static_cast<std::size_t>(kind - kKinds.begin()))));
  }

  [[noreturn]] void refuse() const {
    throw UserError(fmt::format("`trouble` {}", text_), fmt::format("expected {}", form_));
  }
  [[noreturn]] void refuse(std::string_view expected) const {
    throw UserError(fmt::format("`trouble` {}", text_), fmt::format("expected {}: {}", form_, expected));
  }
  double seconds(std::string_view text) const {
    const auto value = parse_seconds(text);
    if (!value) refuse();
    return *value;
  }
  double fraction(const std::string& text) const {
    const auto value = parse_number(text);
    if (!value || !(*value > 0 && *value < 1)) refuse("a fraction between 0 and 1");
    return *value;
  }
  int index(const std::string& text, int count, std::string_view what) const {
    const auto value = parse_whole(text);
    if (!value || *value < 0 || *value >= count) refuse(fmt::format("{} from 0 to {}", what, count - 1));
    return static_cast<int>(*value);
  }
  void expect(std::size_t least, std::size_t most) const {
    if (parts_.size() < least || parts_.size() > most) refuse();
  }
  void turns(Trouble* trouble, std::size_t first) const {
    trouble->on_s = seconds(parts_[first]);
    trouble->off_s = seconds(parts_[first + 1]);
    if (!(trouble->on_s > 0 && trouble->off_s > 0)) refuse("lengths above 0");
  }

  void fill(Trouble* trouble) const {
    switch (trouble->kind) {
      case TroubleKind::slow_device:
      case TroubleKind::on_off:
        expect(trouble->kind == TroubleKind::on_off ? 4 : 2, trouble->kind == TroubleKind::on_off ? 4 : 2);
        trouble->at = index(parts_[0], cluster_.devices(), "a rank");
        trouble->speed = fraction(parts_[1]);
        if (trouble->kind == TroubleKind::on_off) turns(trouble, 2);
        return;
      case TroubleKind::slow_link:
      case TroubleKind::neighbour:
        expect(2, trouble->kind == TroubleKind::neighbour ? 4 : 2);
        if (parts_.size() == 3) refuse();
        trouble->at = index(parts_[0], cluster_.nodes(), "a node");
        if (cluster_.nodes() < 2 || cluster_.node_type(trouble->at).nic.count == 0)
          refuse("nodes with ports to each other");
        trouble->speed =
            trouble->kind == TroubleKind::neighbour ? 1 - fraction(parts_[1]) : fraction(parts_[1]);
        if (parts_.size() == 4) turns(trouble, 2);
        return;
      case TroubleKind::lognormal: {
        expect(1, 1);
        const auto sigma = parse_number(parts_[0]);
        if (!sigma || !(*sigma > 0 && *sigma <= kMostSigma))
          refuse(fmt::format("above 0, up to {}", kMostSigma));
        trouble->sigma = *sigma;
        return;
      }
      case TroubleKind::dies: {
        expect(1, 2);
        const auto role = std::find(kRoles.begin(), kRoles.end(), parts_[0]);
        if (role == kRoles.end()) refuse();
        trouble->role = static_cast<Role>(role - kRoles.begin());
        if (trouble->role == Role::chief ? parts_.size() != 1 : parts_.size() != 2) refuse();
        if (parts_.size() == 2) trouble->at = index(parts_[1], cluster_.devices(), "a rank");
        return;
      }
      case TroubleKind::leaves:
      case TroubleKind::joins: {
        expect(1, 1);
        const auto devices = parse_whole(parts_[0]);
        const int most = trouble->kind == TroubleKind::leaves ? cluster_.devices() - 1 : 1 << 20;
        if (!devices || *devices < 1 || *devices > most) refuse(fmt::format("1 to {} devices", most));
        trouble->devices = static_cast<int>(*devices);
        return;
      }
    }
  }

  std::string_view text_, form_;
  const Cluster& cluster_;
  std::vector<std::string> parts_;
};

}  // namespace

std::string_view name_of(Role role) {
  return name_in(kRoles, role);
}

Trouble parse_trouble(std::string_view text, const Cluster& cluster) {
  return Reader(text, cluster).read();
}

Cluster with_trouble(Cluster cluster, const std::vector<Trouble>& all, bool by_turns) {
  for (const Trouble& trouble : all) {
    if (trouble.kind == TroubleKind::slow_device) {
      const DevicePlace place = cluster.place(trouble.at);
      cluster.overrides.push_back({place.node, place.local, 0, OverrideTarget::device, trouble.speed});
    }
    const bool now = trouble.kind == TroubleKind::slow_link ||
                     (trouble.kind == TroubleKind::neighbour && (trouble.on_s == 0 || by_turns));
    if (!now) continue;
    for (int port = 0; port < cluster.node_type(trouble.at).nic.count; ++port)
      cluster.overrides.push_back({trouble.at, 0, port, OverrideTarget::nic, trouble.speed});
  }
  return cluster;
}

bool has_neighbour_by_turns(const std::vector<Trouble>& all) {
  return std::any_of(all.begin(), all.end(), [](const Trouble& trouble) {
    return trouble.kind == TroubleKind::neighbour && trouble.on_s > 0;
  });
}

// The i-th stretch, of an exponential length; even ones are off.
void Turns::reach(double time_s) {
  while (changes_.back() <= time_s) {
    const std::size_t i = changes_.size() - 1;
    const double mean_s = i % 2 == 0 ? off_s_ : on_s_;
    changes_.push_back(changes_.back() - mean_s * std::log1p(-random_.uniform(i)));
  }
}

bool Turns::on_at(double time_s) {
  reach(time_s);
  const auto after = std::upper_bound(changes_.begin(), changes_.end(), time_s);
  return (after - changes_.begin()) % 2 == 0;
}

double Turns::end_of(double start_s, double work_s, double speed) {
  double now = start_s;
  while (work_s > 0) {
    reach(now);
    const double until = *std::upper_bound(changes_.begin(), changes_.end(), now);
    const double rate = on_at(now) ? speed : 1;
    if (now + work_s / rate <= until) return now + work_s / rate;
    work_s -= (until - now) * rate;
    now = until;
  }
  return now;
}

double Turns::share_on(double begin_s, double end_s) {
  double on_s = 0;
  for (double now = begin_s; now < end_s;) {
    reach(now);
    const double until = std::min(end_s, *std::upper_bound(changes_.begin(), changes_.end(), now));
    if (on_at(now)) on_s += until - now;
    now = until;
  }
  return end_s > begin_s ? on_s / (end_s - begin_s) : 0;
}

Disturbance::Disturbance(const std::vector<Trouble>& all, std::uint64_t seed) : seed_(seed) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Trouble& trouble = all[i];
    if (trouble.kind == TroubleKind::lognormal) sigma_ = std::hypot(sigma_, trouble.sigma);
    if (trouble.kind == TroubleKind::on_off)
      turns_.push_back(
          {trouble.at, trouble.speed, Turns(seed, kTurnStreams + i, trouble.on_s, trouble.off_s)});
    if (trouble.kind == TroubleKind::neighbour && trouble.on_s > 0 && neighbour_.empty())
      neighbour_.emplace_back(seed, kTurnStreams + i, trouble.on_s, trouble.off_s);
  }
}

double Disturbance::end_of(int worker, std::int64_t step, double start_s, double work_s) {
  if (sigma_ > 0) {
    const double z =
        CounterRandom(seed_, static_cast<std::uint64_t>(worker)).normal(static_cast<std::uint64_t>(step));
    work_s *= std::exp(sigma_ * z - sigma_ * sigma_ / 2);
  }
  for (Slow& slow : turns_)
    if (slow.worker == worker) return slow.turns.end_of(start_s, work_s, slow.speed);
  return start_s + work_s;
}

double Disturbance::exchange_end(double start_s, double quiet_s, double busy_s) {
  if (neighbour_.empty() || quiet_s <= 0 || busy_s <= 0) return start_s + quiet_s;
  return neighbour_.front().end_of(start_s, quiet_s, quiet_s / busy_s);
}

}  // namespace orrery::comparison
