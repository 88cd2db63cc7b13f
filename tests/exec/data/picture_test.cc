// Pictures as files hold them, and the parts of them that networks are shown.
#include "exec/data/picture.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>
#include <string>

// jpeglib.h wants <cstdio> before it.
#include <jpeglib.h>
#include <png.h>

#include "base/error.h"
#include "base/random.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;
using exec::Augmentation;
using exec::Picture;
using exec::PictureRegion;
using exec::read_picture;
using exec::region_of;
using exec::scaled;

class File {
 public:
  explicit File(const std::string& name)
      : path_(fs::temp_directory_path() / ("orrery-picture-" + std::to_string(::getpid()) + "-" + name)) {}
  ~File() { fs::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const fs::path& path() const { return path_; }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

 private:
  fs::path path_;
};

// Rows of `channels` samples a pixel.
void write_png(const fs::path& path, int width, int height, int bits, int kind,
               const std::vector<unsigned char>& data, bool interlaced = false) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), bits, kind,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  const png_color palette[] = {{0, 0, 0}, {10, 20, 30}, {255, 128, 1}, {7, 8, 9}};
  if (kind == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 4);
  png_write_info(png, info);
  std::vector<png_const_bytep> rows;
  const std::size_t row_bytes = data.size() / static_cast<std::size_t>(height);
  for (int r = 0; r < height; ++r) rows.push_back(data.data() + static_cast<std::size_t>(r) * row_bytes);
  png_write_image(png, const_cast<png_bytepp>(rows.data()));  // NOLINT: libpng's own type
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}

void write_jpeg(const fs::path& path, int width, int height, int channels, bool progressive,
                const std::vector<unsigned char>& data) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int r = 0; r < height; ++r) {
    auto* row = const_cast<unsigned char*>(data.data()) + r * width * channels;  // NOLINT: libjpeg's own type
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}

