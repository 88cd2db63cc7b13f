// Ways of data-parallel training side by side.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/balance.h"
#include "compare/ordeal.h"
#include "compare/recut.h"
#include "compare/strategy.h"
#include "compare/trouble.h"
#include "compare/way.h"
#include "planner/evaluation/evaluation.h"

namespace orrery::comparison {

struct Question {
  Base base;
  std::vector<Strategy> strategies;
  std::vector<Trouble> troubles;  // met on all devices
  int stages = 0;                 // of a pipeline whose cuts are looked at, too; 0: of none
  OrdealOptions options;
};

struct Row {
  Strategy strategy;
  std::vector<Way> ways;  // by Comparison::sizes
  // Under trouble, where any was asked for and it runs on all devices.
  std::optional<Way> troubled;  // with what is always there: slow devices, links, neighbours
  std::optional<Ordeal> ordeal;
  std::vector<Ordeal> alone;  // through each of Question::troubles by itself, where there are several
  std::optional<planner::Interval> interval;  // of a step on all devices, healthy
  const Way& whole() const { return ways.back(); }
  bool fits() const { return whole().possible() && whole().memory.fits(); }
  // What it is judged by: samples a second on all devices.
  double rate() const { return ordeal ? ordeal->samples_per_s() : whole().samples_per_s; }
};

struct Comparison {
  std::vector<int> sizes;  // devices, ascending; the last one is all of them
  std::vector<Row> rows;
  std::vector<Balance> balances;  // where workers' speeds differ or change
  std::vector<Recut> recuts;      // where a pipeline was asked for
  // Indexes of rows: the fastest that computes what one device would, and the fastest of all where that is
  // another. Those that fit; none where none does.
  std::optional<std::size_t> best, fastest;
  std::string verdict;  // the best way, and why, in numbers
  bool any_fits() const { return best || fastest; }
};
// Throws NoAnswer, in the words of the verdict, where no strategy fits.
void check_answered(const Comparison& comparison);

// Throws UserError where the cluster has nodes of several kinds: one device alone, which every way is
// measured against, is none of them. `named`: the cluster's file or name, for the message.
void check_one_kind(const Cluster& cluster, std::string_view named);
// 1, 2, 4, … devices: those that are devices of a node or whole nodes, and all of them.
std::vector<int> sizes_of(const Cluster& cluster);
// Throws UserError where the batch does not divide over the devices, an event comes after the end, or no
// strategy can be at all on these devices.
Comparison compare(const Question& question);

}  // namespace orrery::comparison
