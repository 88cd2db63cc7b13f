// The answer to a live question, in stages: each a line of JSON, the quick ones first.
#pragma once

#include <functional>
#include <string_view>

#include "serve/http.h"

namespace orrery::serve {

// `stage` of a line:
//   guess: plan, as the closed form has it; searched: the search's best plan, and what it beats; drawn: the
//   same with its timeline, memory and links; run: goodput's fields, of the whole run; done: nothing is to
//   follow. In the place of what cannot be answered: no (asked and answered "no"), bad (the question), failed
//   (we did); each with its `text`.
// All of them have after_s, since the question was asked. Never throws.
void answer(const Query& query, const std::function<void(std::string_view line)>& emit);

}  // namespace orrery::serve
