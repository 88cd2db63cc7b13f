// Means, medians, and the largest of several.
#pragma once

#include <vector>

namespace orrery {

double mean(const std::vector<double>& values);  // 0 of none
// The middle value, of an even number the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);
// The middle value, of an even number the larger of the two in the middle: one that was seen. 0 of none.
double upper_median(std::vector<double> values);

// Expected largest of n standard normal draws (Blom's quantile, by Abramowitz and Stegun 26.2.23); 0 of one.
double expected_largest(double draws);

}  // namespace orrery
