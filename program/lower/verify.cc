// The checker shares no code with the lowering: it knows only what docs/program.md promises.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "program/lower/lowering.h"

namespace orrery {
namespace {

[[noreturn]] void fail(const Program& program, std::size_t instruction, const std::string& what) {
  throw InternalError(fmt::format("rank {} instruction {} ({}): {}", program.rank, instruction,
                                  label_of(program, instruction), what));
}

void check_structure(const Program& program) {
  for (const Group& group : program.groups) {
    const auto copies = std::count(group.ranks.begin(), group.ranks.end(), program.rank);
    if (copies != 1) {
      throw InternalError(
          fmt::format("rank {} stands {} times in its {} group", program.rank, copies, name_of(group.kind)));
    }
  }
  std::vector<std::int64_t> next(program.groups.size(), 0);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const std::uint32_t other : instruction.after) {
      if (other >= i)
        fail(program, i, fmt::format("waits for instruction {}, which does not precede it", other));
    }
    if (!(instruction.bytes >= 0) || !(instruction.flops >= 0)) fail(program, i, "negative bytes or FLOPs");
    if (instruction.op != Op::collective) continue;
    if (instruction.group < 0 || instruction.group >= static_cast<int>(program.groups.size())) {
      fail(program, i, fmt::format("group {} does not exist", instruction.group));
    }
    const auto group = static_cast<std::size_t>(instruction.group);
    if (instruction.root < 0 || instruction.root >= static_cast<int>(program.groups[group].ranks.size())) {
      fail(program, i, "the root is not of the group");
    }
    if (instruction.sequence != next[group]++) fail(program, i, "out of its group's sequence");
  }
}

struct Place {
  std::size_t program = 0;
  std::size_t instruction = 0;
};

// What must meet: the members of a collective, both sides of a transfer.
struct Communication {
  std::vector<Place> members;
};

class World {
 public:
  explicit World(const std::vector<Program>& programs) : programs_(programs) {
    for (const Program& program : programs) communications_of_.emplace_back(program.instructions.size());
    match_collectives();
    match_transfers();
  }

  const std::vector<int>& communications_of(std::size_t program, std::size_t instruction) const {
    return communications_of_[program][instruction];
  }
  const Communication& communication(int index) const {
    return communications_[static_cast<std::size_t>(index)];
  }
  std::size_t communications() const { return communications_.size(); }

 private:
  void add_communication(std::vector<Place> members) {
    for (const Place& place : members) {
      communications_of_[place.program][place.instruction].push_back(
          static_cast<int>(communications_.size()));
    }
    communications_.push_back({std::move(members)});
  }

  void match_collectives() {
    using Key = std::pair<GroupKind, std::vector<std::int32_t>>;
    std::map<Key, std::map<std::int32_t, std::vector<Place>>> issued;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      const Program& program = programs_[p];
      for (const Group& group : program.groups) issued[{group.kind, group.ranks}][program.rank];
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        if (instruction.op != Op::collective) continue;
        const Group& group = program.groups[static_cast<std::size_t>(instruction.group)];
        issued[{group.kind, group.ranks}][program.rank].push_back({p, i});
      }
    }
    for (const auto& [key, by_rank] : issued) {
      const auto first = by_rank.find(key.second.front());
      if (first == by_rank.end()) {
        throw InternalError(
            fmt::format("rank {} of a {} group has no such group", key.second.front(), name_of(key.first)));
      }
      for (const std::int32_t rank : key.second) {
        const auto own = by_rank.find(rank);
        if (own == by_rank.end() || own->second.size() != first->second.size()) {
          throw InternalError(fmt::format("rank {} issues {} collectives on a {} group, rank {} issues {}",
                                          rank, own == by_rank.end() ? 0 : own->second.size(),
                                          name_of(key.first), first->first, first->second.size()));
        }
      }
      for (std::size_t n = 0; n < first->second.size(); ++n) {
        std::vector<Place> members;
        for (const std::int32_t rank : key.second) members.push_back(by_rank.at(rank)[n]);
        for (const Place& place : members) check_same(members.front(), place);
        add_communication(std::move(members));
      }
    }
  }

  void check_same(const Place& a, const Place& b) const {
    const Instruction& x = programs_[a.program].instructions[a.instruction];
    const Instruction& y = programs_[b.program].instructions[b.instruction];
    if (x.collective != y.collective || x.dtype != y.dtype || x.reduction != y.reduction ||
        x.root != y.root || x.stream != y.stream || x.form != y.form || x.bytes != y.bytes) {
      fail(programs_[b.program], b.instruction,
           fmt::format("differs from rank {}'s {}", programs_[a.program].rank,
                       label_of(programs_[a.program], a.instruction)));
    }
  }

  void match_transfers() {
    using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // sender, receiver, tag
    struct Side {
      Place place;
      const Transfer* transfer = nullptr;
    };
    std::map<Key, std::pair<Side, Side>> pairs;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      for (std::size_t i = 0; i < programs_[p].instructions.size(); ++i) {
        for (const Transfer& transfer : programs_[p].instructions[i].transfers) {
          const std::int32_t self = programs_[p].rank;
          const Key key =
              transfer.send ? Key{self, transfer.peer, transfer.tag} : Key{transfer.peer, self, transfer.tag};
          Side& side = transfer.send ? pairs[key].first : pairs[key].second;
          if (side.transfer != nullptr) {
            fail(programs_[p], i,
                 fmt::format("tag {} is used twice with rank {}", transfer.tag, transfer.peer));
          }
          side = {{p, i}, &transfer};
        }
      }
    }
    for (const auto& [key, pair] : pairs) {
      const auto& [sender, receiver] = pair;
      if (sender.transfer == nullptr) {
        fail(programs_[receiver.place.program], receiver.place.instruction,
             fmt::format("rank {} never sends it", std::get<0>(key)));
      }
      if (receiver.transfer == nullptr) {
        fail(programs_[sender.place.program], sender.place.instruction,
             fmt::format("rank {} never receives it", std::get<1>(key)));
      }
      const Transfer& out = *sender.transfer;
      const Transfer& in = *receiver.transfer;
      if (out.bytes != in.bytes || !(out.tensor == in.tensor)) {
        fail(programs_[sender.place.program], sender.place.instruction,
             fmt::format("rank {} expects another tensor or {} bytes", std::get<1>(key), in.bytes));
      }
      add_communication({sender.place, receiver.place});
    }
  }

  const std::vector<Program>& programs_;
  std::vector<std::vector<std::vector<int>>> communications_of_;  // [program][instruction]
  std::vector<Communication> communications_;
};

