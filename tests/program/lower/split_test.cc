#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "base/error.h"
#include "program/lower/lowering.h"
#include "program/operator_work.h"
#include "program/tensor_shard.h"
#include "tests/support/jobs.h"
#include "tests/support/small_plans.h"
#include "workloads/graph_layers.h"
#include "workloads/graph_split.h"

namespace orrery {
namespace {

using test::make_job;

int index_of(const Workload& workload, const std::string& name) {
  for (std::size_t i = 0; i < workload.operators.size(); ++i)
    if (workload.operators[i].name == name) return static_cast<int>(i);
  FAIL("no operator " + name);
  return -1;
}

// VGG-16 with its first two fully connected layers split: 102.8M + 16.8M of its 138.4M weights.
std::shared_ptr<Job> weird_vgg(int devices, std::int64_t batch) {
  auto job = make_job("vgg16", "v100-ib100", devices, batch, 0);
  auto& operators = job->workload.operators;
  set_split(&operators[index_of(job->workload, "classifier.0")], TensorSplit::column);
  set_split(&operators[index_of(job->workload, "classifier.3")], TensorSplit::row);
  REQUIRE(complete_splits(&operators) == -1);
  return job;
}

Choices split_choices(int tp, int dp, int micro_batch) {
  Choices choices;
  choices.tp = tp;
  choices.dp = dp;
  choices.micro_batch = micro_batch;
  choices.sequence_parallel = true;
  choices.bucket_bytes = 64e6;
  return choices;
}

std::vector<Program> programs_of(const Plan& plan) {
  check_plan(plan);
  std::vector<Program> programs = test::lower_all(plan);
  verify_programs(programs);
  return programs;
}

struct Sent {
  int count = 0;
  double bytes = 0;
};

std::map<std::pair<GroupKind, CollectiveKind>, Sent> collectives_of(const Program& program) {
  std::map<std::pair<GroupKind, CollectiveKind>, Sent> sent;
  for (const Instruction& i : program.instructions) {
    if (i.op != Op::collective) continue;
    Sent& at = sent[{program.groups[static_cast<std::size_t>(i.group)].kind, i.collective}];
    ++at.count;
    at.bytes += i.bytes;
  }
  return sent;
}

TEST_CASE("fully connected layers split: samples are gathered, partial outputs scattered") {
  const auto job = weird_vgg(4, 64);
  const auto programs = programs_of({job, split_choices(4, 1, 64)});
  const auto sent = collectives_of(programs[1]);
  const double element = 2;  // bf16
  // 64 samples of 25,088 features before classifier.0, in both directions; 64 x 4096 gradients behind
  // classifier.3.
  const Sent gathered = sent.at({GroupKind::tensor, CollectiveKind::all_gather});
  CHECK(gathered.count == 3);
  CHECK(gathered.bytes == 64 * element * (2 * 25088 + 4096));
  // The gradient of classifier.0's input, and classifier.3's outputs.
  const Sent scattered = sent.at({GroupKind::tensor, CollectiveKind::reduce_scatter});
  CHECK(scattered.count == 2);
  CHECK(scattered.bytes == 64 * element * (25088 + 4096));
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_to_all}) == 0);
  // No gradient is summed twice: none over the tensor group at the end.
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_reduce}) == 0);
}

TEST_CASE("what tensor ranks hold whole is reduced over all of them, what is split over their replicas") {
  const auto job = weird_vgg(8, 64);
  const Plan plan{job, split_choices(4, 2, 32)};
  const auto programs = programs_of(plan);
  double whole = 0, split = 0;
  for (const Bucket& bucket : programs[5].buckets) {
    const Group& group = programs[5].groups[static_cast<std::size_t>(bucket.group)];
    for (const BucketParameter& slice : bucket.parameters) {
      (group.ranks.size() == 8 ? whole : split) += static_cast<double>(slice.elements);
      CHECK((group.ranks.size() == 8) == (group.kind == GroupKind::expert_data));
      if (group.ranks.size() != 8) CHECK(group.ranks == std::vector<std::int32_t>{1, 5});
    }
  }
  // classifier.0 and .3: weights and the first's bias; the second's bias is added by everyone.
  const double fully_connected = 25088.0 * 4096 + 4096 + 4096.0 * 4096;
  CHECK(split == fully_connected / 4);
  CHECK(whole == 138'357'544 - fully_connected);
}

