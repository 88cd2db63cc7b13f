// What readers of logs share.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::measurements {

constexpr std::size_t kMostLogLineBytes = 8192;  // a longer one is somebody else's

std::string_view trimmed(std::string_view text);
// The word behind `label` on a line, up to a blank, comma, bar, quotation mark or bracket; empty where there
// is none.
std::string_view word_behind(std::string_view line, std::string_view label);
// The same as a number.
std::optional<double> number_behind(std::string_view line, std::string_view label);
// "1,500" as "1500", where commas part thousands and nothing else; else as it is.
std::string without_grouping(std::string_view text);
// A line without what launchers and collectors of logs write before each: mpirun's "[1,0]<stdout>:",
// torchrun's "[default0]:" and "[rank0]:", srun's "0: ", mpiexec's "[0] ", kubectl's "[pod/name/container] ",
// docker compose's "worker-0  | ", Ray's "(Worker pid=7) ", and times.
std::string_view without_rank(std::string_view line);
// Without a terminal's colours.
std::string without_colours(std::string_view line);

struct LogLine {
  int number = 0;  // of the file's
  std::string_view text;
};
// The lines of a log, as its program wrote them: without ends of lines, colours and what stands before each
// of them (without_rank; pdsh's "node-1: ", where most lines have it). What a progress bar draws over itself
// are lines of one number.
class LogLines {
 public:
  explicit LogLines(std::string_view text);  // which must outlive it
  LogLines(LogLines&&) = default;
  std::vector<LogLine>::const_iterator begin() const { return lines_.begin(); }
  std::vector<LogLine>::const_iterator end() const { return lines_.end(); }

 private:
  std::vector<LogLine> lines_;
  std::deque<std::string> plain_;  // those that had colours
};
inline LogLines lines_of(std::string_view text) {
  return LogLines(text);
}

// A line of a log that times one step, or those since the line before.
struct LoggedStep {
  int line = 0;
  std::int64_t number = -1;  // of the step; -1: not said
  double value = 0;          // seconds, or a rate; 0: none that is a number
  std::int64_t batch = 0;    // 0: not said
};
// Whether a line of this number is of a run that begins behind these: steps are counted anew.
bool counts_anew(const std::vector<LoggedStep>& steps, std::int64_t number);
// What is steady: without the first line, which warms up, nor others of its step (other ranks'), nor lines
// without a value.
std::vector<LoggedStep> steady(const std::vector<LoggedStep>& steps);
constexpr std::string_view kWarmsUp = "only its first line has a time, which warms up and counts for nothing";

// How far the logarithm of the median of these may be off, by what they differ; 0: not known.
double spread_of_median(const std::vector<double>& seconds);

}  // namespace orrery::measurements
