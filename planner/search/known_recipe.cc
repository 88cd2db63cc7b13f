#include "planner/search/known_recipe.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/embedded.h"
#include "base/error.h"
#include "proto/recipes.pb.h"
#include "proto/textproto.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_recipes();
}

namespace orrery::planner {
namespace {

const proto::Recipes& recipes() {
  static const proto::Recipes read = [] {
    proto::Recipes message;
    parse_textproto(embedded_recipes().front().content, "planner/search/recipes.textproto", &message);
    return message;
  }();
  return read;
}

// How far a question may be from the recipe's own.
constexpr double kMostTimesParameters = 2, kMostTimesMemory = 4;
// What a factor of e is worth beside one of the model's size.
constexpr double kOfSequences = 0.25, kOfDevices = 0.1, kOfMemory = 0.5;

// Recipes so much farther than the nearest count as near; the one that suits best is told of. One for half
// the devices (0.07) is not.
constexpr double kAsNear = 0.05;

double apart(double a, double b) {
  return std::abs(std::log(a / b));
}

// Nothing where the recipe is for another kind of model or machine.
std::optional<double> distance(const proto::Recipe& recipe, const Job& job) {
  const Workload& model = job.workload;
  const bool experts = model.transformer && model.transformer->moe;
  const bool sequences = job.training.seq_len > 0;
  const bool state_space = model.transformer && model.transformer->state_space;
  if (recipe.experts() != experts || recipe.sequences() != sequences || recipe.state_space() != state_space)
    return {};
  const double size = apart(recipe.parameters(), static_cast<double>(model.parameters()));
  const DeviceProfile& device = job.cluster.profiles[job.cluster.groups.front().node.profile];
  if (!recipe.vendor().empty() && recipe.vendor() != device.vendor) return {};
  if (device.kind != DeviceKind::gpu)
    return size <= std::log(kMostTimesParameters) ? std::optional(size) : std::nullopt;
  const double memory = apart(recipe.device_bytes(), device.memory_bytes);
  if (size > std::log(kMostTimesParameters) || memory > std::log(kMostTimesMemory)) return {};
  return size + kOfMemory * memory + kOfDevices * apart(recipe.devices(), job.cluster.devices()) +
         (sequences ? kOfSequences * apart(recipe.seq_len(), job.training.seq_len) : 0);
}

// The largest of the recipe's micro-batch and less that divides what each replica gets; nothing where the
// devices or the batch do not divide.
std::optional<Pins> pins_of(const proto::Recipe& recipe, const Job& job) {
  const int ranks = recipe.tp() * recipe.pp() * recipe.cp();
  if (job.cluster.devices() % ranks != 0) return {};
  Pins pins;
  pins.tp = recipe.tp();
  pins.pp = recipe.pp();
  pins.cp = recipe.cp();
  pins.dp = job.cluster.devices() / ranks;
  if (!job.training.divides_over(*pins.dp)) return {};
  if (recipe.ep() > 0) pins.ep = recipe.ep();
  if (recipe.micro_batch() > 0) {
    int samples = recipe.micro_batch();
    while (samples > 1 && !job.training.divides_over(*pins.dp, samples)) --samples;
    pins.micro_batch = samples;
  }
  if (!recipe.schedule().empty() && recipe.pp() > 1) pins.schedule = schedule_from_name(recipe.schedule());
  if (recipe.interleave() > 0) pins.interleave = recipe.interleave();
  if (recipe.has_zero()) pins.zero = *pins.dp * *pins.cp > 1 ? recipe.zero() : 0;
  if (!recipe.recompute().empty()) pins.recompute = recompute_from_name(recipe.recompute());
  if (recipe.recompute() == "full") pins.recompute_layers = 0;
  return pins;
}

std::optional<RecipePlan> plan_of(const proto::Recipe& recipe, const std::shared_ptr<const Job>& job,
                                  Estimator& estimator, double fillable) {
  const std::optional<Pins> pins = pins_of(recipe, *job);
  if (!pins) return {};
  try {
    Candidates found = gather(job, *pins, Objective::step_time, 1, estimator, {fillable});
    if (found.promising.empty() && found.tight > 0)
      found = gather(job, *pins, Objective::step_time, 1, estimator);
    if (!found.promising.empty())
      return RecipePlan{recipe.name(), recipe.source(), found.promising.front(), true};
    found.smallest->times = estimator.times(found.smallest->choices);
    return RecipePlan{recipe.name(), recipe.source(), *found.smallest, false};
  } catch (const UserError&) {
    return {};  // the model's layers, heads or experts do not divide so
  }
}

}  // namespace

std::optional<RecipePlan> nearest_recipe(const std::shared_ptr<const Job>& job, Estimator& estimator,
                                         double fillable) {
  std::vector<std::pair<double, const proto::Recipe*>> near;
  for (const proto::Recipe& recipe : recipes().recipe())
    if (const auto far = distance(recipe, *job)) near.emplace_back(*far, &recipe);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::optional<RecipePlan> best;
  double nearest = 0;
  for (const auto& [far, recipe] : near) {
    if (best && far > nearest + kAsNear) break;
    std::optional<RecipePlan> plan = plan_of(*recipe, job, estimator, fillable);
    if (!plan) continue;
    if (!best) nearest = far;
    const auto before = [](const RecipePlan& a, const RecipePlan& b) {
      return a.fits != b.fits ? a.fits : a.candidate.times.estimate_s < b.candidate.times.estimate_s;
    };
    if (!best || before(*plan, *best)) best = std::move(plan);
  }
  return best;
}

}  // namespace orrery::planner
