// One line on stderr of what is under way, how much of it is done and how long it may still take: from the
// second second on, and only where stderr is a terminal.
#pragma once

#include <string_view>

namespace orrery::cli {

// Before the first thread of the process: a process of its own draws the line and counts the seconds,
// whatever this one is busy with. It ends with this one.
void begin_progress(std::string_view what);
// So much of it is done. Of another `what` (up to a comma) the time left is counted anew.
void show_progress(std::string_view what, int done, int total);
// When this returns the line is gone. Nothing where there is none.
void end_progress();

}  // namespace orrery::cli
