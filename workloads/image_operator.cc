#include "workloads/image_operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery {
namespace {

constexpr std::int64_t kMaxSide = 1 << 20;
constexpr int kMaxWindow = 1 << 15;

std::string text_of(const ImageShape& shape) {
  return fmt::format("{} x {} x {}", shape.channels, shape.height, shape.width);
}

bool possible(const ImageShape& shape) {
  for (const std::int64_t size : {shape.channels, shape.height, shape.width})
    if (size < 1 || size > kMaxSide) return false;
  return true;
}

std::string fault_of_window(const ImageOperator& image) {
  const std::array<std::int64_t, 2> in = {image.input.height, image.input.width};
  const std::array<std::int64_t, 2> out = {image.output.height, image.output.width};
  for (std::size_t d = 0; d < 2; ++d) {
    for (const int figure : {image.kernel[d], image.stride[d], image.dilation[d]})
      if (figure < 1 || figure > kMaxWindow) return fmt::format("has a window of {}", figure);
    const std::int64_t reach = static_cast<std::int64_t>(image.kernel[d] - 1) * image.dilation[d] + 1;
    if (image.padding[d] < 0 || image.padding[d] >= reach)
      return fmt::format("has padding {} for a window of {}", image.padding[d], reach);
    // The last window begins in the image, and another would not fit.
    const std::int64_t begin = (out[d] - 1) * image.stride[d] - image.padding[d];
    if (begin >= in[d] || begin + reach + image.stride[d] <= in[d])
      return fmt::format("makes {} of {} with a window of {}, stride {}, padding {}", out[d], in[d], reach,
                         image.stride[d], image.padding[d]);
  }
  return {};
}

std::string fault_of_parameters(const Operator& op, const std::vector<std::vector<std::int64_t>>& expected,
                                std::size_t least) {
  if (op.parameters.size() < least || op.parameters.size() > expected.size())
    return fmt::format("has {} parameters where {} to {} would do", op.parameters.size(), least,
                       expected.size());
  for (std::size_t p = 0; p < op.parameters.size(); ++p)
    if (op.parameters[p].shape != expected[p])
      return fmt::format("has a parameter of {} where {} would do", fmt::join(op.parameters[p].shape, " x "),
                         fmt::join(expected[p], " x "));
  return {};
}

// Elements, and the size of the last dimension: Hugging Face has dimensions of 1 before a class token's.
std::string fault_of_rows(const ParameterTensor& tensor, std::int64_t rows, std::int64_t width) {
  if (tensor.shape.empty() || tensor.shape.back() != width || tensor.elements() != rows * width)
    return fmt::format("has a parameter of {} where {} rows of {} would do", fmt::join(tensor.shape, " x "),
                       rows, width);
  return {};
}

// What makes tokens of an image.
std::string fault_of_tokens(const Operator& op) {
  const ImageShape& in = op.image->input;
  const ImageShape& out = op.image->output;
  const std::int64_t pixels = in.height * in.width;
  if (in.channels != out.channels || (out.height != pixels && out.height != pixels + 1))
    return fmt::format("makes {} of {}", text_of(out), text_of(in));
  const std::size_t rows = out.height > pixels ? 2 : 1;
  if (op.parameters.size() != rows)
    return fmt::format("has {} parameters where {} would do", op.parameters.size(), rows);
  if (rows == 2)
    if (std::string fault = fault_of_rows(op.parameters.front(), 1, out.channels); !fault.empty())
      return fault;
  return fault_of_rows(op.parameters.back(), out.height, out.channels);
}

std::string fault_of_attention(const ImageOperator& image) {
  const ImageShape& in = image.input;
  const ImageShape& out = image.output;
  if (image.heads < 1) return "has neither weights nor heads";
  if (out.channels % image.heads != 0 || in.channels != 3 * out.channels || in.height != out.height)
    return fmt::format("makes {} of {} with {} heads", text_of(out), text_of(in), image.heads);
  return {};
}

// Weights of the same shape, then a bias for each or none.
std::string fault_of_token_product(const Operator& op) {
  const ImageShape& in = op.image->input;
  const ImageShape& out = op.image->output;
  if (out.height != in.height && out.height != 1)
    return fmt::format("reads {} of {} tokens", out.height, in.height);
  const auto weights =
      static_cast<std::int64_t>(std::count_if(op.parameters.begin(), op.parameters.end(),
                                              [](const ParameterTensor& p) { return p.shape.size() != 1; }));
  const auto all = static_cast<std::int64_t>(op.parameters.size());
  if (weights == 0 || (all != weights && all != 2 * weights))
    return fmt::format("has {} weights and {} biases", weights, all - weights);
  if (op.image->heads > 0 && (weights != 3 || out.channels % (3 * op.image->heads) != 0))
    return fmt::format("makes {} by {} weights for {} heads", text_of(out), weights, op.image->heads);
  if (out.channels % weights != 0) return fmt::format("makes {} by {} weights", text_of(out), weights);
  std::vector<std::vector<std::int64_t>> expected(static_cast<std::size_t>(weights),
                                                  {out.channels / weights, in.channels});
  expected.resize(static_cast<std::size_t>(all), {out.channels / weights});
  return fault_of_parameters(op, expected, expected.size());
}

std::string fault_of_sequence(const Operator& op) {
  const ImageOperator& image = *op.image;
  const ImageShape& in = image.input;
  const ImageShape& out = image.output;
  if (op.inputs.empty()) return "makes tokens of nothing";
  if (image.dropout > 0) return "drops out of a sequence";
  const bool makes_tokens = op.kind == OperatorKind::elementwise && op.inputs.size() == 1;
  if (out.width != 1 || (in.width != 1 && !makes_tokens))
    return fmt::format("has a sequence of {}", text_of(out.width != 1 ? out : in));
  if (makes_tokens) return fault_of_tokens(op);
  switch (op.kind) {
    case OperatorKind::linear:
      return op.parameters.empty() ? fault_of_attention(image) : fault_of_token_product(op);
    case OperatorKind::norm:
      if (!(image.epsilon > 0 && image.epsilon < 1)) return fmt::format("has epsilon {}", image.epsilon);
      if (!(in == out)) return fmt::format("makes {} of {}", text_of(out), text_of(in));
      return fault_of_parameters(op, {{in.channels}, {in.channels}}, 2);
    case OperatorKind::activation:
    case OperatorKind::elementwise:
      return in == out ? "" : fmt::format("makes {} of {}", text_of(out), text_of(in));
    default:
      return fmt::format("is no operator on sequences: {}", name_of(op.kind));
  }
}

}  // namespace