// Runs all programs with instructions that take no time. An instruction starts when its predecessors allow
// it; what communicates ends when every communication of it has all members started.
class Execution {
 public:
  enum class Semantics { streams, one_by_one };

  Execution(const std::vector<Program>& programs, const World& world, Semantics semantics)
      : programs_(programs),
        world_(world),
        semantics_(semantics),
        open_communications_(world.communications()) {
    for (std::size_t m = 0; m < world.communications(); ++m) {
      open_communications_[m] = static_cast<int>(world.communication(static_cast<int>(m)).members.size());
    }
    for (std::size_t p = 0; p < programs.size(); ++p) {
      const std::size_t size = programs[p].instructions.size();
      waits_.emplace_back(size, 0);
      unmet_.emplace_back(size, 0);
      on_end_.emplace_back(size);
      on_start_.emplace_back(size, -1);
      started_.emplace_back(size, false);
    }
  }

  void run() {
    for (std::size_t p = 0; p < programs_.size(); ++p) wire(p);
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      for (std::size_t i = 0; i < programs_[p].instructions.size(); ++i) {
        unmet_[p][i] = static_cast<int>(world_.communications_of(p, i).size());
        if (waits_[p][i] == 0) ready_.push_back({p, i});
      }
    }
    while (!ready_.empty()) {
      const Place place = ready_.front();
      ready_.pop_front();
      start(place);
    }
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      for (std::size_t i = 0; i < programs_[p].instructions.size(); ++i) {
        if (!started_[p][i] || unmet_[p][i] > 0) {
          fail(programs_[p], i,
               fmt::format("deadlock {}: it never {}",
                           semantics_ == Semantics::streams ? "on streams" : "when issued one by one",
                           started_[p][i] ? "ends" : "starts"));
        }
      }
    }
  }

 private:
  void wire(std::size_t p) {
    std::array<std::int64_t, kStreamCount> last{};
    last.fill(-1);
    const auto& instructions = programs_[p].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      for (const std::uint32_t other : instructions[i].after) wait_for_end(p, other, i);
      auto& previous = last[static_cast<std::size_t>(instructions[i].stream)];
      if (semantics_ == Semantics::streams) {
        if (previous >= 0) wait_for_end(p, static_cast<std::size_t>(previous), i);
      } else if (i > 0) {
        // Issued when the one before has been: at once after communication, else when it has ended.
        on_start_[p][i - 1] = static_cast<std::int64_t>(i);
        ++waits_[p][i];
      }
      previous = static_cast<std::int64_t>(i);
    }
  }

  void wait_for_end(std::size_t p, std::size_t earlier, std::size_t later) {
    on_end_[p][earlier].push_back(later);
    ++waits_[p][later];
  }

  void release(std::size_t p, std::size_t i) {
    if (--waits_[p][i] == 0) ready_.push_back({p, i});
  }

  void start(const Place& place) {
    const auto [p, i] = place;
    started_[p][i] = true;
    if (on_start_[p][i] >= 0) release(p, static_cast<std::size_t>(on_start_[p][i]));
    if (unmet_[p][i] == 0) {
      end(place);
      return;
    }
    for (const int m : world_.communications_of(p, i)) {
      if (--open_communications_[static_cast<std::size_t>(m)] > 0) continue;
      for (const Place& member : world_.communication(m).members) {
        if (--unmet_[member.program][member.instruction] == 0) end(member);
      }
    }
  }

  void end(const Place& place) {
    for (const std::size_t later : on_end_[place.program][place.instruction]) release(place.program, later);
  }

  const std::vector<Program>& programs_;
  const World& world_;
  Semantics semantics_;
  std::vector<int> open_communications_;                       // members yet to start
  std::vector<std::vector<int>> waits_;                        // [program][instruction]: predecessors
  std::vector<std::vector<int>> unmet_;                        // communications yet to happen
  std::vector<std::vector<std::vector<std::size_t>>> on_end_;  // instructions released by its end
  std::vector<std::vector<std::int64_t>> on_start_;            // and by its start; -1: none
  std::vector<std::vector<bool>> started_;
  std::deque<Place> ready_;
};

