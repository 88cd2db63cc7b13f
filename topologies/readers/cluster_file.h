// Clusters as files: the textproto of a proto::Cluster.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// Throws UserError (file, line of the field) on what is no sound cluster; `file` names it in messages.
Cluster cluster_from_text(std::string_view text, std::string_view file);
Cluster read_cluster_file(const std::filesystem::path& file);

// Through a temporary name. What is written can be read: UserError before anything is, where it could not.
void write_cluster_file(const Cluster& cluster, const std::string& file);

}  // namespace orrery
