#include "workloads/graph_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "proto/field_check.h"
#include "proto/workload.pb.h"
#include "workloads/checks.h"
#include "workloads/fine_tuning_internal.h"
#include "workloads/graph_layers.h"
#include "workloads/graph_split.h"
#include "workloads/image_operator.h"
#include "workloads/layer_graph.h"

namespace orrery::internal {
namespace {

constexpr int kMaxOperators = 100'000;
constexpr double kMaxFigure = 1e15;  // elements, rows, columns of one operator
constexpr double kMaxFlops = 1e18;   // of one operator and sample

constexpr std::array<std::pair<std::string_view, OperatorKind>, 10> kGraphKinds = {{
    {"activation", OperatorKind::activation},
    {"batch_norm", OperatorKind::batch_norm},
    {"conv", OperatorKind::conv},
    {"elementwise", OperatorKind::elementwise},
    {"embedding", OperatorKind::embedding},
    {"interaction", OperatorKind::interaction},
    {"linear", OperatorKind::linear},
    {"loss", OperatorKind::loss},
    {"norm", OperatorKind::norm},
    {"pool", OperatorKind::pool},
}};

class GraphReader {
 public:
  GraphReader(const proto::Graph& graph, const FieldCheck& at) : graph_(graph), at_(at) {}

  Operator read(int index) const {
    const proto::GraphOperator& p = graph_.operators(index);
    Operator op;
    op.name = p.name();
    if (op.name.empty()) fail(index, "has no name", "expected a name");
    op.kind = kind_of(index, p.kind());
    op.keeps_input = !p.input_not_kept();
    if (p.layer() < 0) fail(index, fmt::format("layer: {}", p.layer()), "expected 0 (found) or 1 and up");
    for (const int input : p.inputs()) {
      if (input < 0 || input >= graph_.operators_size())
        fail(index, fmt::format("inputs: {} is no operator", input),
             fmt::format("expected 0 to {}", graph_.operators_size() - 1));
      op.inputs.push_back(input);
    }
    for (const proto::ParameterTensor& tensor : p.parameters())
      op.parameters.push_back(parameter(index, tensor));
    op.output_elements = figure(index, "output_elements", p.output_elements());
    op.saved_elements = figure(index, "saved_elements", p.saved_elements());
    const double factor = p.vector_bytes_factor();
    if (!(factor >= 0 && factor <= 1e9))
      fail(index, fmt::format("vector_bytes_factor: {}", factor), "expected 0 and up");
    op.vector_elements = std::round(factor * static_cast<double>(op.output_elements));
    if (p.n() != 0 || p.k() != 0 || p.rows() != 0) op.matmuls.push_back(product(index, p));
    if (p.has_image()) op.image = image(index, p.image());
    if (p.has_sparse()) op.sparse = sparse(index, op, p.sparse());
    return op;
  }

  [[noreturn]] void fail(int index, std::string_view what, std::string_view expected) const {
    at_.inside("operators", index)
        .fail("name", fmt::format("operator {} '{}' {}", index, graph_.operators(index).name(), what),
              expected);
  }

 private:
  OperatorKind kind_of(int index, const std::string& name) const {
    for (const auto& [known, kind] : kGraphKinds)
      if (known == name) return kind;
    std::vector<std::string_view> known;
    for (const auto& entry : kGraphKinds) known.push_back(entry.first);
    fail(index, fmt::format("kind: '{}' is not known", name),
         fmt::format("expected one of {}", fmt::join(known, " ")));
  }

  std::int64_t figure(int index, std::string_view field, double value) const {
    if (!(value >= 0 && value <= kMaxFigure) || value != std::floor(value))
      fail(index, fmt::format("{}: {}", field, value),
           fmt::format("expected a whole number up to {:.0g}", kMaxFigure));
    return static_cast<std::int64_t>(value);
  }

