// Which of the transfers under way have all their constraints to themselves: these run at their lone rate,
// and nobody has to be asked how the network is shared.
#pragma once

#include <vector>

#include "sim/network/flow_system.h"

namespace orrery::sim {

class ConstraintUse {
 public:
  explicit ConstraintUse(const FlowSystem& flows) : flows_(flows), users_(flows.constraints().size()) {}

  // A transfer of a flow begins: whether it is alone. `disturbed` is appended the transfers that were until
  // now. Tokens name transfers, each used once at a time.
  bool begin(int token, int flow, std::vector<int>& disturbed);
  void end(int token, int flow);

 private:
  struct Users {
    int count = 0;
    int alone = -1;  // the transfer that is alone on all its constraints, this among them; -1: none
    int flow = -1;   // its flow
  };

  const FlowSystem& flows_;
  std::vector<Users> users_;  // by constraint
};

}  // namespace orrery::sim
