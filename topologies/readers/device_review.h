// What a reader may doubt in a file that describes a device: figures unlike those of every device and node of
// the catalog, and what was assumed because the file does not say it.
#pragma once

#include <string>
#include <vector>

#include "topologies/cluster.h"

namespace orrery {

struct DeviceReview {
  Cluster cluster;  // the file's; of a device alone one node with one of it
  std::vector<std::string>
      reviewed;  // names of the devices that the file describes; a cluster's may have none
  // Sentences, by the file's keys.
  std::vector<std::string> implausible;
  std::vector<std::string> assumed;
};

// A device profile or a cluster, of which its `devices` and the links of its nodes are looked at; `file` for
// errors. Throws UserError, with its line, at what no device can have (a link of 25 bytes/s).
DeviceReview review_devices(const std::string& text, const std::string& file);

// A device profile to fill in: the few numbers of a datasheet, each with its unit and where it is found.
// Zeros stand where a number must be given, and are refused until one is.
std::string device_template();

}  // namespace orrery
