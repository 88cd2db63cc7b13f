// Batches of images, made on a thread of its own while what comes before is computed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/data/image_data.h"

namespace orrery::exec {

// Samples that follow each other in the global batch.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct ImageBatch {
  std::vector<float> pictures;
  std::vector<std::int32_t> labels;
};

// All of a range, here and now. `elements`: of a picture.
void make_images(const ImageData& images, std::int64_t step, const SampleRange& samples, std::size_t elements,
                 ImageBatch& batch);

class ImagesAhead {
 public:
  // `loads`: what each step takes, in this order; up to a step of them is made ahead, or as many as memory is
  // meant for, and nothing of `end_step` or later. Keeps a reference to the images.
  ImagesAhead(const ImageData& images, std::size_t elements, std::vector<SampleRange> loads,
              std::int64_t end_step);
  ~ImagesAhead();
  ImagesAhead(const ImagesAhead&) = delete;
  ImagesAhead& operator=(const ImagesAhead&) = delete;

  // Load `load` of `step`, waited for where it is not there yet; what `batch` had is made room of. From there
  // on, in order. Throws what making it has thrown.
  void take(std::int64_t step, std::size_t load, ImageBatch& batch);

 private:
  struct Place {
    std::int64_t step = -1;
    std::size_t load = 0;
    bool operator==(const Place&) const = default;
  };
  struct Made {
    Place place;
    ImageBatch batch;
    std::exception_ptr error;
  };

  Place after(Place place) const;
  void go_to(Place place);  // with the lock
  void work();
  bool make(const Place& place, std::int64_t turn, Made& made) const;  // false: nobody wants it any more

  const ImageData& images_;
  std::size_t elements_;
  std::vector<SampleRange> loads_;
  std::int64_t end_step_;
  std::size_t most_;  // that are made ahead

  std::mutex lock_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::atomic<std::int64_t> turn_ = 0;  // counts where somebody wanted another place than the next
  Place next_;                          // to be begun; step -1: nobody has taken anything yet
  std::deque<Made> made_;
  std::vector<ImageBatch> spare_;
  std::thread thread_;  // last: it uses all of the others
};

}  // namespace orrery::exec
