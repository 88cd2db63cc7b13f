// Random small models and plans: whatever check_plan and why_not_executable let through must train as one
// rank does.
#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "program/executable/executable.h"
#include "test_plans.h"
#include "workloads/graph_split.h"

namespace orrery::exec::test {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, 0x706C616E) {}
  int below(int n) { return static_cast<int>(random_.bits(next_++) % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

 private:
  CounterRandom random_;
  std::uint64_t next_ = 0;
};

void draw_model(Draw& draw, PlanCase* c) {
  const int layers = 2 + draw.below(3);
  const int heads = draw.of({2, 4});
  const int kv_heads = draw.chance(50) ? heads : heads / 2;
  const int head_dim = draw.of({4, 8});
  const int ffn = draw.of({24, 40});
  const bool gated = draw.chance(50);
  const bool tied = draw.chance(50);
  const NormKind norm = draw.of({NormKind::layer_norm, NormKind::rms_norm});
  const Activation activation = draw.of({Activation::gelu, Activation::silu, Activation::relu});
  const int experts = draw.chance(35) ? draw.of({2, 4}) : 0;
  const int shared = draw.chance(40) ? 16 : 0;
  const int vocab = draw.of({256, 261, 300});
  // Only what one rank's tokens decide is the same on every plan.
  const bool by_rows = c->choices.sequence_parallel || c->choices.cp > 1;
  const double balance = by_rows ? 0 : draw.of({0.0, 0.02});
  if (by_rows) c->choices.capacity_factor = 0;
  if (experts == 0) c->choices.ep = 1;
  c->llama = draw.chance(50);
  const bool bert = !c->llama && draw.chance(50);
  c->model = [=](Transformer& t) {
    const bool gated_family = t.family != "gpt2";
    t.layers = layers;
    t.heads = heads;
    t.kv_heads = t.family == "gpt2" ? heads : kv_heads;
    t.head_dim = head_dim;
    t.hidden = heads * head_dim;
    t.ffn_hidden = ffn;
    t.gated_ffn = t.family != "gpt2" && gated;
    t.tied_embeddings = tied;
    t.norm = norm;
    t.activation = activation;
    t.vocab = vocab;
    if (bert) {
      t.family = "bert";
      t.post_norm = t.bidirectional = t.mlm_head = true;
      t.token_types = tied ? 2 : 0;
    }
    if (experts == 0 || !gated_family) return;
    t.moe = MixtureOfExperts{};
    t.moe->experts = experts;
    t.moe->experts_per_token = 1 + (experts > 2 ? 1 : 0);
    t.moe->expert_ffn_hidden = 16;
    t.moe->shared_ffn_hidden = shared;
    t.moe->auxiliary_loss = balance;
  };
}

// Some of its products split, by column or by row, where that can stand.
Workload split_by(Workload workload, const std::vector<int>& wishes) {
  std::vector<Operator>& operators = workload.operators;
  for (std::size_t i = 0, next = 0; i < operators.size(); ++i) {
    if (!can_be_split(operators[i])) continue;
    const int wish = wishes[next++ % wishes.size()];
    if (wish > 0) set_split(&operators[i], wish == 1 ? TensorSplit::column : TensorSplit::row);
  }
  for (int fault = complete_splits(&operators); fault >= 0; fault = complete_splits(&operators))
    set_split(&operators[static_cast<std::size_t>(fault)], TensorSplit::replicated);
  return workload;
}

// Convolutions of any size, with and without norms, pools and shortcuts, to a few scores.
void draw_network(Draw& draw, PlanCase* c) {
  struct Block {
    int channels, kernel;
    bool bias, norm, shortcut;
  };
  std::vector<Block> blocks(static_cast<std::size_t>(2 + draw.below(3)));
  for (Block& b : blocks)
    b = {c->choices.tp > 1 ? 4 * draw.of({1, 2}) : draw.of({4, 6, 9}), draw.of({1, 3, 5}), draw.chance(50),
         draw.chance(60), draw.chance(40)};
  // One of them halves the image: a norm over a few pixels would be all rounding.
  const auto smaller = static_cast<std::size_t>(draw.below(static_cast<int>(blocks.size())));
  const int pool = draw.of({0, 2, 3});  // 0: by a stride
  const int more = c->choices.tp > 1 ? 4 : 2;
  const int side = draw.of({10, 13});
  const bool average = draw.chance(50);
  const int hidden = draw.chance(50) ? 20 : 0;
  std::vector<int> wishes(12);  // 0: whole, 1: by column, 2: by row
  for (int& wish : wishes) wish = c->choices.tp > 1 ? draw.of({0, 0, 1, 1, 2}) : 0;
  c->network = [=] {
    internal::GraphBuilder b;
    internal::GraphTensor x{-1, 3, side};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const std::string p = "b" + std::to_string(i) + ".";
      x = b.conv(p + "conv", x, block.channels, block.kernel, i == smaller && pool == 0 ? 2 : 1, block.bias);
      if (block.norm) x = b.batch_norm(p + "bn", x);
      x = b.relu(p + "relu", x);
      if (block.shortcut) x = b.basic_block(p, x, block.channels + more, 1);
      if (i == smaller && pool > 0) x = b.max_pool(p + "pool", x, pool, 2);
    }
    if (average) x = b.average_pool("average", x);
    if (hidden > 0) x = b.relu("hidden.relu", b.linear("hidden", x, hidden));
    b.loss(b.linear("scores", x, 10));
    return split_by(b.finish("random-network", "", 0), wishes);
  };
}

