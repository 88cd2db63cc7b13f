// A plan as MLCommons Chakra execution traces: one file a rank and the communicator groups as JSON, as
// ASTRA-sim reads them.
//
//   compute, pack, unpack         COMP_NODE: num_ops, tensor_size, is_cpu_op; duration by the cost model
//   collective                    COMM_COLL_NODE: comm_type, comm_size, pg_name. comm_size is what one member
//                                 puts in: the n-th part of an all-gather's or gather's whole, else the whole
//   exchange                      a COMM_SEND_NODE or COMM_RECV_NODE for each of its transfers
//   load                          MEM_LOAD_NODE: tensor_size
//
// What stands before a node on its stream is a control dependency, what it waits for on other streams a data
// dependency. Times are whole microseconds, which is all that the schema has; what takes any time takes one
// at least.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "cost/compute_cost.h"
#include "handover/export_common.h"
#include "program/lower/lowering.h"
#include "program/placement.h"
#include "proto/chakra.pb.h"
#include "sim/scenario/folding.h"

namespace orrery::planner {
namespace {

namespace chakra = ChakraProtoMsg;

constexpr int kMaxEveryRank = 64;  // beyond, one rank of each class

chakra::CollectiveCommType type_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return chakra::ALL_REDUCE;
    case CollectiveKind::reduce_scatter:
      return chakra::REDUCE_SCATTER;
    case CollectiveKind::all_gather:
      return chakra::ALL_GATHER;
    case CollectiveKind::all_to_all:
      return chakra::ALL_TO_ALL;
    case CollectiveKind::broadcast:
      return chakra::BROADCAST;
    case CollectiveKind::reduce:
      return chakra::REDUCE;
    case CollectiveKind::gather:
      return chakra::GATHER;
    case CollectiveKind::scatter:
      return chakra::SCATTER;
  }
  throw InternalError("a collective of no kind");
}

chakra::AttributeProto* named(chakra::Node& node, const char* name) {
  auto* attribute = node.add_attr();
  attribute->set_name(name);
  return attribute;
}

std::int64_t whole(double amount) {
  return std::llround(amount);
}

using Groups = std::map<std::vector<std::int32_t>, int>;  // members to the group's number

class RankWriter {
 public:
  RankWriter(const Program& program, const ComputeCost& cost, double speed, const Groups& groups)
      : program_(program), cost_(cost), speed_(speed), groups_(groups) {}

  std::string bytes() {
    std::string out;
    {
      google::protobuf::io::StringOutputStream stream(&out);
      google::protobuf::io::CodedOutputStream coded(&stream);
      chakra::GlobalMetadata metadata;
      metadata.set_version("0.0.4");
      write(metadata, coded);
      for (std::size_t i = 0; i < program_.instructions.size(); ++i) add(i, coded);
    }
    return out;
  }

 private:
  static void write(const google::protobuf::MessageLite& message,
                    google::protobuf::io::CodedOutputStream& coded) {
    coded.WriteVarint32(static_cast<std::uint32_t>(message.ByteSizeLong()));
    message.SerializeToCodedStream(&coded);
  }

  struct Ids {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  void add(std::size_t index, google::protobuf::io::CodedOutputStream& coded) {
    const Instruction& instruction = program_.instructions[index];
    const std::uint64_t first = next_;
    std::vector<chakra::Node> nodes = nodes_of(instruction);
    if (nodes.empty()) {  // an exchange of nothing still orders what stands around it
      nodes.emplace_back().set_type(chakra::COMP_NODE);
      named(nodes.back(), "is_cpu_op")->set_bool_val(false);
    }
    Ids& before = last_on_[static_cast<std::size_t>(instruction.stream)];
    for (chakra::Node& node : nodes) {
      node.set_id(next_++);
      node.set_name(label_of(program_, index));
      for (std::uint64_t id = before.begin; id < before.end; ++id) node.add_ctrl_deps(id);
      for (const std::uint32_t on : instruction.after)
        for (std::uint64_t id = ids_[on].begin; id < ids_[on].end; ++id) node.add_data_deps(id);
      write(node, coded);
    }
    before = {first, next_};
    ids_.push_back(before);
  }