// Orders by `after` and by the compute stream alone, which hold in every semantics.
class Hazards {
 public:
  explicit Hazards(const Program& program) : program_(program) {}

  void check() {
    const auto& instructions = program_.instructions;
    before_.resize(instructions.size());
    std::int64_t last_compute = -1;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      std::vector<std::uint64_t>& before = before_[i];
      before.assign(i / 64 + 1, 0);
      const auto include = [&](std::size_t other) {
        before[other / 64] |= std::uint64_t{1} << (other % 64);
        for (std::size_t j = 0; j < before_[other].size(); ++j) before[j] |= before_[other][j];
      };
      for (const std::uint32_t other : instructions[i].after) include(other);
      if (instructions[i].stream == Stream::compute) {
        if (last_compute >= 0) include(static_cast<std::size_t>(last_compute));
        last_compute = static_cast<std::int64_t>(i);
      }
      for (const TensorRef& tensor : instructions[i].reads) access(i, tensor, false);
      for (const TensorRef& tensor : instructions[i].writes) access(i, tensor, true);
    }
  }

 private:
  using Key = std::tuple<TensorKind, std::int32_t, std::int32_t, std::int32_t>;
  struct History {
    std::int64_t writer = -1;
    std::vector<std::size_t> readers;  // since
  };

  void require(std::size_t earlier, std::size_t later, const TensorRef& tensor) const {
    if (earlier == later || (before_[later][earlier / 64] >> (earlier % 64) & 1) != 0) return;
    fail(program_, later,
         fmt::format("touches {} {} of micro-batch {} unordered with instruction {} ({})",
                     name_of(tensor.kind), tensor.index, tensor.micro_batch, earlier,
                     label_of(program_, earlier)));
  }

  void access(std::size_t i, const TensorRef& tensor, bool write) {
    History& history = histories_[{tensor.kind, tensor.index, tensor.micro_batch, tensor.block}];
    if (history.writer >= 0) require(static_cast<std::size_t>(history.writer), i, tensor);
    if (!write) {
      history.readers.push_back(i);
      return;
    }
    for (const std::size_t reader : history.readers) require(reader, i, tensor);
    history.readers.clear();
    history.writer = static_cast<std::int64_t>(i);
  }

  const Program& program_;
  std::vector<std::vector<std::uint64_t>> before_;  // [instruction]: bits of those that end before it starts
  std::map<Key, History> histories_;
};

}  // namespace

void verify_programs(const std::vector<Program>& programs) {
  std::set<std::int32_t> ranks;
  std::vector<Program> all = programs;  // and what asynchronous servers do for a step of each worker
  for (const Program& program : programs) {
    if (!ranks.insert(program.rank).second)
      throw InternalError(fmt::format("rank {} has two programs", program.rank));
    for (Program& service : service_programs(program)) all.push_back(std::move(service));
  }
  for (const Program& program : all) check_structure(program);
  const World world(all);
  Execution(all, world, Execution::Semantics::streams).run();
  Execution(all, world, Execution::Semantics::one_by_one).run();
  for (const Program& program : all) Hazards(program).check();
}

}  // namespace orrery
