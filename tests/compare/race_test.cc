// Each way of rendezvous, by numbers that are worked out by hand.
#include "compare/race.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace orrery::comparison {
namespace {

Race four(Rendezvous rendezvous) {
  Race race;
  race.rendezvous = rendezvous;
  race.compute_s = {1, 1, 1, 5};
  race.exchange_s = race.busy_exchange_s = 0.5;
  return race;
}

TEST_CASE("workers that wait for all are as fast as the slowest") {
  Disturbance quiet({}, 1);
  const Raced raced = race(four(Rendezvous::all), quiet, 0, 55);  // ten steps of 5.5 s
  CHECK(raced.worker_steps == Approx(40));
  CHECK(raced.waiting_s == std::vector<double>{40, 40, 40, 0});
  CHECK(raced.mean_waiting_share() == Approx(30.0 / 55));
  CHECK(raced.worst_waiting_share() == Approx(40.0 / 55));
}

TEST_CASE("a backup worker takes the slowest out of the step") {
  Race one = four(Rendezvous::first);
  one.backups = 1;
  Disturbance quiet({}, 1);
  const Raced raced = race(one, quiet, 0, 15);  // ten steps of 1.5 s, three gradients each
  CHECK(raced.worker_steps == Approx(30));
  // It ends its first at 5, in the fourth step, its second at 10, its third at 15.
  CHECK(raced.dropped == Approx(3));
  one.backups = 0;
  CHECK(race(one, quiet, 0, 55).worker_steps ==
        Approx(race(four(Rendezvous::all), quiet, 0, 55).worker_steps));
}

TEST_CASE("workers that wait for nobody add up their rates") {
  Disturbance quiet({}, 1);
  const Raced raced = race(four(Rendezvous::nobody), quiet, 0, 33);
  CHECK(raced.worker_steps == Approx(3 * 33 / 1.5 + 33 / 5.5));
  CHECK(raced.mean_waiting_share() == 0);
}

TEST_CASE("bounded staleness ends as fast as the slowest") {
  Race bounded = four(Rendezvous::bounded);
  bounded.staleness = 2;
  Disturbance quiet({}, 1);
  // All but the head start of two steps and one in hand.
  const Raced raced = race(bounded, quiet, 0, 550);
  CHECK(raced.worker_steps == Approx(4 * 100).margin(3 * 3));
  CHECK(raced.worker_steps >= 400);
  // It takes up what comes and goes: a stop of one worker within the bound costs the others nothing.
  bounded.staleness = 1000;
  CHECK(race(bounded, quiet, 0, 33).worker_steps ==
        Approx(race(four(Rendezvous::nobody), quiet, 0, 33).worker_steps));
}

TEST_CASE("workers that average every so often wait for the slowest once in so many steps") {
  Race local = four(Rendezvous::periodic);
  local.compute_s = {1, 1, 1, 2};
  local.exchange_s = local.busy_exchange_s = 0;
  local.local_steps = 4;
  local.average_s = 2;
  Disturbance quiet({}, 1);
  const Raced raced = race(local, quiet, 0, 100);  // ten rounds of 4 x 2 + 2 s
  CHECK(raced.worker_steps == Approx(4 * 4 * 10));
  CHECK(raced.waiting_s[0] == Approx(40));
}

TEST_CASE("a slow worker that comes and goes is at its speed while it is on") {
  Turns turns(7, 3, 10, 30);
  double on_s = 0;
  const double end_s = turns.end_of(0, 1000, 0.5);
  on_s = turns.share_on(0, end_s) * end_s;
  CHECK(end_s == Approx(1000 + on_s / 2));
  // In the long run it is on for 10 of 40 seconds.
  CHECK(turns.share_on(0, 400000) == Approx(0.25).epsilon(0.03));
  Turns again(7, 3, 10, 30);
  CHECK(again.end_of(0, 1000, 0.5) == end_s);
}

TEST_CASE("lognormal steps have the mean that was asked for, and all wait for the largest of them") {
  Trouble jitter;
  jitter.kind = TroubleKind::lognormal;
  jitter.sigma = 0.5;
  Disturbance disturbance({jitter}, 11);
  Race alone;
  alone.compute_s = {1};
  CHECK(race(alone, disturbance, 0, 20000).worker_steps == Approx(20000).epsilon(0.02));
  // Two: the mean of the larger is 1 + erf(sigma / 2), of two lognormals of mean 1.
  Race two;
  two.compute_s = {1, 1};
  CHECK(race(two, disturbance, 0, 20000).worker_steps ==
        Approx(2 * 20000 / (1 + std::erf(0.25))).epsilon(0.02));
}

TEST_CASE("an exchange beside a neighbour that takes turns goes on at two rates") {
  Trouble neighbour;
  neighbour.kind = TroubleKind::neighbour;
  neighbour.on_s = 5;
  neighbour.off_s = 15;
  Disturbance disturbance({neighbour}, 3);
  Race exchanging;
  exchanging.compute_s = {0.001};
  exchanging.exchange_s = 1;
  exchanging.busy_exchange_s = 4;
  // On for a quarter of the time at a quarter of the rate.
  CHECK(race(exchanging, disturbance, 0, 40000).worker_steps ==
        Approx(40000 * (0.75 + 0.25 / 4)).epsilon(0.05));
}

TEST_CASE("a master with one queue hands out steps one after another") {
  Race served;
  served.rendezvous = Rendezvous::all;
  served.compute_s = {1, 1, 1, 1};
  served.exchange_s = served.busy_exchange_s = 0.5;
  served.dispatch_s = 0.1;
  Disturbance quiet({}, 1);
  // The last worker begins after 0.4 s: a step takes 0.4 + 1 + 0.5. Waiting for the master 0.1, 0.2, 0.3 and
  // 0.4 s, for the last 0.3, 0.2, 0.1 and 0.
  const Raced all = race(served, quiet, 0, 19);
  CHECK(all.worker_steps == Approx(40));
  for (const double waiting_s : all.waiting_s) CHECK(waiting_s == Approx(10 * 0.4));
  // Who waits for nobody asks again when he is done: 1.6 s a step, and the queue is empty by then.
  served.rendezvous = Rendezvous::nobody;
  CHECK(race(served, quiet, 0, 160).worker_steps == Approx(4 * 160 / 1.6).margin(4));
  // Half a second a step: the master's two steps a second are all that there are.
  served.dispatch_s = 0.5;
  const Raced queued = race(served, quiet, 0, 100);
  CHECK(queued.worker_steps == Approx(200).margin(4));
  // A worker's turn is every 2 s, of which it works 1.5.
  CHECK(queued.mean_waiting_share() == Approx(0.25).margin(0.02));
}

}  // namespace
}  // namespace orrery::comparison