PlanCase draw_case(Draw& draw, int world) {
  PlanCase c;
  Choices& x = c.choices;
  int rest = world;
  for (int* dimension : {&x.tp, &x.pp, &x.cp, &x.dp}) {
    const int size = dimension == &x.dp ? rest : draw.of({1, 1, 2, 3, 4});
    if (rest % size != 0) continue;
    *dimension = size;
    rest /= size;
  }
  x.micro_batch = draw.of({1, 2, 4});
  x.schedule =
      draw.of({Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble});
  if (x.schedule == Schedule::interleaved) x.interleave = 2;
  x.zero = draw.below(4);
  x.recompute = draw.of({Recompute::none, Recompute::selective, Recompute::full});
  x.sequence_parallel = x.tp > 1 && draw.chance(50);
  x.overlap_grad_reduce = draw.chance(70);
  x.ep = draw.of({1, 2, 4});
  x.capacity_factor = draw.of({0.0, 0.0, 1.0, 1.5});
  if (draw.chance(15)) {
    x.sync = draw.of({Sync::parameter_server, Sync::single_process});
    if (x.sync == Sync::parameter_server) x.servers = 1 + draw.below(x.dp);
    x.zero = 0;
  }
  if (x.dp == 2 && draw.chance(30)) c.replica_batches = {kGlobalBatch - 2, 2};
  std::vector<Dimension> order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp, Dimension::pp};
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(draw.below(static_cast<int>(i)))]);
  std::copy(order.begin(), order.end(), x.order.begin());
  c.optimizer = draw.of({Optimizer::sgd, Optimizer::momentum});
  c.clip = draw.chance(40);
  draw_model(draw, &c);
  const bool network = x.cp == 1 && draw.chance(40);
  if (network) {
    x.sequence_parallel = x.tp > 1;
    draw_network(draw, &c);
    c.learns = false;
    x.ep = 1;
    x.capacity_factor = 0;
  }
  c.name = fmt::format("{}tp{} pp{} cp{} dp{} ep{}{} zero{} {}", network ? "network " : "", x.tp, x.pp, x.cp,
                       x.dp, x.ep, x.sequence_parallel ? " sp" : "", x.zero, name_of(x.schedule));
  return c;
}

bool sound(const PlanCase& c, int world) {
  if (c.choices.world() != world) return false;
  try {
    return !why_not_executable(make_plan(c));
  } catch (const UserError&) {
    return false;
  }
}

// The same with experts shared by tensor ranks, where it has any.
PlanCase with_shared_experts(PlanCase c, Draw& draw) {
  c.choices.etp = draw.of({2, c.choices.tp});
  c.name += fmt::format(" etp{}", c.choices.etp);
  return c;
}

// The same with its chunks in a V, where it has enough layers and micro-batches.
PlanCase in_a_v(PlanCase c, Draw& draw) {
  c.choices.schedule = Schedule::dualpipe_v;
  c.choices.interleave = 2;
  c.choices.overlap_experts = draw.chance(60) && c.choices.ep > 1 && c.choices.zero < 3;
  if (draw.chance(50)) c.choices.micro_batch = 1;
  c.name +=
      fmt::format(" as {}{}", name_of(c.choices.schedule), c.choices.overlap_experts ? " overlapped" : "");
  return c;
}

// The same with chosen modules run again, where any is.
PlanCase with_modules(PlanCase c, Draw& draw) {
  c.choices.recompute_modules = static_cast<ModuleSet>(draw.below(1 << kSelectiveModules.size()));
  std::string names;
  for (const std::string& module : names_of(c.choices.recompute_modules)) names += " " + module;
  c.name += " again:" + names;
  return c;
}

}  // namespace

std::vector<PlanCase> random_cases(int world, int count, std::uint64_t series) {
  std::vector<PlanCase> cases;
  Draw draw(static_cast<std::uint64_t>(world) + 1000 * series);
  Draw shared(static_cast<std::uint64_t>(world) << 32);
  Draw v(static_cast<std::uint64_t>(world) << 40);
  Draw modules(static_cast<std::uint64_t>(world) << 33);
  while (static_cast<int>(cases.size()) < count) {
    PlanCase c = draw_case(draw, world);
    if (!sound(c, world)) continue;
    PlanCase other = with_shared_experts(c, shared);
    PlanCase turned = in_a_v(c, v);
    if (sound(turned, world))
      c = std::move(turned);
    else if (sound(other, world))
      c = std::move(other);
    other = with_modules(c, modules);
    cases.push_back(sound(other, world) ? std::move(other) : std::move(c));
  }
  return cases;
}

}  // namespace orrery::exec::test
