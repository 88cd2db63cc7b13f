#include "evidence/words/network_words.h"

#include <catch2/catch.hpp>

namespace orrery::evidence {
namespace {

TEST_CASE("a network's words say ports, rate and transport however people write them") {
  using Of = PortWords::Of;
  struct Case {
    const char* words;
    int ports;
    double gigabits;
    Of of;
    Transport transport;
  };
  for (const Case& one : {
           Case{"8x HDR InfiniBand", 8, 200, Of::port, Transport::infiniband},
           {"4 x NDR", 4, 400, Of::port, Transport::infiniband},
           {"8× NVIDIA ConnectX-7 400G", 8, 400, Of::port, Transport::roce},
           {"2x Mellanox ConnectX-5 Ex 100Gb/s Ethernet", 2, 100, Of::port, Transport::tcp},
           {"Compute: 8 x ConnectX - 7 IB NDR 400 Gb / Sec, Storage: 1x ConnectX - 7 IB NDR200 200Gb / Sec",
            8, 400, Of::port, Transport::infiniband},
           {"1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 8, 400, Of::port,
            Transport::infiniband},
           {"BF3 200Gbps for NS and 2xBF3 400Gbps for EW", 2, 400, Of::port, Transport::roce},
           {"HDR InfiniBand", 0, 200, Of::port, Transport::infiniband},
           {"HDR100 IB", 0, 100, Of::port, Transport::infiniband},
           {"InfiniBand NDR, 400 Gb/s per GPU", 0, 400, Of::device, Transport::infiniband},
           {"200 Gbps InfiniBand", 0, 200, Of::port, Transport::infiniband},
           {"800 Gbps RoCE per node", 0, 800, Of::node, Transport::roce},
           {"3.2 Tbps EFA", 0, 3200, Of::node, Transport::roce},
           {"EFA, 400 Gbps", 0, 400, Of::node, Transport::roce},
           {"2 Tb/s RoCE per node", 0, 2000, Of::node, Transport::roce},
           {"1.6 Tb/s IB", 0, 1600, Of::node, Transport::infiniband},
           {"NVLink 600 GB/s, HDR 200 Gb/s", 0, 200, Of::port, Transport::infiniband},
           {"InfiniBand 25 GB/s", 0, 200, Of::port, Transport::infiniband},
           {"H200 141GB, 100GbE", 0, 100, Of::port, Transport::tcp},
           {"2 TB RAM, 100 Gb/s", 0, 100, Of::port, Transport::roce},
           {"hundred-gigabit Ethernet of 100 Gb/s", 0, 100, Of::port, Transport::tcp},
           {"default VPC network 100 Gb/s", 0, 100, Of::port, Transport::roce},
           {"NVIDIA GPUs with 100 Gb/s", 0, 100, Of::port, Transport::roce},
           {"4x 12.5 Gb/s", 4, 12.5, Of::port, Transport::roce},
           {"25GbE", 0, 25, Of::port, Transport::tcp},
           {"RoCEv2 over 100 Gbit Ethernet", 0, 100, Of::port, Transport::roce},
           {"Management: 1x Ethernet 10GB/Sec, EDR", 0, 100, Of::port, Transport::infiniband},
       }) {
    INFO(one.words);
    const std::optional<PortWords> found = ports_in_words(one.words);
    REQUIRE(found);
    CHECK(found->ports == one.ports);
    CHECK(found->gigabits == one.gigabits);
    CHECK(found->of == one.of);
    CHECK(found->transport == one.transport);
  }
}

TEST_CASE("words without a rate name no ports") {
  for (const char* words :
       {"", "none", "IB", "Ethernet", "not stated (MIT cluster)", "Storage: 2x 100Gb/s",
        "ICI only (single slice)", "ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s",
        "0 Gb/s", "99999999999999999999 Gb/s", "x", "xx", "8x", "99999999999 x HDR of 0 Gb/s"}) {
    INFO(words);
    CHECK_FALSE(ports_in_words(words));
  }
}

}  // namespace
}  // namespace orrery::evidence
