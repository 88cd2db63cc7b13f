// Pictures: CIFAR-10's binary version, folders of PPM files, images made up by rule.
#include "exec/data/image_data.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/error.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;
using exec::ImageData;
using namespace std::string_literals;

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("orrery-images-" + std::to_string(::getpid()) + "-" + std::to_string(count_++))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string write(const std::string& name, const std::string& content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

std::string record(int label, unsigned char red, unsigned char green, unsigned char blue) {
  std::string bytes(1, static_cast<char>(label));
  for (const unsigned char colour : {red, green, blue}) bytes += std::string(1024, static_cast<char>(colour));
  return bytes;
}

float of(int level) {
  return (static_cast<float>(level) / 255.0F - 0.5F) / 0.25F;
}

}  // namespace

TEST_CASE("CIFAR-10's records come once an epoch with their labels and colours") {
  const Folder folder;
  folder.write("data_batch_1.bin", record(3, 10, 20, 30) + record(7, 0, 255, 128));
  folder.write("data_batch_2.bin", record(9, 1, 2, 3));
  folder.write("readme.html", "x");
  const ImageData data(folder.path(), {3, 32, 32}, 10, 1, 3);
  CHECK(data.images() == 3);
  std::vector<float> image(3 * 1024);
  for (int step = 0; step < 4; ++step) {
    std::set<int> labels;
    for (int i = 0; i < 3; ++i) {
      const int label = data.sample(step, i, image);
      labels.insert(label);
      if (label != 7) continue;
      CHECK(image[0] == Approx(of(0)));
      CHECK(image[1024 + 17] == Approx(of(255)));
      CHECK(image[2048 + 1023] == Approx(of(128)));
    }
    CHECK(labels == std::set<int>{3, 7, 9});
  }
  // A network that reads one channel sees the mean of the colours.
  const ImageData grey(folder.path() + "/data_batch_2.bin", {1, 32, 32}, 10, 1, 1);
  std::vector<float> one(1024);
  CHECK(grey.sample(0, 0, one) == 9);
  CHECK(one[500] == Approx(of(2)));
}

TEST_CASE("a folder of pictures is a class for each folder in it, scaled to the network's size") {
  const Folder folder;
  folder.write("cat/a.ppm", std::string("P6\n# two pixels\n2 1\n255\n") + "\x00\x00\x00\xff\xff\xff"s);
  folder.write("dog/b.PPM", std::string("P6 1 1 255\n") + "\x0a\x14\x1e"s);
  folder.write("dog/notes.txt", "x");
  fs::create_directories(folder.path() + "/.git");
  const ImageData data(folder.path(), {3, 2, 4}, 2, 1, 2);
  CHECK(data.images() == 2);
  std::vector<float> image(24);
  std::set<int> labels;
  for (int i = 0; i < 2; ++i) {
    const int label = data.sample(0, i, image);
    labels.insert(label);
    if (label == 1) {
      CHECK(image[0] == Approx(of(10)));
      CHECK(image[23] == Approx(of(30)));
      continue;
    }
    // Black and white, four pixels wide: 0, 1/4, 3/4, 1 of the way.
    const std::vector<double> share = {0, 0.25, 0.75, 1};
    for (std::size_t c = 0; c < 4; ++c)
      CHECK(static_cast<double>(image[c]) == Approx(-2 + 4 * share[c]).margin(1e-6));
  }
  CHECK(labels == std::set<int>{0, 1});
}

TEST_CASE("images that are made up depend on seed, step and place alone, and are of all classes") {
  const ImageData data("", {3, 8, 8}, 10, 5, 4);
  const ImageData again("", {3, 8, 8}, 10, 5, 4);
  const ImageData other("", {3, 8, 8}, 10, 6, 4);
  CHECK(data.description().find("synthetic") == 0);
  std::vector<float> a(192);
  std::vector<float> b(192);
  std::set<int> labels;
  for (int step = 0; step < 30; ++step)
    for (int i = 0; i < 4; ++i) {
      const int label = data.sample(step, i, a);
      CHECK(label == again.sample(step, i, b));
      CHECK(a == b);
      other.sample(step, i, b);
      CHECK(a != b);
      CHECK((label >= 0 && label < 10));
      labels.insert(label);
    }
  CHECK(labels.size() == 10);
}

TEST_CASE("a class without pictures, or with pictures that are not read, is refused by its name") {
  const Folder folder;
  folder.write("cat/a.ppm", std::string("P6 1 1 255\n") + "\x0a\x14\x1e"s);
  folder.write("dog/b.ppm", std::string("P6 1 1 255\n") + "\x0a\x14\x1e"s);
  const auto said = [&] {
    try {
      ImageData(folder.path(), {3, 2, 2}, 10, 1, 1);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(said().empty());
  // Between the two, it would shift the second's label.
  fs::create_directories(folder.path() + "/cow");
  CHECK(said().find("/cow") != std::string::npos);
  fs::remove_all(folder.path() + "/cow");
  folder.write("dog/c.WEBP", "x");
  CHECK(said().find("dog/c.WEBP") != std::string::npos);
}

TEST_CASE(
    "pictures that are none are found before one is drawn, and folders within a class's are not passed "
    "over") {
  const Folder folder;
  const std::string whole = std::string("P6 1 1 255\n") + "\x0a\x14\x1e"s;
  folder.write("cat/a.ppm", whole);
  folder.write("dog/b.png", whole);  // by what it holds, whatever its name
  const auto check = [&] { ImageData(folder.path(), {3, 2, 2}, 10, 1, 1).check_pictures(); };
  CHECK_NOTHROW(check());
  for (const char* content : {"", "GIF89a", "P5 1 1 255\nx", "text"}) {
    folder.write("dog/c.jpg", content);
    CHECK_THROWS_WITH(check(), Catch::Contains("dog/c.jpg"));
  }
  folder.write("dog/c.jpg", whole);
  fs::create_directories(folder.path() + "/dog/.thumbnails");
  CHECK_NOTHROW(check());
  fs::create_directories(folder.path() + "/dog/puppies");
  CHECK_THROWS_WITH(check(), Catch::Contains("dog/puppies"));
}

TEST_CASE("what is no data set of images is refused") {
  const Folder folder;
  const ImageShape shape{3, 32, 32};
  CHECK_THROWS_AS(ImageData(folder.path(), shape, 10, 1, 1), UserError);
  CHECK_THROWS_AS(ImageData("/nonexistent", shape, 10, 1, 1), UserError);
  CHECK_THROWS_AS(ImageData(folder.write("half.bin", "abc"), shape, 10, 1, 1), UserError);
  const std::string good = folder.write("data_batch_1.bin", record(11, 1, 1, 1));
  CHECK_THROWS_AS(ImageData(good, shape, 5, 1, 1), UserError);
  CHECK_THROWS_AS(ImageData(good, ImageShape{4, 32, 32}, 10, 1, 1), UserError);
  std::vector<float> image(3 * 1024);
  CHECK_THROWS_AS(ImageData(good, shape, 10, 1, 1).sample(0, 0, image), UserError);  // class 11
  const Folder pictures;
  for (const char* content :
       {"P5 1 1 255\nx", "P6 1 1 65535\nxxx", "P6 2 2 255\nxxx", "P6", "P6 99999999 1 255\n"}) {
    pictures.write("a/x.ppm", content);
    CHECK_THROWS_AS(ImageData(pictures.path(), shape, 10, 1, 1).sample(0, 0, image), UserError);
  }
}

}  // namespace orrery::test