std::string fault_of(const fs::path& path) {
  try {
    read_picture(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

// Red rises to the right, green downwards, blue is the same everywhere.
std::vector<unsigned char> slopes(int width, int height) {
  std::vector<unsigned char> data;
  for (int r = 0; r < height; ++r)
    for (int c = 0; c < width; ++c)
      for (const int level : {c * 255 / (width - 1), r * 255 / (height - 1), 77})
        data.push_back(static_cast<unsigned char>(level));
  return data;
}

Picture slope_picture(int width, int height) {
  const auto data = slopes(width, height);
  Picture picture{height, width, std::vector<unsigned char>(data.size())};
  for (std::size_t i = 0; i < data.size(); ++i) picture.colours[i % 3 * data.size() / 3 + i / 3] = data[i];
  return picture;
}

}  // namespace

TEST_CASE("PNG pictures of every kind are their red, green and blue, bit for bit") {
  const File file("a.png");
  const std::vector<unsigned char> colours = {1,  2,  3,  250, 0, 9, 40,  50,  60,
                                              70, 80, 90, 5,   6, 7, 200, 100, 0};
  const std::vector<unsigned char> planes = {1,  250, 40,  70, 5, 200, 2,  0, 50,
                                             80, 6,   100, 3,  9, 60,  90, 7, 0};
  for (const bool interlaced : {false, true}) {
    write_png(file.path(), 3, 2, 8, PNG_COLOR_TYPE_RGB, colours, interlaced);
    const Picture picture = read_picture(file.path());
    CHECK((picture.height == 2 && picture.width == 3));
    CHECK(picture.colours == planes);
  }
  std::vector<unsigned char> with_alpha, deep;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    with_alpha.push_back(colours[i]);
    if (i % 3 == 2) with_alpha.push_back(static_cast<unsigned char>(i));
    deep.insert(deep.end(), {colours[i], static_cast<unsigned char>(i)});  // the higher byte first
  }
  write_png(file.path(), 3, 2, 8, PNG_COLOR_TYPE_RGB_ALPHA, with_alpha);
  CHECK(read_picture(file.path()).colours == planes);
  write_png(file.path(), 3, 2, 16, PNG_COLOR_TYPE_RGB, deep);
  CHECK(read_picture(file.path()).colours == planes);
  write_png(file.path(), 2, 1, 8, PNG_COLOR_TYPE_GRAY, {9, 201});
  CHECK(read_picture(file.path()).colours == std::vector<unsigned char>{9, 201, 9, 201, 9, 201});
  write_png(file.path(), 4, 1, 2, PNG_COLOR_TYPE_PALETTE, {0b01100011});
  CHECK(read_picture(file.path()).colours ==
        std::vector<unsigned char>{10, 255, 0, 7, 20, 128, 0, 8, 30, 1, 0, 9});
  write_png(file.path(), 8, 1, 1, PNG_COLOR_TYPE_GRAY, {0b10100001});
  CHECK(read_picture(file.path()).colours[0] == 255);
  CHECK(read_picture(file.path()).colours[1] == 0);
}

TEST_CASE("JPEG pictures, progressive and grey ones too, are near what they were made of") {
  const File file("a.jpg");
  const auto expected = slope_picture(64, 48);
  for (const bool progressive : {false, true}) {
    write_jpeg(file.path(), 64, 48, 3, progressive, slopes(64, 48));
    const Picture picture = read_picture(file.path());
    REQUIRE((picture.height == 48 && picture.width == 64));
    double sum = 0;
    for (std::size_t i = 0; i < picture.colours.size(); ++i)
      sum += std::abs(static_cast<double>(picture.colours[i]) - static_cast<double>(expected.colours[i]));
    CHECK(sum / static_cast<double>(picture.colours.size()) < 3);
  }
  write_jpeg(file.path(), 16, 16, 1, false, std::vector<unsigned char>(256, 140));
  const Picture grey = read_picture(file.path());
  REQUIRE(grey.colours.size() == 768);
  for (const unsigned char level : grey.colours) CHECK(std::abs(static_cast<int>(level) - 140) <= 1);
}

TEST_CASE("JPEG pictures of four inks, and with bytes between their parts, are read as others are") {
  // libjpeg writes Adobe's marker with inks, and so counts them backwards: 255 is none.
  std::vector<unsigned char> inks;
  for (int pixel = 0; pixel < 16 * 16; ++pixel) inks.insert(inks.end(), {255, 128, 51, 204});
  const File four("inks.jpg");
  write_jpeg(four.path(), 16, 16, 4, false, inks);
  const Picture picture = read_picture(four.path());
  const double expected[] = {255 * 204 / 255.0, 128 * 204 / 255.0, 51 * 204 / 255.0};
  for (std::size_t channel = 0; channel < 3; ++channel)
    CHECK(picture.colours[channel * 256 + 100] == Approx(expected[channel]).margin(4));

  const File plain("between.jpg");
  write_jpeg(plain.path(), 16, 16, 3, false, slopes(16, 16));
  const Picture whole = read_picture(plain.path());
  std::string bytes = plain.bytes();
  const auto table = bytes.find("\xFF\xC4");
  REQUIRE(table != std::string::npos);
  bytes.insert(table, "\x12\x34");
  plain.write(bytes);
  CHECK(read_picture(plain.path()).colours == whole.colours);
}

TEST_CASE("a picture is read by what it holds, whatever its name") {
  const File file("b.jpg");
  write_png(file.path(), 1, 1, 8, PNG_COLOR_TYPE_RGB, {1, 2, 3});
  CHECK(read_picture(file.path()).colours == std::vector<unsigned char>{1, 2, 3});
}

TEST_CASE("damaged pictures are one line, wherever they are cut or changed") {
  const File file("c");
  const auto check_all = [&](const std::string& whole, const std::string& kind, std::size_t least) {
    for (std::size_t length = least; length + 1 < whole.size(); length += 1 + whole.size() / 97) {
      file.write(whole.substr(0, length));
      INFO(kind << " cut to " << length << " of " << whole.size());
      CHECK_FALSE(fault_of(file.path()).empty());
    }
    // Changed bytes are another picture, or a fault; never anything else.
    const CounterRandom random(3, 1);
    for (std::uint64_t i = 0; i < 400; ++i) {
      std::string changed = whole;
      for (std::uint64_t j = 0; j <= i % 3; ++j)
        changed[random.bits(4 * i + j) % whole.size()] = static_cast<char>(random.bits(7000 + 4 * i + j));
      file.write(changed);
      fault_of(file.path());
    }
  };
  write_png(file.path(), 40, 30, 8, PNG_COLOR_TYPE_RGB, slopes(40, 30));
  check_all(file.bytes(), "PNG", 0);
  write_jpeg(file.path(), 40, 30, 3, true, slopes(40, 30));
  check_all(file.bytes(), "JPEG", 0);
  const std::string inks(4 * 256, 'x');
  write_jpeg(file.path(), 16, 16, 4, false, {inks.begin(), inks.end()});
  check_all(file.bytes(), "JPEG of inks", 0);
  for (const char* no : {"", "P6", "P6 2 2 255\nxxx", "P6 1 1 65535\nxxx", "P6 99999999 1 255\n",
                         "P6 # no end", "GIF89a", "\xFF\xD8\xFF"}) {
    file.write(no);
    CHECK_FALSE(fault_of(file.path()).empty());
  }
}

TEST_CASE("scaling keeps the mean, and a region is what it would be as a picture of its own") {
  const Picture picture = slope_picture(50, 40);
  for (const auto& [height, width] : {std::pair{40, 50}, {7, 9}, {83, 71}, {1, 1}}) {
    const auto image = scaled(picture, {0, 0, 40, 50, false}, height, width);
    for (std::size_t colour = 0; colour < 3; ++colour) {
      const auto begin = image.begin() + static_cast<std::ptrdiff_t>(colour * image.size() / 3);
      const double mean = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(image.size() / 3), 0.0) /
                          static_cast<double>(image.size() / 3);
      const auto from = picture.colours.begin() + static_cast<std::ptrdiff_t>(colour * 2000);
      CHECK(mean == Approx(std::accumulate(from, from + 2000, 0.0) / 2000).margin(1.5));
    }
  }
  const auto same = scaled(picture, {0, 0, 40, 50, false}, 40, 50);
  for (std::size_t i = 0; i < same.size(); ++i)
    CHECK(same[i] == Approx(static_cast<float>(picture.colours[i])));
  Picture part{10, 12, {}};
  for (int colour = 0; colour < 3; ++colour)
    for (int r = 0; r < 10; ++r)
      for (int c = 0; c < 12; ++c)
        part.colours.push_back(
            picture.colours[static_cast<std::size_t>((colour * 40 + 5 + r) * 50 + 20 + c)]);
  CHECK(scaled(picture, {5, 20, 10, 12, false}, 6, 8) == scaled(part, {0, 0, 10, 12, false}, 6, 8));
  const auto plain = scaled(part, {0, 0, 10, 12, false}, 6, 8),
             mirrored = scaled(part, {0, 0, 10, 12, true}, 6, 8);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(mirrored[i] == plain[i / 8 * 8 + 7 - i % 8]);
}

