// What is fuzzed: every parser of foreign input. A target takes any bytes; it finds them sound, or throws
// UserError or NoAnswer. Anything else is a defect: another exception, a sanitizer's report, a figure that
// cannot be.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace orrery::fuzz {

struct Target {
  std::string_view name;
  // True where the bytes were sound. Throws InternalError on what is neither sound nor refused.
  bool (*accepts)(std::string_view bytes);
  // Files to begin with, real ones where there are some.
  std::vector<std::string> (*seeds)();
  int rounds = 1000;  // of mutations, as a test
};

// By what they read.
std::vector<Target> networks();
std::vector<Target> clusters();
std::vector<Target> settings();
std::vector<Target> measured();
std::vector<Target> executor();

// ---- what targets share ----
// `parse` returns what it read, `check` throws where that cannot be.
template <typename Parse, typename Check>
bool sound_or_refused(const Parse& parse, const Check& check) {
  try {
    check(parse());
    return true;
  } catch (const UserError&) {
    return false;
  } catch (const NoAnswer&) {
    return false;
  }
}
// As above, of what was read and accepted: refusing it now is a defect.
template <typename Again>
void accepted_again(const Again& again) {
  try {
    again();
  } catch (const UserError& error) {
    throw InternalError(std::string("what was written cannot be read: ") + error.what());
  }
}
inline void possible(bool so, std::string_view what) {
  ORRERY_CHECK(so, std::string(what));
}

}  // namespace orrery::fuzz
