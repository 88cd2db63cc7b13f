#include "nccl.h"

#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exec/cuda/nccl_tuner.h"
#include "exec/cuda/two_bytes.h"

struct nccl_emulated_comm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  const orrery::exec::NcclTunerV4* tuner = nullptr;
  void* tuner_context = nullptr;
};

namespace {

nccl_emulation::Method latest;

// As NCCL finds a tuner that stands in the program itself.
void load_tuner(ncclComm_t comm) {
  const char* plugin = std::getenv("NCCL_TUNER_PLUGIN");
  if (!plugin || std::strcmp(plugin, "STATIC_PLUGIN") != 0) return;
  comm->tuner =
      static_cast<const orrery::exec::NcclTunerV4*>(dlsym(dlopen(nullptr, RTLD_NOW), "ncclTunerPlugin_v4"));
  if (comm->tuner) comm->tuner->init(static_cast<std::size_t>(comm->size), 1, nullptr, &comm->tuner_context);
}

// NCCL's own costs are above 0; trees do nothing but all-reduce.
void choose_method(ncclComm_t comm, int function, std::size_t bytes) {
  constexpr int kAlgorithms = 7;
  constexpr int kProtocols = 3;
  constexpr int kAllReduce = 4;
  latest = {};
  if (!comm->tuner) return;
  float costs[kAlgorithms][kProtocols];
  for (int a = 0; a < kAlgorithms; ++a)
    for (float& cost : costs[a]) cost = a == 0 && function != kAllReduce ? -1 : 1;
  int channels = 0;
  comm->tuner->get_collective_info(comm->tuner_context, function, bytes, 1, reinterpret_cast<float**>(costs),
                                   kAlgorithms, kProtocols, 0, &channels);
  for (int a = 0; a < kAlgorithms; ++a)
    for (int p = 0; p < kProtocols; ++p)
      if (costs[a][p] == 0) latest = {a, p};
}

constexpr int kInitTag = 30000;  // of messages between the members of a communicator that is made
constexpr int kTag = 0;

// What an operation sends, what it receives, and what it makes of that.
struct Operation {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  struct Message {
    bool send;
    void* data;
    std::size_t bytes;
    int peer;
  };
  std::vector<Message> messages;
  std::vector<std::vector<char>> received;  // by rank, where it is not received in place
  std::function<void(Operation&)> finish;
  std::vector<MPI_Request> requests;

  void send(const void* data, std::size_t bytes, int peer) {
    messages.push_back({true, const_cast<void*>(data), bytes, peer});
  }
  void receive(void* data, std::size_t bytes, int peer) { messages.push_back({false, data, bytes, peer}); }
  void receive(std::size_t bytes, int peer) {
    received.resize(static_cast<std::size_t>(comm->size));
    received[static_cast<std::size_t>(peer)].resize(bytes);
    receive(received[static_cast<std::size_t>(peer)].data(), bytes, peer);
  }
  void start() {
    for (const Message& m : messages) {
      MPI_Request& request = requests.emplace_back();
      if (m.send)
        MPI_Isend(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, kTag, comm->mpi, &request);
      else
        MPI_Irecv(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, kTag, comm->mpi, &request);
    }
  }
  bool done() {
    int all = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
    if (all == 0) return false;
    if (finish) finish(*this);
    return true;
  }
};

// NCCL's kernels read and write them: memory of the host may be none that they can, and is not there yet when
// the call returns.
void check_on_device(const void* data, std::size_t bytes) {
  if (bytes > 0 && !cuda_emulation::is_device_memory(data, bytes))
    throw std::logic_error("NCCL was given memory that is not the device's");
}

int group_depth = 0;
std::shared_ptr<Operation> group;  // sends and receives since the group began

ncclResult_t enqueue(const std::shared_ptr<Operation>& operation) {
  cudaStream_t stream = operation->stream;
  cuda_emulation::enqueue(
      stream, [operation] { operation->start(); }, [operation] { return operation->done(); });
  return ncclSuccess;
}

std::shared_ptr<Operation> operation_on(ncclComm_t comm, cudaStream_t stream) {
  auto operation = std::make_shared<Operation>();
  operation->comm = comm;
  operation->stream = stream;
  return operation;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclFloat8e4m3:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
      return 8;
  }
  throw std::logic_error("an unknown type of NCCL's");
}