  MatmulShape product(int index, const proto::GraphOperator& p) const {
    MatmulShape m;
    m.n = figure(index, "n", p.n());
    m.k = figure(index, "k", p.k());
    m.groups = std::max<std::int64_t>(1, figure(index, "groups", p.groups()));
    m.rows_per_row = p.rows() == 0 ? 1 : p.rows();
    if (m.n == 0 || m.k == 0) fail(index, "has a product without n or k", "expected both");
    if (!(m.rows_per_row > 0 && m.rows_per_row <= kMaxFigure))
      fail(index, fmt::format("rows: {}", p.rows()), "expected a positive number");
    if (m.n % m.groups != 0)
      fail(index, fmt::format("groups: {} does not divide n {}", m.groups, m.n), "expected a divisor of n");
    if (2 * m.rows_per_row * static_cast<double>(m.n) * static_cast<double>(m.k) > kMaxFlops)
      fail(index, "has a product too large for any machine",
           fmt::format("expected at most {:.0g} FLOPs a sample", kMaxFlops));
    return m;
  }

  SparseGradient sparse(int index, const Operator& op, const proto::SparseGradient& p) const {
    if (op.kind != OperatorKind::embedding || op.parameters.size() != 1 || op.parameters[0].shape.size() != 2)
      fail(index, fmt::format("sparse, of a {}", name_of(op.kind)), "expected it on a table of rows");
    if (!op.parameters[0].tied_to.empty()) fail(index, "sparse, of a tied table", "expected one of its own");
    SparseGradient gradient;
    if (p.rows_per_sample() != 0) gradient.rows_per_sample = p.rows_per_sample();
    gradient.share = p.share();
    if (!(gradient.rows_per_sample > 0 && gradient.rows_per_sample <= kMaxFigure))
      fail(index, fmt::format("sparse.rows_per_sample: {}", p.rows_per_sample()),
           "expected a positive number");
    if (!(gradient.share >= 0 && gradient.share <= 1))
      fail(index, fmt::format("sparse.share: {}", p.share()), "expected 0 to 1");
    return gradient;
  }

  ImageShape image_shape(int index, std::string_view field,
                         const google::protobuf::RepeatedField<std::int64_t>& sizes) const {
    if (sizes.size() != 3)
      fail(index, fmt::format("{}: {} sizes", field, sizes.size()), "expected channels, height and width");
    return {sizes[0], sizes[1], sizes[2]};
  }

  std::array<int, 2> window(int index, std::string_view field,
                            const google::protobuf::RepeatedField<std::int32_t>& sizes, int otherwise) const {
    if (sizes.empty()) return {otherwise, otherwise};
    if (sizes.size() != 2)
      fail(index, fmt::format("{}: {} sizes", field, sizes.size()), "expected rows and columns");
    return {sizes[0], sizes[1]};
  }

  ImageOperator image(int index, const proto::ImageOperator& p) const {
    ImageOperator image;
    image.input = image_shape(index, "image.input", p.input());
    image.output = image_shape(index, "image.output", p.output());
    image.kernel = window(index, "image.kernel", p.kernel(), 1);
    image.stride = window(index, "image.stride", p.stride(), 1);
    image.padding = window(index, "image.padding", p.padding(), 0);
    image.dilation = window(index, "image.dilation", p.dilation(), 1);
    image.average = p.average();
    image.weight_in_out = p.weight_in_out();
    if (p.epsilon() != 0) image.epsilon = p.epsilon();
    if (!(p.dropout() >= 0 && p.dropout() <= kMostDropout))
      fail(index, fmt::format("image.dropout {}", p.dropout()),
           fmt::format("expected 0 to {}", kMostDropout));
    image.dropout = p.dropout();
    image.sequence = p.sequence();
    if (p.heads() < 0) fail(index, fmt::format("image.heads {}", p.heads()), "expected 0 and up");
    image.heads = p.heads();
    image.activation = p.activation().empty() ? Activation::relu : activation_from(index, p.activation());
    return image;
  }

