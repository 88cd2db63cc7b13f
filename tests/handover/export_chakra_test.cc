#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "handover/export.h"
#include "program/lower/lowering.h"
#include "proto/chakra.pb.h"
#include "sim/scenario/folding.h"
#include "tests/support/small_plans.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::planner;
namespace chakra = ChakraProtoMsg;

namespace {

// The messages of a file, as any reader cuts them.
std::vector<std::string> messages(const std::string& file) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(file.data()),
                                            static_cast<int>(file.size()));
  std::vector<std::string> result;
  std::uint32_t size = 0;
  while (in.ReadVarint32(&size)) {
    result.emplace_back();
    REQUIRE(in.ReadString(&result.back(), static_cast<int>(size)));
  }
  return result;
}

std::vector<chakra::Node> nodes_of(const std::string& file) {
  const auto parts = messages(file);
  chakra::GlobalMetadata metadata;
  REQUIRE(metadata.ParseFromString(parts.at(0)));
  CHECK(metadata.version() == "0.0.4");
  std::vector<chakra::Node> nodes(parts.size() - 1);
  for (std::size_t i = 0; i < nodes.size(); ++i) REQUIRE(nodes[i].ParseFromString(parts[i + 1]));
  return nodes;
}

const chakra::AttributeProto& attribute(const chakra::Node& node, const std::string& name) {
  for (const auto& attr : node.attr())
    if (attr.name() == name) return attr;
  FAIL(node.name() << " has no " << name);
  return node.attr(0);
}

Plan plan_of(int tp, int pp, int dp) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  Plan plan = test::small_plan(choices, 2);
  auto job = std::make_shared<Job>(*plan.job);
  job->cluster = with_nodes(load_cluster("dgx-a100"), std::max(1, choices.world() / 8));
  plan.job = job;
  return plan;
}

std::vector<ExportedFile> traces(const Plan& plan, bool all_ranks = false) {
  return export_plan(plan, export_target_from_name("chakra"), {all_ranks});
}

}  // namespace

TEST_CASE("chakra: each rank's trace has its Program's instructions, in an order that can be run") {
  const Plan plan = plan_of(2, 2, 2);
  const auto files = traces(plan);
  REQUIRE(files.size() == 1 + 8);
  const Json groups = parse_json(files[0].content, files[0].name);
  std::map<std::tuple<int, int, int>, std::vector<std::int64_t>> sent, received;
  for (int rank = 0; rank < 8; ++rank) {
    const ExportedFile& file = files[static_cast<std::size_t>(rank) + 1];
    CHECK(file.name == "trace." + std::to_string(rank) + ".et");
    CHECK(file.binary);
    std::map<chakra::NodeType, std::size_t> expected, found;
    const Program program = lower(plan, rank);
    double flops = 0;
    for (const Instruction& instruction : program.instructions) {
      flops += instruction.flops;
      if (instruction.op == Op::collective) ++expected[chakra::COMM_COLL_NODE];
      if (instruction.op == Op::load) ++expected[chakra::MEM_LOAD_NODE];
      if (instruction.op == Op::exchange) {
        for (const Transfer& transfer : instruction.transfers)
          ++expected[transfer.send ? chakra::COMM_SEND_NODE : chakra::COMM_RECV_NODE];
      } else if (instruction.op != Op::collective && instruction.op != Op::load) {
        ++expected[chakra::COMP_NODE];
      }
    }
    std::uint64_t next = 0;
    double num_ops = 0;
    for (const chakra::Node& node : nodes_of(file.content)) {
      CHECK(node.id() == next++);
      CHECK(!node.name().empty());
      for (const auto on : node.ctrl_deps()) CHECK(on < node.id());
      for (const auto on : node.data_deps()) CHECK(on < node.id());
      ++found[node.type()];
      if (node.type() == chakra::COMP_NODE)
        num_ops += static_cast<double>(attribute(node, "num_ops").int64_val());
      if (node.type() == chakra::COMM_COLL_NODE) {
        CHECK(attribute(node, "comm_size").int64_val() >= 0);
        const auto members = groups.at(attribute(node, "pg_name").string_val()).get<std::vector<int>>();
        CHECK(std::count(members.begin(), members.end(), rank) == 1);
      }
      if (node.type() == chakra::COMM_SEND_NODE || node.type() == chakra::COMM_RECV_NODE) {
        const bool sends = node.type() == chakra::COMM_SEND_NODE;
        const int source = attribute(node, "comm_src").int32_val();
        const int destination = attribute(node, "comm_dst").int32_val();
        CHECK((sends ? source : destination) == rank);
        (sends ? sent : received)[{source, destination, attribute(node, "comm_tag").int32_val()}].push_back(
            attribute(node, "comm_size").int64_val());
      }
    }
    CHECK(found == expected);
    CHECK(num_ops == Approx(flops).margin(1 + static_cast<double>(next)));
  }
  CHECK(!sent.empty());
  CHECK(sent == received);
}

// Read without our schema: the numbers are what Chakra's readers go by.
TEST_CASE("chakra: fields and attributes have the schema's numbers") {
  const auto files = traces(plan_of(2, 1, 1));
  std::set<int> in_nodes, in_attributes;
  for (const std::string& part : messages(files.at(1).content)) {
    google::protobuf::UnknownFieldSet fields;
    REQUIRE(fields.ParseFromString(part));
    for (int i = 0; i < fields.field_count(); ++i) {
      in_nodes.insert(fields.field(i).number());
      if (fields.field(i).number() != 10) continue;
      google::protobuf::UnknownFieldSet attr;
      REQUIRE(attr.ParseFromString(fields.field(i).length_delimited()));
      for (int j = 0; j < attr.field_count(); ++j) in_attributes.insert(attr.field(j).number());
    }
  }
  // id name type ctrl_deps data_deps duration_micros attr
  for (const int number : {1, 2, 3, 4, 5, 7, 10}) CHECK(in_nodes.count(number) == 1);
  CHECK(in_nodes.size() == 7);
  // name, int64 9, uint64 13, bool 27, string 29
  CHECK(in_attributes == std::set<int>{1, 9, 13, 27, 29});
}

TEST_CASE("chakra: one rank alone, and beyond 64 ranks one of each class unless all are asked for") {
  CHECK(traces(plan_of(1, 1, 1)).size() == 1 + 1);
  CHECK(traces(plan_of(1, 1, 64)).size() == 1 + 64);
  const Plan wide = plan_of(1, 2, 40);
  CHECK(traces(wide).size() == 1 + sim::fold_ranks(wide).classes.size());
  CHECK(traces(wide, true).size() == 1 + 80);
}

TEST_CASE("chakra: the same plan gives the same bytes") {
  const auto once = traces(plan_of(2, 2, 1));
  const auto again = traces(plan_of(2, 2, 1));
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(once[i].content == again[i].content);
}
