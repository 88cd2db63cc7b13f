#include "sim/network/constraint_use.h"

namespace orrery::sim {

bool ConstraintUse::begin(int token, int flow, std::vector<int>& disturbed) {
  bool alone = true;
  for (const int c : flows_.constraints_of(flow)) {
    Users& users = users_[static_cast<std::size_t>(c)];
    alone = alone && users.count == 0;
    ++users.count;
    if (users.alone < 0) continue;
    disturbed.push_back(users.alone);
    for (const int other : flows_.constraints_of(users.flow))
      users_[static_cast<std::size_t>(other)].alone = -1;
  }
  if (!alone) return false;
  for (const int c : flows_.constraints_of(flow)) {
    users_[static_cast<std::size_t>(c)].alone = token;
    users_[static_cast<std::size_t>(c)].flow = flow;
  }
  return true;
}

void ConstraintUse::end(int token, int flow) {
  for (const int c : flows_.constraints_of(flow)) {
    Users& users = users_[static_cast<std::size_t>(c)];
    --users.count;
    if (users.alone == token) users.alone = -1;
  }
}

}  // namespace orrery::sim
