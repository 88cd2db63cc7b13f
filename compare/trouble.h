// What goes wrong: as people say it, as it changes a cluster, and as it slows workers from moment to moment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "topologies/cluster.h"

namespace orrery::comparison {

enum class TroubleKind : std::uint8_t {
  slow_device,  // RANK:SPEED
  slow_link,    // NODE:SPEED, all of its ports
  neighbour,    // NODE:SHARE[:ON_S:OFF_S] of its ports that somebody else takes, always or by turns
  lognormal,    // SIGMA, every worker and step by itself, 1 in the mean
  on_off,       // RANK:SPEED:ON_S:OFF_S, slow by turns of exponential length
  dies,         // worker:RANK@S, chief@S, server:RANK@S
  leaves,       // DEVICES@S, announced
  joins,        // DEVICES@S
};
enum class Role : std::uint8_t { worker, chief, server };
std::string_view name_of(Role role);

struct Trouble {
  TroubleKind kind = TroubleKind::slow_device;
  int at = 0;        // rank or node
  double speed = 1;  // fraction of nominal that is left
  double sigma = 0;
  double on_s = 0, off_s = 0;  // mean lengths; 0: always
  Role role = Role::worker;
  int devices = 0;  // that leave or join
  double when_s = 0;
  std::string text;  // as it was said

  bool is_event() const {
    return kind == TroubleKind::dies || kind == TroubleKind::leaves || kind == TroubleKind::joins;
  }
};

// "slow-device=3:0.2", "lognormal=0.3", "dies=worker:3@100", …. Throws UserError, also where the cluster has
// no such rank or node.
Trouble parse_trouble(std::string_view text, const Cluster& cluster);

// The cluster with what is always there: slow devices, slow links, neighbours that never rest; `by_turns`:
// those that do, while they are at it.
Cluster with_trouble(Cluster cluster, const std::vector<Trouble>& all, bool by_turns);
// Whether a neighbour comes and goes.
bool has_neighbour_by_turns(const std::vector<Trouble>& all);

// Something that is on and off by turns of exponential length, off at first. Drawn by (seed, stream) alone.
class Turns {
 public:
  Turns(std::uint64_t seed, std::uint64_t stream, double on_s, double off_s)
      : random_(seed, stream), on_s_(on_s), off_s_(off_s) {}
  // When work that takes `work_s` alone ends, begun at `start_s`, going at `speed` while it is on.
  double end_of(double start_s, double work_s, double speed);
  bool on_at(double time_s);
  // The share of [begin_s, end_s) that it is on.
  double share_on(double begin_s, double end_s);

 private:
  void reach(double time_s);
  CounterRandom random_;
  double on_s_, off_s_;
  std::vector<double> changes_ = {0};  // when each stretch begins: the first is off, the next on, and so on
};

// How long workers' steps take from moment to moment.
class Disturbance {
 public:
  // Streams of randomness: one for each worker's steps, one for each trouble that takes turns.
  Disturbance(const std::vector<Trouble>& all, std::uint64_t seed);
  // When a step of `work_s` of this worker ends.
  double end_of(int worker, std::int64_t step, double start_s, double work_s);
  // When an exchange ends that takes `quiet_s`, or `busy_s` while the neighbour is at it.
  double exchange_end(double start_s, double quiet_s, double busy_s);
  bool any() const { return sigma_ > 0 || !turns_.empty(); }

 private:
  struct Slow {
    int worker = 0;
    double speed = 1;
    Turns turns;
  };
  std::uint64_t seed_;
  double sigma_ = 0;
  std::vector<Slow> turns_;
  std::vector<Turns> neighbour_;  // none or one
};

}  // namespace orrery::comparison
