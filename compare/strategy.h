// Ways of data-parallel training by the names that people know: what each means for a plan, when its workers
// wait for each other, and what happens to the others when one of them goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/collective_cost.h"
#include "program/plan.h"

namespace orrery::comparison {

// When a worker begins its next step.
enum class Rendezvous : std::uint8_t {
  all,       // all workers' gradients are summed
  first,     // the gradients of all but `backups` workers are there; what comes later is dropped
  nobody,    // at once
  bounded,   // at once, while it is at most `staleness` steps ahead of the slowest
  periodic,  // at once; every `local_steps` steps all average what they have
};
std::string_view name_of(Rendezvous rendezvous);

// What becomes of training when somebody is gone.
enum class Reaction : std::uint8_t {
  restart,  // all stop; once what is gone is replaced the job starts again from its last checkpoint
  shrink,   // all stop; those that are left form a smaller group and go on from their last commit
  wait,     // all stand until what is gone is back; nothing that was learned is lost
  go_on,    // the others go on
  absent,   // there is no such role
};
// What carries all-reduces.
enum class Library : std::uint8_t {
  own,   // the cluster's
  nccl,  // the same, refused where that is none of NCCL's kind
  mpi,   // through the hosts' memory, whose processors add
  gloo,  // likewise, in a ring over TCP
};
std::string_view name_of(Library library);

std::string_view name_of(Reaction reaction);

struct Answer {
  Reaction reaction = Reaction::absent;
  double notice_s = 0;           // from its end until the others know, by the software's own defaults
  std::string_view why;          // who stops, who goes on, who takes the shard
  std::string_view notice_from;  // where notice_s comes from
};

// Forms of what carries gradients between the workers.
struct Mechanics {
  Sync sync = Sync::all_reduce;
  int zero = 0;
  bool shard_in_node = false;     // ZeRO over a node's devices, copies of it over the nodes
  bool overlap_reduce = true;     // gradients travel beside the backward pass
  bool overlap_gather = false;    // parameters beside the next forward pass
  bool one_node = false;          // one process, or one machine's devices
  double bucket_bytes = 0;        // 0: all gradients together
  double bucket_parameters = 0;   // > 0: in parameters, in place of bytes
  double bucket_per_replica = 0;  // parameters for each replica, where that is more
  // > 0: a thread looks for gradients that are ready once in so many seconds, and joins what it finds into
  // messages of up to bucket_bytes.
  double cycle_s = 0;
  bool response_cache =
      true;               // workers tell the coordinator what is ready by a bit a tensor, not by requests
  bool autotune = false;  // cycle, bucket and hierarchy are those with the shortest step
  double predivide = 1;   // gradients are divided by it before the sum, and by the rest behind it
  std::optional<Algorithm> algorithm;  // of the all-reduce; none: the library's choice
  bool in_groups = false;  // hierarchical all-reduce: inside nodes or rooms, across them, back inside
  Library library = Library::own;
  Compression compression = Compression::none;
  double topk_ratio = 0.01;
  int servers = 0;  // 0: one beside every worker
  // Of each request to a server that is no thread of the worker's own: a remote call's marshalling on the
  // worker's host. 0: shared memory, or not counted.
  double call_s = 0;
  // That the master takes to hand a worker its step: it has one queue. 0: nobody hands out steps.
  double dispatch_s = 0;
  int staleness = 0;    // Rendezvous::bounded
  int backups = 0;      // Rendezvous::first
  int local_steps = 1;  // Rendezvous::periodic
  // Of each parameter, beside a worker's own state: what the average is made with (an outer optimizer's).
  double outer_bytes = 0;
  int commit_steps = 0;  // Reaction::shrink: of its last commit; 0: its last checkpoint
  // So often a dead worker is started again (Reaction::go_on: each; else all of them together); with the next
  // one it stays away, or the run ends. -1: always.
  int most_restarts = -1;
};

struct Strategy {
  std::string name;
  std::string_view what;  // in a line
  Rendezvous rendezvous = Rendezvous::all;
  Mechanics mechanics;
  Answer worker, chief, server;            // when one of these is gone
  bool elastic = false;                    // workers may come and go without a restart of the job
  std::vector<std::string_view> settings;  // keys that it takes
  // Whether a step of all workers computes what one device would with the whole batch.
  bool exact() const { return rendezvous == Rendezvous::all; }
};

const std::vector<Strategy>& known_strategies();
// Those that are compared where nobody says which.
std::vector<Strategy> default_strategies();
// "ddp,horovod:cycle=5ms:bucket=64M": by commas, each with settings behind colons; "all": all that are known.
// Throws UserError naming what is unknown and what is known.
std::vector<Strategy> parse_strategies(std::string_view text);

}  // namespace orrery::comparison
