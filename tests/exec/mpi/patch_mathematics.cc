// A vision transformer's loss and gradients against its mathematics written out in double precision
// (Dosovitskiy et al., arXiv 2010.11929, equations 1 to 4), gradients by differences of the loss along random
// directions.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "equivalence.h"
#include "exec/run/interpreter.h"
#include "program/lower/lowering.h"
#include "test_plans.h"

namespace orrery::exec::test {
namespace {

using Vector = std::vector<double>;
using Weights = std::map<std::string, Vector>;

// Rows of `width` numbers.
struct Rows {
  std::size_t width = 0;
  Vector data;
  std::size_t count() const { return data.size() / width; }
  double* row(std::size_t i) { return data.data() + i * width; }
  const double* row(std::size_t i) const { return data.data() + i * width; }
};

Rows product(const Rows& x, const Weights& w, const std::string& name) {
  const Vector& bias = w.at(name + ".bias");
  const Vector& weight = w.at(name + ".weight");
  Rows y{bias.size(), {}};
  for (std::size_t r = 0; r < x.count(); ++r)
    for (std::size_t o = 0; o < bias.size(); ++o) {
      double sum = bias[o];
      for (std::size_t i = 0; i < x.width; ++i) sum += x.row(r)[i] * weight[o * x.width + i];
      y.data.push_back(sum);
    }
  return y;
}

Rows normalised(const Rows& x, const Weights& w, const std::string& name, double epsilon) {
  Rows y{x.width, {}};
  for (std::size_t r = 0; r < x.count(); ++r) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < x.width; ++i) mean += x.row(r)[i] / static_cast<double>(x.width);
    for (std::size_t i = 0; i < x.width; ++i)
      variance += (x.row(r)[i] - mean) * (x.row(r)[i] - mean) / static_cast<double>(x.width);
    for (std::size_t i = 0; i < x.width; ++i)
      y.data.push_back((x.row(r)[i] - mean) / std::sqrt(variance + epsilon) * w.at(name + ".weight")[i] +
                       w.at(name + ".bias")[i]);
  }
  return y;
}

Rows attended(const Rows& q, const Rows& k, const Rows& v, std::size_t heads) {
  const std::size_t size = q.width / heads;
  Rows out{q.width, Vector(q.data.size())};
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t a = 0; a < q.count(); ++a) {
      Vector p(k.count());
      double sum = 0;
      for (std::size_t b = 0; b < k.count(); ++b) {
        double score = 0;
        for (std::size_t i = h * size; i < (h + 1) * size; ++i) score += q.row(a)[i] * k.row(b)[i];
        sum += p[b] = std::exp(score / std::sqrt(static_cast<double>(size)));
      }
      for (std::size_t b = 0; b < k.count(); ++b)
        for (std::size_t i = h * size; i < (h + 1) * size; ++i) out.row(a)[i] += p[b] / sum * v.row(b)[i];
    }
  return out;
}

void add(Rows& x, const Rows& y) {
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] += y.data[i];
}

// Of one picture of 3 x 12 x 12 in patches of 4 x 4.
double loss_of(const Weights& w, const std::vector<float>& picture, std::size_t label) {
  constexpr std::size_t kSide = 12, kPatch = 4, kAcross = kSide / kPatch, kHeads = 4, kLayers = 3;
  constexpr double kEpsilon = 1e-6;
  Rows cut{3 * kPatch * kPatch, {}};
  for (std::size_t up = 0; up < kAcross; ++up)
    for (std::size_t left = 0; left < kAcross; ++left)
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t r = 0; r < kPatch; ++r)
          for (std::size_t i = 0; i < kPatch; ++i)
            cut.data.push_back(
                static_cast<double>(picture[(c * kSide + up * kPatch + r) * kSide + left * kPatch + i]));
  Rows x = product(cut, w, "patches");
  x.data.insert(x.data.begin(), w.at("class_token").begin(), w.at("class_token").end());
  add(x, {x.width, w.at("positions.weight")});
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const std::string p = std::to_string(layer) + ".";
    Rows h = normalised(x, w, p + "norm1", kEpsilon);
    h = attended(product(h, w, p + "query"), product(h, w, p + "key"), product(h, w, p + "value"), kHeads);
    add(x, product(h, w, p + "proj"));
    h = product(normalised(x, w, p + "norm2", kEpsilon), w, p + "mlp_up");
    for (double& value : h.data) value *= 0.5 * std::erfc(-value / std::sqrt(2.0));
    add(x, product(h, w, p + "mlp_down"));
  }
  x.data.resize(x.width);  // the class token
  const Rows scores = product(normalised(x, w, "final_norm", kEpsilon), w, "classifier");
  double sum = 0;
  for (const double score : scores.data) sum += std::exp(score);
  return std::log(sum) - scores.data[label];
}

}  // namespace

