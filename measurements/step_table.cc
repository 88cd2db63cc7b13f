// Tables of measured steps: the columns of published/steps, of which most may be missing
// (docs/measurements.md).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/parse.h"
#include "base/statistics.h"
#include "evidence/steps.h"
#include "evidence/validate.h"
#include "evidence/words/fields.h"
#include "measurements/doubts.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"
#include "measurements/table_rows.h"
#include "planner/uncertainty/site.h"

namespace orrery::measurements {
namespace {

constexpr std::array<std::string_view, 28> kColumns = {"framework",
                                                       "model",
                                                       "model_file",
                                                       "n_layers",
                                                       "hidden",
                                                       "n_heads",
                                                       "n_kv_heads",
                                                       "ffn_hidden",
                                                       "vocab",
                                                       "seq_len_tokens",
                                                       "gpu",
                                                       "n_gpus",
                                                       "precision",
                                                       "tp",
                                                       "pp",
                                                       "vp_interleave",
                                                       "cp",
                                                       "ep",
                                                       "dp_sharding",
                                                       "gbs_sequences",
                                                       "mbs_sequences",
                                                       "grad_accum",
                                                       "act_recompute",
                                                       "trace",
                                                       "step_time_s",
                                                       "tokens_per_s",
                                                       "tokens_per_s_per_gpu",
                                                       "sequences_per_s"};
// What published tables have beside, of which some is read (evidence/data/steps.textproto).
constexpr std::array<std::string_view, 14> kAlso = {
    "source",     "source_ref", "confidence",     "date",    "params_b", "gpus_per_node",  "intra_link",
    "inter_link", "dp",         "tflops_per_gpu", "mfu_pct", "hfu_pct",  "mem_per_gpu_gb", "notes"};

template <typename Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Words that stand in these columns of one's own tables; any other would count as none.
struct Words {
  std::string_view column;
  std::vector<std::string_view> parts;  // of which one stands in it, in any case
  std::vector<std::string_view> whole;  // or all of it is one of these
  std::string_view expected;
};
const std::vector<Words>& words_of_columns() {
  static const std::vector<Words> all = {
      {"precision",
       {"fp32", "float32", "tf32", "fp16", "float16", "half", "bf16", "bfloat16", "fp8", "float8", "fp4",
        "nf4"},
       {},
       "fp32, tf32, fp16, bf16 or fp8"},
      {"act_recompute", {"none", "selective", "full", "checkpoint"}, {}, "none, selective or full"},
      {"dp_sharding",
       {"zero-0",     "zero0",         "zero 0",        "stage 0",
        "stage0",     "zero-1",        "zero1",         "zero 1",
        "stage 1",    "stage1",        "zero-2",        "zero2",
        "zero 2",     "stage 2",       "stage2",        "zero-3",
        "zero3",      "zero 3",        "stage 3",       "stage3",
        "fsdp",       "hsdp",          "hybrid",        "full shard",
        "full_shard", "fully sharded", "shard_grad_op", "no_shard",
        "no shard",   "ddp",           "replicated",    "distributed optimizer"},
       {"none"},
       "none, ZeRO-1, ZeRO-2, ZeRO-3, FSDP or HSDP"}};
  return all;
}

void check_words(const CsvTable& table) {
  for (const CsvRow& row : table.rows)
    for (const Words& words : words_of_columns()) {
      const std::string& said = table.field(row, words.column);
      const std::string cell = lower_case(trimmed(said));
      const bool known = cell.empty() || holds(words.whole, cell) ||
                         std::any_of(words.parts.begin(), words.parts.end(), [&](std::string_view part) {
                           return cell.find(part) != std::string::npos;
                         });
      if (!known)
        throw UserError(table.file, row.line,
                        fmt::format("'{}' in the column '{}'", said.substr(0, 40), words.column),
                        words.expected);
    }
}

// Columns of numbers, of which published tables say some in words ("~250k", "local batch 8").
constexpr std::array<std::string_view, 18> kNumbers = {"n_layers",
                                                       "hidden",
                                                       "n_heads",
                                                       "n_kv_heads",
                                                       "ffn_hidden",
                                                       "vocab",
                                                       "n_gpus",
                                                       "tp",
                                                       "pp",
                                                       "vp_interleave",
                                                       "cp",
                                                       "ep",
                                                       "dp",
                                                       "params_b",
                                                       "grad_accum",
                                                       "gbs_sequences",
                                                       "mbs_sequences",
                                                       "seq_len_tokens"};

// A number as spreadsheets write it, without its thousands' commas; where commas part the columns they may be
// nothing else. Throws UserError on what would be read as another number.
void take_number(const CsvTable& table, int line, const std::string& column, bool semicolons,
                 std::string* cell) {
  const bool time = holds(kTimes, column);
  if (cell->empty() || (!time && !holds(kNumbers, column))) return;
  const std::string said(trimmed(*cell));
  if (const std::string plain = without_grouping(said); !semicolons && plain != said) *cell = plain;
  const std::size_t comma = cell->find(',');
  const bool cut = comma != std::string::npos && parse_number(cell->substr(0, comma));
  const auto number = parse_number(trimmed(*cell));
  if (!cut && (!time || (number && *number >= 0))) return;
  throw UserError(table.file, line, fmt::format("'{}' in the column '{}'", said.substr(0, 40), column),
                  time ? "a number from 0, with a point before its decimals"
                       : "a number, with a point before its decimals");
}

constexpr std::string_view kMilliseconds = "step_time_ms";
constexpr double kMostCount = 1e9;  // of anything that a row counts

// Of one's own tables: whole numbers, of which 8.0 is one.
void check_whole(const CsvTable& table) {
  for (const CsvRow& row : table.rows)
    for (const std::string_view column : kNumbers) {
      if (column == "params_b") continue;
      const std::string& said = table.field(row, column);
      const auto number = parse_number(trimmed(said));
      if (trimmed(said).empty() ||
          (number && *number >= 0 && *number <= kMostCount && *number == std::floor(*number)))
        continue;
      const bool whole = number && *number == std::floor(*number) && *number > kMostCount;
      throw UserError(table.file, row.line,
                      fmt::format("'{}' in the column '{}'", said.substr(0, 40), column),
                      whole ? fmt::format("a whole number up to {:.0f}", kMostCount) : "a whole number");
    }
}

// A column that is there twice would be read once.
void check_columns(const CsvTable& table) {
  std::set<std::string_view> seen;
  for (const std::string& column : table.columns)
    if (!column.empty() && !seen.insert(column).second)
      throw UserError(table.file, 1, fmt::format("the column '{}' is there twice", column.substr(0, 40)),
                      "each column once");
}

void take_numbers(bool semicolons, CsvTable* table) {
  for (CsvRow& row : table->rows)
    for (std::size_t i = 0; i < row.fields.size(); ++i)
      take_number(*table, row.line, table->columns[i], semicolons, &row.fields[i]);
}

// A column of milliseconds as one of seconds. What is no number is left to be refused as such.
void take_milliseconds(CsvTable* table) {
  const int column = table->column(kMilliseconds);
  if (column < 0) return;
  if (table->column(kTimes.front()) >= 0)
    throw UserError(table->file, 1, "has the columns 'step_time_s' and 'step_time_ms'", "one of them");
  table->columns[static_cast<std::size_t>(column)] = kTimes.front();
  for (CsvRow& row : table->rows) {
    std::string& cell = row.fields[static_cast<std::size_t>(column)];
    if (const auto number = parse_number(without_grouping(cell)))
      cell = fmt::format("{:.12g}", *number * 1e-3);
  }
}

// What parts the columns of a header: a comma, or what spreadsheets write in its place.
char separator_of(std::string_view text) {
  const std::string_view header = text.substr(0, text.find('\n'));
  if (header.find(',') != std::string_view::npos) return ',';
  for (const char other : {';', '\t'})
    if (header.find(other) != std::string_view::npos) return other;
  return ',';
}

// Without a byte order mark, and with the header first: what spreadsheets ("sep=;") and people write above it
// comes behind it as empty lines, so that rows keep their numbers.
std::string with_header_first(std::string_view text) {
  text = without_byte_order_mark(text);
  std::string above;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool comment = line.find_first_not_of(" \t\r") == std::string_view::npos || line.starts_with('#') ||
                         lower_case(line.substr(0, 4)) == "sep=";
    if (!comment || end == std::string_view::npos) break;
    above += '\n';
    text.remove_prefix(end + 1);
  }
  const std::size_t header = std::min(text.find('\n'), text.size());
  return fmt::format("{}{}{}", text.substr(0, header), above, text.substr(header));
}

// The names of columns as spreadsheets change them: in capitals, with blanks around.
CsvTable table_of(std::string_view text, const std::string& file, char separator) {
  CsvTable table = parse_csv(text, file, separator);
  for (std::string& column : table.columns) column = lower_case(trimmed(column));
  return table;
}

// Of a header: whether `has` one of the columns that say how long a step took.
template <typename Has>
bool tells_times(const Has& has) {
  return has("trace") || has(kMilliseconds) || std::any_of(kTimes.begin(), kTimes.end(), has);
}

bool has_columns(const CsvTable& table) {
  const auto has = [&](std::string_view name) { return table.column(name) >= 0; };
  return has("n_gpus") && tells_times(has);
}

// Where a row names no device, it is the cluster's.
CsvTable with_device(CsvTable table, const Cluster& cluster) {
  std::string device = cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].name;
  std::transform(device.begin(), device.end(), device.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  int column = table.column("gpu");
  if (column < 0) {
    column = static_cast<int>(table.columns.size());
    table.columns.emplace_back("gpu");
    for (CsvRow& row : table.rows) row.fields.emplace_back();
  }
  for (CsvRow& row : table.rows)
    if (std::string& said = row.fields[static_cast<std::size_t>(column)]; said.empty()) said = device;
  return table;
}

// A trace or a log that a row names in place of a time, and how far the logarithms of its steps spread.
struct Named {
  std::string file;
  std::vector<double> steps_s;
  double spread = 0;
  double batch = 0;  // TimedLog's
};

// Of a trace the steps of all its job's ranks count.
std::optional<Named> find_named(const Measurements& measured, const std::filesystem::path& name) {
  const auto is_named = [&](const std::string& file) {
    return std::filesystem::path(file).filename() == name.filename();
  };
  for (const TimedLog& log : measured.logs)
    if (is_named(log.file))
      return Named{log.file, log.steps_s, log.spread > 0 ? log.spread : spread_of_median(log.steps_s),
                   log.batch};
  for (const RankTrace& trace : measured.traces) {
    if (trace.of_instructions || !is_named(trace.file)) continue;
    Named named{trace.file, {}, 0, 0};
    for (const RankTrace& rank : measured.traces)
      if (&rank == &trace || (trace.world > 1 && rank.world == trace.world))
        named.steps_s.insert(named.steps_s.end(), rank.steps_s.begin(), rank.steps_s.end());
    // Steps of one trace are too few, and too near each other, to say more.
    named.spread = spread_of_median(named.steps_s) * std::sqrt(static_cast<double>(named.steps_s.size()));
    return named;
  }
  return std::nullopt;
}

// Writes the median of what rows name in place of a time into the table; by line what that was.
std::map<int, Named> fill_from_named(const Measurements& measured, CsvTable* table) {
  std::map<int, Named> filled;
  if (table->column("trace") < 0) return filled;
  if (table->column("step_time_s") < 0) {
    table->columns.emplace_back("step_time_s");
    for (CsvRow& row : table->rows) row.fields.emplace_back();
  }
  const auto column = static_cast<std::size_t>(table->column("step_time_s"));
  for (CsvRow& row : table->rows) {
    const std::filesystem::path name = table->field(row, "trace");
    const bool timed = std::any_of(kTimes.begin(), kTimes.end(),
                                   [&](std::string_view one) { return !table->field(row, one).empty(); });
    if (name.empty() || timed) continue;
    std::optional<Named> named = find_named(measured, name);
    if (!named || named->steps_s.empty()) continue;
    row.fields[column] = fmt::format("{:.9g}", median(named->steps_s));
    filled.emplace(row.line, std::move(*named));
  }
  return filled;
}

// A row without a time whose trace is no file that was given, or one without steps.
void check_trace_is_there(const CsvTable& table, const CsvRow& row, const Measurements& measured) {
  const std::filesystem::path name = table.field(row, "trace");
  const bool timed = std::any_of(kTimes.begin(), kTimes.end(),
                                 [&](std::string_view one) { return !table.field(row, one).empty(); });
  if (name.empty() || timed) return;
  const bool given = std::any_of(measured.given.begin(), measured.given.end(), [&](const std::string& file) {
    return std::filesystem::path(file).filename() == name.filename();
  });
  const std::string said = name.string().substr(0, 100);
  if (std::any_of(measured.steps.begin(), measured.steps.end(), [&](const MeasuredStep& step) {
        return std::filesystem::path(step.file).filename() == name.filename();
      }))
    throw evidence::Unreadable{
        fmt::format("'{}' in the column 'trace' says its plan itself, and is read without a row", said)};
  throw evidence::Unreadable{
      given ? fmt::format("'{}' in the column 'trace' has no times of steps for a row", said)
            : fmt::format("no file '{}' was given (column 'trace')", said)};
}

// A time of 0 in place of one that nobody took.
void check_time_is_positive(const CsvTable& table, const CsvRow& row) {
  std::string_view zero;
  for (const std::string_view name : kTimes) {
    const auto number = parse_number(trimmed(table.field(row, name)));
    if (number && *number > 0) return;
    if (number) zero = name;
  }
  if (!zero.empty()) throw evidence::Unreadable{fmt::format("{} is 0", zero)};
}

// Model chunks of a stage that the plan does not have.
void check_chunks(const evidence::Fields& fields, const evidence::ExplicitRow& row) {
  const Choices& c = row.plan.choices;
  const int chunks = fields.count("vp_interleave");
  if (chunks <= 1 || c.interleave == chunks) return;
  if (c.pp == 1) throw evidence::Unreadable{fmt::format("{} model chunks a stage on pp 1", chunks)};
  if (row.plan.micro_batches() % c.pp != 0)
    throw evidence::Unreadable{
        fmt::format("{} model chunks a stage with {} micro-batches, no multiple of pp {}", chunks,
                    row.plan.micro_batches(), c.pp)};
  throw evidence::Unreadable{fmt::format("{} model chunks on each of pp {}, of {} layers", chunks, c.pp,
                                         row.plan.job->workload.layers)};
}

// What a row says twice.
void check_agrees(const evidence::Fields& fields, const evidence::ExplicitRow& row, const Named* named) {
  constexpr double kMostTimesDiffer = 1.1;
  const Choices& c = row.plan.choices;
  const Training& training = row.plan.job->training;
  const double batch = fields.real("gbs_sequences"), micro_batch = fields.real("mbs_sequences"),
               accumulated = fields.real("grad_accum");
  if (named != nullptr && named->batch > 0 && batch > 0 && named->batch != batch)
    throw evidence::Unreadable{fmt::format("a batch of {} (gbs_sequences), where {} says {}", batch,
                                           std::filesystem::path(named->file).filename().string(),
                                           named->batch)};
  if (batch > 0 && micro_batch > 0 && accumulated > 0 && micro_batch * accumulated * c.dp != batch)
    throw evidence::Unreadable{
        fmt::format("{} micro-batches (grad_accum) of {} on dp {} are {} sequences, and gbs_sequences is {}",
                    accumulated, micro_batch, c.dp, micro_batch * accumulated * c.dp, batch)};
  if (batch > 0 && static_cast<double>(training.global_batch) != batch)
    throw evidence::Unreadable{fmt::format("a batch of {} is no whole number of micro-batches of {} on dp {}",
                                           batch, c.micro_batch, c.dp)};
  if (micro_batch > 0 && c.micro_batch != micro_batch)
    throw evidence::Unreadable{fmt::format("micro-batches of {} where dp {} has {} sequences each",
                                           micro_batch, c.dp, c.micro_batch)};
  const double sequences = static_cast<double>(training.global_batch), tokens = sequences * training.seq_len;
  const auto seconds_for = [&](double work, const char* rate, double devices = 1) {
    return fields.real(rate) > 0 ? work / fields.real(rate) / devices : 0;
  };
  const std::array<std::pair<const char*, double>, 4> times = {
      {{"step_time_s", fields.real("step_time_s")},
       {"tokens_per_s", seconds_for(tokens, "tokens_per_s")},
       {"tokens_per_s_per_gpu", seconds_for(tokens, "tokens_per_s_per_gpu", fields.real("n_gpus"))},
       {"sequences_per_s", seconds_for(sequences, "sequences_per_s")}}};
  const std::pair<const char*, double>* first = nullptr;
  for (const auto& one : times) {
    if (one.second <= 0) continue;
    if (first == nullptr) first = &one;
    if (std::abs(std::log(one.second / first->second)) > std::log(kMostTimesDiffer))
      throw evidence::Unreadable{fmt::format("by {} a step took {:.4g} s, by {} {:.4g} s", first->first,
                                             first->second, one.first, one.second)};
  }
}

}  // namespace

