// How long one trains: in steps.
#pragma once

#include "program/plan.h"

namespace orrery::planner {

// Steps for so many tokens, or samples, of a job: not rounded. Tokens: its model has sequences.
inline double steps_for(const Training& training, double amount, bool in_tokens) {
  return amount / (static_cast<double>(training.global_batch) * (in_tokens ? training.tokens_each() : 1));
}

}  // namespace orrery::planner
