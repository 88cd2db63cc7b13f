#include "topologies/communication_defaults.h"

#include "topologies/link_class.h"

namespace orrery {
namespace {

// Fraction of the signalling rate of a port that long messages of user data get.
// TCP over Ethernet: 1448 bytes of data in a frame of 1538 on the wire. RoCEv2: 4096 in 4096 + 58 headers +
// 24 Ethernet. InfiniBand: 4096 in 4096 + 30 headers. NCCL's own tuner reckons with the whole port rate.
double payload_fraction(Transport transport) {
  switch (transport) {
    case Transport::tcp:
      return 1448.0 / 1538.0;
    case Transport::roce:
      return 4096.0 / (4096.0 + 58 + 24);
    case Transport::infiniband:
      return 4096.0 / (4096.0 + 30);
    case Transport::host:
      return 1;
  }
  return 1;
}

}  // namespace

CommunicationProfile default_communication(CommunicationLibrary library, Transport transport) {
  CommunicationProfile profile;
  profile.library = library;
  profile.network_efficiency = payload_fraction(transport);
  profile.network_exchange_efficiency = profile.network_efficiency;
  if (library != CommunicationLibrary::mpi) {
    profile.source = library_model(library).source;
    // Looked at where calibrated alone. NVLink's rate in NCCL's topology (SM70 and SM80: 20 GB/s of 25 a
    // link; SM90: 20.6 of 25; SM100: 40.1 of 50).
    profile.intra_efficiency = 0.8;
    return profile;
  }
  profile.source =
      "typical figures of Open MPI 4.1 over shared memory; `orrery calibrate` measures this machine's";
  profile.point_to_point_latency_s = 1e-6;
  profile.point_to_point_bytes_per_s = 5e9;
  profile.reduce_bytes_per_s = 5e9;
  profile.network_latency_s = transport == Transport::tcp ? 30e-6 : 2e-6;
  profile.intra_efficiency = 0.5;  // a core that copies in and out at once does each at half the rate
  profile.collective_overhead_s = 2e-6;
  profile.eager_bytes = 4096;  // btl_vader_eager_limit
  // Over TCP the pieces that leave unasked (exec/mpi/mpi_transport.cc: two of 60 KiB); over InfiniBand and
  // RoCE (UCX, openib) some 8 to 12 KiB.
  profile.network_eager_bytes = transport == Transport::tcp ? 122880 : 8192;
  return profile;
}

}  // namespace orrery
