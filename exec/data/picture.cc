#include "exec/data/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

// jpeglib.h wants <cstdio> before it.
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostSide = 1 << 14;
constexpr std::uint64_t kRegionStream = 0x726567696F6E;  // "region"

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

template <std::size_t n>
bool is_one_of(const std::string& extension, const std::array<const char*, n>& all) {
  return std::find(all.begin(), all.end(), extension) != all.end();
}

// What a library was given, made and said. It lives outside the functions that longjmp leaves.
struct Decoding {
  std::string_view bytes;
  std::size_t at = 0;
  std::vector<unsigned char> mixed;  // red, green, blue, pixel by pixel
  std::vector<unsigned char*> rows;
  std::vector<unsigned char> inks;  // of one row: cyan, magenta, yellow, black
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::string fault;
  std::jmp_buf out{};

  // Room for a picture of this size; false where that is none.
  bool make_room(std::int64_t its_height, std::int64_t its_width) {
    height = its_height;
    width = its_width;
    if (height < 1 || width < 1 || height > kMostSide || width > kMostSide) {
      fault = fmt::format("has {} x {} pixels, where 1 to {} a side are read", width, height, kMostSide);
      return false;
    }
    mixed.resize(static_cast<std::size_t>(3 * height * width));
    rows.resize(static_cast<std::size_t>(height));
    for (std::size_t r = 0; r < rows.size(); ++r)
      rows[r] = mixed.data() + 3 * r * static_cast<std::size_t>(width);
    return true;
  }
};

struct JpegErrors {
  jpeg_error_mgr manager;
  Decoding* decoding;
};

[[noreturn]] void leave_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::array<char, JMSG_LENGTH_MAX> text{};
  errors->manager.format_message(info, text.data());
  errors->decoding->fault = std::string("is no JPEG picture that can be read: ") + text.data();
  std::longjmp(errors->decoding->out, 1);
}

// Of what libjpeg only warns of: that some of the picture is lost. (Bytes between its parts lose nothing.)
void note_jpeg(j_common_ptr info, int level) {
  if (level >= 0) return;
  for (const int lost : {JWRN_HIT_MARKER, JWRN_JPEG_EOF, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC})
    if (info->err->msg_code == lost) leave_jpeg(info);
}

// As PIL does: what the inks leave of white. Adobe's programs, which alone write such files, count backwards.
void rgb_of_inks(const std::vector<unsigned char>& inks, bool adobe, unsigned char* row) {
  for (std::size_t pixel = 0; pixel < inks.size() / 4; ++pixel) {
    const auto white = [&](std::size_t ink) {
      const int value = inks[4 * pixel + ink];
      return adobe ? value : 255 - value;
    };
    for (std::size_t colour = 0; colour < 3; ++colour)
      row[3 * pixel + colour] = static_cast<unsigned char>((white(colour) * white(3) + 127) / 255);
  }
}

// False where it has said a fault.
bool decode_jpeg(Decoding* d) {
  jpeg_decompress_struct info;
  JpegErrors errors;
  std::memset(&info, 0, sizeof(info));
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = leave_jpeg;
  errors.manager.emit_message = note_jpeg;
  errors.decoding = d;
  if (setjmp(d->out) != 0) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(d->bytes.data()), d->bytes.size());
  jpeg_read_header(&info, TRUE);
  const bool inks = info.num_components == 4;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;  // the same on every machine
  const bool fits = d->make_room(info.image_height, info.image_width);
  if (fits) {
    jpeg_start_decompress(&info);
    if (inks) d->inks.resize(4 * static_cast<std::size_t>(d->width));
    while (info.output_scanline < info.output_height) {
      unsigned char** row = d->rows.data() + info.output_scanline;
      unsigned char* of_inks = d->inks.data();
      jpeg_read_scanlines(&info, inks ? &of_inks : row, 1);
      if (inks) rgb_of_inks(d->inks, info.saw_Adobe_marker != 0, *row);
    }
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return fits;
}

