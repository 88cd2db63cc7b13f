// Fine-tuning held to its mathematics. A model with adapters is the model whose weights are the sum of both:
// its loss is that one's, and its gradients follow from that one's gradient G of each weight, outputs x
// inputs. LoRA, W + s B A (arXiv 2106.09685): dA = s B^T G, dB = s G A^T. DoRA, m / |V| V with V = W + s B A
// and the length taken as constant (arXiv 2402.09353, section 4.3): the same of G m / |V|, and dm = sum of G
// V / |V| over the inputs. Weights without adapters have G, frozen ones stay.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "equivalence.h"
#include "exec/run/interpreter.h"
#include "program/lower/lowering.h"
#include "test_plans.h"

namespace orrery::exec::test {
namespace {

constexpr int kBefore = 3;  // steps of training
// Of what B begins with instead of zero, and of the step that is looked at: so that changes are far above
// what a weight in fp32 resolves.
constexpr double kB = 0.1, kRate = 10;
constexpr double kTolerance = 5e-4;
constexpr double kRounding = 6e-8;  // of a weight in fp32, which its change is read from

using Doubles = std::vector<double>;

// A model as it is trained on one rank.
class Trained {
 public:
  Trained(const PlanCase& c, Communicator& self)
      : plan_(make_plan(c)),
        program_(lower(plan_, 0)),
        device_(make_cpu_device()),
        text_(kDefaultText, kSeqLen, plan_.job->training.seed),
        interpreter_(plan_, program_, *device_, self, text_) {}

  double step(int number) {
    interpreter_.run_step(number);
    return interpreter_.loss_sum();
  }
  const std::vector<Operator>& operators() const { return plan_.job->workload.operators; }
  double scale() const { return plan_.job->workload.transformer->fine_tuning.scale(); }
  double rate() const { return parameters().learning_rate(); }
  Parameters& parameters() { return interpreter_.parameters(); }
  const Parameters& parameters() const { return const_cast<Trained*>(this)->interpreter_.parameters(); }

  Doubles values(const HeldTensor& tensor) const {
    std::vector<float> all;
    if (tensor.frozen) {
      all = parameters().frozen().values(tensor, {0, tensor.elements});
    } else {
      const float* from = parameters().weights(tensor.bucket) + tensor.offset;
      all.assign(from, from + tensor.elements);
    }
    return {all.begin(), all.end()};
  }
  void set(const HeldTensor& tensor, const Doubles& to) {
    float* into = parameters().weights(tensor.bucket) + tensor.offset;
    for (std::size_t i = 0; i < to.size(); ++i) into[i] = static_cast<float>(to[i]);
  }

 private:
  Plan plan_;
  Program program_;
  std::unique_ptr<Device> device_;
  TextData text_;
  Interpreter interpreter_;
};

// Outputs x inputs, whichever way it is stored.
Doubles turned(const Doubles& stored, bool out_by_in, std::size_t out, std::size_t in) {
  if (out_by_in) return stored;
  Doubles result(stored.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t k = 0; k < in; ++k) result[o * in + k] = stored[k * out + o];
  return result;
}
Doubles turned_back(const Doubles& matrix, bool out_by_in, std::size_t out, std::size_t in) {
  return turned(matrix, out_by_in, in, out);
}

// a (n x k) times b (k x m).
Doubles product(const Doubles& a, const Doubles& b, std::size_t n, std::size_t k, std::size_t m) {
  Doubles result(n * m, 0.0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t l = 0; l < k; ++l)
      for (std::size_t j = 0; j < m; ++j) result[i * m + j] += a[i * k + l] * b[l * m + j];
  return result;
}
Doubles transposed(const Doubles& a, std::size_t rows, std::size_t columns) {
  return turned(a, false, columns, rows);
}

double norm(const Doubles& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}
Doubles difference(const Doubles& a, const Doubles& b) {
  Doubles result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

// An adapter with the weight that it stands beside.
struct Pair {
  const HeldTensor *weight = nullptr, *a = nullptr, *b = nullptr, *magnitude = nullptr;
  bool out_by_in = true;
  std::size_t out = 0, in = 0, rank = 0;
};

std::vector<Pair> pairs_of(const Trained& tuned) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < tuned.operators().size(); ++i) {
    const Operator& op = tuned.operators()[i];
    const auto index = static_cast<int>(i);
    int next = 0;
    for (const LowRankAdapter& adapter : op.adapters) {
      Pair pair;
      pair.weight = tuned.parameters().frozen().find(index, adapter.weight);
      pair.a = tuned.parameters().find(index, next++);
      pair.b = tuned.parameters().find(index, next++);
      if (adapter.magnitude) pair.magnitude = tuned.parameters().find(index, next++);
      pair.out_by_in = is_out_by_in(op, *pair.weight->tensor);
      pair.rank = static_cast<std::size_t>(pair.a->shape[0]);
      pair.in = static_cast<std::size_t>(pair.a->shape[1]);
      pair.out = static_cast<std::size_t>(pair.b->shape[0]);
      pairs.push_back(pair);
    }
  }
  return pairs;
}

// What a pair says at one time.
struct Snapshot {
  Doubles weight, a, b, magnitude;  // the weight outputs x inputs
  Doubles sum, lengths;             // W + s B A, and of each of its outputs the length

