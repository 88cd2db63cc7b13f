// What freezing weights and adapters beside them cost: bytes of the base, its dequantisation, thin products.
#include <algorithm>

#include "program/operator_shard.h"
#include "program/operator_work.h"

namespace orrery {
namespace {

bool is_matrix(const ParameterTensor& tensor) {
  return tensor.shape.size() >= 2;
}

// Bytes that an element of a frozen tensor takes.
double element_bytes(const Operator& op, const ParameterTensor& tensor, DType storage) {
  return base_bytes(is_matrix(tensor) ? op.base : BaseType::none, storage);
}

double local_matrices(const Operator& op, const Shard& shard) {
  double elements = 0;
  for (const ParameterTensor& tensor : op.frozen)
    if (is_matrix(tensor)) elements += static_cast<double>(local_elements(tensor, shard));
  return elements;
}

}  // namespace

double frozen_bytes(const Operator& op, const ParameterTensor& tensor, const Shard& shard,
                    const RuntimeProfile& runtime) {
  const DType product = product_type(op.kind, shard.precision);
  const bool narrow = runtime.narrow_frozen_weights && is_matrix(tensor) && is_narrow(product);
  const double element = narrow ? std::max(1.0, packed_bytes_of(product))
                                : element_bytes(op, tensor, storage_type(shard.precision));
  return static_cast<double>(local_elements(tensor, shard)) * element;
}

double dequantised_bytes(const Operator& op, const Shard& shard) {
  if (op.base == BaseType::none) return 0;
  double largest = 0;
  for (const ParameterTensor& tensor : op.frozen)
    if (is_matrix(tensor)) largest = std::max(largest, static_cast<double>(local_elements(tensor, shard)));
  return largest * bytes_of(storage_type(shard.precision));
}

double adapter_saved_bytes(const Operator& op, const Shard& shard) {
  double elements = 0;
  for (const LowRankAdapter& adapter : op.adapters) elements += local_rows(op, shard) * adapter.rank;
  return elements * bytes_of(storage_type(shard.precision));
}

namespace internal {

void add_dequantisation(const Operator& op, const Shard& shard, OperatorWork* work) {
  if (op.base == BaseType::none) return;
  const DType storage = storage_type(shard.precision);
  double& bytes = op.base == BaseType::int8 ? work->quantize_bytes : work->dequantise_bytes;
  bytes += local_matrices(op, shard) * (base_bytes(op.base, storage) + bytes_of(storage));
  const auto matrices = static_cast<double>(std::count_if(op.frozen.begin(), op.frozen.end(), is_matrix));
  work->kernels += matrices;
  if (op.base != BaseType::nf4_dq) return;
  // Scales that are quantised themselves are first turned back to fp32, then their mean is added, in kernels
  // of their own (bitsandbytes, functional.dequantize_4bit): one for 64 weights is written, read and written,
  // and read again.
  bytes += local_matrices(op, shard) * 4.0 * bytes_of(DType::fp32) / 64;
  work->kernels += 2 * matrices;
}

// PEFT's layers (tuners/lora/layer.py): the output is scaled and added to the base's, in two kernels or one
// fused; going back the gradient is scaled, and what the adapter adds to the input's gradient is added.
void add_adapters(const Operator& op, AdapterPass pass, const Shard& shard, const RuntimeProfile& runtime,
                  std::vector<Product>* products, OperatorWork* work) {
  const double rows = local_rows(op, shard);
  const double element = bytes_of(storage_type(shard.precision));
  const double scale_passes = runtime.fused_elementwise ? 0 : 2;
  const double kernels = runtime.fused_elementwise ? 1 : 2;
  for (const LowRankAdapter& adapter : op.adapters) {
    const double r = adapter.rank;
    const double in = static_cast<double>(adapter.in) / (op.split == TensorSplit::row ? shard.tp : 1);
    const double out = static_cast<double>(adapter.out) / (op.split == TensorSplit::column ? shard.tp : 1);
    if (pass.forward) {
      products->push_back({rows, r, in, 1});
      products->push_back({rows, out, r, 1});
      work->vector_bytes += rows * out * (scale_passes + 3) * element;
      work->kernels += kernels;
      if (adapter.magnitude) {
        // The lengths of W + BA's columns: BA is made, scaled, added to W, squared and summed; then the sum
        // of both outputs is scaled, by more passes than one (tuners/lora/dora.py).
        products->push_back({out, in, r, 1});
        work->vector_bytes += in * out * (scale_passes + 4) * element + rows * out * 5 * element;
        work->kernels += 6;
      }
    }
    if (pass.weight_gradient) {
      products->push_back({rows, r, out, 1});  // of what A puts out
      products->push_back({out, r, rows, 1});
      products->push_back({r, in, rows, 1});
      work->vector_bytes += rows * out * (scale_passes + 1) * element;
      work->kernels += 1;
      if (adapter.magnitude) {
        work->vector_bytes += rows * out * 5 * element;
        work->kernels += 3;
      }
    }
    if (pass.input_gradient) {
      // Where gradients of inputs and of weights are apart, what A puts out is wanted in both.
      if (!pass.weight_gradient) products->push_back({rows, r, out, 1});
      products->push_back({rows, in, r, 1});
      work->vector_bytes += rows * in * 3 * element;
      work->kernels += 1;
    }
  }
}

}  // namespace internal
}  // namespace orrery