bool is_step_table(std::string_view head) {
  try {
    const std::string text = with_header_first(head);
    return has_columns(
        table_of(std::string_view(text).substr(0, text.find('\n') + 1), "", separator_of(text)));
  } catch (const UserError&) {
    return false;
  }
}

std::string lacks_of_step_table(std::string_view head) {
  constexpr std::size_t kMostHeaderBytes = 4096;
  const std::string text = with_header_first(head);
  std::string header =
      lower_case(std::string_view(text).substr(0, std::min(text.find('\n'), kMostHeaderBytes)));
  // Words as any table parts them.
  for (char& c : header)
    if (std::string_view(";|\t\"\r").find(c) != std::string_view::npos) c = ',';
  std::set<std::string, std::less<>> columns;
  for (const std::string& word : split(header)) columns.emplace(trimmed(word));
  const auto known = std::count_if(columns.begin(), columns.end(), [](const std::string& one) {
    return holds(kColumns, one) || holds(kAlso, one) || one == kMilliseconds;
  });
  const auto has = [&](std::string_view name) { return columns.contains(name); };
  if (known < 2) return "";
  if (!has("n_gpus")) return "is a table without a column 'n_gpus'";
  if (!tells_times(has))
    return "is a table without a column of times (step_time_s, step_time_ms, tokens_per_s, "
           "tokens_per_s_per_gpu, "
           "sequences_per_s)";
  return "is a table whose columns are parted by neither commas nor semicolons nor tabs";
}

