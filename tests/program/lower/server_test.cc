// Parameter servers and a single process: who sends what to whom.
#include <catch2/catch.hpp>

#include "program/placement.h"
#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::collective_bytes;
using orrery::test::count;
using orrery::test::flops_of;
using orrery::test::lower_all;
using orrery::test::parameters;
using orrery::test::small_plan;
using orrery::test::verify;

TEST_CASE("parameter servers take a slice of every bucket from every worker and give parameters back") {
  for (const int servers : {1, 2, 3, 4}) {
    for (const bool clip : {false, true}) {
      Choices choices;
      choices.dp = 4;
      choices.sync = Sync::parameter_server;
      choices.servers = servers;
      choices.bucket_bytes = 6000;
      auto job = test::small_job({}, 8);
      job->runtime.clip_gradients = clip;
      const Plan plan{job, choices};
      verify(plan);
      double sent = 0;
      int updates = 0;
      double updated_bytes = 0;
      const auto programs = lower_all(plan);
      for (const Program& program : programs) {
        for (const Instruction& instruction : program.instructions) {
          std::vector<int> peers;
          for (const Transfer& transfer : instruction.transfers) {
            sent += transfer.send ? transfer.bytes : 0;
            if (transfer.send && transfer.tensor.kind == TensorKind::gradients)
              peers.push_back(transfer.peer);
          }
          // Not all of them into the same port first.
          if (!peers.empty() && program.rank >= servers) CHECK(peers.front() == program.rank % servers);
          if (instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer) {
            updates += instruction.op_end - instruction.op_begin;
            updated_bytes += instruction.bytes;
          }
        }
      }
      CHECK(sent == 3 * 2 * 4 * parameters(programs[0]));  // three workers' there and back
      CHECK(updates == servers * static_cast<int>(programs[0].buckets.size()));  // each bucket in slices
      CHECK(updated_bytes == Approx(parameters(programs[0]) *
                                    optimizer_traffic_per_parameter(job->training.optimizer,
                                                                    job->training.precision, job->runtime)));
    }
  }
}

TEST_CASE("slices of parameter servers cover a bucket once, none longer by more than an element") {
  for (const std::int64_t elements : {0, 1, 5, 12, 1003})
    for (int servers = 1; servers <= 7; ++servers) {
      std::int64_t at = 0;
      for (int s = 0; s < servers; ++s) {
        const ServerSlice slice = server_slice(elements, servers, s);
        CHECK(slice.begin == at);
        CHECK(slice.elements >= elements / servers);
        CHECK(slice.elements <= elements / servers + 1);
        at += slice.elements;
      }
      CHECK(at == elements);
    }
}

TEST_CASE("one process scatters inputs, replicates parameters and gathers gradients on device 0") {
  Choices choices;
  choices.dp = 4;
  choices.sync = Sync::single_process;
  choices.bucket_bytes = 6000;
  const Plan plan = small_plan(choices, 2);
  verify(plan);
  for (const int rank : {0, 3}) {
    const Program program = lower(plan, rank);
    // In every micro-batch, as torch.nn.DataParallel does at every call.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::broadcast) == 2 * 4 * parameters(program));
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::reduce) == 2 * 4 * parameters(program));
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::scatter) == 2 * 4 * 8 * 2 * 4);
    CHECK(flops_of(program, [](ComputeKind kind) { return kind == ComputeKind::optimizer; }) == 0);
    const int updates = count(program, [](const Instruction& instruction) {
      return instruction.op == Op::compute && instruction.compute == ComputeKind::optimizer;
    });
    CHECK(updates == (rank == 0 ? 1 : 0));
  }
}
