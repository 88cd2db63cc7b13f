// The kinds of files that are read, each recognised by its content; one more is a file and a line in
// kinds.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "measurements/measurement.h"
#include "measurements/source.h"

namespace orrery::measurements {

struct Kind {
  std::string_view name;   // for people: "nccl-tests output"
  std::string_view taken;  // what is taken from it
  bool (*recognises)(std::string_view head);
  // Adds what the file holds. Throws UserError where it is damaged or contradicts the cluster.
  void (*read)(const Source& source, const Context& context, Measurements* measurements);
  bool trace = false;  // what it holds are traces
  bool early = false;  // read before tables, whose rows may name it
};
const std::vector<Kind>& kinds();

// Each by its kind. Throws UserError naming the kinds where a file is of none, or naming the files that
// contradict each other or the cluster.
Measurements read(const std::vector<std::string>& files, const Context& context);
void read(const Source& source, const Context& context, Measurements* measurements);
// Any kind of trace, into Measurements::traces alone; a Context without a cluster takes any device.
void read_trace(const Source& source, const Context& context, Measurements* measurements);

// ---- one file a kind ----
bool is_nccl_tests(std::string_view head);
void read_nccl_tests(const Source& source, const Context& context, Measurements* measurements);

// Steps without arguments go to Measurements::logs.
bool is_megatron_log(std::string_view head);
void read_megatron_log(const Source& source, const Context& context, Measurements* measurements);

bool is_trainer_log(std::string_view head);
void read_trainer_log(const Source& source, const Context& context, Measurements* measurements);

// What the Trainer keeps beside each checkpoint (trainer_state.json): times without a layout, into
// Measurements::logs.
bool is_trainer_state(std::string_view head);
void read_trainer_state(const Source& source, const Context& context, Measurements* measurements);

bool is_torchtitan_log(std::string_view head);
void read_torchtitan_log(const Source& source, const Context& context, Measurements* measurements);

// Of NeMo, with or without MLPerf's own lines; steps without a layout go to Measurements::logs.
bool is_nemo_log(std::string_view head);
void read_nemo_log(const Source& source, const Context& context, Measurements* measurements);

// Of DeepSpeed alone, which does not say what it trains: into Measurements::logs.
bool is_deepspeed_log(std::string_view head);
void read_deepspeed_log(const Source& source, const Context& context, Measurements* measurements);

// A rank's trace, into Measurements::traces.
bool is_kineto(std::string_view head);
void read_kineto(const Source& source, const Context& context, Measurements* measurements);

// Of all ranks that `simulate` or a run of the executor wrote, each into Measurements::traces: for
// comparisons alone, nothing is learned from it.
bool is_own_trace(std::string_view head);
void read_own_trace(const Source& source, const Context& context, Measurements* measurements);

// A rank's execution trace; refused where it has no times.
bool is_chakra(std::string_view head);
void read_chakra(const Source& source, const Context& context, Measurements* measurements);

// What devices of a node did, each a trace; ranks by devices' numbers where there are several.
bool is_nsys(std::string_view head);
void read_nsys(const Source& source, const Context& context, Measurements* measurements);

// Collectives and products of all traces that were read, once all were. Those of the same number of ranks are
// of one job: a collective took as long as it took on the rank that came last.
void conclude_traces(const Context& context, Measurements* measurements);

bool is_step_table(std::string_view head);
// Of what has some of its columns, and not all that a table needs: what is wrong with it; else empty.
std::string lacks_of_step_table(std::string_view head);
void read_step_table(const Source& source, const Context& context, Measurements* measurements);
// The header of such a table, and a row to write over; columns: docs/measurements.md.
std::string step_table_template();

// ---- what kinds share ----
// The rows of a table in the columns of docs/measurements.md: of a log, of a user's table, or of a published
// one.
enum class Rows : std::uint8_t { log, own, published };
void add_steps(const CsvTable& table, Rows rows, const Context& context, Measurements* measurements,
               const evidence::Said& said = {});
// The one step that a log from `line` on comes to, as (column, value) of such a table; `spread`:
// MeasuredStep's; `said`: what it says beside them.
void add_log(const std::string& file, int line,
             const std::vector<std::pair<std::string, std::string>>& columns, double spread,
             const Context& context, Measurements* measurements, const evidence::Said& said = {},
             bool whole = false);
// Of the runs that a log holds without saying what was trained how: into Measurements::logs where it is one,
// for a row cannot say which it means.
void add_timed_runs(const std::string& file, const std::vector<TimedLog>& runs, Measurements* measurements);
// Throws UserError naming file and line where `device`, in whatever words, is none of the cluster's.
void check_device(const std::string& device, const Context& context, const std::string& file, int line);

}  // namespace orrery::measurements
