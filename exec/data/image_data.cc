#include "exec/data/image_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/random.h"
#include "base/vectors/draws.h"
#include "exec/data/epoch.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRecordSide = 32;
constexpr std::int64_t kRecordPixels = kRecordSide * kRecordSide;
constexpr std::int64_t kRecordBytes = 1 + 3 * kRecordPixels;
constexpr std::int64_t kRecordClasses = 10;
constexpr std::int64_t kMadeUpImages = 50'000;          // as many as CIFAR-10 has
constexpr std::uint64_t kImageStream = 0x696D616765;    // "image"
constexpr std::uint64_t kPatternStream = 0x636C617373;  // "class"

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code code;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    entries.push_back(at->path());
  if (code) throw UserError(folder.string(), 0, "cannot be read", "a folder of images");
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_record_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.rfind("data_batch_", 0) == 0 && path.extension() == ".bin";
}

// v / 255 has mean 0.5 and deviation 0.25 or so in photographs.
float normalised(float value) {
  return (value / 255.0F - 0.5F) / 0.25F;
}

}  // namespace

ImageData::ImageData(const std::string& path, const ImageShape& shape, std::int64_t classes,
                     std::uint64_t seed, std::int64_t samples_per_step, Augmentation augmentation)
    : shape_(shape),
      classes_(classes),
      seed_(seed),
      samples_per_step_(samples_per_step),
      augmentation_(augmentation) {
  if (path.empty()) {
    images_ = kMadeUpImages;
    description_ = fmt::format("synthetic images ({} classes of waves and noise)", classes);
    return;
  }
  if (shape.channels != 1 && shape.channels != 3)
    throw UserError(path, 0, fmt::format("has pictures and the network reads {} channels", shape.channels),
                    "a network that reads 1 or 3");
  std::error_code code;
  if (fs::is_directory(path, code)) {
    const std::vector<fs::path> entries = sorted_entries(path);
    if (std::any_of(entries.begin(), entries.end(), is_record_file)) {
      for (const fs::path& entry : entries)
        if (is_record_file(entry)) find_records(entry, classes);
    } else {
      find_pictures(path, classes);
    }
  } else {
    find_records(path, classes);
  }
  description_ = path;
}

void ImageData::find_records(const fs::path& path, std::int64_t classes) {
  std::error_code code;
  const std::uint64_t size = fs::file_size(path, code);
  if (code) throw UserError(path.string(), 0, "cannot be opened", "CIFAR-10's binary version, or a folder");
  if (size == 0 || size % kRecordBytes != 0)
    throw UserError(path.string(), 0, fmt::format("has {} bytes", size),
                    fmt::format("CIFAR-10's binary version: records of {} bytes", kRecordBytes));
  if (classes < kRecordClasses)
    throw UserError(path.string(), 0, fmt::format("has 10 classes and the network {}", classes),
                    "a network with at least as many");
  files_.push_back({path, -1, images_});
  images_ += static_cast<std::int64_t>(size / kRecordBytes);
}

void ImageData::find_pictures(const fs::path& folder, std::int64_t classes) {
  std::int32_t label = 0;
  for (const fs::path& entry : sorted_entries(folder)) {
    std::error_code code;
    if (!fs::is_directory(entry, code)) continue;
    // What tools leave beside the classes (.git, .ipynb_checkpoints).
    if (entry.filename().string().front() == '.') continue;
    const std::int64_t before = images_;
    for (const fs::path& file : sorted_entries(entry)) {
      if (is_another_picture(file))
        throw UserError(file.string(), 0, "is a picture of a kind that is not read",
                        "JPEG, PNG or binary PPM");
      if (is_picture(file)) {
        files_.push_back({file, label, images_++});
        continue;
      }
      if (file.filename().string().front() != '.' && fs::is_directory(file, code))
        throw UserError(file.string(), 0, "is a folder inside that of a class, which is not looked into",
                        "the pictures themselves");
    }
    // Passed over, it would give the classes after it other numbers.
    if (images_ == before)
      throw UserError(entry.string(), 0, "is the folder of a class and has no pictures",
                      "JPEG, PNG or PPM files, or no such folder");
    ++label;
  }
  if (images_ == 0)
    throw UserError(folder.string(), 0, "has no pictures",
                    "data_batch_*.bin of CIFAR-10, or a folder of .jpg, .png or .ppm files for each class");
  if (label > classes)
    throw UserError(folder.string(), 0, fmt::format("has {} classes and the network {}", label, classes),
                    "a network with at least as many");
}

