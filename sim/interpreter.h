// Runs a Scenario in virtual time.
//
// Work (compute, pack, copy) and flows that share nothing have durations known in advance: their ends stand
// in a queue of our own. Flows that share links are SimGrid transfers, started when they are due; SimGrid's
// clock then leads. While no such flow runs, time advances without SimGrid.
//
// An instruction starts when its predecessor on its stream and everything in `after` has ended. A collective,
// or a transfer, starts when everyone has come.
//
// With Scenario::single_threaded a rank's one thread issues its instructions in their order, as
// exec/run/interpreter.h does: it computes, starts communication and goes on, and waits before work that
// needs what is not there yet. Between nodes what was started moves beside computation (the kernel sends, and
// the executor progresses between operators); inside a node ranks copy by hand, so it moves only while none
// of its ranks computes.
#pragma once

#include "sim/scenario/scenario.h"
#include "sim/trace.h"

namespace orrery::sim {

// Whether payloads may meet on links that cannot carry all of them at once. Where none do SimGrid has nothing
// to share.
bool shares_links(const Scenario& scenario);

// In a process of its own (sim/processes/isolate.h) where links are shared. `keep_moved`: Trace::moved, too.
// Throws InternalError naming what waits when nothing moves any more.
Trace interpret(const Scenario& scenario, int steps, bool keep_moved = false);

}  // namespace orrery::sim