TEST_CASE("a column split alone sends its features back to their samples") {
  auto job = make_job("resnet50", "v100-ib100", 4, 32, 0);
  auto& operators = job->workload.operators;
  set_split(&operators[index_of(job->workload, "fc")], TensorSplit::column);
  REQUIRE(complete_splits(&operators) == -1);
  const auto programs = programs_of({job, split_choices(4, 1, 32)});
  const auto sent = collectives_of(programs[0]);
  const Sent returned = sent.at({GroupKind::tensor, CollectiveKind::all_to_all});
  CHECK(returned.count == 2);                        // outputs, and their gradients
  CHECK(returned.bytes == 2 * 32 * 1000.0 / 4 * 2);  // bf16
  const Sent gathered = sent.at({GroupKind::tensor, CollectiveKind::all_gather});
  CHECK(gathered.bytes == 2 * 32 * 2048.0 * 2);
}

TEST_CASE("batch norm between split convolutions works on its own channels") {
  auto job = make_job("resnet50", "v100-ib100", 2, 8, 0);
  auto& operators = job->workload.operators;
  const int conv1 = index_of(job->workload, "layer4.1.conv1");
  const int conv2 = index_of(job->workload, "layer4.1.conv2");
  set_split(&operators[conv1], TensorSplit::column);
  set_split(&operators[conv2], TensorSplit::row);
  REQUIRE(complete_splits(&operators) == -1);
  const Operator& norm = operators[index_of(job->workload, "layer4.1.bn1")];
  CHECK(norm.split == TensorSplit::column);
  const Plan plan{job, split_choices(2, 1, 8)};
  const auto programs = programs_of(plan);
  const Shard shard = shard_of(plan);
  CHECK(local_parameters(norm, shard) == 512);  // weight and bias of 256 channels
  const auto sent = collectives_of(programs[0]);
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_to_all}) == 0);
}

TEST_CASE("all ranks together compute what one device does") {
  for (const int tp : {2, 4}) {
    const auto job = weird_vgg(4, 64);
    const auto programs = programs_of({job, split_choices(tp, 4 / tp, 64 * tp / 4)});
    double flops = 0;
    for (const Program& program : programs)
      for (const Instruction& i : program.instructions) flops += i.flops;
    auto one = make_job("vgg16", "v100-ib100", 1, 64, 0);
    Choices choices;
    choices.micro_batch = 64;
    double alone = 0;
    for (const Instruction& i : lower({one, choices}, 0).instructions) alone += i.flops;
    CHECK(flops == Approx(alone).epsilon(1e-9));
  }
}

TEST_CASE("tables are spread by columns, looked-up rows go back in one exchange") {
  auto job = make_job("dlrm", "dgx-a100", 4, 4096, 0);
  auto& operators = job->workload.operators;
  int tables = 0;
  for (Operator& op : operators) {
    if (op.kind != OperatorKind::embedding || op.parameter_count() < 1'000'000) continue;
    set_split(&op, TensorSplit::column);
    ++tables;
  }
  REQUIRE(complete_splits(&operators) == -1);
  REQUIRE(tables == 8);
  const auto programs = programs_of({job, split_choices(4, 1, 4096)});
  const auto sent = collectives_of(programs[2]);
  const Sent exchanged = sent.at({GroupKind::tensor, CollectiveKind::all_to_all});
  CHECK(exchanged.count == 2);
  CHECK(exchanged.bytes == 2 * 8 * 4096 * 16.0 / 4 * 2);
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_gather}) == 0);
}

