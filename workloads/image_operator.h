// Operators on images: what of them is possible.
#pragma once

#include <string>
#include <vector>

#include "workloads/workload.h"

namespace orrery {

// Output pixels along one dimension of a window: floor((input + padding on both sides - reach) / stride) + 1.
std::int64_t window_outputs(std::int64_t input, int kernel, int stride, int padding_before, int padding_after,
                            int dilation);

// Whether some of it works on sequences of patches.
bool reads_sequences(const Workload& workload);

// The shape of the pictures that a network reads, 0 channels where it reads none or does not say.
ImageShape picture_shape(const Workload& workload);

// Why operators[index].image cannot be what it says, in words ("padding of 3 for a kernel of 2"), or empty.
// Checked: shapes are positive and bounded and those of its inputs, elements are output_elements, the windows
// reach into the image, parameters have the shapes that the kind wants.
std::string fault_of_image(const std::vector<Operator>& operators, int index);

}  // namespace orrery
