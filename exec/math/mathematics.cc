#include "exec/math/mathematics.h"

#include <algorithm>

#include "exec/math/objective.h"

namespace orrery::exec {

Mathematics::Mathematics(const Plan& plan, Parameters& parameters, Device& device, Values& values,
                         const BatchMemory& batch, std::int64_t rows)
    : plan_(plan),
      parameters_(parameters),
      device_(device),
      values_(values),
      batch_(batch),
      rows_(rows),
      loss_scale_(static_cast<float>(1.0 / (static_cast<double>(plan.job->training.global_batch) *
                                            static_cast<double>(predictions_per_sample(*plan.job))))) {}

Mathematics::Place Mathematics::weight_of(const HeldTensor& tensor) {
  Place place;
  place.elements = tensor.elements;
  place.offset = tensor.offset;
  if (tensor.bucket < 0)
    place.fixed = parameters_.frozen().weights(tensor);
  else if (parameters_.gathers_weights(tensor.bucket))
    place.value = values_.use({TensorKind::parameters, tensor.bucket, -1, Form::whole});
  else
    place.fixed = parameters_.weights(tensor.bucket) + tensor.offset;
  return place;
}

Mathematics::Place Mathematics::gradient_of(const HeldTensor& tensor, int micro_batch,
                                            std::vector<Step>& steps) {
  Place place;
  if (tensor.frozen) return place;
  place.elements = tensor.elements;
  place.offset = tensor.offset;
  const bool scattered = parameters_.scatters_gradients(tensor.bucket);
  place.first = contributed_.insert({tensor.op, tensor.parameter, scattered ? micro_batch : -1}).second;
  if (!scattered) {
    place.fixed = parameters_.gradients(tensor.bucket) + tensor.offset;
    return place;
  }
  const Key key{TensorKind::gradients, tensor.bucket, micro_batch, Form::whole};
  if (values_.has(key)) {
    place.value = values_.use(key);
    return place;
  }
  const std::int64_t elements = parameters_.elements(tensor.bucket);
  place.value = values_.define(key, elements);
  std::int64_t used = 0;
  for (const HeldTensor& held : parameters_.held())
    if (held.bucket == tensor.bucket) used = std::max(used, held.offset + held.elements);
  if (used < elements)
    steps.push_back([this, value = place.value, used, elements] {
      device_.fill(values_.floats(value) + used, static_cast<std::size_t>(elements - used), 0);  // padding
    });
  return place;
}

float* Mathematics::ready_to_add(const Place& place) const {
  float* data = at(place);
  if (data != nullptr && place.first) device_.fill(data, static_cast<std::size_t>(place.elements), 0);
  return data;
}

}  // namespace orrery::exec
