// What is refused or doubted of a calibration: rows that are far from all that is predicted of them, and what
// they taught where that makes predictions worse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "measurements/calibration/calibrate.h"

namespace orrery::measurements {

// Null: there is none of this name.
const Learned* find(const std::vector<Learned>& learned, std::string_view name);

// Throws NoAnswer naming the first of `steps` that takes far longer than predicted, or, where half of them
// do, far less. `rows`: the same on the cluster as its links and kernels were measured; `row_of`: that of
// each step.
void check_near(const std::vector<MeasuredStep>& steps, const std::vector<StepRow>& rows,
                const std::vector<std::size_t>& row_of);

// Throws NoAnswer where there are no steps, and what else was measured leaves every factor as it was.
void check_says_something(const Measurements& measured, const Calibrated& result);

// Throws NoAnswer where predictions of steps held back, or of the rows themselves (`own`), are clearly worse
// after a calibration than before; what is only a little worse is a doubt.
void check_learned(const HeldOut& held_out, const HeldOut& own, std::vector<std::string>* doubts);

// Of anything, `what` in the plural: a doubt where it is predicted worse after than before, or hardly any of
// it lies in its intervals.
void doubt_learned(const std::string& what, const HeldOut& held_out, std::vector<std::string>* doubts);

// What was learned of the site holds for any software, and none comes so near the peak: the measured plans
// under what is typical of today's.
void doubt_site(const Measurements& measured, Calibrated* result);

}  // namespace orrery::measurements
