// What a CommunicationProfile holds where its file says nothing.
#pragma once

#include "topologies/cluster.h"

namespace orrery {

// Uncalibrated; `source` says so. Where each number comes from: communication_defaults.cc.
CommunicationProfile default_communication(CommunicationLibrary library, Transport transport);

}  // namespace orrery
