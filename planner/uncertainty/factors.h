// Mechanisms that a step's time is made of, each with a factor that nobody knows exactly: what multiplies its
// time beside what the profiles of runtime, device and network say. A World is one guess at all of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "program/plan.h"

namespace orrery::planner {

// docs/accuracy.md, "Factors", says what each multiplies.
enum class Factor : std::uint8_t {
  matmul,         // matrix products
  attention,      // attention's core, and scans
  vector,         // what memory bounds: norms, activations, dropout, casts, the optimizer
  clock,          // products and attention alike: how fast a warm device of this kind is
  host,           // launching kernels
  waiting,        // what computation waits for a collective beyond the network's time
  communication,  // bytes of collectives and messages, wherever they go
  intra,          // bytes inside a node: what its links give beside what the model of their kind says
  between,        // bytes between nodes
  latency,        // steps of collectives, and messages without bytes
  experts,        // what shows of experts' traffic
};
inline constexpr int kFactors = 11;
constexpr std::array<Factor, kFactors> kAllFactors = {
    Factor::matmul,  Factor::attention, Factor::vector,        Factor::clock,
    Factor::host,    Factor::waiting,   Factor::communication, Factor::intra,
    Factor::between, Factor::latency,   Factor::experts};

// What a factor is a property of: draws of it are shared by all that share that.
enum class Level : std::uint8_t { framework, device, network };
inline constexpr int kLevels = 3;

std::string_view name_of(Factor factor);
Factor factor_from_name(std::string_view name);  // throws UserError
std::string_view name_of(Level level);
// What networks are told apart by: the name of their transport.
std::string_view network_class(const Cluster& cluster);
// What links inside nodes are told apart by: "pcie" where devices meet in a host, "direct" where they have
// links of their own, "memory" where they are processes of one host.
std::string_view intra_class(const Cluster& cluster);
Level level_of(Factor factor);

// Natural logarithms of the factors on time; 0: as the profiles say.
struct World {
  std::array<double, kFactors> log_time{};
  double& operator[](Factor factor) { return log_time[static_cast<std::size_t>(factor)]; }
  double operator[](Factor factor) const { return log_time[static_cast<std::size_t>(factor)]; }
  bool operator==(const World&) const = default;
  World& operator+=(const World& other) {
    for (std::size_t f = 0; f < log_time.size(); ++f) log_time[f] += other.log_time[f];
    return *this;
  }
};

// A factor on all that a step is made of.
World of_everything(double log_time);

// A cluster in which devices and networks are as in that world; what is the software's stays.
Cluster cluster_in(const World& world, Cluster cluster);
// The job as it is in that world: both clocks can run it.
std::shared_ptr<const Job> job_in(const World& world, const Job& job);

}  // namespace orrery::planner