[[noreturn]] void leave_png(png_structp png, png_const_charp what) {
  auto* d = static_cast<Decoding*>(png_get_error_ptr(png));
  d->fault = std::string("is no PNG picture that can be read: ") + what;
  std::longjmp(d->out, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

void give_png(png_structp png, png_bytep into, std::size_t count) {
  auto* d = static_cast<Decoding*>(png_get_io_ptr(png));
  if (d->bytes.size() - d->at < count) png_error(png, "it is cut short");
  std::memcpy(into, d->bytes.data() + d->at, count);
  d->at += count;
}

bool decode_png(Decoding* d) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, leave_png, ignore_png_warning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    png_destroy_read_struct(&png, &info, nullptr);
    d->fault = "cannot be read: there is no memory for it";
    return false;
  }
  if (setjmp(d->out) != 0) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, d, give_png);
  png_read_info(png, info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const bool fits = d->make_room(png_get_image_height(png, info), png_get_image_width(png, info));
  if (fits) {
    if (png_get_rowbytes(png, info) != 3 * static_cast<std::size_t>(d->width))
      png_error(png, "it has no red, green and blue");
    png_read_image(png, d->rows.data());
    png_read_end(png, nullptr);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return fits;
}

bool decode_ppm(Decoding* d) {
  d->at = 2;
  const auto fail = [&](const char* what) {
    d->fault = what;
    return false;
  };
  std::array<std::int64_t, 3> numbers = {};  // width, height, levels
  for (std::int64_t& number : numbers) {
    int digits = 0;
    for (;; ++d->at) {
      if (d->at == d->bytes.size()) return fail("is cut short");
      const auto c = static_cast<unsigned char>(d->bytes[d->at]);
      if (c == '#') {
        d->at = std::min(d->bytes.find('\n', d->at), d->bytes.size() - 1);
      } else if (std::isdigit(c) != 0) {
        number = number * 10 + (c - '0');
        if (++digits > 6) return fail("has a header that makes no sense");
      } else if (digits > 0) {
        ++d->at;  // one space ends the header
        break;
      }
    }
  }
  if (numbers[2] != 255) return fail("has not 255 levels");
  if (!d->make_room(numbers[1], numbers[0])) return false;
  if (d->bytes.size() - d->at < d->mixed.size()) return fail("is cut short");
  std::memcpy(d->mixed.data(), d->bytes.data() + d->at, d->mixed.size());
  return true;
}

// What each new place takes of the old ones [first, first + weights): sums to 1.
struct Tap {
  std::int64_t first = 0;
  std::vector<float> weights;
};

// Pixels are squares: the middle of pixel i of n lies at (i + 0.5) / n.
std::vector<Tap> taps_of(std::int64_t from, std::int64_t to) {
  const double each = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, each);
  std::vector<Tap> taps(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * each;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(middle - reach + 0.5));
    const auto end = std::min<std::int64_t>(from, static_cast<std::int64_t>(middle + reach + 0.5));
    Tap& tap = taps[static_cast<std::size_t>(i)];
    tap.first = first;
    double sum = 0;
    std::vector<double> weights;
    for (std::int64_t j = first; j < end; ++j) {
      const double away = std::abs(static_cast<double>(j) + 0.5 - middle) / reach;
      weights.push_back(std::max(0.0, 1 - away));
      sum += weights.back();
    }
    for (const double weight : weights) tap.weights.push_back(static_cast<float>(weight / sum));
  }
  return taps;
}

}  // namespace

bool is_picture(const fs::path& path) {
  return is_one_of(lower_extension(path), std::array{".jpg", ".jpeg", ".png", ".ppm"});
}

bool is_another_picture(const fs::path& path) {
  return is_one_of(lower_extension(path), std::array{".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm"});
}

namespace {

enum class PictureKind { jpeg, png, ppm, none };

PictureKind kind_by(std::string_view begin) {
  if (begin.substr(0, 3) == "\xFF\xD8\xFF") return PictureKind::jpeg;
  if (begin.substr(0, 8) == std::string_view("\x89PNG\r\n\x1A\n", 8)) return PictureKind::png;
  return begin.substr(0, 2) == "P6" ? PictureKind::ppm : PictureKind::none;
}

[[noreturn]] void refuse_picture(const fs::path& path, const std::string& fault) {
  throw UserError(path.string(), 0, fault, "a JPEG, PNG or binary PPM picture (P6, 255 levels)");
}

}  // namespace

void check_begins_as_picture(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 8> begin{};
  in.read(begin.data(), begin.size());
  const auto got = static_cast<std::size_t>(in.gcount());
  if (!in.is_open()) refuse_picture(path, std::string("cannot be opened: ") + std::strerror(errno));
  if (got == 0) refuse_picture(path, "is empty");
  if (kind_by({begin.data(), got}) == PictureKind::none) refuse_picture(path, "is no picture");
}

