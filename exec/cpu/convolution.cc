#include "exec/cpu/convolution.h"

#include <array>
#include <dnnl.hpp>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orrery::exec::cpu {
namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;

constexpr std::size_t kAlignment = 64;

enum class Direction : std::uint8_t { forward, backward_input, backward_weight };

// The shapes in oneDNN's words.
struct Shapes {
  Dims x, weight, bias, y, strides, dilation, before, after;
  Tag weight_tag;
};

Shapes shapes_of(const WindowSize& size) {
  const ImageOperator& image = size.image;
  Shapes s;
  s.x = {size.batch, image.input.channels, image.input.height, image.input.width};
  s.y = {size.batch, image.output.channels, image.output.height, image.output.width};
  s.bias = {image.output.channels};
  s.weight = {image.output.channels / size.groups, image.input.channels / size.groups, image.kernel[0],
              image.kernel[1]};
  s.weight_tag = Tag::oihw;
  if (size.groups > 1) {
    s.weight.insert(s.weight.begin(), size.groups);
    s.weight_tag = Tag::goihw;
  }
  for (std::size_t d = 0; d < 2; ++d) {
    s.strides.push_back(image.stride[d]);
    s.dilation.push_back(image.dilation[d] - 1);
    s.before.push_back(image.padding[d]);
    s.after.push_back((s.y[2 + d] - 1) * image.stride[d] + (image.kernel[d] - 1) * image.dilation[d] + 1 -
                      s.x[2 + d] - image.padding[d]);
  }
  return s;
}

Desc plain(const Dims& dims, Tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

Desc best(const Dims& dims) {
  return {dims, dnnl::memory::data_type::f32, Tag::any};
}

// One convolution in one direction: from the caller's layouts to oneDNN's and back.
class Primitive {
 public:
  Primitive(const dnnl::engine& engine, const WindowSize& size, Direction direction, bool with_bias) {
    const Shapes s = shapes_of(size);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const Desc x = plain(s.x, Tag::nchw);
    const Desc y = plain(s.y, Tag::nchw);
    const Desc weight = plain(s.weight, s.weight_tag);
    const Desc bias = with_bias ? plain(s.bias, Tag::x) : Desc();
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, best(s.x), best(s.weight), bias, best(s.y), s.strides,
         s.dilation, s.before, s.after},
        attributes, engine);
    switch (direction) {
      case Direction::forward:
        primitive_ = dnnl::convolution_forward(forward);
        scratchpad_ = forward.scratchpad_desc();
        add(DNNL_ARG_SRC, x, forward.src_desc());
        add(DNNL_ARG_WEIGHTS, weight, forward.weights_desc());
        if (with_bias) add(DNNL_ARG_BIAS, bias, bias);
        add(DNNL_ARG_DST, y, forward.dst_desc(), /*result=*/true);
        break;
      case Direction::backward_input: {
        const dnnl::convolution_backward_data::primitive_desc backward(
            {algorithm, best(s.x), best(s.weight), best(s.y), s.strides, s.dilation, s.before, s.after},
            attributes, engine, forward);
        primitive_ = dnnl::convolution_backward_data(backward);
        scratchpad_ = backward.scratchpad_desc();
        add(DNNL_ARG_DIFF_DST, y, backward.diff_dst_desc());
        add(DNNL_ARG_WEIGHTS, weight, backward.weights_desc());
        add(DNNL_ARG_DIFF_SRC, x, backward.diff_src_desc(), /*result=*/true);
        break;
      }
      case Direction::backward_weight: {
        const dnnl::convolution_backward_weights::primitive_desc backward(
            {algorithm, best(s.x), best(s.weight), bias, best(s.y), s.strides, s.dilation, s.before, s.after},
            attributes, engine, forward);
        primitive_ = dnnl::convolution_backward_weights(backward);
        scratchpad_ = backward.scratchpad_desc();
        add(DNNL_ARG_SRC, x, backward.src_desc());
        add(DNNL_ARG_DIFF_DST, y, backward.diff_dst_desc());
        add(DNNL_ARG_DIFF_WEIGHTS, weight, backward.diff_weights_desc(), /*result=*/true);
        if (with_bias) add(DNNL_ARG_DIFF_BIAS, bias, bias, /*result=*/true);
        break;
      }
    }
    scratchpad_at_ = take(scratchpad_.get_size());
  }

  std::size_t scratch_bytes() const { return scratch_bytes_; }

  // `data`: the caller's arrays, in the order in which the constructor adds them.
  void run(const dnnl::engine& engine, dnnl::stream& stream, const std::vector<float*>& data,
           std::byte* scratch) const {
    std::unordered_map<int, dnnl::memory> arguments;
    const auto memory_of = [&](const Argument& argument, std::size_t i) {
      return dnnl::memory(argument.given, engine, data[i]);
    };
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& argument = arguments_[i];
      dnnl::memory given = memory_of(argument, i);
      if (argument.given == argument.wanted) {
        arguments[argument.name] = given;
        continue;
      }
      dnnl::memory wanted(argument.wanted, engine, scratch + argument.scratch_at);
      if (!argument.result) dnnl::reorder(given, wanted).execute(stream, given, wanted);
      arguments[argument.name] = wanted;
    }
    arguments[DNNL_ARG_SCRATCHPAD] = dnnl::memory(scratchpad_, engine, scratch + scratchpad_at_);
    primitive_.execute(stream, arguments);
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& argument = arguments_[i];
      if (!argument.result || argument.given == argument.wanted) continue;
      dnnl::memory given = memory_of(argument, i);
      dnnl::reorder(arguments[argument.name], given).execute(stream, arguments[argument.name], given);
    }
    stream.wait();
  }

 private:
  struct Argument {
    int name = 0;
    Desc given, wanted;
    bool result = false;
    std::size_t scratch_at = 0;
  };

  void add(int name, const Desc& given, const Desc& wanted, bool result = false) {
    arguments_.push_back({name, given, wanted, result, 0});
    if (!(given == wanted)) arguments_.back().scratch_at = take(wanted.get_size());
  }
  std::size_t take(std::size_t bytes) {
    const std::size_t at = scratch_bytes_;
    scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  dnnl::primitive primitive_;
  Desc scratchpad_;
  std::vector<Argument> arguments_;
  std::size_t scratchpad_at_ = 0;
  std::size_t scratch_bytes_ = 0;
};

