// How much memory a process started here can still get.
#pragma once

#include <filesystem>
#include <optional>

namespace orrery {

// Of this host, swap included, or of the control groups that this process is in (containers, Slurm's jobs),
// where that is less; nothing where the kernel does not say.
std::optional<double> available_bytes();

// What the memory controllers' limits leave: `groups` as /proc/self/cgroup, `mounted` as /sys/fs/cgroup.
// Pages of files that nobody uses count as left. Nothing where there is no limit.
std::optional<double> bytes_left_in_groups(const std::filesystem::path& groups,
                                           const std::filesystem::path& mounted);

}  // namespace orrery
