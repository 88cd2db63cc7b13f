// The points of a what-if: a request with options and hardware varied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/runs/whatif.h"
#include "request/request.h"

namespace orrery {

// "KEY=V1,V2,…", the key written as any option's may be; where there is a ';' it separates instead, for
// values with commas of their own. Throws UserError on what is no such text, an empty value and a value
// twice.
planner::whatif::Varied parse_varied(std::string_view text);

// Throws UserError on a key that is neither an option that varies nor one of the hardware's, and on a number
// of the latter that is out of range.
void check_varied(const std::vector<planner::whatif::Varied>& varied);

struct Points {
  std::vector<planner::whatif::Point> points;
  // Nothing said the batch, and that of the most devices is everybody's: one that grew with them would be
  // another training.
  bool shared_batch = false;
  std::vector<std::string> ignored, assumed;  // Question's, of the first point
  int settings_read = 0;                      // likewise
};
// Every combination in the place of what `request` says. Throws UserError naming the combination that cannot
// be read.
Points points_of(const Request& request, const std::vector<planner::whatif::Varied>& varied);

}  // namespace orrery