// Each rank's part of each table, whatever the way, adds up to the tables.
TEST_CASE("tables, however split, are held once by all ranks together") {
  std::mt19937 draw(7);
  const auto up_to = [&](int most) { return 1 + static_cast<int>(draw() % static_cast<unsigned>(most)); };
  for (int trial = 0; trial < 200; ++trial) {
    const int tp = 1 + up_to(31);
    std::vector<Operator> tables(static_cast<std::size_t>(up_to(60)));
    for (Operator& op : tables) {
      op.kind = OperatorKind::embedding;
      op.output_elements = std::int64_t{tp} * up_to(8);
      ParameterTensor weight;
      weight.shape = {up_to(2'000), op.output_elements};
      op.parameters.push_back(weight);
      const int way = up_to(3);
      set_split(&op, way == 1 ? TensorSplit::column : way == 2 ? TensorSplit::row : TensorSplit::table);
    }
    double whole = 0, split = 0, dealt = 0;
    std::vector<const Operator*> dealt_out;
    for (const Operator& op : tables) {
      whole += static_cast<double>(op.parameter_count());
      if (op.split == TensorSplit::table) {
        dealt_out.push_back(&op);
        dealt += static_cast<double>(op.parameter_count());
        continue;
      }
      for (int rank = 0; rank < tp; ++rank)
        for (const Run& run : runs_of(op.parameters.front(), {tp, rank, 1, 0, 1, 0}))
          split += static_cast<double>(run.count);
    }
    const std::vector<DealtRank> ranks = deal_tables(dealt_out, tp);
    REQUIRE(ranks.size() == static_cast<std::size_t>(tp));
    double together = 0, fullest = 0;
    int count = 0;
    for (const DealtRank& rank : ranks) {
      together += rank.elements;
      fullest = std::max(fullest, rank.elements);
      count += rank.tables;
      CHECK(rank.tables <= (static_cast<int>(dealt_out.size()) + tp - 1) / tp);
    }
    CHECK(count == static_cast<int>(dealt_out.size()));
    CHECK(together == dealt);
    CHECK(split + dealt == whole);
    if (!dealt_out.empty()) CHECK(dealt_tables(tables, tp).elements == fullest / dealt);
  }
}

// DLRM with its tables of over a million elements split that way.
std::shared_ptr<Job> with_tables(TensorSplit way, int devices, std::int64_t batch) {
  auto job = make_job("dlrm", "dgx-a100", devices, batch, 0);
  for (Operator& op : job->workload.operators)
    if (op.kind == OperatorKind::embedding && op.parameter_count() >= 1'000'000) set_split(&op, way);
  REQUIRE(complete_splits(&job->workload.operators) == -1);
  return job;
}

TEST_CASE("tables that are dealt out whole: the rank with most outputs sends them in one exchange") {
  // Of eight, two a rank: every rank puts out a quarter.
  const auto job = with_tables(TensorSplit::table, 4, 4096);
  const Plan plan{job, split_choices(4, 1, 4096)};
  const auto sent = collectives_of(programs_of(plan)[2]);
  const Sent exchanged = sent.at({GroupKind::tensor, CollectiveKind::all_to_all});
  CHECK(exchanged.count == 2);
  CHECK(exchanged.bytes == 2 * 8 * 4096 * 16.0 / 4 * 2);
  // Of 10,131,227 8,351,593 7,046,547 5,461,306 2,202,608 286,181 142,572 and 93,145 rows the first four go
  // to a rank each; the smallest is left for the rank with the largest.
  const Shard shard = shard_of(plan);
  double held = 0, all = 0;
  for (const Operator& op : job->workload.operators)
    if (op.split == TensorSplit::table) {
      held += static_cast<double>(local_parameters(op, shard));
      all += static_cast<double>(op.parameter_count());
    }
  CHECK(all == 16.0 * 33'715'179);
  CHECK(held == Approx(16.0 * (10'131'227 + 93'145)).epsilon(1e-6));
}

TEST_CASE("tables that are split by rows: partial rows are summed for their samples") {
  const auto job = with_tables(TensorSplit::row, 4, 4096);
  const Plan plan{job, split_choices(4, 1, 4096)};
  const auto sent = collectives_of(programs_of(plan)[2]);
  const double rows = 8 * 4096 * 16.0 * 2;  // bytes, of all tables for all samples
  const Sent summed = sent.at({GroupKind::tensor, CollectiveKind::reduce_scatter});
  CHECK(summed.count == 1);
  CHECK(summed.bytes == rows);
  const Sent back = sent.at({GroupKind::tensor, CollectiveKind::all_gather});
  CHECK(back.count == 1);
  CHECK(back.bytes == rows);
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_to_all}) == 0);
  CHECK(sent.count({GroupKind::tensor, CollectiveKind::all_reduce}) == 0);
  const int largest = index_of(job->workload, "emb_l.2");
  CHECK(local_parameters(job->workload.operators[static_cast<std::size_t>(largest)], shard_of(plan)) ==
        (10'131'227 + 3) / 4 * 16);
}

TEST_CASE("sparse gradients of tables travel as rows and their numbers, and only these are updated") {
  auto job = make_job("dlrm", "dgx-a100", 4, 4096, 0);
  for (Operator& op : job->workload.operators) {
    if (op.kind != OperatorKind::embedding) continue;
    op.sparse.emplace();
    op.sparse->share = 0.1;  // 90% of a gradient are zeros
  }
  Choices choices;
  choices.dp = 4;
  choices.micro_batch = 1024;
  choices.bucket_bytes = 64e6;
  const auto sum_of = [](const Program& program, Op op) {
    double bytes = 0;
    for (const Instruction& i : program.instructions)
      if (i.op == op) bytes += i.bytes;
    return bytes;
  };
  const auto updated = [](const Program& program) {
    double bytes = 0;
    for (const Instruction& i : program.instructions)
      if (i.compute == ComputeKind::optimizer && i.op == Op::compute) bytes += i.bytes;
    return bytes;
  };
  const Plan plan{job, choices};
  const Program sparse = programs_of(plan)[1];
  const double tables = 16.0 * 33'762'577, others = static_cast<double>(job->workload.parameters()) - tables;
  const double gradient = bytes_of(plan.gradient_type());
  // A tenth of the elements, and 8 bytes for each row of 16.
  const double payload = 0.1 * tables * (gradient + 8.0 / 16);
  const auto sent = collectives_of(sparse);
  CHECK(sent.at({GroupKind::data, CollectiveKind::all_gather}).bytes == Approx(4 * payload));
  CHECK(sent.at({GroupKind::data, CollectiveKind::all_reduce}).bytes ==
        Approx(others * gradient).epsilon(1e-3));
  CHECK(sum_of(sparse, Op::pack) == Approx(2 * payload));
  CHECK(sum_of(sparse, Op::unpack) == Approx(3 * 4 * payload));
  auto dense_job = make_job("dlrm", "dgx-a100", 4, 4096, 0);
  const double of_dense = updated(programs_of({dense_job, choices})[1]);
  // Four tenths that overlap: 1 - 0.9^4 of the rows.
  const double touched = 1 - 0.9 * 0.9 * 0.9 * 0.9;
  CHECK(updated(sparse) / of_dense == Approx((others + touched * tables) / (others + tables)).epsilon(1e-4));
  // Shards of gradients are of whole tensors.
  choices.zero = 3;
  CHECK(sum_of(programs_of({job, choices})[1], Op::pack) == 0);
}

TEST_CASE("sparse tables under every way to split them pass the checker") {
  for (const TensorSplit way : {TensorSplit::column, TensorSplit::row, TensorSplit::table}) {
    const auto job = with_tables(way, 8, 1024);
    for (Operator& op : job->workload.operators)
      if (op.kind == OperatorKind::embedding) op.sparse.emplace();
    for (const int zero : {0, 1, 2, 3})
      for (const int tp : {2, 4, 8}) {
        Choices choices = split_choices(tp, 8 / tp, 1024 * tp / 8 / 2);
        choices.zero = zero;
        CHECK_NOTHROW(programs_of({job, choices}));
      }
  }
}

TEST_CASE("splits under every schedule, sharding and recomputation pass the checker") {
  for (const int zero : {0, 1, 2, 3}) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const auto job = weird_vgg(8, 32);
        Choices choices = split_choices(2, 2, 4);
        choices.pp = 2;
        choices.zero = zero;
        choices.schedule = schedule;
        choices.recompute = recompute;
        CHECK_NOTHROW(programs_of({job, choices}));
      }
    }
  }
}