std::string step_table_template() {
  std::vector<std::string> header, row;
  static const std::vector<std::pair<std::string_view, std::string_view>> example = {
      {"framework", "Megatron-LM"},
      {"model", "llama3-8b"},
      {"n_layers", "32"},
      {"hidden", "4096"},
      {"n_heads", "32"},
      {"n_kv_heads", "8"},
      {"ffn_hidden", "14336"},
      {"vocab", "128256"},
      {"seq_len_tokens", "8192"},
      {"n_gpus", "8"},
      {"precision", "bf16"},
      {"tp", "2"},
      {"pp", "1"},
      {"gbs_sequences", "128"},
      {"mbs_sequences", "1"},
      {"act_recompute", "none"}};
  for (const std::string_view column : kColumns) {
    header.emplace_back(column);
    const auto found =
        std::find_if(example.begin(), example.end(), [&](const auto& one) { return one.first == column; });
    row.emplace_back(found == example.end() ? "" : found->second);
  }
  return csv_line(header) + csv_line(row);
}

void add_steps(const CsvTable& as_written, Rows rows, const Context& context, Measurements* measurements,
               const evidence::Said& said) {
  for (const CsvRow& fields : as_written.rows)
    check_device(as_written.field(fields, "gpu"), context, as_written.file, fields.line);
  CsvTable table = with_device(as_written, context.cluster);
  for (TimedLog& log : measurements->logs)
    log.named = log.named || std::any_of(table.rows.begin(), table.rows.end(), [&](const CsvRow& row) {
                  return std::filesystem::path(table.field(row, "trace")).filename() ==
                         std::filesystem::path(log.file).filename();
                });
  draw_plans(context.most_plans, &table, measurements);
  const std::map<int, Named> named = fill_from_named(*measurements, &table);
  RowsRead before;
  evidence::Instead instead = evidence::instead_of(context.runtime, "");
  instead.cluster = context.cluster;
  instead.own = rows != Rows::published;
  instead.knows_framework = rows == Rows::log;
  instead.said = said;
  for (const CsvRow& fields : table.rows) {
    try {
      if (rows == Rows::own) check_trace_is_there(table, fields, *measurements);
      if (rows == Rows::own) check_time_is_positive(table, fields);
      std::optional<evidence::ExplicitRow> again = before.again(table, fields);
      MeasuredStep step{table.file,
                        fields.line,
                        {},
                        again ? std::move(*again) : evidence::read_step(table, fields, instead)};
      if (const auto from = named.find(fields.line); from != named.end()) {
        step.spread = from->second.spread;
        step.trace = from->second.file;
      }
      if (step.row.measured_s <= 0) throw evidence::Unreadable{"no step time is stated"};
      check_plan(step.row.plan);
      if (rows != Rows::published) check_chunks(evidence::Fields(table, fields), step.row);
      if (rows == Rows::own) {
        const auto from = named.find(fields.line);
        check_agrees(evidence::Fields(table, fields), step.row,
                     from == named.end() ? nullptr : &from->second);
      }
      for (const std::string_view column : kTimes)
        if (step.timed_by.empty() && evidence::Fields(table, fields).real(std::string(column)) > 0)
          step.timed_by = column;
      check_plausible(step);
      doubt_memory(step, measurements);
      if (rows != Rows::published) doubt_model(step, table.field(fields, "model"), measurements);
      if (rows == Rows::own) doubt_sequences(step, table.field(fields, "seq_len_tokens"), measurements);
      step.model = planner::model_effect(step.row.plan.job->workload);
      before.add(table, fields, step.row);
      measurements->steps.push_back(std::move(step));
    } catch (const evidence::Unreadable& why) {
      measurements->ignore(table.file, fields.line, why.why);
    } catch (const UserError& error) {
      measurements->ignore(table.file, fields.line, error.what());
    }
  }
}

