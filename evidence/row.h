// A row of a published table, made explicit: the plan that was run, self-contained, what was measured, and
// what was taken to hold that the row does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/words/rules.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::evidence {

// What a figure of memory counts: tensors, what the framework's allocator took for them, or all that is gone
// from the device.
enum class MemoryKind : std::uint8_t { allocated, reserved, total };
std::string_view name_of(MemoryKind kind);
MemoryKind memory_kind_from(std::string_view name);  // empty: allocated

struct ExplicitRow {
  std::string file;  // without folder and ending
  int line = 0;
  Plan plan;
  std::vector<Assumed> assumed;
  std::string label;      // the plan, for people and for telling plans apart
  std::string group;      // rows that differ only in the plan share it
  std::string framework;  // what ran, in the row's words

  // What was measured; 0: nothing.
  double measured_s = 0;      // a step
  double measured_bytes = 0;  // of a device
  double measured_per_s = 0;  // samples; with `efficiency` percent of so many times one device's rate
  bool efficiency = false;
  bool out_of_memory = false;  // the row says so; it has no figure
  MemoryKind memory_kind = MemoryKind::allocated;
  bool memory_of_first_stage = false;  // else of the fullest
};

// What a run's own log says beyond the columns of a table, in place of what rules take to hold.
struct Said {
  std::shared_ptr<const Workload> workload;                 // in place of name and dimensions
  std::vector<std::string> transformer, training, runtime;  // changes (textproto)
  // Of these the experts' and the sequence's split, stages, sharding, recomputation, order, overlaps, buckets
  // and the capacity of experts.
  planner::Pins plan;
};

// What rows are predicted with instead of what they say.
struct Instead {
  std::optional<RuntimeProfile> runtime;
  std::optional<Cluster> cluster;  // its first kind of node, as many as the row has devices, and its fabric
  bool own = false;                // rows are one's own (StatedModel)
  bool knows_framework = false;    // they say exactly which software ran, as logs do
  Said said = {};
};

// By the path that `orrery plan` takes with everything pinned: the space of plans under these pins holds this
// plan alone, and its memory and estimate are the row's. Throws UserError where the space does not hold it.
planner::Evaluation predict(const Plan& plan);

// The runtime profile that stands for a framework: the one with the longest name that is a part of it,
// upper and lower case alike (evidence/data/frameworks.textproto), or the profile of that very name; empty:
// none.
std::string runtime_for(std::string_view framework);
// The same of a row that may say no more than "Megatron-LM": without a date (evidence/data/steps.textproto
// has those) it is what tables of 2021 and 2022 say of V100 and A100, and on a device of a later `generation`
// what became Megatron-Core.
std::string runtime_of_row(std::string_view framework, std::string_view date, std::string_view generation);
// What counts once where rows are weighed: a source's model on a device in a precision.
std::string cell_of(std::string_view source, std::string_view model, const Plan& plan);
// What one may choose a plan and software for: a model of these dimensions, a batch, a machine, a precision.
std::string job_key_of(const Plan& plan);
// A profile of the catalog or of evidence/profiles, with changes (textproto).
RuntimeProfile runtime_named(std::string_view name, const std::vector<std::string>& changes = {});

RuntimeProfile changed(const RuntimeProfile& profile, const std::vector<std::string>& changes);

// A vocabulary that each tensor rank has a multiple of; as it is where `multiple` is 0.
int padded(int vocabulary, int multiple, int tensor_ranks);

// How often so many devices hold tp pp cp ranks. Throws Unreadable where that is no whole number.
int replicas_of(const Choices& choices, int devices);

// Changes of the messages Training and Choices (textproto).
void change(const std::vector<std::string>& changes, Training* training);
void change(const std::vector<std::string>& changes, Choices* choices);

// The row as a file that every verb that takes a PLAN reads; what was measured and assumed stands in
// comments.
std::string plan_file(const ExplicitRow& row);
// FOLDER/FILE-LINE.textproto of each; makes the folder. Throws UserError where it cannot.
void write_plans(const std::vector<ExplicitRow>& rows, const std::string& folder);

}  // namespace orrery::evidence
