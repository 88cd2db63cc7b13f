#include "program/runtime_profile.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "proto/runtime_profile.pb.h"

using namespace orrery;

TEST_CASE("every runtime of the catalog reads, and there are at most twelve") {
  const auto names = catalog_runtimes();
  CHECK(names.size() <= 12);
  for (const char* wanted : {"megatron-core", "megatron-lm-2022", "megatron-deepspeed", "orrery"})
    CHECK(std::find(names.begin(), names.end(), wanted) != names.end());
  for (const std::string& name : names) {
    const RuntimeProfile p = catalog_runtime(name);
    CHECK(p.name == name);
    CHECK_FALSE(p.source.empty());
    CHECK(p.matmul_efficiency > 0);
  }
}

TEST_CASE("a runtime profile survives its file form") {
  RuntimeProfile p = catalog_runtime("megatron-core");
  p.backward_launch_share = 0.5;
  proto::RuntimeProfile message;
  to_proto(p, &message);
  const RuntimeProfile q = runtime_profile_from_proto(message, "x", "");
  CHECK(q.bucket_bytes == p.bucket_bytes);
  CHECK(q.kernel_launch_s == p.kernel_launch_s);
  CHECK(q.backward_launch_share == p.backward_launch_share);
  CHECK(q.fused_attention == p.fused_attention);
  CHECK(q.frameworks == p.frameworks);
}

TEST_CASE("nonsense in a runtime profile is named with its line") {
  proto::RuntimeProfile message;
  message.set_name("x");
  message.set_kernel_launch_s(-1);
  try {
    runtime_profile_from_proto(message, "x.textproto", "name: \"x\"\nkernel_launch_s: -1\n");
    FAIL("accepted");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()).find("x.textproto:2") != std::string::npos);
  }
  message.set_kernel_launch_s(std::numeric_limits<double>::quiet_NaN());
  CHECK_THROWS_AS(runtime_profile_from_proto(message, "x", ""), UserError);
  CHECK_THROWS_AS(catalog_runtime("no-such"), UserError);
}