  Snapshot(const Trained& tuned, const Pair& pair)
      : weight(turned(tuned.values(*pair.weight), pair.out_by_in, pair.out, pair.in)),
        a(tuned.values(*pair.a)),
        b(tuned.values(*pair.b)) {
    if (pair.magnitude != nullptr) magnitude = tuned.values(*pair.magnitude);
    sum = product(b, a, pair.out, pair.rank, pair.in);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = weight[i] + tuned.scale() * sum[i];
    for (std::size_t o = 0; o < pair.out; ++o)
      lengths.push_back(norm({sum.begin() + static_cast<std::ptrdiff_t>(o * pair.in),
                              sum.begin() + static_cast<std::ptrdiff_t>((o + 1) * pair.in)}));
  }
  double factor(std::size_t o) const { return magnitude.empty() ? 1 : magnitude[o] / lengths[o]; }
  Doubles merged(std::size_t in) const {
    Doubles result = sum;
    for (std::size_t i = 0; i < result.size(); ++i) result[i] *= factor(i / in);
    return result;
  }
};

class Check {
 public:
  explicit Check(std::string name) : name_(std::move(name)) {}
  void near(const std::string& what, double seen, double expected, double tolerance) {
    worst_ = std::max(worst_, std::abs(seen / expected - 1));
    if (!(std::abs(seen - expected) <= tolerance * std::abs(expected)))
      fault_ = fmt::format("{}: {} instead of {}", what, seen, expected);
  }
  // What a gradient made of a tensor in a step.
  void near(const std::string& what, const Doubles& before, const Doubles& after, const Doubles& gradient,
            double rate) {
    Doubles expected = gradient;
    for (double& x : expected) x *= -rate;
    const double least = norm(expected);
    const double error = norm(difference(difference(after, before), expected));
    worst_ = std::max(worst_, error / least);
    if (!(least > 0 && error <= kTolerance * least + kRounding * norm(before)))
      fault_ = fmt::format("{}: off by {} of its norm", what, error / least);
  }
  int done() const {
    fmt::print("{:40} {}\n", name_, fault_.empty() ? fmt::format("within {:.1e}", worst_) : fault_);
    return fault_.empty() ? 0 : 1;
  }

