#include "program/runtime_profile.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "proto/runtime_profile.pb.h"
#include "tests/support/filled_message.h"

using namespace orrery;

TEST_CASE("every runtime of the catalog reads, and there are at most fifteen") {
  const auto names = catalog_runtimes();
  CHECK(names.size() <= 15);
  for (const char* wanted : {"megatron-core", "megatron-lm-2022", "megatron-deepspeed", "orrery"})
    CHECK(std::find(names.begin(), names.end(), wanted) != names.end());
  for (const std::string& name : names) {
    const RuntimeProfile p = catalog_runtime(name);
    CHECK(p.name == name);
    CHECK_FALSE(p.source.empty());
    CHECK(p.matmul_efficiency > 0);
    // More scalars would fit any table.
    CHECK(p.fitted.size() <= 8);
    CHECK(p.calibrated == !p.fitted.empty());
  }
  for (const char* kind : {"gpu", "gpu-graphs", "gpu-images", "cpu", "tpu"})
    CHECK(std::count_if(names.begin(), names.end(), [kind](const std::string& name) {
            return catalog_runtime(name).default_for == kind;
          }) == 1);
  CHECK(default_runtime(RuntimeUse::gpu).name == "typical");
  CHECK(default_runtime(RuntimeUse::gpu_images).name == "pytorch-ddp");
  CHECK(default_runtime(RuntimeUse::cpu).name == "orrery");
  CHECK(default_runtime(RuntimeUse::tpu).name == "jax");
}

TEST_CASE("fitted scalars are at most eight, and numbers of the profile") {
  proto::RuntimeProfile message;
  message.set_name("x");
  message.add_fitted("kernel_launch_s");
  CHECK(runtime_profile_from_proto(message, "x", "").fitted == std::vector<std::string>{"kernel_launch_s"});
  message.add_fitted("fused_attention");
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("fused_attention"));
  message.clear_fitted();
  message.add_fitted("launch");
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("'launch'"));
  message.clear_fitted();
  for (int i = 0; i < 9; ++i) message.add_fitted("matmul_efficiency");
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("9 names"));
}

TEST_CASE("a file says in what its runtime differs from one of the catalog") {
  const RuntimeProfile own = runtime_from_text(
      "name: \"mine\"\nbased_on: \"torchtitan\"\nfused_elementwise: false\nmatmul_efficiency: 0.9\n", "mine");
  const RuntimeProfile base = catalog_runtime("torchtitan");
  CHECK(own.name == "mine");
  CHECK_FALSE(own.fused_elementwise);
  CHECK(base.fused_elementwise);
  CHECK(own.matmul_efficiency == 0.9);
  CHECK(own.attention_efficiency == base.attention_efficiency);
  CHECK(own.fitted.empty());
  // The default is based on another itself, and can be based on like any.
  const RuntimeProfile ours =
      runtime_from_text("name: \"ours\"\nbased_on: \"typical\"\nmoment_bytes: 2\n", "ours");
  CHECK(ours.matmul_efficiency == catalog_runtime("typical").matmul_efficiency);
  CHECK(ours.abilities == catalog_runtime("megatron-core").abilities);
  CHECK(ours.moment_bytes == 2);
  CHECK(ours.default_for.empty());
  CHECK_THROWS_WITH(runtime_from_text("name: \"x\"\nbased_on: \"nobody\"\n", "x"),
                    Catch::Contains("x:2: unknown runtime 'nobody'"));
  CHECK_THROWS_AS(load_runtime("/no/such.textproto"), UserError);
  CHECK(load_runtime("nemo").name == "nemo");
}

TEST_CASE("every field of a runtime profile survives its file form") {
  proto::RuntimeProfile message;
  testing::fill(&message);
  message.clear_based_on();  // of a file of its own: read into the other fields
  message.set_selective_modules("layernorm,moe_act");
  const RuntimeProfile profile = runtime_profile_from_proto(message, "x", "");
  CHECK(profile.kernel_launch_s == 0.5);
  CHECK(profile.overlap_tensor);
  proto::RuntimeProfile again;
  to_proto(profile, &again);
  CHECK(again.ShortDebugString() == message.ShortDebugString());
}

TEST_CASE("factors that a runtime profile leaves out are one, the rest nothing") {
  proto::RuntimeProfile message;
  message.set_name("x");
  const RuntimeProfile profile = runtime_profile_from_proto(message, "x", "");
  CHECK(profile.matmul_efficiency == 1);
  CHECK(profile.backward_launch_share == 1);
  CHECK(profile.kernel_launch_s == 0);
  CHECK_FALSE(profile.fused_attention);
  CHECK(profile.default_zero == 0);
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
  message.set_kernel_launch_s(1e308);
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""),
                    Catch::Contains("kernel_launch_s is 1e+308"));
  message.set_kernel_launch_s(0);
  message.set_matmul_efficiency(1e-9);
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("from 1e-06 to 2"));
  message.set_matmul_efficiency(0);
  message.set_default_zero(4);
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("no ZeRO stage"));
  message.set_default_zero(3);
  message.set_matmul_efficiency(2.1);
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("matmul_efficiency"));
  message.set_matmul_efficiency(2);
  message.set_allocator_margin(1.1);
  CHECK_THROWS_WITH(runtime_profile_from_proto(message, "x", ""), Catch::Contains("allocator_margin"));
  CHECK_THROWS_AS(catalog_runtime("no-such"), UserError);
}
