#include "sim/network/packet_load.h"

namespace orrery::sim {

void PacketLoad::add(int source_device, int destination_device, double share) {
  if (cluster_.communication.network_processor_s_per_byte == 0) return;
  const int source = cluster_.place(source_device).node;
  const int destination = cluster_.place(destination_device).node;
  if (source == destination) return;
  ends_[cores_key(cluster_, source)] += share;
  ends_[cores_key(cluster_, destination)] += share;
}

int PacketLoad::taken_by(const PacketEnds& ends, double bytes_per_s, const std::map<int, int>& nodes) {
  std::vector<TakenCores> cores;
  for (const auto& [key, share] : ends)
    if (const auto node = nodes.find(key); node != nodes.end())
      cores.push_back(
          {node->second, share * bytes_per_s * cluster_.communication.network_processor_s_per_byte});
  if (cores.empty()) return -1;
  taken.push_back(std::move(cores));
  return static_cast<int>(taken.size()) - 1;
}

}  // namespace orrery::sim