void add_log(const std::string& file, int line,
             const std::vector<std::pair<std::string, std::string>>& columns, double spread,
             const Context& context, Measurements* measurements, const evidence::Said& said, bool whole) {
  CsvTable table{file, {}, {{line, {}}}};
  for (const auto& [column, value] : columns) {
    table.columns.push_back(column);
    table.rows.front().fields.push_back(value);
  }
  const std::size_t before = measurements->steps.size();
  add_steps(table, Rows::log, context, measurements, said);
  for (std::size_t i = before; i < measurements->steps.size(); ++i) {
    measurements->steps[i].spread = spread;
    measurements->steps[i].whole = whole;
  }
}

void read_step_table(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = with_header_first(source.text());
  const char separator = separator_of(text);
  CsvTable table = table_of(text, source.name(), separator);
  check_columns(table);
  const bool published = table.column("source") >= 0;
  if (!published) {
    for (CsvRow& row : table.rows)
      for (std::string& field : row.fields) field = trimmed(field);
    // Spreadsheets keep rows of nothing.
    std::erase_if(table.rows, [](const CsvRow& row) {
      return std::all_of(row.fields.begin(), row.fields.end(),
                         [](const std::string& one) { return one.empty(); });
    });
    take_milliseconds(&table);
  }
  take_numbers(separator == ';', &table);
  if (!published) {
    check_words(table);
    check_whole(table);
  }
  for (const std::string& column : table.columns)
    if (!holds(kColumns, column) && !holds(kAlso, column))
      measurements->ignore(source.name(), 1,
                           fmt::format("the column '{}', which is none of docs/measurements.md's", column));
  add_steps(table, published ? Rows::published : Rows::own, context, measurements);
}

}  // namespace orrery::measurements
