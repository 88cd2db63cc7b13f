// Asynchronous parameter servers on one rank: what it does for the others' pushes, whenever they come, and
// which batch its own worker trains next.
//
// Batches are drawn from one list by whoever is ready: of each step of the training every replica's share,
// one after another, so that every sample is trained on once whatever the workers' speeds. Rank 0 hands them
// out. A server's parameters stand apart from those that its rank's own worker computes with: they change
// while that computes. Servers keep going from poll to poll of a rank that computes or waits.
//
// Where patience is limited, every rank says to rank 0 now and then that it is there. Of a rank that says
// nothing for so long rank 0 tells the others; nobody waits for it any more, and who asks next trains the
// batch that it had. Rank 0 itself and servers cannot be lost.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/run/recorder.h"
#include "exec/state/parameters.h"
#include "program/plan.h"
#include "program/program.h"
#include "program/timeline.h"

namespace orrery::exec {

// Over the pushes that a server applied. A push is as many updates stale as the server has applied others'
// since it handed the parameters to the worker that pushes.
struct Staleness {
  std::int64_t pushes = 0;
  double updates = 0;  // sum over pushes
  double most_updates = 0;
  double most_ahead = 0;  // steps of a worker that got parameters beyond the slowest one's
};

class AsynchronousServers {
 public:
  // `narrow`: the communicator that carries an instruction's data. Keeps references to everything.
  AsynchronousServers(const Plan& plan, const Program& program, Parameters& parameters, Device& device,
                      Communicator& world, std::function<Communicator&(const Instruction&)> narrow);
  ~AsynchronousServers();
  AsynchronousServers(const AsynchronousServers&) = delete;
  AsynchronousServers& operator=(const AsynchronousServers&) = delete;

  // Once, before the first `begin`, the same on every rank; 0: for ever.
  void limit_patience(double seconds) { patience_s_ = seconds; }
  // Ranks that fell silent, ascending. After `finish` all that are left know the same ones.
  std::vector<int> lost() const;

  // Batches [first, end) are to be trained, starting from parameters that are the same on all ranks. On every
  // rank. `rate`: the learning rate of a step. `updates`: steps that the optimizer's state has seen.
  void begin(std::int64_t first, std::int64_t end, std::function<double(std::int64_t)> rate,
             std::int64_t updates);
  // The batch to train now; none is left: nothing. Waits, serving. `ask` beforehand shortens that.
  std::optional<std::int64_t> next();
  void ask();
  // No more batches: serves until nobody has any, then all ranks have the same parameters.
  void finish();

  // What this rank's own worker does: its part of the servers' slices. A pull is done when the worker may
  // train on and `received` what other servers send.
  void apply_own(int bucket);
  std::unique_ptr<Request> pull(const Instruction& instruction, std::unique_ptr<Request> received);

  bool progress();  // true when something was done

  const Staleness& staleness() const { return staleness_; }
  std::int64_t updates() const { return updates_; }  // steps whose pushes were applied, after `finish`
  // What services did in the last KeptSteps::kMost steps of each worker; `step` counts those.
  std::vector<TimelineEvent> events() const;

 private:
  struct Word {  // a short message under way
    std::int64_t value = 0;
    int peer = 0;
    std::unique_ptr<Request> request;
  };
  // One Service of the Program.
  struct Serving {
    const Service* service = nullptr;
    std::uint32_t first_instruction = 0;
    Word announced;  // that a batch's pushes will come, or none any more
    bool in_step = false;
    std::size_t received = 0;  // instructions that are done: receives and updates, in threes with
    std::size_t answered = 0;  // the answers
    std::unique_ptr<Request> receiving, answering;
    float* pushed = nullptr;
    float* answer = nullptr;
    std::int32_t step = 0;
    double receive_begin_s = 0, answer_begin_s = 0;
    std::deque<TimelineEvent> events;
  };

  bool serve(Serving& serving);
  std::int64_t take_batch();
  bool hand_out();
  bool anyone_may_ask() const;
  bool watch();
  void lose(int rank);
  bool is_lost(int rank) const { return lost_[static_cast<std::size_t>(rank)] != 0; }
  void send_word(int peer, int tag, std::int64_t value);
  void receive_word(int peer, int tag, Word& word);
  void apply(int bucket, int worker, float* gradient);
  bool may_have(int bucket, int worker, int lead) const;
  void handed_over(int bucket, int worker);
  void share_parameters();
  void record(Serving& serving, std::size_t instruction, double begin_s);
  std::int64_t& applied(int bucket, int worker);
  std::int64_t ahead(int bucket, int worker) const;

  const Plan& plan_;
  const Program& program_;
  Parameters& parameters_;
  Device& device_;
  Communicator& world_;
  std::function<Communicator&(const Instruction&)> narrow_;
  std::function<double(std::int64_t)> rate_;
  int tags_;  // beyond those of the Program

  std::vector<Serving> serving_;
  std::vector<std::vector<std::int64_t>> applied_;  // [bucket][worker] pushes since `begin`
  std::vector<std::vector<std::int64_t>> seen_;     // [bucket][worker] pushes when it last got parameters
  std::vector<std::int64_t> pushes_;                // [bucket]
  std::vector<char> left_;                          // [worker] trains no more
  std::int64_t updates_ = 0;                        // steps before `begin`
  Staleness staleness_;

  std::list<Word> sent_, abandoned_;  // the latter to those who were lost
  std::int64_t first_ = 0, end_ = 0;
  // Rank 0: the next batch to hand out, and who asks.
  std::int64_t next_ = 0;
  std::vector<Word> asking_;          // by rank
  std::deque<std::int64_t> again_;    // batches of those who were lost with them
  std::vector<std::int64_t> handed_;  // by rank, the last one
  std::vector<double> heard_s_;       // by rank, when last
  double patience_s_ = 0,
         said_s_ = 0;       // how long nobody is missed; when this rank last said that it is there
  std::vector<char> lost_;  // by rank
  Word news_;               // of rank 0: who is lost, or that nobody is to be heard of any more
  bool resigned_ = true;    // this rank has said all that it had to say
  // This rank's worker: the answer to its question.
  bool asked_ = false;
  bool nothing_left_ = false;
  std::optional<std::int64_t> given_;
  Word answer_;
};

}  // namespace orrery::exec
