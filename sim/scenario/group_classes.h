// Groups that stand for each other, and how each would communicate: looked up once for all that do alike.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cost/collective_cost.h"
#include "program/program.h"
#include "sim/scenario/scenario.h"

namespace orrery::sim {

// Same kind, same classes of members.
struct GroupClass {
  Group group;                 // of the first rank that named it
  std::vector<int> simulated;  // indices of the programs whose ranks stand for the members, ascending
  std::vector<int> devices;
  GroupShape shape;
  std::vector<int> collectives;  // the communication of each
};

class GroupClasses {
 public:
  // Keeps a reference.
  explicit GroupClasses(const ScenarioInput& input) : input_(input) {}

  // The class of a group of the Program of one of the scripts, that is the index-th.
  int of(int index, const Program& program, int group);
  GroupClass& operator[](int group_class) { return classes_[static_cast<std::size_t>(group_class)]; }

  // `program`: that the instruction is of.
  CollectivePlan collective(int group_class, const Program& program, const Instruction& instruction);
  CollectivePlan transfer(int source_device, int destination_device, double bytes);

 private:
  std::vector<int> members_of(const Group& group) const;

  const ScenarioInput& input_;
  std::vector<GroupClass> classes_;
  std::map<int, std::vector<int>> class_of_;  // by script, of each of its groups; -1: not seen yet
  std::map<std::pair<GroupKind, std::vector<int>>, int> index_;  // by kind and members
  std::map<std::tuple<int, CollectiveKind, double, int>, CollectivePlan> collectives_;
  std::map<std::tuple<int, int, double>, CollectivePlan> transfers_;
  std::map<std::pair<int, int>, GroupShape> pairs_;
};

}  // namespace orrery::sim