Picture read_picture(const fs::path& path) {
  const std::string bytes = read_file(path.string());
  Decoding d;
  d.bytes = bytes;
  d.fault = "is no picture";
  bool whole = false;
  switch (kind_by(bytes)) {
    case PictureKind::jpeg:
      whole = decode_jpeg(&d);
      break;
    case PictureKind::png:
      whole = decode_png(&d);
      break;
    case PictureKind::ppm:
      whole = decode_ppm(&d);
      break;
    case PictureKind::none:
      break;
  }
  if (!whole) refuse_picture(path, d.fault);
  Picture picture{d.height, d.width, std::vector<unsigned char>(d.mixed.size())};
  const std::size_t pixels = d.mixed.size() / 3;
  for (std::size_t i = 0; i < pixels; ++i)
    for (std::size_t c = 0; c < 3; ++c) picture.colours[c * pixels + i] = d.mixed[3 * i + c];
  return picture;
}

PictureRegion region_of(const Picture& picture, Augmentation augmentation, std::uint64_t seed,
                        std::int64_t number) {
  PictureRegion region{0, 0, picture.height, picture.width, false};
  if (augmentation == Augmentation::none) return region;
  const CounterRandom random(seed ^ splitmix64(static_cast<std::uint64_t>(number)), kRegionStream);
  region.mirrored = random.uniform(0) < 0.5;
  if (augmentation == Augmentation::flip) return region;
  // Ten tries, then the most of the middle that has an allowed form.
  constexpr double kLeastArea = 0.08, kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;
  constexpr std::uint64_t kTries = 10;
  const auto height = static_cast<double>(picture.height), width = static_cast<double>(picture.width);
  for (std::uint64_t attempt = 0; attempt < kTries; ++attempt) {
    const auto draw = [&](std::uint64_t which) { return random.uniform(1 + 4 * attempt + which); };
    const double area = height * width * (kLeastArea + (1 - kLeastArea) * draw(0));
    const double form = std::exp(std::log(kNarrowest) + std::log(kWidest / kNarrowest) * draw(1));
    const auto wide = static_cast<std::int64_t>(std::lround(std::sqrt(area * form)));
    const auto high = static_cast<std::int64_t>(std::lround(std::sqrt(area / form)));
    if (wide < 1 || high < 1 || wide > picture.width || high > picture.height) continue;
    const auto of = [](double share, std::int64_t places) {
      return std::min(places - 1, static_cast<std::int64_t>(share * static_cast<double>(places)));
    };
    return {of(draw(2), picture.height - high + 1), of(draw(3), picture.width - wide + 1), high, wide,
            region.mirrored};
  }
  region.width = std::clamp<std::int64_t>(std::lround(height * kWidest), 1, picture.width);
  region.height = std::clamp<std::int64_t>(std::lround(width / kNarrowest), 1, picture.height);
  region.left = (picture.width - region.width) / 2;
  region.top = (picture.height - region.height) / 2;
  return region;
}

std::vector<float> scaled(const Picture& picture, const PictureRegion& region, std::int64_t height,
                          std::int64_t width) {
  const std::vector<Tap> rows = taps_of(region.height, height);
  const std::vector<Tap> columns = taps_of(region.width, width);
  std::vector<float> image(static_cast<std::size_t>(3 * height * width));
  std::vector<float> narrow(static_cast<std::size_t>(region.height * width));  // scaled across
  auto out = image.begin();
  for (std::int64_t colour = 0; colour < 3; ++colour) {
    auto across = narrow.begin();
    for (std::int64_t r = 0; r < region.height; ++r) {
      const auto from =
          static_cast<std::size_t>((colour * picture.height + region.top + r) * picture.width + region.left);
      for (std::int64_t c = 0; c < width; ++c) {
        const Tap& tap = columns[static_cast<std::size_t>(region.mirrored ? width - 1 - c : c)];
        float sum = 0;
        for (std::size_t i = 0; i < tap.weights.size(); ++i)
          sum += tap.weights[i] *
                 static_cast<float>(picture.colours[from + static_cast<std::size_t>(tap.first) + i]);
        *across++ = sum;
      }
    }
    for (const Tap& tap : rows)
      for (std::int64_t c = 0; c < width; ++c) {
        float sum = 0;
        for (std::size_t i = 0; i < tap.weights.size(); ++i)
          sum += tap.weights[i] *
                 narrow[(static_cast<std::size_t>(tap.first) + i) * static_cast<std::size_t>(width) +
                        static_cast<std::size_t>(c)];
        *out++ = sum;
      }
  }
  return image;
}

}  // namespace orrery::exec
