// Rows of published tables beside their predictions, and the figures over them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evidence/row.h"
#include "evidence/statistics.h"

namespace orrery::evidence {

struct PublishedRow {
  std::string file;  // without folder and ending
  int line = 0;
  std::string source, model;          // as the table has them
  std::optional<std::string> device;  // likewise; tables of memory have none
  std::string plan;                   // the row's label; empty where it was not predicted
  // Of training steps.
  int devices = 0;
  std::string runtime;
  std::optional<Compared> step_s;
  std::vector<Assumed> assumed;
  std::optional<bool> fits;
  std::optional<Compared> memory_bytes;  // of what `memory_kind` counts; of figures in percent those
  MemoryKind memory_kind = MemoryKind::allocated;
  std::optional<Compared> per_s;  // samples; or percent of so many times one device's rate
  std::string skipped;            // why the row, or its step time, was not judged
};

struct SourceFigures {
  std::string name;  // the file, as PublishedRow has it
  Figures figures;
  std::optional<MemoryKind> kind;  // of memory
};
struct Summary {
  Figures all;
  std::vector<SourceFigures> sources;
};

// A row that ran and is said not to fit, or the reverse.
struct Misjudged {
  std::string file;
  int line = 0;
  std::string model, plan;
  double predicted_bytes = 0, capacity_bytes = 0;
};
struct MemorySummary {
  Summary figures;
  int ran = 0, out_of_memory = 0;  // rows
  std::vector<Misjudged> said_not_to_fit, said_to_fit;
};

struct Published {
  std::vector<PublishedRow> rows;
  Summary steps;
  std::optional<MemorySummary> memory;  // where there are such rows
  std::optional<Summary> throughput;
};

}  // namespace orrery::evidence