 private:
  std::string name_, fault_;
  double worst_ = 0;
};

void check_pair(const Trained& tuned, const Pair& pair, const Snapshot& before, const Doubles& of_weight,
                Check* check) {
  const double s = tuned.scale(), rate = tuned.rate();
  Doubles direction = of_weight, of_magnitude(pair.out, 0.0);
  for (std::size_t i = 0; i < direction.size(); ++i) {
    const std::size_t o = i / pair.in;
    of_magnitude[o] += of_weight[i] * before.sum[i] / before.lengths[o];
    direction[i] *= s * before.factor(o);
  }
  const std::string& name = pair.weight->name();
  check->near(name + " A", before.a, tuned.values(*pair.a),
              product(transposed(before.b, pair.out, pair.rank), direction, pair.rank, pair.out, pair.in),
              rate);
  check->near(name + " B", before.b, tuned.values(*pair.b),
              product(direction, transposed(before.a, pair.rank, pair.in), pair.out, pair.in, pair.rank),
              rate);
  if (pair.magnitude != nullptr)
    check->near(name + " magnitude", before.magnitude, tuned.values(*pair.magnitude), of_magnitude, rate);
  if (tuned.values(*pair.weight) != turned_back(before.weight, pair.out_by_in, pair.out, pair.in))
    check->near(name + ", which is frozen", 1, 0, 0);
}

int check_case(const std::string& name, bool llama, const FineTuning& tuning, Communicator& self) {
  PlanCase c;
  c.llama = llama;
  c.choices.micro_batch = 2;  // several micro-batches
  c.model = [tuning](Transformer& t) { t.fine_tuning = tuning; };
  PlanCase plain = c;
  plain.model = {};
  Trained tuned(c, self), merged(plain, self);
  const std::vector<Pair> pairs = pairs_of(tuned);
  const CounterRandom random(1, 2);
  std::uint64_t next = 0;
  for (const Pair& pair : pairs) {
    Doubles b = tuned.values(*pair.b);
    for (double& x : b) x = kB * random.normal(next++);
    tuned.set(*pair.b, b);
  }
  for (int step = 0; step < kBefore; ++step) tuned.step(step);
  for (Trained* one : {&tuned, &merged}) one->parameters().set_learning_rate(kRate);

  std::map<std::string, const HeldTensor*> whole;  // of the model that all is trained of
  for (const HeldTensor& tensor : merged.parameters().held()) whole[tensor.name()] = &tensor;
  std::vector<Snapshot> before;
  std::map<std::string, Doubles> rest;
  for (const std::vector<HeldTensor>* held :
       {&tuned.parameters().held(), &tuned.parameters().frozen().held()})
    for (const HeldTensor& tensor : *held)
      if (const auto at = whole.find(tensor.name()); at != whole.end()) {
        rest[tensor.name()] = tuned.values(tensor);
        merged.set(*at->second, rest[tensor.name()]);
      }
  for (const Pair& pair : pairs) {
    before.emplace_back(tuned, pair);
    merged.set(*whole.at(pair.weight->name()),
               turned_back(before.back().merged(pair.in), pair.out_by_in, pair.out, pair.in));
  }
  std::map<std::string, Doubles> from;
  for (const auto& [tensor, at] : whole) from[tensor] = merged.values(*at);
  Check check(name);
  check.near("loss", tuned.step(kBefore), merged.step(kBefore), 1e-5);
  const auto gradient = [&](const std::string& tensor) {
    Doubles g = difference(from.at(tensor), merged.values(*whole.at(tensor)));
    for (double& x : g) x /= merged.rate();
    return g;
  };
  for (std::size_t i = 0; i < pairs.size(); ++i)
    check_pair(tuned, pairs[i], before[i],
               turned(gradient(pairs[i].weight->name()), pairs[i].out_by_in, pairs[i].out, pairs[i].in),
               &check);
  int others = 0;
  for (const HeldTensor& tensor : tuned.parameters().held()) {
    if (!whole.contains(tensor.name())) continue;
    check.near(tensor.name(), rest.at(tensor.name()), tuned.values(tensor), gradient(tensor.name()),
               tuned.rate());
    ++others;
  }
  if (pairs.empty() && others == 0) check.near("trained tensors", 0, 1, 0);
  return check.done();
}

}  // namespace

int check_fine_tuning(Communicator& self) {
  FineTuning lora;
  lora.rank = 4;
  lora.alpha = 8;
  FineTuning dora = lora, some = lora, eight = lora, four = lora, nested = lora, still;
  dora.dora = true;
  some.targets = kQuery | kValue | kDown;
  some.frozen_layers = 2;
  eight.base = BaseType::int8;
  four.base = BaseType::nf4;
  nested.base = BaseType::nf4_dq;
  nested.dora = true;
  still.frozen_layers = 2;
  int faults = 0;
  for (const bool llama : {false, true}) {
    const std::string model = llama ? " (llama)" : " (gpt2)";
    faults += check_case("lora" + model, llama, lora, self);
    faults += check_case("dora" + model, llama, dora, self);
    faults += check_case("lora of some, two layers frozen" + model, llama, some, self);
    faults += check_case("lora on int8" + model, llama, eight, self);
    faults += check_case("lora on nf4" + model, llama, four, self);
    faults += check_case("dora on nf4-dq" + model, llama, nested, self);
    faults += check_case("two layers frozen" + model, llama, still, self);
  }
  return faults;
}

}  // namespace orrery::exec::test
