#include "exec/cuda/nccl_communicator.h"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/nccl_tuner.h"

namespace orrery::exec {
namespace {

void check_nccl(ncclResult_t code, const char* call, int rank) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw InternalError(fmt::format("{} on rank {}: {}", call, rank, ncclGetErrorString(code)));
}

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::fp32:
    case DType::tf32:
      return ncclFloat32;
    case DType::fp16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp8:
      return ncclFloat8e4m3;
    case DType::int8:
    case DType::fp4:
      return ncclInt8;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
  }
  return ncclFloat32;
}

ncclRedOp_t nccl_op(Reduction op) {
  return op == Reduction::max ? ncclMax : ncclSum;
}

// Ranks of a lane's own communicator.
constexpr int kSender = 0;
constexpr int kReceiver = 1;
constexpr int kLaneKey = 1 << 21;  // and a lane's number: apart from the keys of the Program's groups

struct Channel;

// All channels of a process: an error ends every one of them, so that nothing waits for a peer that is gone.
class Channels {
 public:
  void add(Channel* channel) { open_.insert(channel); }
  void remove(Channel* channel) { open_.erase(channel); }
  void abort();

 private:
  std::set<Channel*> open_;
};

// One NCCL communicator with its stream; shared with the requests under way, which may outlive the
// Communicator.
struct Channel {
  std::shared_ptr<Channels> all;
  CudaDevice* device = nullptr;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int rank = 0;
  AlgorithmChoice algorithms;

