// Images made on a thread of their own are those made when they are wanted.
#include "exec/data/images_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;
using namespace exec;

constexpr ImageShape kShape{3, 8, 8};
constexpr std::size_t kElements = 3 * 8 * 8;
const std::vector<SampleRange> kLoads = {{4, 2}, {6, 2}, {8, 1}};

bool same(const ImageBatch& batch, const ImageData& images, std::int64_t step, std::size_t load) {
  ImageBatch expected;
  make_images(images, step, kLoads[load], kElements, expected);
  return batch.pictures == expected.pictures && batch.labels == expected.labels;
}

}  // namespace

TEST_CASE("what is made ahead is what each load takes, step after step") {
  const ImageData images("", kShape, 10, 7, 12);
  ImagesAhead ahead(images, kElements, kLoads, 5);
  ImageBatch batch;
  for (std::int64_t step = 0; step < 5; ++step)
    for (std::size_t load = 0; load < kLoads.size(); ++load) {
      ahead.take(step, load, batch);
      CHECK(same(batch, images, step, load));
    }
}

TEST_CASE("who goes on elsewhere, as after a restart, gets what is there, and on from it") {
  const ImageData images("", kShape, 10, 7, 12);
  ImagesAhead ahead(images, kElements, kLoads, 100);
  ImageBatch batch;
  for (const auto& [step, load] :
       {std::pair<std::int64_t, std::size_t>{0, 0}, {40, 1}, {40, 2}, {41, 0}, {3, 2}}) {
    ahead.take(step, load, batch);
    CHECK(same(batch, images, step, load));
  }
}

TEST_CASE("a picture that cannot be read is an error where it is wanted, and not before") {
  const fs::path folder = fs::temp_directory_path() / ("orrery-ahead-" + std::to_string(::getpid()));
  fs::create_directories(folder / "class");
  constexpr int kPictures = 3;
  for (int i = 0; i < kPictures; ++i)
    std::ofstream(folder / "class" / (std::to_string(i) + ".ppm"), std::ios::binary)
        << "P6 2 2 255\n"
        << std::string(i == 1 ? 3 : 12, 'a');
  const ImageData images(folder.string(), kShape, 10, 7, 1);
  std::vector<bool> damaged;  // by step: once through the pictures
  for (std::int64_t step = 0; step < kPictures; ++step) {
    ImageBatch batch;
    try {
      make_images(images, step, {0, 1}, kElements, batch);
      damaged.push_back(false);
    } catch (const UserError&) {
      damaged.push_back(true);
    }
  }
  REQUIRE(std::count(damaged.begin(), damaged.end(), true) == 1);
  ImagesAhead ahead(images, kElements, {{0, 1}}, kPictures);
  ImageBatch batch;
  for (std::int64_t step = 0; step < kPictures; ++step) {
    if (damaged[static_cast<std::size_t>(step)])
      CHECK_THROWS_AS(ahead.take(step, 0, batch), UserError);
    else
      CHECK_NOTHROW(ahead.take(step, 0, batch));
  }
  fs::remove_all(folder);
}

}  // namespace orrery::test
