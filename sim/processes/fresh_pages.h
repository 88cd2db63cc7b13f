// Memory of a process that forks others which compute something of their own. A page that both have is copied
// when either writes to it, and each costs a fault, on a virtual machine some 15 us: of small simulations
// more than half. Nothing happens where the program's malloc is not jemalloc (base/heap).
#pragma once

namespace orrery::sim {

// Before a number of forks: what this process has freed goes to the system, not into each of them.
void give_back_pages();

// After a fork, in the child: this thread's memory is new, not what the parent had freed.
void allocate_from_fresh_pages();

}  // namespace orrery::sim