  Channel(std::shared_ptr<Channels> channels, CudaDevice& on, Communicator* bootstrap)
      : all(std::move(channels)), device(&on), rank(bootstrap ? bootstrap->rank() : 0) {
    ncclUniqueId id{};
    if (rank == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", rank);
    if (bootstrap) bootstrap->broadcast(&id, sizeof id, DType::int8, 0)->wait();
    ORRERY_CUDA(cudaSetDevice(on.index()));
    const TunedBy tuned(algorithms);
    check_nccl(ncclCommInitRank(&comm, bootstrap ? bootstrap->size() : 1, id, rank), "ncclCommInitRank",
               rank);
    ORRERY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    all->add(this);
  }
  ~Channel() {
    all->remove(this);
    if (std::uncaught_exceptions() > 0) abort();
    if (stream) cudaStreamSynchronize(stream);
    if (comm) ncclCommDestroy(comm);
    if (stream) cudaStreamDestroy(stream);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void abort() {
    if (comm) ncclCommAbort(std::exchange(comm, nullptr));
  }

  // Ends the job's communication when NCCL met an error behind our back.
  void look_for_errors() {
    ORRERY_CHECK(comm != nullptr, "the NCCL communicator was aborted");
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", rank);
    if (state == ncclSuccess || state == ncclInProgress) return;
    all->abort();
    throw InternalError(
        fmt::format("NCCL lost its communication on rank {}: {}", rank, ncclGetErrorString(state)));
  }
};

void Channels::abort() {
  for (Channel* channel : open_) channel->abort();
}

class NcclRequest final : public Request {
 public:
  explicit NcclRequest(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {
    ORRERY_CUDA(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
    ORRERY_CUDA(cudaEventRecord(done_, channel_->stream));
  }
  // While an error unwinds, peers may never come for what is under way: it is ended, not waited for.
  ~NcclRequest() override {
    if (std::uncaught_exceptions() > 0) channel_->all->abort();
    cudaEventSynchronize(done_);
    cudaEventDestroy(done_);
  }
  void wait() override { ORRERY_CUDA(cudaStreamWaitEvent(channel_->device->stream(), done_)); }
  bool test() override {
    const cudaError_t state = cudaEventQuery(done_);
    if (state == cudaSuccess) return true;
    if (state != cudaErrorNotReady) ORRERY_CUDA(state);
    channel_->look_for_errors();
    return false;
  }

 private:
  std::shared_ptr<Channel> channel_;
  cudaEvent_t done_ = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  // `exchanges`: with channels for exchange() between any two; a group that runs collectives saves their
  // buffers.
  NcclCommunicator(std::shared_ptr<Channels> channels, CudaDevice& device,
                   std::unique_ptr<Communicator> bootstrap, bool exchanges)
      : channels_(std::move(channels)),
        device_(device),
        bootstrap_(std::move(bootstrap)),
        collectives_(std::make_shared<Channel>(channels_, device, bootstrap_.get())) {
    if (exchanges) {
      even_ = std::make_shared<Channel>(channels_, device, bootstrap_.get());
      odd_ = std::make_shared<Channel>(channels_, device, bootstrap_.get());
    }
    ORRERY_CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
  }
  ~NcclCommunicator() override { cudaEventDestroy(ready_); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return bootstrap_ ? bootstrap_->rank() : 0; }
  int size() const override { return bootstrap_ ? bootstrap_->size() : 1; }

  // ncclCommSplit would be collective over all of this communicator; a new one over the members is not.
  std::unique_ptr<Communicator> split(const std::vector<int>& members, int key) override {
    return std::make_unique<NcclCommunicator>(channels_, device_,
                                              bootstrap_ ? bootstrap_->split(members, key) : nullptr, false);
  }
  CommunicationLibrary library() const override { return CommunicationLibrary::nccl; }
  void set_algorithms(AlgorithmChoice choice) override { collectives_->algorithms = std::move(choice); }

  std::unique_ptr<Request> all_reduce(const void* send, void* receive, std::size_t count, DType type,
                                      Reduction op) override {
    return issue(collectives_, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(send, receive, count, nccl_type(type), nccl_op(op), comm, stream);
    });
  }
  std::unique_ptr<Request> reduce_scatter(const void* send, void* receive, std::size_t count_per_rank,
                                          DType type, Reduction op) override {
    return issue(collectives_, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(send, receive, count_per_rank, nccl_type(type), nccl_op(op), comm, stream);
    });
  }
  std::unique_ptr<Request> all_gather(const void* send, void* receive, std::size_t count_per_rank,
                                      DType type) override {
    return issue(collectives_, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(send, receive, count_per_rank, nccl_type(type), comm, stream);
    });
  }
  std::unique_ptr<Request> all_to_all(const void* send, std::span<const std::size_t> send_counts,
                                      void* receive, std::span<const std::size_t> receive_counts,
                                      DType type) override {
    return issue(collectives_, "ncclSend/ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      const auto width = static_cast<std::size_t>(bytes_of(type));
      const auto* from = static_cast<const char*>(send);
      auto* to = static_cast<char*>(receive);
      // Its own part is no message.
      const auto own = static_cast<std::size_t>(rank());
      if (receive_counts[own] > 0) {
        const auto before = [own](std::span<const std::size_t> counts) {
          return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(own),
                                 std::size_t{0});
        };
        ORRERY_CUDA(cudaMemcpyAsync(to + before(receive_counts) * width, from + before(send_counts) * width,
                                    receive_counts[own] * width, cudaMemcpyDeviceToDevice, stream));
      }
      ncclResult_t code = ncclGroupStart();
      for (int peer = 0; peer < size() && code == ncclSuccess; ++peer) {
        const std::size_t out = send_counts[static_cast<std::size_t>(peer)];
        const std::size_t in = receive_counts[static_cast<std::size_t>(peer)];
        if (peer != rank()) {
          code = ncclSend(from, out, nccl_type(type), peer, comm, stream);
          if (code == ncclSuccess) code = ncclRecv(to, in, nccl_type(type), peer, comm, stream);
        }
        from += out * width;
        to += in * width;
      }
      const ncclResult_t end = ncclGroupEnd();
      return code == ncclSuccess ? end : code;
    });
  }
  std::unique_ptr<Request> broadcast(void* data, std::size_t count, DType type, int root) override {
    return issue(collectives_, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data, data, count, nccl_type(type), root, comm, stream);
    });
  }
  std::unique_ptr<Request> reduce(const void* send, void* receive, std::size_t count, DType type,
                                  Reduction op, int root) override {
    return issue(collectives_, "ncclReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduce(send, receive, count, nccl_type(type), nccl_op(op), root, comm, stream);
    });
  }
  std::unique_ptr<Request> exchange(std::span<const MessageSpec> messages) override {
    const auto& channel = channel_of(messages);
    return issue(channel, "ncclSend/ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t code = ncclGroupStart();
      for (const MessageSpec& message : messages) {
        if (code != ncclSuccess) break;
        const int peer = message.lane < 0 ? message.peer : message.send ? kReceiver : kSender;
        code = message.send ? ncclSend(message.data, message.bytes, ncclChar, peer, comm, stream)
                            : ncclRecv(message.data, message.bytes, ncclChar, peer, comm, stream);
      }
      const ncclResult_t end = ncclGroupEnd();
      return code == ncclSuccess ? end : code;
    });
  }
  void open_lanes(std::span<const Lane> lanes) override {
    for (const Lane& lane : lanes) {
      const auto pair = bootstrap_->split({lane.sender, lane.receiver}, kLaneKey + lane.number);
      lanes_[lane] = std::make_shared<Channel>(channels_, device_, pair.get());
    }
  }
  void barrier() override {
    auto* flag = static_cast<float*>(device_.allocate(sizeof(float)));
    device_.fill(flag, 1, 0);
    const auto request = all_reduce(flag, flag, 1, DType::fp32, Reduction::sum);
    while (!request->test()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    device_.release(flag);
  }
  void idle() override {
    if (bootstrap_) bootstrap_->idle();
  }

 private:
  // NCCL matches by order, not by tag, and a communicator runs one operation after the other: a receive that
  // waits for its sender would hold up what is sent behind it. So each lane has a channel of its own. Other
  // exchanges are in the same order everywhere, but for a server's gradients and parameters, which cross:
  // their tags' lowest bit tells them apart (docs/program.md).
  const std::shared_ptr<Channel>& channel_of(std::span<const MessageSpec> messages) const {
    if (messages.empty() || !odd_) return collectives_;
    const MessageSpec& first = messages.front();
    if (first.lane < 0) return first.tag % 2 != 0 ? odd_ : even_;
    return lanes_.at({first.send ? rank() : first.peer, first.send ? first.peer : rank(), first.lane});
  }
  template <class Call>
  std::unique_ptr<Request> issue(const std::shared_ptr<Channel>& channel, const char* what, Call call) {
    ORRERY_CHECK(channel->comm != nullptr, "the NCCL communicator was aborted");
    ORRERY_CUDA(cudaEventRecord(ready_, device_.stream()));
    ORRERY_CUDA(cudaStreamWaitEvent(channel->stream, ready_));
    check_nccl(call(channel->comm, channel->stream), what, rank());
    return std::make_unique<NcclRequest>(channel);
  }

  std::shared_ptr<Channels> channels_;
  CudaDevice& device_;
  std::unique_ptr<Communicator> bootstrap_;
  std::shared_ptr<Channel> collectives_;
  std::shared_ptr<Channel> even_;  // exchanges by their tags; null where split() made this
  std::shared_ptr<Channel> odd_;
  std::map<Lane, std::shared_ptr<Channel>> lanes_;
  cudaEvent_t ready_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     std::unique_ptr<Communicator> bootstrap) {
  return std::make_unique<NcclCommunicator>(std::make_shared<Channels>(), device, std::move(bootstrap), true);
}

}  // namespace orrery::exec
