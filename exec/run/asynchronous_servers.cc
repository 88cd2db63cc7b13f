#include "exec/run/asynchronous_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/requests.h"
#include "program/placement.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kNothingLeft = -1;
// Of a worker to rank 0: what to train next, or that it wants no more.
constexpr std::int64_t kWhatNext = 1;
constexpr std::int64_t kNoMore = 0;
constexpr std::int64_t kIsThere = 2;
// Of rank 0, who names a rank that is lost: that it is there, and that there will be no more news.
constexpr std::int64_t kNobody = -2;
constexpr std::int64_t kNoNews = -1;
// So often a rank says that it is there in the time that it has for it.
constexpr double kSaysInPatience = 4;
// Of a worker to a server: the pushes of a batch will come, or none any more.
constexpr std::int64_t kBatchComes = 1;
constexpr std::int64_t kLeaves = 0;
// Messages beside the Program's.
constexpr int kAsk = 0, kBatch = 1, kAnnounce = 2, kShare = 3, kNews = 4;

// What nobody will ever send or take: MPI has its memory until the process ends.
void abandon(std::unique_ptr<Request>& request) {
  static_cast<void>(request.release());
}

bool adapts_its_step(Optimizer optimizer) {
  return optimizer == Optimizer::adam || optimizer == Optimizer::adamw;
}

// Done when `received` is and `ready` says so.
class HeldRequest final : public Request {
 public:
  HeldRequest(std::unique_ptr<Request> received, std::function<bool()> ready, std::function<void()> serve)
      : received_(std::move(received)), ready_(std::move(ready)), serve_(std::move(serve)) {}
  void wait() override {
    while (!test()) serve_();
  }
  bool test() override {
    if (received_ && !received_->test()) return false;
    received_.reset();
    return ready_();
  }

 private:
  std::unique_ptr<Request> received_;
  std::function<bool()> ready_;
  std::function<void()> serve_;
};

}  // namespace

AsynchronousServers::AsynchronousServers(const Plan& plan, const Program& program, Parameters& parameters,
                                         Device& device, Communicator& world,
                                         std::function<Communicator&(const Instruction&)> narrow)
    : plan_(plan),
      program_(program),
      parameters_(parameters),
      device_(device),
      world_(world),
      narrow_(std::move(narrow)),
      tags_(2 * parameters.buckets()) {
  const auto buckets = static_cast<std::size_t>(parameters.buckets());
  const auto workers = static_cast<std::size_t>(plan.choices.dp);
  applied_.assign(buckets, std::vector<std::int64_t>(workers, 0));
  seen_ = applied_;
  pushes_.assign(buckets, 0);
  left_.assign(workers, 0);
  asking_.resize(workers);
  handed_.assign(workers, kNothingLeft);
  heard_s_.assign(workers, 0);
  lost_.assign(workers, 0);
  std::int64_t largest = 0;
  for (int b = 0; b < parameters.buckets(); ++b) largest = std::max(largest, parameters.shard_elements(b));
  auto first = static_cast<std::uint32_t>(program.instructions.size());
  for (const Service& service : program.services) {
    Serving& serving = serving_.emplace_back();
    serving.service = &service;
    serving.first_instruction = first;
    first += static_cast<std::uint32_t>(service.instructions.size());
    for (float** buffer : {&serving.pushed, &serving.answer})
      *buffer = static_cast<float*>(device.allocate(static_cast<std::size_t>(largest) * sizeof(float)));
  }
}

AsynchronousServers::~AsynchronousServers() {
  for (const Serving& serving : serving_)
    for (float* buffer : {serving.pushed, serving.answer}) device_.release(buffer);
}

void AsynchronousServers::begin(std::int64_t first, std::int64_t end,
                                std::function<double(std::int64_t)> rate, std::int64_t updates) {
  rate_ = std::move(rate);
  updates_ = updates;
  next_ = first_ = first;
  end_ = end;
  asked_ = nothing_left_ = false;
  given_.reset();
  left_ = lost_;
  std::fill(pushes_.begin(), pushes_.end(), 0);
  for (auto* counts : {&applied_, &seen_})
    for (auto& of_bucket : *counts) std::fill(of_bucket.begin(), of_bucket.end(), 0);
  for (Serving& serving : serving_)
    if (!is_lost(serving.service->worker))
      receive_word(serving.service->worker, kAnnounce, serving.announced);
  resigned_ = false;
  said_s_ = steady_seconds();
  std::fill(heard_s_.begin(), heard_s_.end(), said_s_);
  std::fill(handed_.begin(), handed_.end(), kNothingLeft);
  if (world_.rank() != 0) {
    if (patience_s_ > 0) receive_word(0, kNews, news_);
    return;
  }
  for (int rank = 1; rank < world_.size(); ++rank)
    if (!is_lost(rank)) receive_word(rank, kAsk, asking_[static_cast<std::size_t>(rank)]);
}

