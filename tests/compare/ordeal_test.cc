// Who stops, who goes on and what is lost, by numbers that are worked out by hand.
#include "compare/ordeal.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace orrery::comparison {
namespace {

// Four workers on two nodes, a step a second, ten samples each.
Field four() {
  Field field;
  field.compute_s = {0.75, 0.75, 0.75, 0.75};
  field.healthy_s = 0.75;
  field.samples_each = 10;
  field.step_s = 1;
  field.of_node = 2;
  field.exchange = [](int) { return Field::Exchange{0.25, 0.25, 0}; };
  return field;
}

OrdealOptions options() {
  OrdealOptions options;
  options.horizon_s = 1000;
  options.checkpoint_every_s = 100;
  options.restart_s = 10;
  options.replace_s = 50;
  return options;
}

Trouble death(Role role, int at, double when_s) {
  Trouble trouble;
  trouble.kind = TroubleKind::dies;
  trouble.role = role;
  trouble.at = at;
  trouble.when_s = when_s;
  return trouble;
}

Strategy one(std::string_view name) {
  return parse_strategies(name).front();
}

TEST_CASE("all restart from the checkpoint when a worker of an all-reduce dies") {
  // At 250 s: 50 s of 40 samples are lost, 600 s pass until the watchdog sees it, 10 until it runs again.
  const Ordeal ordeal = ordeal_of(one("ddp"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(ordeal.lost_samples == Approx(50 * 40));
  CHECK(ordeal.stood_s == Approx(610));
  CHECK(ordeal.samples == Approx((200 + 140) * 40));
  CHECK(ordeal.workers == 4);
  REQUIRE(ordeal.story.size() == 1);
}

TEST_CASE("an elastic job goes on with the other node and grows again") {
  // torchrun: seen after 15 s, meets again after 10; the node is back 50 s after it died: another 10 s, and
  // what was done since the checkpoint at 200 s and since then is done again.
  const Ordeal ordeal = ordeal_of(one("ddp-elastic"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(ordeal.stood_s == Approx(25 + 10));
  CHECK(ordeal.workers == 4);
  // 250 to 275 stands; 275 to 300 two workers, checkpoint at 300; back at 300: nothing more is lost.
  CHECK(ordeal.lost_samples == Approx(50 * 40));
  CHECK(ordeal.samples == Approx(200 * 40 + 25 * 20 + (1000 - 310) * 40));
}

TEST_CASE("a commit every ten steps loses less than ten of them") {
  const Ordeal ordeal = ordeal_of(one("horovod-elastic"), four(), {death(Role::worker, 3, 257)}, options());
  CHECK(ordeal.lost_samples == Approx(7 * 40));  // the last stretch began with the checkpoint at 200 s
}

TEST_CASE("asynchronous workers go on without the one that died") {
  const Ordeal ordeal = ordeal_of(one("ps-async"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(ordeal.lost_samples == 0);
  CHECK(ordeal.stood_s == 0);
  CHECK(ordeal.samples == Approx(1000 * 40 - 60 * 10));  // replaced after 50 s, started after 10 more
}

TEST_CASE("synchronous servers wait for the dead worker, and lose nothing") {
  const Ordeal ordeal = ordeal_of(one("ps-sync"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(ordeal.lost_samples == 0);
  CHECK(ordeal.stood_s == Approx(60));
  CHECK(ordeal.samples == Approx(940 * 40));
}

TEST_CASE("a backup worker stands in for a dead one, and for no second one") {
  const Ordeal one_dead = ordeal_of(one("ps-backup"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(one_dead.stood_s == 0);
  CHECK(one_dead.samples == Approx(1000 * 30));
  const Ordeal two_dead = ordeal_of(one("ps-backup"), four(),
                                    {death(Role::worker, 3, 250), death(Role::worker, 2, 250)}, options());
  CHECK(two_dead.stood_s == Approx(60));
}

TEST_CASE("a dead server stops all, a dead coordinator stops all without a loss, and others have none") {
  const Ordeal server = ordeal_of(one("ps-async"), four(), {death(Role::server, 0, 250)}, options());
  CHECK(server.lost_samples == Approx(50 * 40));
  CHECK(server.stood_s == Approx(60));
  const Ordeal chief = ordeal_of(one("ps-async"), four(), {death(Role::chief, 0, 250)}, options());
  CHECK(chief.lost_samples == 0);
  CHECK(chief.stood_s == Approx(60));
  const Ordeal none = ordeal_of(one("ddp"), four(), {death(Role::server, 0, 250)}, options());
  CHECK(none.samples == Approx(1000 * 40));
  CHECK(none.story.size() == 1);
}

TEST_CASE("Ray's actors are started again max_restarts times, and by default never") {
  const std::vector<Trouble> twice = {death(Role::worker, 3, 250), death(Role::worker, 3, 600)};
  // By default three workers go on from 250 s.
  const Ordeal never = ordeal_of(one("ray-ps"), four(), twice, options());
  CHECK(never.samples == Approx(250 * 40 + 750 * 30));
  CHECK(never.workers == 3);
  // Health checks take 62 s, longer than the replacement, and the start 10: away for 72 s.
  const Ordeal once = ordeal_of(one("ray-ps:max_restarts=1"), four(), twice, options());
  CHECK(once.samples == Approx(1000 * 40 - 72 * 10 - 400 * 10));
  CHECK(once.workers == 3);
  const Ordeal always = ordeal_of(one("ray-ps:max_restarts=-1"), four(), twice, options());
  CHECK(always.samples == Approx(1000 * 40 - 2 * 72 * 10));
  CHECK(always.stood_s == 0);
}

TEST_CASE("Ray Train starts again max_failures times, elastic with the node that is left") {
  const std::vector<Trouble> one_death = {death(Role::worker, 3, 250)};
  // By default the run ends: what was done since the checkpoint at 200 s is lost, and nothing more is done.
  const Ordeal ended = ordeal_of(one("ray-train"), four(), one_death, options());
  CHECK(ended.samples == Approx(200 * 40));
  CHECK(ended.stood_s == Approx(750));
  CHECK(ended.story.front().find("the run ends") != std::string::npos);
  // Else it stands for 62 s of health checks and 10 to start: 322 to 1000 s.
  const Ordeal again = ordeal_of(one("ray-train:max_failures=1"), four(), one_death, options());
  CHECK(again.samples == Approx((200 + 678) * 40));
  CHECK(again.lost_samples == Approx(50 * 40));
  CHECK(again.stood_s == Approx(72));
  // Elastic: its node is back when the death is noticed, so that all meet again after the two of the other
  // node have just started: 10 s more.
  const Ordeal elastic = ordeal_of(one("ray-elastic:max_failures=1"), four(), one_death, options());
  CHECK(elastic.samples == Approx((200 + 668) * 40));
  CHECK(elastic.workers == 4);
}

TEST_CASE("how long a death goes unnoticed can be said, and Gloo has a patience of its own") {
  const std::vector<Trouble> one_death = {death(Role::worker, 3, 250)};
  // As soon as the replacement is there, after 50 s, and 10 to start.
  CHECK(ordeal_of(one("ddp:notice=5s"), four(), one_death, options()).stood_s == Approx(60));
  CHECK(ordeal_of(one("ddp:notice=2min"), four(), one_death, options()).stood_s == Approx(130));
  CHECK(one("ddp:library=gloo").worker.notice_s == 1800);
  CHECK(one("horovod:library=gloo").worker.notice_s == 30);
  CHECK(one("horovod:library=mpi").worker.notice_s == 60);
  CHECK(one("ddp-elastic:library=gloo").worker.notice_s == 15);  // torchrun finds out first
  CHECK(ordeal_of(one("horovod:library=gloo"), four(), one_death, options()).stood_s == Approx(60));
}

TEST_CASE("bounded workers run ahead of a dead one, and stand until it is known to be dead") {
  // Three steps of a second ahead; noticed after 10 s: 7 s of standing. Replaced after 60.
  const Ordeal bounded = ordeal_of(one("ps-bounded"), four(), {death(Role::worker, 3, 250)}, options());
  CHECK(bounded.stood_s == Approx(7));
  CHECK(bounded.samples == Approx(1000 * 40 - 60 * 10 - 7 * 30).epsilon(2e-3));
}

TEST_CASE("whoever starts again together loses what was done since the checkpoint") {
  // Noticed, replaced after 50 s if that takes longer, started in 10; 50 s of 40 samples are lost.
  const std::vector<std::pair<const char*, double>> stood = {
      {"data-parallel", 60},  // the process was all there was: noticed at once
      {"mirrored", 60},
      {"multi-worker-mirrored", 60},  // heartbeats of 10 s
      {"horovod", 70},                // a stall check of 60
      {"fsdp", 610},
      {"hsdp", 610},
      {"deepspeed-zero2", 610},
      {"megatron", 610},
      {"local-sgd", 610}};
  for (const auto& [name, seconds] : stood)
    for (const Role role : {Role::worker, Role::chief}) {
      CAPTURE(name);
      const Ordeal ordeal = ordeal_of(one(name), four(), {death(role, 3, 250)}, options());
      CHECK(ordeal.stood_s == Approx(seconds));
      if (one(name).rendezvous == Rendezvous::all) {
        CHECK(ordeal.lost_samples == Approx(50 * 40));
        CHECK(ordeal.samples == Approx((950 - seconds) * 40));
      }
    }
}

TEST_CASE("DiLoCo's workers go on without one, whose shard waits for it") {
  // Steps of 0.75 s, one average of 5 s in ten of them: 12.5 s a round. Gone until 60 s after its death, but
  // known only after 600: replaced then, and started in 10.
  Field field = four();
  field.exchange = [](int) { return Field::Exchange{0, 0, 5}; };
  field.step_s = 1.25;
  const Ordeal ordeal =
      ordeal_of(one("diloco:local_steps=10"), field, {death(Role::worker, 3, 250)}, options());
  CHECK(ordeal.lost_samples == 0);
  CHECK(ordeal.stood_s == 0);
  CHECK(ordeal.workers == 4);
  CHECK(ordeal.samples == Approx(1000 / 12.5 * 10 * 40 - 610 / 12.5 * 10 * 10).epsilon(0.01));
}

TEST_CASE("who goes on meets the exchange of those that are left") {
  const std::vector<Trouble> both = {death(Role::worker, 3, 250), death(Role::worker, 2, 500)};
  for (const char* name : {"ps-async", "ps-bounded", "ps-backup", "diloco"}) {
    CAPTURE(name);
    CHECK(sizes_of(one(name), both, 8, 1) == std::vector<int>{6, 7});
  }
  CHECK(sizes_of(one("ddp"), both, 8, 1).empty());
  CHECK(sizes_of(one("ps-async"), {death(Role::server, 0, 250)}, 8, 1).empty());
  // A server that three keep busy all the time, 1/30 s for each of a second's 30 steps: two have as many.
  Field field = four();
  field.exchange = [](int workers) { return Field::Exchange{workers / 30.0, workers / 30.0, 0}; };
  field.compute_s = {0, 0, 0};
  field.samples_each = 1;
  const Ordeal ordeal = ordeal_of(one("ps-async"), field, {death(Role::worker, 2, 250)}, options());
  CHECK(ordeal.samples == Approx(1000 * 30).epsilon(1e-3));
}

TEST_CASE("workers leave and join where the strategy lets them") {
  Trouble leaves;
  leaves.kind = TroubleKind::leaves;
  leaves.devices = 2;
  leaves.when_s = 500;
  Trouble joins = leaves;
  joins.kind = TroubleKind::joins;
  CHECK(ordeal_of(one("ps-async"), four(), {leaves}, options()).samples == Approx(500 * 40 + 500 * 20));
  CHECK(ordeal_of(one("ps-async"), four(), {joins}, options()).samples == Approx(500 * 40 + 500 * 60));
  CHECK(ordeal_of(one("horovod-elastic"), four(), {leaves}, options()).samples ==
        Approx(500 * 40 + 490 * 20));
  CHECK(ordeal_of(one("ddp"), four(), {joins}, options()).samples == Approx(1000 * 40));
}

}  // namespace
}  // namespace orrery::comparison
