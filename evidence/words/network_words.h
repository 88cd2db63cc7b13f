// Ports of a node in what a table or a person writes of a network ("8x HDR 200 Gb/s", "NDR InfiniBand", "3.2
// Tbps EFA"), where no pattern of evidence/data/machines.textproto says more.
#pragma once

#include <optional>
#include <string_view>

#include "topologies/cluster.h"

namespace orrery::evidence {

constexpr int kMostPorts = 64;  // of a node

struct PortWords {
  double gigabits = 0;  // a second, of what `of` says
  enum class Of { port, device, node } of = Of::port;
  int ports = 0;  // of a node; 0: the words do not say
  Transport transport = Transport::roce;
};

// The fastest network that the words name, but for those of storage and management; nothing where they name
// no rate.
std::optional<PortWords> ports_in_words(std::string_view words);

}  // namespace orrery::evidence