int check_patches(Communicator& self) {
  PlanCase c;
  c.network = tiny_vit;
  c.choices.micro_batch = 4;  // two of them: gradients are added to
  const Plan plan = make_plan(c);
  const Program program = lower(plan, 0);
  const auto device = make_cpu_device();
  const ImageShape shape = plan.job->workload.operators.front().image->input;
  ImageData images("", shape, 10, plan.job->training.seed, kGlobalBatch);
  Interpreter interpreter(plan, program, *device, self, images);
  Parameters& parameters = interpreter.parameters();
  // Large enough that attention chooses, and that norms and biases say something.
  const CounterRandom random(7, 11);
  std::uint64_t next = 0;
  Weights weights;
  for (const HeldTensor& tensor : parameters.held()) {
    float* values = parameters.weights(tensor.bucket) + tensor.offset;
    for (std::int64_t i = 0; i < tensor.elements; ++i) {
      values[i] = static_cast<float>(0.4 * random.normal(next++));
      weights[tensor.name()].push_back(static_cast<double>(values[i]));
    }
  }
  std::vector<std::pair<std::vector<float>, std::size_t>> batch;
  for (int i = 0; i < kGlobalBatch; ++i) {
    std::vector<float> picture(static_cast<std::size_t>(shape.elements()));
    const auto label = static_cast<std::size_t>(images.sample(0, i, picture));
    batch.emplace_back(std::move(picture), label);
  }
  const auto loss = [&] {
    double sum = 0;
    for (const auto& [picture, label] : batch) sum += loss_of(weights, picture, label);
    return sum / kGlobalBatch;
  };
  const double expected = loss();
  interpreter.run_step(0);
  const double got = interpreter.loss_sum() / kGlobalBatch;
  int faults = std::abs(got - expected) <= 1e-5 * expected ? 0 : 1;
  fmt::print("loss {} as written out {}\n", got, expected);
  for (const HeldTensor& tensor : parameters.held()) {
    Vector& values = weights.at(tensor.name());
    const Vector before = values;
    const float* gradient = parameters.gradients(tensor.bucket) + tensor.offset;
    double length = 0, worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      length += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    length = std::sqrt(length);
    for (int way = 0; way < 4; ++way) {
      constexpr double kStep = 1e-4;
      Vector direction(values.size());
      double along = 0, up = 0, down = 0, norm = 0;
      for (double& d : direction) {
        d = random.normal(next++);
        norm += d * d;
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        direction[i] /= std::sqrt(norm);
        along += direction[i] * static_cast<double>(gradient[i]);
        values[i] = before[i] + kStep * direction[i];
      }
      up = loss();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] - kStep * direction[i];
      down = loss();
      worst = std::max(worst, std::abs(along - (up - down) / (2 * kStep)));
    }
    values = before;
    // Keys' biases move no probability: their gradient is rounding.
    const double tolerance = 2e-5 * length + 2e-7;
    const bool good = worst <= tolerance && (length > 1e-4 || tensor.name().ends_with("key.bias"));
    faults += good ? 0 : 1;
    fmt::print("{} {}: gradient of norm {:.3g}, along directions {:.1e} off\n", good ? "ok  " : "FAIL",
               tensor.name(), length, worst);
  }
  return faults;
}

}  // namespace orrery::exec::test
