// A device that somebody describes: what is implausible, what was assumed, and how sure predictions with it
// are.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/uncertainty/outlook.h"
#include "topologies/readers/device_review.h"

namespace orrery {

// A step of kDeviceWorkload on one of the device.
struct DeviceOutlook {
  std::string device;
  planner::Range step;  // factors on the predicted time, within which 90% of such steps lie
  planner::RestsOn rests_on;
  // What would narrow that, by the share of the logarithm's variance that it would take away, largest first.
  std::vector<std::pair<std::string, double>> measurements;
};
constexpr std::string_view kDeviceWorkload = "llama3-8b";

struct DeviceCheck {
  DeviceReview review;
  std::vector<DeviceOutlook> outlooks;  // of each device that the file describes
};

// A file with a device profile, or with a cluster that has its own `devices`. Throws UserError.
DeviceCheck check_device(const std::string& file);

}  // namespace orrery
