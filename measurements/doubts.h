// What is said of rows whose numbers hardly are what they are called: refused where no machine gives them,
// doubted where something else explains them better.
#pragma once

#include <string>

#include "measurements/measurement.h"

namespace orrery::measurements {

// Farther off what is predicted is another quantity, unit or plan rather than software, links or a device
// that is slow.
constexpr double kFarthest = 5;

// ": was it …?" where a step that takes `times` as long as predicted is what one usual mistake makes of it;
// else empty.
std::string usual_mistakes(const MeasuredStep& step, double times);
// "24.4 times what is predicted", "24.4 times less than predicted".
std::string times_predicted(double times);

// Throws NoAnswer where no machine gives the row's numbers.
void check_plausible(const MeasuredStep& step);
// A plan that ran fits.
void doubt_memory(const MeasuredStep& step, Measurements* measurements);
// Dimensions that nobody said of a `model`.
void doubt_model(const MeasuredStep& step, const std::string& model, Measurements* measurements);
// Sequences whose length the row does not say, in `seq_len_tokens`.
void doubt_sequences(const MeasuredStep& step, const std::string& said, Measurements* measurements);

}  // namespace orrery::measurements
