// What a LinkId is made of.
#pragma once

#include <string_view>

#include "topologies/network.h"

namespace orrery {

// `owner`: the node, pod or group that the link belongs to; `index`: which of that owner's links.
//   device_port, pcie: local device      mesh: from * devices + to     bridge: bridge
//   nic: port          leaf_uplink: rail (0 in a plain fat tree)       torus: dimension
//   dragonfly_local: from * routers + to  dragonfly_global: the other group   memory: 0
// `down`: towards the device, and backwards along a torus.
struct LinkParts {
  LinkKind kind = LinkKind::device_port;
  int owner = 0;
  std::int64_t index = 0;
  bool down = false;
};

// In words, of all links of a kind: "network ports".
std::string_view name_of(LinkKind kind);

constexpr int kOwnerShift = 34;
constexpr int kKindShift = 58;

constexpr LinkId link_id(LinkKind kind, int owner, std::int64_t index, bool down) {
  return (static_cast<LinkId>(kind) << kKindShift) | (static_cast<LinkId>(owner) << kOwnerShift) |
         (index << 1) | static_cast<LinkId>(down);
}

constexpr LinkParts parts_of(LinkId id) {
  return {.kind = static_cast<LinkKind>(id >> kKindShift),
          .owner = static_cast<int>((id >> kOwnerShift) & ((LinkId{1} << (kKindShift - kOwnerShift)) - 1)),
          .index = (id >> 1) & ((LinkId{1} << (kOwnerShift - 1)) - 1),
          .down = (id & 1) != 0};
}

}  // namespace orrery