void ImageData::check_pictures() const {
  constexpr std::size_t kMost = 100'000;  // opening each takes a while where they lie on another machine
  const std::size_t every = 1 + files_.size() / kMost;
  for (std::size_t i = 0; i < files_.size(); i += every)
    if (files_[i].label >= 0) check_begins_as_picture(files_[i].path);
}

std::int32_t ImageData::read_record(const File& file, std::int64_t record, Picture* picture) const {
  std::ifstream in(file.path, std::ios::binary);
  in.seekg(record * kRecordBytes);
  char label = 0;
  picture->height = picture->width = kRecordSide;
  picture->colours.resize(static_cast<std::size_t>(3 * kRecordPixels));
  in.get(label);
  in.read(reinterpret_cast<char*>(picture->colours.data()), 3 * kRecordPixels);
  const auto number = static_cast<std::int32_t>(static_cast<unsigned char>(label));
  if (!in || number >= kRecordClasses)
    throw UserError(file.path.string(), 0, fmt::format("record {} is damaged", record),
                    "CIFAR-10's binary version");
  return number;
}

void ImageData::put(const Picture& picture, const PictureRegion& region, std::span<float> image) const {
  const std::vector<float> levels = scaled(picture, region, shape_.height, shape_.width);
  std::fill(image.begin(), image.end(), 0.0F);
  const auto share = 3 / static_cast<float>(shape_.channels);  // colours that make one channel
  const auto pixels = static_cast<std::size_t>(shape_.height * shape_.width);
  for (std::size_t i = 0; i < levels.size(); ++i)
    image[shape_.channels == 3 ? i : i % pixels] += normalised(levels[i]) / share;
}

// Each class has a plane wave of its own in every channel; an image is that and noise as strong.
std::int32_t ImageData::make_up(std::int64_t number, std::span<float> image) const {
  const CounterRandom random(seed_ ^ static_cast<std::uint64_t>(number), kImageStream);
  const auto label = static_cast<std::int32_t>(random.bits(0) % static_cast<std::uint64_t>(classes_));
  const CounterRandom pattern(seed_, kPatternStream + static_cast<std::uint64_t>(label));
  std::uint64_t draw = 1;
  for (std::int64_t channel = 0; channel < shape_.channels; ++channel) {
    const auto of_pattern = [&](int which) {
      return pattern.uniform(3 * static_cast<std::uint64_t>(channel) + static_cast<std::uint64_t>(which));
    };
    const double across = 6 * of_pattern(0) - 3;  // periods
    const double down = 6 * of_pattern(1) - 3;
    const double phase = of_pattern(2);
    for (std::int64_t r = 0; r < shape_.height; ++r) {
      const Wave wave{phase, across, down * static_cast<double>(r) / static_cast<double>(shape_.height), 2.4};
      draw_wave(random, draw, wave, image.subspan(draw - 1, static_cast<std::size_t>(shape_.width)));
      draw += static_cast<std::uint64_t>(shape_.width);
    }
  }
  return label;
}

std::int32_t ImageData::sample(std::int64_t step, std::int64_t index, std::span<float> image) const {
  const std::int64_t number = step * samples_per_step_ + index;
  const std::int64_t place = place_in_epoch(seed_, number / images_, number % images_, images_);
  if (files_.empty()) return make_up(place, image);
  Picture picture;
  const Taken taken = take(step, index, &picture);
  put(picture, taken.region, image);
  return taken.label;
}

ImageData::Taken ImageData::take(std::int64_t step, std::int64_t index, Picture* picture) const {
  const std::int64_t number = step * samples_per_step_ + index;
  const std::int64_t place = place_in_epoch(seed_, number / images_, number % images_, images_);
  const auto file = std::prev(std::upper_bound(files_.begin(), files_.end(), place,
                                               [](std::int64_t at, const File& f) { return at < f.first; }));
  Taken taken;
  taken.file = file->path.string();
  taken.label = file->label;
  if (file->label < 0) {
    taken.record = place - file->first;
    taken.label = read_record(*file, taken.record, picture);
  } else {
    *picture = read_picture(file->path);
  }
  taken.region = region_of(*picture, augmentation_, seed_, number);
  return taken;
}

std::optional<ImageData::Taken> ImageData::taken(std::int64_t step, std::int64_t index) const {
  if (files_.empty()) return {};
  Picture picture;
  return take(step, index, &picture);
}

}  // namespace orrery::exec