  std::vector<chakra::Node> nodes_of(const Instruction& instruction) const {
    std::vector<chakra::Node> nodes;
    switch (instruction.op) {
      case Op::compute:
      case Op::pack:
      case Op::unpack: {
        chakra::Node& node = nodes.emplace_back();
        node.set_type(chakra::COMP_NODE);
        const double seconds = cost_.seconds(program_, instruction) / speed_;
        if (seconds > 0)
          node.set_duration_micros(
              static_cast<std::uint64_t>(std::max<std::int64_t>(1, whole(seconds * 1e6))));
        named(node, "is_cpu_op")->set_bool_val(false);
        named(node, "num_ops")->set_int64_val(whole(instruction.flops));
        named(node, "tensor_size")->set_uint64_val(static_cast<std::uint64_t>(whole(instruction.bytes)));
        break;
      }
      case Op::collective: {
        chakra::Node& node = nodes.emplace_back();
        node.set_type(chakra::COMM_COLL_NODE);
        const auto& members = program_.groups[static_cast<std::size_t>(instruction.group)].ranks;
        const bool gathers = instruction.collective == CollectiveKind::all_gather ||
                             instruction.collective == CollectiveKind::gather;
        named(node, "is_cpu_op")->set_bool_val(false);
        named(node, "comm_type")->set_int64_val(type_of(instruction.collective));
        named(node, "comm_size")
            ->set_int64_val(whole(instruction.bytes / (gathers ? static_cast<double>(members.size()) : 1)));
        named(node, "pg_name")->set_string_val(std::to_string(groups_.at(members)));
        break;
      }
      case Op::exchange:
        for (const Transfer& transfer : instruction.transfers) {
          chakra::Node& node = nodes.emplace_back();
          node.set_type(transfer.send ? chakra::COMM_SEND_NODE : chakra::COMM_RECV_NODE);
          named(node, "is_cpu_op")->set_bool_val(false);
          named(node, "comm_size")->set_int64_val(whole(transfer.bytes));
          named(node, "comm_src")->set_int32_val(transfer.send ? program_.rank : transfer.peer);
          named(node, "comm_dst")->set_int32_val(transfer.send ? transfer.peer : program_.rank);
          named(node, "comm_tag")->set_int32_val(transfer.tag);
        }
        break;
      case Op::load: {
        chakra::Node& node = nodes.emplace_back();
        node.set_type(chakra::MEM_LOAD_NODE);
        named(node, "is_cpu_op")->set_bool_val(false);
        named(node, "tensor_size")->set_uint64_val(static_cast<std::uint64_t>(whole(instruction.bytes)));
        break;
      }
    }
    return nodes;
  }

  const Program& program_;
  const ComputeCost& cost_;
  double speed_;
  const Groups& groups_;
  std::uint64_t next_ = 0;
  std::vector<Ids> ids_;                        // by instruction
  std::array<Ids, kStreamCount> last_on_ = {};  // by stream
};

}  // namespace

std::vector<ExportedFile> export_chakra(const Plan& plan, const ExportOptions& options) {
  if (plan.choices.asynchronous())
    throw UserError("`to` chakra: a trace cannot say that a server serves whoever sends first",
                    "expected a plan without asynchronous parameter servers");
  const int world = plan.choices.world();
  std::vector<int> ranks;
  if (world <= kMaxEveryRank || options.all_ranks) {
    for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  } else {
    for (const sim::RankClass& of : sim::fold_ranks(plan).classes) ranks.push_back(of.representative);
  }
  std::vector<Program> programs;
  Groups groups;
  for (const int rank : ranks) {
    programs.push_back(lower(plan, rank));
    for (const Group& group : programs.back().groups) groups.emplace(group.ranks, 0);
  }
  // Numbered in the order of their members, from 1: ASTRA-sim reads the name as a number.
  int number = 0;
  for (auto& [members, id] : groups) id = ++number;
  Json listed = Json::object();
  for (const auto& [members, id] : groups) listed[std::to_string(id)] = members;

  const Cluster& cluster = plan.job->cluster;
  std::map<const DeviceProfile*, ComputeCost> costs;  // looked up only
  std::vector<ExportedFile> files;
  files.push_back({"comm_groups.json", listed.dump() + "\n"});
  for (const Program& program : programs) {
    const int device = device_of(plan, program.rank);
    const DeviceProfile& profile = cluster.profile_of(device);
    const auto at = costs.try_emplace(&profile, plan, profile).first;
    files.push_back({fmt::format("trace.{}.et", program.rank),
                     RankWriter(program, at->second, cluster.device_speed(device), groups).bytes(),
                     /*binary=*/true});
  }
  return files;
}

}  // namespace orrery::planner