  Activation activation_from(int index, const std::string& name) const {
    for (const Activation known :
         {Activation::relu, Activation::gelu, Activation::gelu_erf, Activation::silu})
      if (name == name_of(known)) return known;
    fail(index, fmt::format("image.activation: '{}' is not known", name),
         "expected relu, gelu, gelu_erf or silu");
  }

  ParameterTensor parameter(int index, const proto::ParameterTensor& p) const {
    ParameterTensor tensor;
    tensor.name = p.name();
    tensor.tied_to = p.tied_to();
    double elements = 1;
    for (const std::int64_t size : p.shape()) {
      if (size < 1)
        fail(index, fmt::format("parameter '{}' has dimension {}", p.name(), size), "expected 1 and up");
      elements *= static_cast<double>(size);
      tensor.shape.push_back(size);
    }
    if (elements > kMaxFigure)
      fail(index, fmt::format("parameter '{}' has {:.3g} elements", p.name(), elements),
           fmt::format("expected at most {:.0g}", kMaxFigure));
    return tensor;
  }

  const proto::Graph& graph_;
  const FieldCheck& at_;
};

}  // namespace

void read_graph(const proto::Graph& message, const FieldCheck& at, Workload* workload) {
  if (message.operators_size() == 0) at.fail("operators", "graph has no operators", "expected at least one");
  if (message.operators_size() > kMaxOperators)
    throw UserError(at.file(), 0, fmt::format("graph has {} operators", message.operators_size()),
                    fmt::format("expected at most {}", kMaxOperators));
  const GraphReader reader(message, at);
  std::vector<Operator>& operators = workload->operators;
  double parameters = 0;
  for (int i = 0; i < message.operators_size(); ++i) {
    operators.push_back(reader.read(i));
    for (const ParameterTensor& tensor : operators.back().parameters)
      parameters += static_cast<double>(tensor.elements());
    if (parameters > 1e17)
      reader.fail(i, "makes the model too large", "expected at most 1e17 parameters in all");
  }
  if (const std::vector<int> cycle = find_cycle(operators); !cycle.empty()) {
    std::vector<std::string_view> names;
    for (const int v : cycle) names.push_back(operators[v].name);
    reader.fail(cycle.front(), fmt::format("is on a cycle: {}", fmt::join(names, " -> ")),
                "expected no cycle");
  }
  std::map<std::string_view, const ParameterTensor*> owners;
  for (int i = 0; i < message.operators_size(); ++i)
    for (const ParameterTensor& tensor : operators[i].parameters) {
      if (tensor.tied_to.empty()) {
        owners.emplace(tensor.name, &tensor);
        continue;
      }
      const auto owner = owners.find(tensor.tied_to);
      if (owner == owners.end() || owner->second->shape != tensor.shape)
        reader.fail(i, fmt::format("parameter '{}' is tied to '{}'", tensor.name, tensor.tied_to),
                    "expected a tensor of an operator before it, of the same shape");
    }
  const int frozen = message.frozen_layers();
  const auto freeze = [&] {
    if (frozen < 0 || frozen > workload->layers)
      at.fail("frozen_layers", fmt::format("frozen_layers: {}", frozen),
              fmt::format("expected 0 to {}", workload->layers));
    if (frozen > 0) freeze_layers(frozen, workload);
  };
  bool numbered = false;
  for (int i = 0; i < message.operators_size(); ++i) {
    for (const int input : operators[i].inputs)
      if (input >= i)
        reader.fail(i, fmt::format("reads operator {}, which stands after it", input),
                    "expected topological order");
    if (operators[i].image)
      if (const std::string fault = fault_of_image(operators, i); !fault.empty())
        reader.fail(i, fault, "expected what its inputs, window and parameters make");
    const std::string& split = message.operators(i).split();
    if (!split.empty() && split != "column" && split != "row" && split != "table")
      reader.fail(i, fmt::format("split: '{}'", split), "expected column, row or table");
    if (!split.empty()) {
      const TensorSplit way = split == "row"     ? TensorSplit::row
                              : split == "table" ? TensorSplit::table
                                                 : TensorSplit::column;
      if (!can_be_split(operators[i], way))
        reader.fail(
            i, fmt::format("split: {}, of a {}", split, name_of(operators[i].kind)),
            "expected column or row of a linear or conv of one group with a weight, or of a table; or "
            "table of a table");
      set_split(&operators[i], way);
    }
    numbered = numbered || message.operators(i).layer() > 0;
  }
  if (const int fault = complete_splits(&operators); fault >= 0)
    reader.fail(fault, "split: row, of whole features",
                "expected an input split by column that nothing else reads whole");
  if (!numbered) {
    workload->layers = assign_layers(&operators);
    return freeze();
  }
  int last = 0;
  for (int i = 0; i < message.operators_size(); ++i) {
    const int layer = message.operators(i).layer() - 1;
    if (layer < last || layer > last + 1)
      reader.fail(i, fmt::format("layer: {} after {}", layer + 1, last + 1), "expected the same or the next");
    operators[i].layer = last = layer;
  }
  workload->layers = last + 1;
  freeze();
}

namespace {

void write_image(const ImageOperator& image, proto::ImageOperator* message) {
  for (const std::int64_t size : {image.input.channels, image.input.height, image.input.width})
    message->add_input(size);
  for (const std::int64_t size : {image.output.channels, image.output.height, image.output.width})
    message->add_output(size);
  for (std::size_t d = 0; d < 2; ++d) {
    message->add_kernel(image.kernel[d]);
    message->add_stride(image.stride[d]);
    message->add_padding(image.padding[d]);
    message->add_dilation(image.dilation[d]);
  }
  message->set_average(image.average);
  message->set_weight_in_out(image.weight_in_out);
  message->set_epsilon(image.epsilon);
  message->set_dropout(image.dropout);
  message->set_sequence(image.sequence);
  message->set_heads(image.heads);
  if (image.activation != Activation::relu) message->set_activation(std::string(name_of(image.activation)));
}

}  // namespace

void write_graph(const Workload& workload, proto::Graph* message) {
  message->set_frozen_layers(workload.frozen_layers);
  for (const Operator& op : workload.operators) {
    proto::GraphOperator* p = message->add_operators();
    p->set_name(op.name);
    p->set_kind(std::string(name_of(op.kind)));
    for (const int input : op.inputs) p->add_inputs(input);
    for (const auto* tensors : {&op.parameters, &op.frozen})
      for (const ParameterTensor& tensor : *tensors) {
        proto::ParameterTensor* t = p->add_parameters();
        t->set_name(tensor.name);
        t->set_tied_to(tensor.tied_to);
        for (const std::int64_t size : tensor.shape) t->add_shape(size);
      }
    ORRERY_CHECK(op.matmuls.size() <= 1, "an operator of a graph has one product: " + op.name);
    for (const MatmulShape& m : op.matmuls) {
      p->set_rows(m.rows_per_row);
      p->set_n(static_cast<double>(m.n));
      p->set_k(static_cast<double>(m.k));
      p->set_groups(static_cast<double>(m.groups));
    }
    if (op.image) write_image(*op.image, p->mutable_image());
    p->set_output_elements(static_cast<double>(op.output_elements));
    p->set_saved_elements(static_cast<double>(op.saved_elements));
    if (op.output_elements > 0)
      p->set_vector_bytes_factor(op.vector_elements / static_cast<double>(op.output_elements));
    p->set_input_not_kept(!op.keeps_input);
    if (op.split != TensorSplit::replicated && can_be_split(op))
      p->set_split(op.split == TensorSplit::row     ? "row"
                   : op.split == TensorSplit::table ? "table"
                                                    : "column");
    if (op.sparse) {
      p->mutable_sparse()->set_rows_per_sample(op.sparse->rows_per_sample);
      p->mutable_sparse()->set_share(op.sparse->share);
    }
    p->set_layer(op.layer + 1);
  }
}

}  // namespace orrery::internal