template <class T>
T load(const void* data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* data, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * sizeof(T), &value, sizeof(T));
}

double value_at(ncclDataType_t type, const void* data, std::size_t i) {
  switch (type) {
    case ncclInt8:
      return load<signed char>(data, i);
    case ncclInt32:
      return load<std::int32_t>(data, i);
    case ncclInt64:
      return static_cast<double>(load<std::int64_t>(data, i));
    case ncclFloat16:
      return orrery::exec::kernels::from_fp16(load<std::uint16_t>(data, i));
    case ncclFloat32:
      return load<float>(data, i);
    case ncclBfloat16:
      return orrery::exec::kernels::from_bf16(load<std::uint16_t>(data, i));
    case ncclFloat8e4m3:
      break;
  }
  throw std::logic_error("a type that is not reduced here");
}

void set_value(ncclDataType_t type, void* data, std::size_t i, double value) {
  switch (type) {
    case ncclInt8:
      return store(data, i, static_cast<signed char>(value));
    case ncclInt32:
      return store(data, i, static_cast<std::int32_t>(value));
    case ncclInt64:
      return store(data, i, static_cast<std::int64_t>(value));
    case ncclFloat16:
      return store(data, i, orrery::exec::kernels::to_fp16(static_cast<float>(value)));
    case ncclFloat32:
      return store(data, i, static_cast<float>(value));
    case ncclBfloat16:
      return store(data, i, orrery::exec::kernels::to_bf16(static_cast<float>(value)));
    case ncclFloat8e4m3:
      break;
  }
  throw std::logic_error("a type that is not reduced here");
}

// Everyone's, in the order of the ranks; `own` where nothing was received from this rank itself.
void reduce_into(void* to, const void* own, Operation& operation, std::size_t count, ncclDataType_t type,
                 ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    double result = 0;
    for (int rank = 0; rank < operation.comm->size; ++rank) {
      const void* from =
          rank == operation.comm->rank ? own : operation.received[static_cast<std::size_t>(rank)].data();
      const double value = value_at(type, from, i);
      result = rank == 0 ? value : op == ncclSum ? result + value : std::max(result, value);
    }
    set_value(type, to, i, result);
  }
}

template <class Do>
void for_peers(ncclComm_t comm, Do act) {
  for (int peer = 0; peer < comm->size; ++peer)
    if (peer != comm->rank) act(peer);
}

// Sends and receives of a group are one operation.
Operation& in_group(ncclComm_t comm, cudaStream_t stream) {
  if (group_depth == 0) throw std::logic_error("a message outside of a group");
  if (!group) group = operation_on(comm, stream);
  if (group->comm != comm || group->stream != stream)
    throw std::logic_error("a group over several communicators or streams");
  return *group;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "invalid";
}

