// Orrery as a library: values in, values out. The command line, Python and a server call these functions and
// nothing below them; they parse no options and print nothing. What is wrong with the input is a UserError,
// a question asked and answered "no" a NoAnswer (base/error.h). orrery/json.h has the answers as JSON.
//
// Threads: simulations run in processes of their own. A program with threads calls start() first; after that
// every function may be called from several threads at once, and answers what it answers to a single one. A
// program without threads needs no start(). Why: sim/processes/isolate.h.
//
// The values that go in and come out are those of the rooms below, which this header hands on: Job, Plan
// (program/plan.h), Cluster, Workload, Pins, SearchOptions, SearchResult, Evaluation, Simulation, … .
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/compare.h"
#include "cost/collective_cost.h"
#include "handover/export.h"
#include "handover/import.h"
#include "orrery/against.h"
#include "orrery/calibrate.h"
#include "orrery/describe.h"
#include "orrery/device.h"
#include "orrery/discover.h"
#include "orrery/goodput.h"
#include "orrery/validate.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/hardware.h"
#include "planner/evaluation/interval.h"
#include "planner/evaluation/load.h"
#include "planner/evaluation/memory_over_time.h"
#include "planner/runs/whatif.h"
#include "planner/search/pareto.h"
#include "planner/search/search.h"
#include "planner/search/why.h"
#include "program/plan.h"
#include "request/request.h"
#include "request/vary.h"
#include "sim/simulator.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery {

// Starts the server that forks simulations, once; later calls do nothing. Before the program's first thread,
// or (a module of Python, loaded into a program with threads) before its first use of any function here. In a
// program with threads that has not called it, simulations fail as an InternalError. A process that forks
// workers: each worker calls it for itself, or has one thread.
void start();

std::string_view version();  // "0.1.0"

// ---- what is known by name ----

// With what people compare.
struct CatalogWorkload : CatalogEntry {
  std::int64_t parameters = 0, active_parameters = 0;
  int layers = 0;
  int seq_len = 0;           // tokens a sample; 0: no sequences
  double forward_flops = 0;  // of a sample
};
struct CatalogCluster : CatalogEntry {
  std::string device;                    // empty: to be discovered
  int devices = 0;                       // of a node
  double memory_bytes = 0;               // of a device
  double link_bytes_per_s = 0;           // of a device to the others of its node, each direction
  double network_bytes_per_s = 0;        // of a node's ports together, each direction
  double price_usd_per_device_hour = 0;  // 0: no list price
  std::string price_as_of;               // whose, and since when
};
struct CatalogDevice : CatalogEntry {
  double memory_bytes = 0, memory_bandwidth_bytes_per_s = 0;
  std::vector<std::pair<DType, double>> peak_flops_per_s;  // of the types that it computes in
  double price_usd_per_hour = 0;                           // 0: no list price
  std::string price_as_of;
};
struct Catalog {
  std::vector<CatalogWorkload> workloads;
  std::vector<CatalogCluster> clusters;
  std::vector<CatalogDevice> devices;
  std::vector<CatalogEntry> networks, links, runtimes;
};
Catalog catalog();

// ---- plan ----

// The ranked plans of a job; of what question_of (request/request.h) made of a request. Throws NoAnswer where
// none fits.
planner::SearchResult plan(const std::shared_ptr<const Job>& job, const planner::Pins& pins = {},
                           const planner::SearchOptions& options = {});
planner::SearchResult plan(const Question& question);
// The plan that the closed form puts first, not simulated: what a search begins with, at a fraction of its
// time.
planner::Evaluation guess(const Question& question);

// A plan as a file, self-contained, which load_plan (program/plan.h) reads.
void write_plan(const Plan& plan, const std::string& file);

// ---- simulate ----

sim::Detail detail_from_name(std::string_view name);  // "flows" "messages"; throws UserError

struct SimulateRequest {
  Plan plan;
  sim::SimulationOptions options;
};
struct Simulated {
  planner::Evaluation evaluation;  // with its simulation
  double wall_s = 0;               // that it took
};
Simulated simulate(const SimulateRequest& request);

// ---- one collective operation, as nccl-tests measures it ----

// "all_reduce", "all-reduce", …; throws UserError.
CollectiveKind collective_from_name(std::string name);

struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::vector<double> bytes;  // as nccl-tests counts them
  Cluster cluster;            // all of its devices take part
  sim::Detail detail = sim::Detail::flows;
  std::optional<Algorithm> algorithm;                 // default: what the library would choose
  std::function<void(int done, int total)> progress;  // may be empty
};
struct CollectiveTime {
  double bytes = 0;
  double time_s = 0;
  double algbw_bytes_per_s = 0, busbw_bytes_per_s = 0;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  std::int64_t events = 0;
  double wall_s = 0;
};
std::vector<CollectiveTime> collective(const CollectiveRequest& request);

// ---- ways of data-parallel training side by side ----

struct CompareRequest {
  Question question;                  // the job, and pins of what all strategies share
  std::string strategies;             // as comparison::parse_strategies reads them; empty: the default ones
  std::vector<std::string> troubles;  // as comparison::parse_trouble reads them
  comparison::OrdealOptions options;
  int stages = 0;  // of a pipeline whose cuts are looked at, too; 0: of none
  int jobs = 0;    // simulations at a time; 0: one a processor; the answer is the same whatever it is
};
// Throws UserError.
comparison::Comparison compare(const CompareRequest& request);

// ---- what if ----

// points_of (request/vary.h) makes points of a request with options and hardware varied.
struct WhatifRequest {
  std::vector<planner::whatif::Varied> varied;
  std::vector<planner::whatif::Point> points;
  planner::whatif::Goal goal;
  planner::whatif::Limits limits;
  int jobs = 0;  // plans at a time; 0: one a processor; the answer is the same whatever it is
  planner::whatif::Progress progress;  // may be empty
};
planner::whatif::Result whatif(WhatifRequest request);
// Of neither: a billion tokens where all the points' models have sequences, else samples.
planner::whatif::Goal goal_of(std::optional<double> tokens, std::optional<double> samples,
                              const std::vector<planner::whatif::Point>& points);
// Throws NoAnswer, with why and how near, where no point answers what was asked.
void check_answered(const planner::whatif::Result& result);

}  // namespace orrery