bool reads_sequences(const Workload& workload) {
  return std::any_of(workload.operators.begin(), workload.operators.end(),
                     [](const Operator& op) { return op.image && op.image->sequence; });
}

std::int64_t window_outputs(std::int64_t input, int kernel, int stride, int padding_before, int padding_after,
                            int dilation) {
  const std::int64_t reach = static_cast<std::int64_t>(kernel - 1) * dilation + 1;
  return (input + padding_before + padding_after - reach) / stride + 1;
}

ImageShape picture_shape(const Workload& workload) {
  for (const Operator& op : workload.operators)
    if (op.inputs.empty() && op.image) return op.image->input;
  return {};
}

std::string fault_of_image(const std::vector<Operator>& operators, int index) {
  const Operator& op = operators[static_cast<std::size_t>(index)];
  const ImageOperator& image = *op.image;
  const ImageShape& in = image.input;
  const ImageShape& out = image.output;
  if (!possible(in) || !possible(out))
    return fmt::format("has an image of {}", text_of(possible(in) ? out : in));
  if (op.kind != OperatorKind::loss && out.elements() != op.output_elements)
    return fmt::format("puts out {} elements and an image of {}", op.output_elements, text_of(out));
  for (const int input : op.inputs) {
    const auto& before = operators[static_cast<std::size_t>(input)].image;
    if (before && before->output.elements() != in.elements())
      return fmt::format("reads an image of {} and is given one of {}", text_of(in), text_of(before->output));
  }
  const bool makes_tokens = image.sequence && op.kind == OperatorKind::elementwise && op.inputs.size() == 1;
  const std::size_t inputs = makes_tokens                           ? 1
                             : op.kind == OperatorKind::elementwise ? 2
                             : op.inputs.empty()                    ? 0
                                                                    : 1;
  if (op.inputs.size() != inputs) return fmt::format("has {} inputs", op.inputs.size());
  if (image.dropout > 0 && op.kind != OperatorKind::activation && op.kind != OperatorKind::pool)
    return "drops out and is no activation and no pool";
  if (image.sequence) return fault_of_sequence(op);
  if (image.heads > 0) return "has heads and is no sequence";
  switch (op.kind) {
    case OperatorKind::conv: {
      const std::int64_t groups = op.matmuls.empty() ? 1 : op.matmuls.front().groups;
      if (groups < 1 || in.channels % groups != 0 || out.channels % groups != 0)
        return fmt::format("has {} groups of {} and {} channels", groups, in.channels, out.channels);
      if (std::string fault = fault_of_window(image); !fault.empty()) return fault;
      return fault_of_parameters(
          op, {{out.channels, in.channels / groups, image.kernel[0], image.kernel[1]}, {out.channels}}, 1);
    }
    case OperatorKind::pool:
      if (in.channels != out.channels) return "pools channels";
      return fault_of_window(image);
    case OperatorKind::linear:
      return fault_of_parameters(op,
                                 {image.weight_in_out ? std::vector{in.elements(), out.elements()}
                                                      : std::vector{out.elements(), in.elements()},
                                  {out.elements()}},
                                 1);
    case OperatorKind::batch_norm:
      if (!(image.epsilon > 0 && image.epsilon < 1)) return fmt::format("has epsilon {}", image.epsilon);
      if (!(in == out)) return fmt::format("makes {} of {}", text_of(out), text_of(in));
      return fault_of_parameters(op, {{in.channels}, {in.channels}}, 2);
    case OperatorKind::activation:
    case OperatorKind::elementwise:
      return in.elements() == out.elements() ? "" : fmt::format("makes {} of {}", text_of(out), text_of(in));
    case OperatorKind::loss:
      return in.height == 1 && in.width == 1 ? "" : fmt::format("scores an image of {}", text_of(in));
    default:
      return fmt::format("is no operator on images: {}", name_of(op.kind));
  }
}

}  // namespace orrery
