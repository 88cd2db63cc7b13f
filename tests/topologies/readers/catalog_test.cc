#include "topologies/readers/catalog.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/network.h"

using namespace orrery;

namespace {

// Everything a cluster says, as text: two clusters are the same when these are.
std::string text_of_entry(const Cluster& cluster) {
  proto::Cluster message;
  to_proto(cluster, &message);
  return to_textproto(message);
}

Cluster reread(const Cluster& cluster) {
  const std::string text = text_of_entry(cluster);
  proto::Cluster message;
  parse_textproto(text, "again", &message);
  return cluster_from_proto(message, "again", text);
}

}  // namespace

TEST_CASE("every catalog cluster that scripts rely on is there") {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog_clusters()) {
    CHECK_FALSE(entry.description.empty());
    names.push_back(entry.name);
  }
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const char* name :
       {"dgx-v100",      "dgx-v100-16g",  "dgx-v100-32g",      "dgx-a100",        "dgx-a100-40g",
        "dgx-h100",      "dgx-h200",      "dgx-b200",          "gb200-nvl72",     "v100-ib100",
        "a100-eth100",   "pcie-4090",     "localhost",         "localhost-gpu",   "hgx-h800",
        "hgx-a800",      "gh200-quad",    "mi300x-8",          "gaudi2-8",        "max-1550-6",
        "ascend-910b-8", "tpu-v5p-8x8x8", "aws-trn1-32xlarge", "aws-p5-48xlarge", "pcie-l40s"}) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
}

TEST_CASE("every catalog cluster loads, names its sources and round-trips exactly, at 1 and at 37 nodes") {
  for (const CatalogEntry& entry : catalog_clusters()) {
    if (entry.name == "localhost" || entry.name == "localhost-gpu") continue;
    CAPTURE(entry.name);
    const Cluster cluster = load_cluster(entry.name);
    CHECK(cluster.nodes() == 1);
    CHECK_FALSE(cluster.source.empty());
    for (const DeviceProfile& profile : cluster.profiles) CHECK_FALSE(profile.source.empty());
    CHECK(text_of_entry(reread(cluster)) == text_of_entry(cluster));
    const Cluster many = with_nodes(cluster, 37);
    CHECK(many.devices() == 37 * cluster.devices());
    CHECK(text_of_entry(reread(many)) == text_of_entry(many));
    const Route far = Network(many).route(0, many.devices() - 1);
    CHECK(far.bandwidth_bytes_per_s > 0);
    CHECK(std::isfinite(far.bandwidth_bytes_per_s));
  }
}

TEST_CASE("every catalog device loads with a source and no type is faster than its datasheet allows") {
  for (const CatalogEntry& entry : catalog_devices()) {
    CAPTURE(entry.name);
    const DeviceProfile device = catalog_device(entry.name);
    CHECK(device.name == entry.name);
    CHECK_FALSE(device.source.empty());
    for (const DType type : {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::fp4}) {
      CHECK(device.peak(type) >= device.peak(DType::fp32));
      const auto index = static_cast<std::size_t>(device.compute_type(type));
      CHECK(device.matmul[index].efficiency > 0);
      CHECK(device.matmul[index].efficiency <= 1);
      CHECK(device.attention[index][1].forward_efficiency > 0);
    }
  }
}

TEST_CASE("figures of the catalog that a reader can check against the datasheets") {
  const Cluster a100 = load_cluster("dgx-a100");
  CHECK(a100.devices() == 8);
  CHECK(a100.profiles[0].peak(DType::bf16) == 312e12);
  CHECK(a100.profiles[0].memory_bytes < 80e9 * 1.07);
  CHECK(a100.groups[0].node.intra.bandwidth_bytes_per_s == 300e9);
  CHECK(a100.groups[0].node.nic.count == 8);
  CHECK(a100.groups[0].node.nic.bandwidth_bytes_per_s == 25e9);
  CHECK(load_cluster("dgx-h100").profiles[0].peak(DType::fp8) == 1978.9e12);
  CHECK(load_cluster("dgx-h100").profiles[0].peak(DType::fp4) == 1978.9e12);  // as fp8
  CHECK(load_cluster("dgx-b200").profiles[0].peak(DType::fp4) == 9e15);
  CHECK(load_cluster("gb200-nvl72").devices() == 72);
  CHECK(load_cluster("dgx-v100").name == "dgx-v100-32g");
  // V100 has no bf16 units: it would compute in fp32.
  CHECK(load_cluster("dgx-v100").profiles[0].peak(DType::bf16) == 15.7e12);
}

TEST_CASE("a device of the same silicon has the other's models under its own peaks and links") {
  const DeviceProfile h100 = catalog_device("h100-sxm-80g");
  const DeviceProfile h800 = catalog_device("h800-sxm-80g");
  CHECK(h800.calibrated);
  CHECK(h800.price_usd_per_hour == 0);
  const auto bf16 = static_cast<std::size_t>(DType::bf16);
  CHECK(h800.matmul[bf16].efficiency == h100.matmul[bf16].efficiency);
  CHECK(h800.sustained_clock == h100.sustained_clock);
  CHECK(load_cluster("hgx-h800").groups[0].node.intra.bandwidth_bytes_per_s == 200e9);
  // A datasheet alone is no calibration.
  for (const char* name : {"mi300x-192g", "h20-sxm-96g", "tpu-v5p", "rtx-3090-24g", "trainium1"})
    CHECK_FALSE(catalog_device(name).calibrated);
}

