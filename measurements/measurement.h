// What somebody measured on a cluster of theirs, read from whatever they have: steps as explicit plans,
// collectives as nccl-tests counts them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evidence/row.h"
#include "measurements/trace.h"
#include "program/program.h"
#include "topologies/cluster.h"

namespace orrery::measurements {

struct MeasuredCollective {
  std::string file;
  int line = 0;
  CollectiveKind kind = CollectiveKind::all_reduce;
  double bytes = 0;  // as nccl-tests counts them
  double seconds = 0;
  int nodes = 1, devices_per_node = 1;
};

struct MeasuredStep {
  std::string file;
  int line = 0;
  std::string model;  // the effect of its model (planner/uncertainty/site.h)
  evidence::ExplicitRow row;
  double spread = 0;          // standard deviation of the logarithms of the steps behind it; 0: not known
  std::string trace = {};     // RankTrace::file, or TimedLog's, that its time is from
  bool whole = false;         // its log says all of its plan
  std::string timed_by = {};  // the column of its time
};

// A matrix product of a training job, as often as it ran.
struct MeasuredProduct {
  std::string file;
  double m = 0, n = 0, k = 0, count = 1;  // `count` products in one launch
  DType precision = DType::fp32;
  double seconds = 0;  // median
};

// Of a log that does not say what was trained how: for rows of tables that name it.
struct TimedLog {
  std::string file;
  std::vector<double> steps_s;
  double batch = 0;    // sequences a step; 0: the log does not say
  double spread = 0;   // MeasuredStep's, where one time stands for all steps
  bool named = false;  // by a row, whatever came of it
};

// What a file holds that says nothing here, and why.
struct Ignored {
  std::string file;
  int line = 0;  // the first; 0: all of it
  std::string why;
  int rows = 1;
};

// What was taken all the same, of rows that are alike in it.
struct Doubt {
  std::string file;
  int line = 0;  // the first
  std::string alike, why;
  int rows = 1;

  std::string text() const;  // FILE:LINE: why, and of how many
};

struct FileRead {
  std::string file, kind;
  int steps = 0, collectives = 0, products = 0;
};

// What it was measured on and with, as far as files do not say it.
struct Context {
  Cluster cluster;
  std::string runtime;  // a profile's name or file; empty: the files'
  // What a log is taken to be of that says its model by nothing but its size, where that is this one's.
  std::shared_ptr<const Workload> model = nullptr;
  int most_plans = 0;  // of a table; of more as many are drawn by seed. 0: all
};

struct Measurements {
  std::vector<std::string> given;  // files that are read, or will be
  std::vector<FileRead> files;
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredCollective> collectives;
  std::vector<MeasuredProduct> products;
  std::vector<RankTrace> traces;  // what collectives and products are taken from
  std::vector<TimedLog> logs;
  std::string runtime;  // Context's
  std::vector<Ignored> ignored;
  std::vector<Doubt> doubts;

  // Of the same file and reason only the first is named.
  void ignore(const std::string& file, int line, const std::string& why);
  // Of the same file and alike only the first is kept, and how many there were.
  void doubt(const std::string& file, int line, const std::string& alike, const std::string& why);
};

}  // namespace orrery::measurements