void AsynchronousServers::send_word(int peer, int tag, std::int64_t value) {
  Word& word = sent_.emplace_back();
  word.value = value;
  word.peer = peer;
  const MessageSpec message{peer, &word.value, sizeof(word.value), tags_ + tag, true};
  word.request = world_.on_host().exchange({&message, 1});
}

void AsynchronousServers::receive_word(int peer, int tag, Word& word) {
  const MessageSpec message{peer, &word.value, sizeof(word.value), tags_ + tag, false};
  word.request = world_.on_host().exchange({&message, 1});
}

// ---- batches ----

void AsynchronousServers::ask() {
  if (asked_) return;
  asked_ = true;
  if (world_.rank() == 0) {
    given_ = take_batch();
    return;
  }
  receive_word(0, kBatch, answer_);
  send_word(0, kAsk, kWhatNext);
}

std::int64_t AsynchronousServers::take_batch() {
  if (!again_.empty()) {
    const std::int64_t batch = again_.front();
    again_.pop_front();
    return batch;
  }
  return next_ < end_ ? next_++ : kNothingLeft;
}

bool AsynchronousServers::hand_out() {
  bool done = false;
  for (std::size_t rank = 1; rank < asking_.size(); ++rank) {
    Word& word = asking_[rank];
    if (!word.request || !word.request->test()) continue;
    word.request.reset();
    done = true;
    heard_s_[rank] = steady_seconds();
    if (word.value == kNoMore) continue;
    if (word.value == kWhatNext) {
      handed_[rank] = take_batch();
      send_word(static_cast<int>(rank), kBatch, handed_[rank]);
    }
    if (handed_[rank] != kNothingLeft || patience_s_ > 0) receive_word(static_cast<int>(rank), kAsk, word);
  }
  return done;
}

bool AsynchronousServers::anyone_may_ask() const {
  return std::any_of(asking_.begin(), asking_.end(),
                     [](const Word& word) { return word.request != nullptr; });
}

// ---- who is there ----

std::vector<int> AsynchronousServers::lost() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < lost_.size(); ++rank)
    if (lost_[rank] != 0) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool AsynchronousServers::watch() {
  const double now_s = steady_seconds();
  const bool says = !resigned_ && now_s - said_s_ > patience_s_ / kSaysInPatience;
  if (says) said_s_ = now_s;
  if (world_.rank() != 0) {
    if (says) send_word(0, kAsk, kIsThere);
    if (!news_.request) return false;
    if (!news_.request->test()) {
      if (now_s - heard_s_[0] > patience_s_)
        throw InternalError("rank 0 says nothing: nobody hands out batches");
      return false;
    }
    news_.request.reset();
    heard_s_[0] = now_s;
    if (news_.value == kNoNews) return true;
    if (news_.value != kNobody) lose(static_cast<int>(news_.value));
    receive_word(0, kNews, news_);
    return true;
  }
  bool any = false;
  for (int rank = 1; says && rank < world_.size(); ++rank)
    if (!is_lost(rank)) send_word(rank, kNews, kNobody);
  for (int rank = 1; rank < world_.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (!asking_[r].request || now_s - heard_s_[r] < patience_s_) continue;
    lose(rank);
    if (handed_[r] != kNothingLeft) again_.push_back(handed_[r]);
    for (int other = 1; other < world_.size(); ++other)
      if (!is_lost(other)) send_word(other, kNews, rank);
    any = true;
  }
  return any;
}

void AsynchronousServers::lose(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  if (rank < plan_.choices.servers)
    throw InternalError(fmt::format("rank {} says nothing: its part of the parameters is lost", rank));
  lost_[r] = left_[r] = 1;
  abandon(asking_[r].request);
  for (Serving& serving : serving_)
    if (serving.service->worker == rank)
      for (auto* request : {&serving.announced.request, &serving.receiving, &serving.answering})
        abandon(*request);
  for (auto word = sent_.begin(); word != sent_.end();) {
    const auto here = word++;
    if (here->peer != rank) continue;
    abandon(here->request);
    abandoned_.splice(abandoned_.end(), sent_, here);
  }
}