TEST_CASE(
    "regions are drawn by seed and sample, within the picture, of the sizes and forms that they should "
    "have") {
  const Picture picture = slope_picture(300, 200);
  int mirrored = 0;
  double area = 0;
  std::set<std::int64_t> widths;
  constexpr int kDraws = 2000;
  for (int i = 0; i < kDraws; ++i) {
    const PictureRegion region = region_of(picture, Augmentation::crop_flip, 5, i);
    const PictureRegion again = region_of(picture, Augmentation::crop_flip, 5, i);
    CHECK((again.left == region.left && again.width == region.width && again.mirrored == region.mirrored));
    CHECK((region.top >= 0 && region.left >= 0 && region.top + region.height <= 200 &&
           region.left + region.width <= 300));
    const double form = static_cast<double>(region.width) / static_cast<double>(region.height);
    CHECK((form > 0.72 && form < 1.38));
    area += static_cast<double>(region.width * region.height) / 60'000;
    mirrored += region.mirrored ? 1 : 0;
    widths.insert(region.width);
    const PictureRegion flip = region_of(picture, Augmentation::flip, 5, i);
    CHECK((flip.width == 300 && flip.height == 200 && flip.mirrored == region.mirrored));
  }
  CHECK(std::abs(mirrored - kDraws / 2) < 150);
  CHECK((area / kDraws > 0.35 && area / kDraws < 0.55));
  CHECK(widths.size() > 100);
  CHECK(region_of(picture, Augmentation::crop_flip, 6, 0).left !=
        region_of(picture, Augmentation::crop_flip, 5, 0).left);
  const PictureRegion whole = region_of(picture, Augmentation::none, 5, 0);
  CHECK((whole.width == 300 && whole.height == 200 && !whole.mirrored));
  // Of a ribbon no part has an allowed form but its whole height.
  const PictureRegion ribbon = region_of(Picture{2, 900, {}}, Augmentation::crop_flip, 1, 1);
  CHECK((ribbon.height == 2 && ribbon.width <= 3 && ribbon.left + ribbon.width <= 900));
}

}  // namespace orrery::test