using PrimitiveKey = std::array<std::int64_t, 17>;

PrimitiveKey key_of(const WindowSize& size, Direction direction, bool with_bias) {
  const ImageOperator& i = size.image;
  return {static_cast<std::int64_t>(direction),
          with_bias ? 1 : 0,
          size.batch,
          size.groups,
          i.input.channels,
          i.input.height,
          i.input.width,
          i.output.channels,
          i.output.height,
          i.output.width,
          i.kernel[0] * std::int64_t{1 << 16} + i.kernel[1],
          i.stride[0],
          i.stride[1],
          i.padding[0],
          i.padding[1],
          i.dilation[0],
          i.dilation[1]};
}

float* mutable_data(const float* data) {
  return const_cast<float*>(data);  // NOLINT: oneDNN's memory objects have no constant form
}

}  // namespace

struct Convolutions::Library {
  explicit Library(Device& d) : device(d) {}
  ~Library() { device.release(scratch); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void run(const WindowSize& size, Direction direction, bool with_bias, const std::vector<float*>& data) {
    auto& primitive = primitives[key_of(size, direction, with_bias)];
    if (!primitive) primitive = std::make_unique<Primitive>(engine, size, direction, with_bias);
    reserve(primitive->scratch_bytes());
    primitive->run(engine, stream, data, static_cast<std::byte*>(scratch));
  }

  void reserve(std::size_t bytes) {
    if (bytes <= scratch_bytes) return;
    device.release(std::exchange(scratch, nullptr));
    scratch = device.allocate(bytes);
    scratch_bytes = bytes;
  }

  Device& device;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<PrimitiveKey, std::unique_ptr<Primitive>> primitives;
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  std::vector<float> sums;  // gradients that are to be added to others
};

Convolutions::Convolutions(Device& device) : device_(device) {}
Convolutions::~Convolutions() = default;

Convolutions::Library& Convolutions::library() {
  if (!library_) library_ = std::make_unique<Library>(device_);
  return *library_;
}

void Convolutions::forward(const WindowSize& size, const float* x, const float* weight, const float* bias,
                           float* y) {
  if (size.batch == 0) return;
  std::vector<float*> data = {mutable_data(x), mutable_data(weight)};
  if (bias != nullptr) data.push_back(mutable_data(bias));
  data.push_back(y);
  library().run(size, Direction::forward, bias != nullptr, data);
}

void Convolutions::backward_input(const WindowSize& size, const float* dy, const float* weight, float* dx) {
  if (size.batch == 0) return;
  library().run(size, Direction::backward_input, false, {mutable_data(dy), mutable_data(weight), dx});
}

void Convolutions::backward_weight(const WindowSize& size, const float* x, const float* dy, float* dweight,
                                   float* dbias, bool accumulate) {
  if (size.batch == 0) return;
  std::vector<float*> data = {mutable_data(x), mutable_data(dy), dweight};
  if (dbias != nullptr) data.push_back(dbias);
  if (!accumulate) {
    library().run(size, Direction::backward_weight, dbias != nullptr, data);
    return;
  }
  const ImageOperator& image = size.image;
  const auto weights = static_cast<std::size_t>(image.output.channels * image.input.channels / size.groups *
                                                image.kernel[0] * image.kernel[1]);
  const auto biases = static_cast<std::size_t>(image.output.channels);
  std::vector<float>& sums = library().sums;
  sums.resize(std::max(sums.size(), weights + biases));
  data[2] = sums.data();
  if (dbias != nullptr) data[3] = sums.data() + weights;
  library().run(size, Direction::backward_weight, dbias != nullptr, data);
  device_.add(dweight, sums.data(), weights);
  if (dbias != nullptr) device_.add(dbias, sums.data() + weights, biases);
}

}  // namespace orrery::exec::cpu
