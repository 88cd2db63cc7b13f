#include "sim/plan_bytes.h"

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace orrery::sim {
namespace {

constexpr const char* kWhere = "a plan to simulate";  // in messages

template <typename Message>
void write(ByteWriter& out, const Message& message) {
  out(message.SerializeAsString());
}

template <typename Message>
Message read(ByteReader& in) {
  std::string bytes;
  in(bytes);
  Message message;
  ORRERY_CHECK(message.ParseFromString(bytes), "a request that cannot be read");
  return message;
}

}  // namespace

void write_plan(ByteWriter& out, const Plan& plan) {
  proto::Plan message;
  to_proto(plan, &message);
  write(out, message);
}

Plan read_plan(ByteReader& in) {
  return plan_from_proto(read<proto::Plan>(in), kWhere, "");
}

void write_cluster(ByteWriter& out, const Cluster& cluster) {
  proto::Cluster message;
  to_proto(cluster, &message);
  write(out, message);
}

Cluster read_cluster(ByteReader& in) {
  return cluster_from_proto(read<proto::Cluster>(in), kWhere, "");
}

}  // namespace orrery::sim