TEST_CASE("a tensor that passes several stages is carried by each of them, there and back") {
  // 26 tables and the bottom network's layers in stages 0 to 2, the pairwise products that read all of them
  // in stage 3.
  const auto job = make_job("dlrm", "dgx-a100", 4, 64, 0);
  job->workload.layers = refine_layers(&job->workload.operators);
  Choices choices;
  choices.pp = 4;
  choices.micro_batch = 16;
  const int interaction = index_of(job->workload, "interaction");
  const int layer = job->workload.operators[static_cast<std::size_t>(interaction)].layer;
  REQUIRE(layer == 5);
  REQUIRE(job->workload.layers == 9);
  choices.stage_layers = {3, 1, 1, 4};
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    choices.schedule = schedule;
    const auto programs = programs_of({job, choices});
    for (const int stage : {0, 1, 2}) {
      int sent = 0, returned = 0;
      for (const Instruction& i : programs[static_cast<std::size_t>(stage)].instructions)
        for (const Transfer& t : i.transfers) {
          if (t.tensor.micro_batch != 0) continue;
          sent += t.send && t.tensor.kind == TensorKind::activation;
          returned += !t.send && t.tensor.kind == TensorKind::activation_gradient;
        }
      CHECK(sent == 27);  // the tables' rows and the bottom network's last output
      CHECK(returned == 27);
    }
  }
}

