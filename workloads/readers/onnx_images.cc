// What the operators of an ONNX model compute on images, where this is known.
#include "workloads/image_operator.h"
#include "workloads/readers/onnx_importer.h"

namespace orrery::internal {

std::optional<ImageShape> OnnxImporter::image_of(const std::string& value) const {
  const auto at = shapes_.find(value);
  if (at == shapes_.end() || at->second.empty() || at->second.front() != batch_) return {};
  const Dims& dims = at->second;
  if (dims.size() == 2) return ImageShape{dims[1], 1, 1};
  if (dims.size() == 4) return ImageShape{dims[1], dims[2], dims[3]};
  return {};
}

std::optional<ImageOperator> OnnxImporter::image_operator(const onnx::NodeProto& node) const {
  const auto in = image_of(node.input(0));
  const auto out = image_of(node.output(0));
  const bool known = producer(node.input(0)) >= 0 || real_inputs_.count(node.input(0)) != 0;
  if (!in || !out || !known) return {};
  ImageOperator image;
  image.input = *in;
  image.output = *out;
  return image;
}

bool OnnxImporter::read_pair(const onnx::NodeProto& node, std::string_view name, std::array<int, 2>* pair) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  if (a == nullptr) return true;
  if (a->ints_size() < 2) return false;
  for (int d = 0; d < 2; ++d) {
    if (a->ints(d) < 0 || a->ints(d) > (1 << 20)) return false;
    (*pair)[static_cast<std::size_t>(d)] = static_cast<int>(a->ints(d));
  }
  return true;
}

std::optional<ImageOperator> OnnxImporter::windowed(const onnx::NodeProto& node) const {
  auto image = image_operator(node);
  if (!image || shape(node, node.input(0)).size() != 4) return {};
  const onnx::AttributeProto* automatic = find_attribute(node, "auto_pad");
  if (automatic != nullptr && automatic->s() != "NOTSET") return {};
  const bool read = read_pair(node, "kernel_shape", &image->kernel) &&
                    read_pair(node, "strides", &image->stride) && read_pair(node, "pads", &image->padding) &&
                    read_pair(node, "dilations", &image->dilation);
  return read ? image : std::nullopt;
}

std::optional<ImageOperator> OnnxImporter::pooled(const onnx::NodeProto& node) const {
  const std::string& type = node.op_type();
  if (type == "GlobalAveragePool") {
    auto image = image_operator(node);
    if (!image) return {};
    image->kernel = {static_cast<int>(image->input.height), static_cast<int>(image->input.width)};
    image->stride = image->kernel;
    image->average = true;
    return image;
  }
  if (type != "MaxPool" && type != "AveragePool") return {};
  auto image = windowed(node);
  if (!image) return {};
  image->average = type == "AveragePool";
  const bool padded = image->padding[0] > 0 || image->padding[1] > 0;
  if (image->average && padded && attribute(node, "count_include_pad", 0) != 0) return {};
  return image;
}

std::optional<ImageOperator> OnnxImporter::multiplied(const onnx::NodeProto& node) const {
  auto image = image_operator(node);
  if (!image || weight(node, 0) != nullptr || weight(node, 1) == nullptr) return {};
  if (shape(node, node.output(0)).size() != 2) return {};
  if (node.op_type() == "MatMul") {
    image->weight_in_out = true;
    return image;
  }
  for (const char* factor : {"alpha", "beta"})
    if (const auto* a = find_attribute(node, factor); a != nullptr && a->f() != 1) return {};
  if (attribute(node, "transA", 0) != 0) return {};
  image->weight_in_out = attribute(node, "transB", 0) == 0;
  return image;
}

std::optional<ImageOperator> OnnxImporter::element_by_element(const onnx::NodeProto& node) const {
  if (node.op_type() == "Relu") return image_operator(node);
  if (node.op_type() != "Add" || node.input_size() != 2) return {};
  if (producer(node.input(0)) < 0 || producer(node.input(1)) < 0) return {};
  const auto other = image_of(node.input(1));
  auto image = image_operator(node);
  return image && other && *other == image->input ? image : std::nullopt;  // no broadcast
}

void OnnxImporter::forget_impossible_images() {
  for (std::size_t i = 0; i < operators_.size(); ++i)
    if (operators_[i].image && !fault_of_image(operators_, static_cast<int>(i)).empty())
      operators_[i].image.reset();
}

}  // namespace orrery::internal