std::optional<std::int64_t> AsynchronousServers::next() {
  ask();
  while (!given_)
    if (!progress()) world_.idle();
  asked_ = false;
  std::int64_t batch = *std::exchange(given_, std::nullopt);
  // Someone may yet be lost with the batch that it has: rank 0 is the last to go.
  while (patience_s_ > 0 && world_.rank() == 0 && batch == kNothingLeft && anyone_may_ask()) {
    if (!progress()) world_.idle();
    batch = take_batch();
  }
  nothing_left_ = batch == kNothingLeft;
  if (nothing_left_) return std::nullopt;
  for (int server = 0; server < plan_.choices.servers; ++server)
    if (server != world_.rank()) send_word(server, kAnnounce, kBatchComes);
  return batch;
}

void AsynchronousServers::finish() {
  left_[static_cast<std::size_t>(world_.rank())] = 1;
  for (int server = 0; server < plan_.choices.servers; ++server)
    if (server != world_.rank()) send_word(server, kAnnounce, kLeaves);
  resigned_ = world_.rank() != 0;
  if (world_.rank() != 0 && (!nothing_left_ || patience_s_ > 0)) send_word(0, kAsk, kNoMore);
  const auto busy = [this] {
    const auto trains = [this](const Serving& serving) {
      return left_[static_cast<std::size_t>(serving.service->worker)] == 0;
    };
    return !sent_.empty() || std::any_of(serving_.begin(), serving_.end(), trains) || anyone_may_ask() ||
           news_.request != nullptr;
  };
  bool told = patience_s_ == 0 || world_.rank() != 0;
  while (busy() || !told) {
    if (!told && !anyone_may_ask()) {
      told = resigned_ = true;
      for (int rank = 1; rank < world_.size(); ++rank)
        if (!is_lost(rank)) send_word(rank, kNews, kNoNews);
    }
    if (!progress()) world_.idle();
  }
  updates_ += (end_ - first_) / plan_.choices.dp;
  share_parameters();
}

// Servers' slices to everyone, as they are in the end.
void AsynchronousServers::share_parameters() {
  const int here = world_.rank();
  for (int b = 0; b < parameters_.buckets(); ++b) {
    if (here < plan_.choices.servers) parameters_.publish(b);
    std::vector<MessageSpec> messages;
    for (int server = 0; server < plan_.choices.servers; ++server) {
      const ServerSlice slice = server_slice(parameters_.elements(b), plan_.choices.servers, server);
      float* data = parameters_.weights(b) + slice.begin;
      const std::size_t bytes = static_cast<std::size_t>(slice.elements) * sizeof(float);
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (rank == server || (here != server && here != rank) || is_lost(rank)) continue;
        messages.push_back({here == server ? rank : server, data, bytes, tags_ + kShare, here == server});
      }
    }
    world_.exchange(messages)->wait();
  }
}

// ---- pushes ----

std::int64_t& AsynchronousServers::applied(int bucket, int worker) {
  return applied_[static_cast<std::size_t>(bucket)][static_cast<std::size_t>(worker)];
}

std::int64_t AsynchronousServers::ahead(int bucket, int worker) const {
  const std::vector<std::int64_t>& of_bucket = applied_[static_cast<std::size_t>(bucket)];
  const std::int64_t own = of_bucket[static_cast<std::size_t>(worker)];
  std::int64_t slowest = own;
  for (std::size_t w = 0; w < of_bucket.size(); ++w)
    if (left_[w] == 0) slowest = std::min(slowest, of_bucket[w]);
  return own - slowest;
}

bool AsynchronousServers::may_have(int bucket, int worker, int lead) const {
  return lead < 0 || ahead(bucket, worker) <= lead;
}

void AsynchronousServers::handed_over(int bucket, int worker) {
  const auto b = static_cast<std::size_t>(bucket);
  seen_[b][static_cast<std::size_t>(worker)] = pushes_[b];
  staleness_.most_ahead = std::max(staleness_.most_ahead, static_cast<double>(ahead(bucket, worker)));
}

// An optimizer that takes steps of its own size whatever the gradient's gets a worker's share of the rate:
// the pushes of a step together move the parameters as far as one update with all gradients.
void AsynchronousServers::apply(int bucket, int worker, float* gradient) {
  const auto b = static_cast<std::size_t>(bucket);
  const auto stale = static_cast<double>(pushes_[b] - seen_[b][static_cast<std::size_t>(worker)]);
  ++staleness_.pushes;
  staleness_.updates += stale;
  staleness_.most_updates = std::max(staleness_.most_updates, stale);
  const int workers = plan_.choices.dp;
  const double share = adapts_its_step(plan_.job->training.optimizer) ? workers : 1;
  parameters_.set_learning_rate(rate_((first_ + pushes_[b]) / workers) / share);
  parameters_.update_bucket(bucket, gradient, updates_ * workers + pushes_[b] + 1, 1);
  ++pushes_[b];
  ++applied(bucket, worker);
}