TEST_CASE("devices of any vendor: figures that a reader can check") {
  CHECK(catalog_device("mi300x-192g").peak(DType::fp8) == 2614.9e12);
  CHECK(catalog_device("mi300x-192g").vendor == "amd");
  CHECK(catalog_device("tpu-v5e").peak(DType::bf16) == 197e12);
  CHECK(catalog_device("tpu-v5e").peak(DType::fp16) == 197e12);  // as bf16
  CHECK(catalog_device("trainium1-core").memory_bytes == catalog_device("trainium1").memory_bytes / 2);
  const Cluster mi300x = load_cluster("mi300x-8");
  CHECK(mi300x.groups[0].node.intra.mesh_links.size() == 64);
  const Route route = Network(mi300x).route(0, 5);  // one of seven links
  CHECK(route.links.size() == 1);
  CHECK(route.bandwidth_bytes_per_s == Approx(64e9));
}

TEST_CASE(
    "devices that nobody measured run at the clock that their power leaves, by what all measured ones keep") {
  // docs/accuracy.md, "The clock that power leaves": of the boost clock, peak and power of their datasheets.
  const auto work_per_clock = [](const DeviceProfile& device, double ghz) {
    return device.peak(DType::bf16) / 1e12 / ghz;
  };
  struct Measured {
    const char* name;
    double ghz;
  };
  std::vector<double> kept;
  for (const Measured& m :
       {Measured{"a100-sxm-80g", 1.41}, Measured{"a100-pcie-80g", 1.41}, Measured{"l40s", 2.52},
        Measured{"h100-pcie-80g", 1.62}, Measured{"h100-sxm-80g", 1.83}, Measured{"h200-sxm-141g", 1.83},
        Measured{"b200-sxm-180g", 1.86}, Measured{"gb200-186g", 2.06}}) {
    const DeviceProfile device = catalog_device(m.name);
    CHECK(device.calibrated);
    kept.push_back(device.sustained_clock * device.training_speed * m.ghz /
                   std::sqrt(device.peak_power_w / work_per_clock(device, m.ghz)));
  }
  std::sort(kept.begin(), kept.end());
  const double median = (kept[3] + kept[4]) / 2;
  CHECK(median == Approx(1.25).epsilon(0.02));
  for (const Measured& m :
       {Measured{"mi300x-192g", 2.1}, Measured{"mi325x-256g", 2.1}, Measured{"mi355x-288g", 2.4},
        Measured{"mi250x-gcd-64g", 1.7}, Measured{"max-1550-128g", 1.6}, Measured{"gaudi2-96g", 1.65},
        Measured{"gaudi3-128g", 1.75}}) {
    const DeviceProfile device = catalog_device(m.name);
    const double left = 1.25 * std::sqrt(device.peak_power_w / work_per_clock(device, m.ghz)) / m.ghz;
    INFO(m.name);
    CHECK_FALSE(device.calibrated);
    CHECK(device.sustained_clock == Approx(std::min(left, 0.95)).epsilon(0.002));
  }
}

TEST_CASE("a slice of TPUs grows and shrinks as a torus, with its hosts' ports") {
  const Cluster slice = load_cluster("tpu-v5p-8x8x8");
  CHECK(slice.groups[0].node.intra.torus == std::vector<int>{8, 8, 8});
  CHECK(text_of_entry(reread(slice)) == text_of_entry(slice));
  const Cluster larger = with_node_devices(slice, 2048);
  CHECK(larger.groups[0].node.intra.torus == std::vector<int>{16, 16, 8});
  CHECK(larger.groups[0].node.nic.count == 512);
  CHECK(larger.groups[0].node.host_memory_bytes == 4 * slice.groups[0].node.host_memory_bytes);
  CHECK(text_of_entry(reread(larger)) == text_of_entry(larger));
  CHECK(with_devices(slice, 64).groups[0].node.intra.torus == std::vector<int>{4, 4, 4});
  CHECK(with_nodes(slice, 3).devices() == 1536);
  CHECK_THROWS_AS(with_node_devices(load_cluster("mi300x-8"), 16), UserError);
}

TEST_CASE("an unknown name is answered with near ones") {
  CHECK_THROWS_WITH(load_cluster("dgx-a10"),
                    Catch::Contains("unknown cluster 'dgx-a10'") && Catch::Contains("'dgx-a100'"));
  CHECK_THROWS_WITH(load_cluster("DGX_H100"), Catch::Contains("'dgx-h100'"));
  CHECK_THROWS_WITH(load_cluster("zzzzzzzzzz"), Catch::Contains("expected one of a100-eth100"));
  CHECK_THROWS_WITH(catalog_device("h100-sxm"), Catch::Contains("'h100-sxm-80g'"));
  CHECK_THROWS_AS(load_cluster(""), UserError);
  CHECK_THROWS_WITH(load_cluster("no/such.textproto"), Catch::Contains("no/such.textproto"));
  CHECK_THROWS_WITH(load_cluster("/etc/passwd"), Catch::Contains("expected a .textproto"));
}