std::string refusal(const std::shared_ptr<Job>& job, const Choices& choices) {
  try {
    check_plan({job, choices});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("splits that cannot be are refused by name") {
  CHECK(refusal(make_job("vgg16", "v100-ib100", 4, 64, 0), split_choices(4, 1, 64)).find("no operator") !=
        std::string::npos);
  const auto job = weird_vgg(4, 64);
  Choices whole = split_choices(4, 1, 64);
  whole.sequence_parallel = false;
  CHECK(refusal(job, whole).find("`sequence_parallel` off") != std::string::npos);
  CHECK(refusal(job, split_choices(4, 1, 2)).find("rows of a micro-batch do not divide") !=
        std::string::npos);
  CHECK(refusal(weird_vgg(3, 63), split_choices(3, 1, 63)).find("4096 output features of classifier.0") !=
        std::string::npos);
  Choices grouped = split_choices(2, 2, 32);
  grouped.zero = 1;
  grouped.shard_group = 2;
  CHECK(refusal(job, grouped).find("`shard_group` 2 with `tp` 2") != std::string::npos);
}

TEST_CASE("tables for fewer tensor ranks than tables are refused") {
  CHECK(refusal(with_tables(TensorSplit::table, 16, 64), split_choices(16, 1, 64))
            .find("`tp` 16: dlrm has 8 tables to deal out") != std::string::npos);
  CHECK(refusal(with_tables(TensorSplit::table, 8, 64), split_choices(8, 1, 64)).empty());
}

TEST_CASE("a row split of whole features is found out") {
  auto job = make_job("vgg16", "v100-ib100", 4, 64, 0);
  auto& operators = job->workload.operators;
  const int second = index_of(job->workload, "classifier.3");
  set_split(&operators[second], TensorSplit::row);
  CHECK(complete_splits(&operators) == second);
}

}  // namespace
}  // namespace orrery
