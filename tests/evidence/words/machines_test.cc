#include "evidence/words/machines.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "topologies/device_profile.h"

namespace orrery::evidence {
namespace {

std::string device_of(const std::string& words, std::vector<Assumed>* assumed) {
  const Cluster cluster = step_machine({words, 8, 0, ""}, assumed);
  return cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].name;
}

TEST_CASE("a device is the one that is meant, however tables, drivers and people write it") {
  struct Case {
    const char* words;
    const char* device;
  };
  for (const Case& one : {Case{"NVIDIA A100-SXM4-80GB", "a100-sxm-80g"},
                          {"A100-SXM4-40GB", "a100-sxm-40g"},
                          {"a100 40gb (sxm)", "a100-sxm-40g"},
                          {"NVIDIA A100 80GB PCIe", "a100-pcie-80g"},
                          {"A100-PCIE-40GB", "a100-pcie-40g"},
                          {"8xA100", "a100-sxm-80g"},
                          {"8 x H100 SXM", "h100-sxm-80g"},
                          {"NVIDIA H100 80GB HBM3", "h100-sxm-80g"},
                          {"NVIDIA H100 PCIe", "h100-pcie-80g"},
                          {"NVIDIA H100 NVL", "h100-nvl-94g"},
                          {"NVIDIA H200", "h200-sxm-141g"},
                          {"NVIDIA H200 NVL", "h200-nvl-141g"},
                          {"GH200 96GB", "gh200-96g"},
                          {"NVIDIA GH200 480GB", "gh200-96g"},
                          {"GB200 NVL72", "gb200-186g"},
                          {"B200", "b200-sxm-180g"},
                          {"H20-3e", "h20-sxm-96g"},
                          {"Tesla V100-SXM2-16GB", "v100-sxm2-16g"},
                          {"Tesla V100-PCIE-32GB", "v100-pcie-32g"},
                          {"Tesla V100-PCIE-16GB", "v100-pcie-16g"},
                          {"Tesla P100-SXM2-16GB", "p100-sxm2-16g"},
                          {"Tesla T4", "t4"},
                          {"NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti-11g"},
                          {"RTX-2080", "rtx-2080-8g"},
                          {"GTX 1080Ti", "gtx-1080-ti-11g"},
                          {"TITAN RTX", "titan-rtx-24g"},
                          {"Quadro RTX 6000", "titan-rtx-24g"},
                          {"Quadro RTX 8000", "quadro-rtx-8000-48g"},
                          {"NVIDIA RTX A6000", "rtx-a6000-48g"},
                          {"A6000", "rtx-a6000-48g"},
                          {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada-48g"},
                          {"RTX PRO 6000 Blackwell", "rtx-pro-6000-96g"},
                          {"NVIDIA L40S", "l40s"},
                          {"NVIDIA L40", "l40-48g"},
                          {"NVIDIA A40", "a40-48g"},
                          {"NVIDIA A10G", "a10g-24g"},
                          {"NVIDIA A10", "a10-24g"},
                          {"TPUv3", "tpu-v3"},
                          {"TPU v2-8", "tpu-v2"},
                          {"TPU-trillium", "tpu-v6e"},
                          {"MI250X", "mi250x-gcd-64g"},
                          {"AMD Instinct MI210", "mi210-64g"},
                          {"MI300A", "mi300a-128g"},
                          {"MI300X", "mi300x-192g"},
                          {"Intel(R) Gaudi(R) 2 AI Accelerator", "gaudi2-96g"},
                          {"Gaudi3", "gaudi3-128g"},
                          {"Ascend 910B", "ascend-910b-64g"}}) {
    INFO(one.words);
    std::vector<Assumed> assumed;
    CHECK(device_of(one.words, &assumed) == one.device);
  }
}

TEST_CASE("a name within another means nothing") {
  CHECK_FALSE(means_device("GB200", "B200"));
  CHECK_FALSE(means_device("A100", "A10"));
  CHECK_FALSE(means_device("RTX A4000", "A40"));
  CHECK_FALSE(means_device("H200", "H20"));
  CHECK_FALSE(means_device("Titan", "Ti"));
  CHECK_FALSE(means_device("", "A100"));
  CHECK(means_device("L40S", "L40"));
  CHECK(means_device("2x A100", "A100"));
  for (const char* unknown : {"RTX A4000", "GPU", "a device", "x", "8x"}) {
    std::vector<Assumed> assumed;
    device_of(unknown, &assumed);
    INFO(unknown);
    REQUIRE_FALSE(assumed.empty());
    CHECK(assumed.front().widens == Approx(0.5));
  }
}

TEST_CASE("ports are those of the words, of a node with as many devices as the row has") {
  std::vector<Assumed> assumed;
  const auto node = [&](const char* device, int devices, int per_node, const char* network) {
    assumed.clear();
    return step_machine({device, devices, per_node, network}, &assumed).groups.front().node;
  };
  CHECK(node("A100", 64, 8, "8x200Gb/s HDR").nic.count == 8);
  CHECK(assumed.empty());
  const NodeType sum = node("H100", 64, 8, "1.6 Tbps RoCE");
  CHECK(sum.nic.count * sum.nic.bandwidth_bytes_per_s == Approx(200e9));
  CHECK(assumed.empty());
  // As many ports as the catalog's node has where they are as fast, else one; either is said.
  CHECK(node("A100", 64, 8, "HDR InfiniBand").nic.count == 8);
  CHECK(assumed.size() == 1);
  const NodeType one = node("A100", 64, 8, "100 Gb/s InfiniBand");
  CHECK(one.nic.count == 1);
  CHECK(one.nic.bandwidth_bytes_per_s == Approx(12.5e9));
  CHECK(assumed.size() == 1);
  // On one node nothing rests on it, and no node has as many ports as that.
  node("H100", 8, 8, "NDR InfiniBand");
  CHECK(assumed.empty());
  CHECK(node("A100", 64, 8, "99999999999x 100 Gb").nic.count <= 8);
}

}  // namespace
}  // namespace orrery::evidence
