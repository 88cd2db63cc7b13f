// Training data of networks on images: files that are there, or images made up by rule.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "exec/data/picture.h"
#include "workloads/workload.h"

namespace orrery::exec {

class ImageData {
 public:
  // `path`: CIFAR-10's binary version (the folder with data_batch_1.bin …, or one such file; Krizhevsky 2009,
  // https://www.cs.toronto.edu/~kriz/cifar.html), or a folder with one folder of pictures
  // (exec/data/picture.h) for each class, numbered in the order of their names. Empty: synthetic images.
  // Pictures of another size are scaled, colours averaged for a network that reads one channel. Throws
  // UserError where there are no pictures, or more classes than the network's.
  ImageData(const std::string& path, const ImageShape& shape, std::int64_t classes, std::uint64_t seed,
            std::int64_t samples_per_step, Augmentation augmentation = Augmentation::none);

  // Sample `index` of the global batch of `step`, by (seed, step, index) alone, as TextData: `image` becomes
  // channels x height x width values (v / 255 - 0.5) / 0.25; returns the class. Throws UserError where a file
  // is no picture.
  std::int32_t sample(std::int64_t step, std::int64_t index, std::span<float> image) const;

  // Which picture that is, and the part of it; nothing of synthetic images.
  struct Taken {
    std::string file;
    std::int64_t record = -1;  // of CIFAR-10's files
    std::int32_t label = 0;
    PictureRegion region;
  };
  std::optional<Taken> taken(std::int64_t step, std::int64_t index) const;

  // Throws UserError naming a picture that is empty, or none by its first bytes; of many, so many evenly
  // among them.
  void check_pictures() const;

  std::int64_t images() const { return images_; }  // of an epoch
  // What the run is trained on, for its report.
  const std::string& description() const { return description_; }

 private:
  struct File {
    std::filesystem::path path;
    std::int32_t label = -1;  // of a picture; -1: records of CIFAR-10
    std::int64_t first = 0;   // number of its first picture
  };

  void find_records(const std::filesystem::path& path, std::int64_t classes);
  void find_pictures(const std::filesystem::path& folder, std::int64_t classes);
  Taken take(std::int64_t step, std::int64_t index, Picture* picture) const;
  std::int32_t read_record(const File& file, std::int64_t record, Picture* picture) const;
  void put(const Picture& picture, const PictureRegion& region, std::span<float> image) const;
  std::int32_t make_up(std::int64_t number, std::span<float> image) const;

  ImageShape shape_;
  std::int64_t classes_;
  std::uint64_t seed_;
  std::int64_t samples_per_step_;
  Augmentation augmentation_;
  std::int64_t images_ = 0;
  std::vector<File> files_;  // none: synthetic
  std::string description_;
};

}  // namespace orrery::exec