nccl_emulation::Method nccl_emulation::latest_method() {
  return latest;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  int root = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &root);
  const int parts[2] = {root, ++made};
  std::memcpy(id->internal, parts, sizeof parts);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  int parts[2];
  std::memcpy(parts, id.internal, sizeof parts);
  const auto [root, number] = parts;
  auto made = std::make_unique<nccl_emulated_comm>();
  made->rank = rank;
  made->size = ranks;
  int self = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  std::vector<int> members(static_cast<std::size_t>(ranks), self);
  if (rank == 0) {
    for (int i = 1; i < ranks; ++i) {
      int who[2];
      MPI_Recv(who, 2, MPI_INT, MPI_ANY_SOURCE, kInitTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members[static_cast<std::size_t>(who[0])] = who[1];
    }
    for (int i = 1; i < ranks; ++i)
      MPI_Send(members.data(), ranks, MPI_INT, members[static_cast<std::size_t>(i)], kInitTag + 1,
               MPI_COMM_WORLD);
  } else {
    const int who[2] = {rank, self};
    MPI_Send(who, 2, MPI_INT, root, kInitTag, MPI_COMM_WORLD);
    MPI_Recv(members.data(), ranks, MPI_INT, root, kInitTag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Group world;
  MPI_Group group_of_members;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, members.data(), &group_of_members);
  MPI_Comm_create_group(MPI_COMM_WORLD, group_of_members, number, &made->mpi);
  MPI_Group_free(&group_of_members);
  MPI_Group_free(&world);
  load_tuner(made.get());
  *comm = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->tuner) comm->tuner->destroy(comm->tuner_context);
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return ncclSuccess;  // what is under way stays there: the job ends
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0 || !group) return ncclSuccess;
  return enqueue(std::exchange(group, nullptr));
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  check_on_device(send, count * size_of(type));
  in_group(comm, stream).send(send, count * size_of(type), peer);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  check_on_device(receive, count * size_of(type));
  in_group(comm, stream).receive(receive, count * size_of(type), peer);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  check_on_device(send, bytes);
  check_on_device(receive, bytes);
  choose_method(comm, 4, bytes);
  auto operation = operation_on(comm, stream);
  for_peers(comm, [&](int peer) {
    operation->send(send, bytes, peer);
    operation->receive(bytes, peer);
  });
  operation->finish = [=](Operation& self) { reduce_into(receive, send, self, count, type, op); };
  return enqueue(operation);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_on(comm, stream);
  const std::size_t bytes = count * size_of(type);
  check_on_device(send, bytes * static_cast<std::size_t>(comm->size));
  check_on_device(receive, bytes);
  choose_method(comm, 3, bytes * static_cast<std::size_t>(comm->size));
  const auto part = [=](int rank) {
    return static_cast<const char*>(send) + static_cast<std::size_t>(rank) * bytes;
  };
  for_peers(comm, [&](int peer) {
    operation->send(part(peer), bytes, peer);
    operation->receive(bytes, peer);
  });
  operation->finish = [=](Operation& self) { reduce_into(receive, part(comm->rank), self, count, type, op); };
  return enqueue(operation);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_on(comm, stream);
  const std::size_t bytes = count * size_of(type);
  check_on_device(send, bytes);
  check_on_device(receive, bytes * static_cast<std::size_t>(comm->size));
  choose_method(comm, 2, bytes * static_cast<std::size_t>(comm->size));
  const auto part = [=](int rank) {
    return static_cast<char*>(receive) + static_cast<std::size_t>(rank) * bytes;
  };
  for_peers(comm, [&](int peer) {
    operation->send(send, bytes, peer);
    operation->receive(part(peer), bytes, peer);
  });
  operation->finish = [=](Operation&) {
    if (bytes > 0) std::memmove(part(comm->rank), send, bytes);
  };
  return enqueue(operation);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_on(comm, stream);
  const std::size_t bytes = count * size_of(type);
  if (comm->rank == root) check_on_device(send, bytes);
  check_on_device(receive, bytes);
  choose_method(comm, 0, bytes);
  if (comm->rank != root)
    operation->receive(receive, bytes, root);
  else
    for_peers(comm, [&](int peer) { operation->send(send, bytes, peer); });
  operation->finish = [=](Operation&) {
    if (comm->rank == root && bytes > 0) std::memmove(receive, send, bytes);
  };
  return enqueue(operation);
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  auto operation = operation_on(comm, stream);
  const std::size_t bytes = count * size_of(type);
  check_on_device(send, bytes);
  if (comm->rank == root) check_on_device(receive, bytes);
  choose_method(comm, 1, bytes);
  if (comm->rank != root) {
    operation->send(send, bytes, root);
    return enqueue(operation);
  }
  for_peers(comm, [&](int peer) { operation->receive(bytes, peer); });
  operation->finish = [=](Operation& self) { reduce_into(receive, send, self, count, type, op); };
  return enqueue(operation);
}