void AsynchronousServers::apply_own(int bucket) {
  apply(bucket, world_.rank(), parameters_.own_gradients(bucket));
}

std::unique_ptr<Request> AsynchronousServers::pull(const Instruction& instruction,
                                                   std::unique_ptr<Request> received) {
  const int bucket = instruction.writes.front().index;
  const auto ready = [this, bucket, lead = instruction.lead] {
    if (parameters_.shard_elements(bucket) == 0) return true;  // nothing of it is kept here
    if (!may_have(bucket, world_.rank(), lead)) return false;
    parameters_.publish(bucket);
    handed_over(bucket, world_.rank());
    return true;
  };
  return std::make_unique<HeldRequest>(std::move(received), ready, [this] {
    if (!progress()) world_.idle();
  });
}

void AsynchronousServers::record(Serving& serving, std::size_t instruction, double begin_s) {
  serving.events.push_back({program_.rank, serving.step,
                            serving.first_instruction + static_cast<std::uint32_t>(instruction), begin_s,
                            steady_seconds()});
  while (serving.events.front().step + KeptSteps::kMost <= serving.step) serving.events.pop_front();
}

bool AsynchronousServers::serve(Serving& serving) {
  const std::vector<Instruction>& all = serving.service->instructions;
  const int worker = serving.service->worker;
  if (is_lost(worker)) return false;
  const auto transfer_of = [&](std::size_t i, float* data) {
    const Transfer& transfer = all[i].transfers.front();
    const std::size_t bytes =
        static_cast<std::size_t>(parameters_.shard_elements(transfer.tensor.index)) * sizeof(float);
    return MessageSpec{transfer.peer, data, bytes, transfer.tag, transfer.send};
  };
  bool done = false;
  if (!serving.in_step) {
    if (!serving.announced.request || !serving.announced.request->test()) return false;
    serving.announced.request.reset();
    if (serving.announced.value == kLeaves) {
      left_[static_cast<std::size_t>(worker)] = 1;
      return true;
    }
    receive_word(worker, kAnnounce, serving.announced);
    serving.in_step = true;
    serving.received = serving.answered = 0;
    done = true;
  }
  while (serving.received < all.size()) {
    const std::size_t at = serving.received;
    if (!serving.receiving) {
      const MessageSpec message = transfer_of(at, serving.pushed);
      serving.receive_begin_s = steady_seconds();
      serving.receiving = narrow_(all[at]).exchange({&message, 1});
    }
    if (!serving.receiving->test()) break;
    serving.receiving.reset();
    record(serving, at, serving.receive_begin_s);
    const double begin_s = steady_seconds();
    apply(all[at + kApplyPush].op_begin, worker, serving.pushed);
    record(serving, at + kApplyPush, begin_s);
    serving.received += kServicePhases;
    done = true;
  }
  while (serving.answered < serving.received) {
    const std::size_t at = serving.answered + kAnswerPush;
    const int bucket = all[at].reads.front().index;
    if (!serving.answering) {
      if (!may_have(bucket, worker, all[at].lead)) break;
      // As they are now: they change while the message is under way.
      device_.copy(serving.answer, parameters_.own_master(bucket),
                   static_cast<std::size_t>(parameters_.shard_elements(bucket)) * sizeof(float));
      handed_over(bucket, worker);
      const MessageSpec message = transfer_of(at, serving.answer);
      serving.answer_begin_s = steady_seconds();
      serving.answering = narrow_(all[at]).exchange({&message, 1});
    }
    if (!serving.answering->test()) break;
    serving.answering.reset();
    record(serving, at, serving.answer_begin_s);
    serving.answered += kServicePhases;
    done = true;
  }
  if (serving.answered == all.size()) {
    serving.in_step = false;
    ++serving.step;
  }
  return done;
}

bool AsynchronousServers::progress() {
  bool done = false;
  for (Serving& serving : serving_) done = serve(serving) || done;
  if (world_.rank() == 0) done = hand_out() || done;
  if (patience_s_ > 0) done = watch() || done;
  if (answer_.request && answer_.request->test()) {
    answer_.request.reset();
    given_ = answer_.value;
    done = true;
  }
  std::erase_if(sent_, [](Word& word) { return word.request->test(); });
  return done;
}

std::vector<TimelineEvent> AsynchronousServers::events() const {
  std::vector<TimelineEvent> all;
  for (const Serving& serving : serving_) all.insert(all.end(), serving.events.begin(), serving.events.end());
  return all;
}

}  // namespace orrery::exec
