// Asynchronous parameter servers: what workers and servers do, and what bounds a worker's lead.
#include <catch2/catch.hpp>
#include <functional>

#include "base/error.h"
#include "program/lower/lowering.h"
#include "program/operator_work.h"
#include "tests/support/small_plans.h"

namespace orrery {
namespace {

Plan asynchronous(int workers, int servers, int staleness = 0) {
  Choices choices;
  choices.dp = workers;
  choices.sync = Sync::async_parameter_server;
  choices.servers = servers;
  choices.staleness = staleness;
  choices.bucket_bytes = 6000;
  return {test::small_job({}, 2 * workers), choices};
}

double elements_of(const Program& program) {
  double elements = 0;
  for (const Bucket& bucket : program.buckets) elements += static_cast<double>(bucket.elements);
  return elements;
}

bool updates(const Instruction& instruction) {
  return instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
}

}  // namespace

TEST_CASE("every push to an asynchronous server is applied and answered, whoever pushes") {
  for (const int workers : {2, 3, 5}) {
    for (int servers = 1; servers <= workers; ++servers) {
      for (const bool overlap : {true, false}) {
        Plan plan = asynchronous(workers, servers);
        plan.choices.overlap_grad_reduce = overlap;
        check_plan(plan);
        std::vector<Program> programs;
        for (int rank = 0; rank < workers; ++rank) programs.push_back(lower(plan, rank));
        verify_programs(programs);
        CAPTURE(workers, servers, overlap);
        double pushed = 0, pulled = 0, updated = 0;
        for (const Program& program : programs) {
          CHECK(program.services.size() ==
                (program.rank < servers ? static_cast<std::size_t>(workers - 1) : 0));
          for (std::size_t i = 0; i < instruction_count(program); ++i) {
            const Instruction& instruction = instruction_at(program, i);
            for (const Transfer& transfer : instruction.transfers)
              if (transfer.send)
                (transfer.tensor.kind == TensorKind::gradients ? pushed : pulled) += transfer.bytes;
            if (updates(instruction)) updated += instruction.bytes;
          }
        }
        const double elements = elements_of(programs[0]);
        // A rank keeps its own slice: of each server's slice all workers but its own rank's push.
        CHECK(pushed == Approx(4 * elements * (workers - 1)));
        CHECK(pulled == pushed);
        const Job& job = *plan.job;
        CHECK(updated == Approx(workers * elements *
                                optimizer_traffic_per_parameter(job.training.optimizer,
                                                                job.training.precision, job.runtime)));
      }
    }
  }
}

TEST_CASE("asynchronous workers meet nobody but servers, and only what is pulled is bounded") {
  for (const int staleness : {0, 1, 4}) {
    const Plan plan = asynchronous(4, 2, staleness);
    for (int rank = 0; rank < 4; ++rank) {
      const Program program = lower(plan, rank);
      for (std::size_t i = 0; i < instruction_count(program); ++i) {
        const Instruction& instruction = instruction_at(program, i);
        CHECK(instruction.op != Op::collective);
        const bool hands_over = instruction.op == Op::exchange && rank < 2 &&
                                instruction.reads.front().kind == TensorKind::parameters;
        CHECK(instruction.lead == (hands_over && staleness > 0 ? staleness : -1));
      }
    }
  }
}

TEST_CASE("what asynchronous servers cannot be combined with is refused in one line") {
  const auto refused = [](const std::function<void(Choices&)>& change, const std::string& option) {
    Plan plan = asynchronous(4, 2);
    change(plan.choices);
    CAPTURE(option);
    CHECK_THROWS_WITH(check_plan(plan), Catch::Contains(option) && !Catch::Contains("\n"));
  };
  refused([](Choices& c) { c.servers = 0; }, "`servers` 0");
  refused([](Choices& c) { c.servers = 5; }, "`servers` 5");
  refused([](Choices& c) { c.staleness = -1; }, "`staleness` -1");
  refused([](Choices& c) { c.zero = 1; }, "`zero` 1");
  refused([](Choices& c) { c.grad_compression = Compression::fp16; }, "`grad_compression` fp16");
  refused([](Choices& c) { c.replica_batches = {1, 1, 1, 5}; }, "uneven replica batches");
  refused([](Choices& c) { c.dp = 2, c.tp = 2; }, "`dp` alone");
  refused([](Choices& c) { c.sync = Sync::parameter_server, c.staleness = 2; }, "`staleness` 2");
}

}  // namespace orrery
