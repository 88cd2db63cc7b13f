#include "exec/data/images_ahead.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // of the host's, but for one load

std::size_t most_ahead(const std::vector<SampleRange>& loads, std::size_t elements) {
  std::size_t bytes = 0;
  for (const SampleRange& load : loads)
    bytes = std::max(bytes, static_cast<std::size_t>(load.count) * elements * sizeof(float));
  return std::clamp<std::size_t>(kMostBytes / std::max<std::size_t>(bytes, 1), 1,
                                 std::max<std::size_t>(loads.size(), 1));
}

void make_one(const ImageData& images, std::int64_t step, const SampleRange& samples, std::size_t elements,
              std::int64_t i, ImageBatch& batch) {
  const auto at = static_cast<std::size_t>(i);
  batch.labels[at] =
      images.sample(step, samples.first + i, std::span(batch.pictures).subspan(at * elements, elements));
}

void make_room(const SampleRange& samples, std::size_t elements, ImageBatch& batch) {
  const auto count = static_cast<std::size_t>(samples.count);
  batch.pictures.resize(count * elements);
  batch.labels.resize(count);
}

}  // namespace

void make_images(const ImageData& images, std::int64_t step, const SampleRange& samples, std::size_t elements,
                 ImageBatch& batch) {
  make_room(samples, elements, batch);
  for (std::int64_t i = 0; i < samples.count; ++i) make_one(images, step, samples, elements, i, batch);
}

ImagesAhead::ImagesAhead(const ImageData& images, std::size_t elements, std::vector<SampleRange> loads,
                         std::int64_t end_step)
    : images_(images),
      elements_(elements),
      loads_(std::move(loads)),
      end_step_(end_step),
      most_(most_ahead(loads_, elements)),
      thread_([this] { work(); }) {}

ImagesAhead::~ImagesAhead() {
  {
    const std::scoped_lock held(lock_);
    ends_ = true;
    ++turn_;
  }
  changed_.notify_all();
  thread_.join();
}

ImagesAhead::Place ImagesAhead::after(Place place) const {
  return place.load + 1 < loads_.size() ? Place{place.step, place.load + 1} : Place{place.step + 1, 0};
}

void ImagesAhead::go_to(Place place) {
  ++turn_;
  made_.clear();
  next_ = place;
  changed_.notify_all();
}

void ImagesAhead::take(std::int64_t step, std::size_t load, ImageBatch& batch) {
  ORRERY_CHECK(step < end_step_ && load < loads_.size(), "images of a step that does not come");
  const Place wanted{step, load};
  std::unique_lock held(lock_);
  const Place coming = made_.empty() ? next_ : made_.front().place;
  if (coming != wanted) go_to(wanted);
  changed_.wait(held, [&] { return !made_.empty(); });
  Made made = std::move(made_.front());
  made_.pop_front();
  std::swap(batch, made.batch);
  spare_.push_back(std::move(made.batch));
  changed_.notify_all();
  if (made.error) std::rethrow_exception(made.error);
}

void ImagesAhead::work() {
  std::unique_lock held(lock_);
  while (true) {
    changed_.wait(
        held, [&] { return ends_ || (next_.step >= 0 && next_.step < end_step_ && made_.size() < most_); });
    if (ends_) return;
    Made made;
    made.place = next_;
    if (!spare_.empty()) {
      made.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    const std::int64_t turn = turn_;
    held.unlock();
    const bool whole = make(made.place, turn, made);
    held.lock();
    if (!whole || turn != turn_) {
      spare_.push_back(std::move(made.batch));
      continue;
    }
    next_ = after(made.place);
    made_.push_back(std::move(made));
    changed_.notify_all();
  }
}

bool ImagesAhead::make(const Place& place, std::int64_t turn, Made& made) const {
  const SampleRange& samples = loads_[place.load];
  try {
    make_room(samples, elements_, made.batch);
    for (std::int64_t i = 0; i < samples.count; ++i) {
      if (turn != turn_) return false;
      make_one(images_, place.step, samples, elements_, i, made.batch);
    }
  } catch (...) {
    made.error = std::current_exception();
  }
  return true;
}

}  // namespace orrery::exec
