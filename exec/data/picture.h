// Pictures in files: JPEG (libjpeg-turbo), PNG (libpng) and binary PPM.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace orrery::exec {

struct Picture {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<unsigned char> colours;  // 3 x height x width
};

// Whether the file's name says that it is a picture which read_picture reads, or one that it does not.
bool is_picture(const std::filesystem::path& path);
bool is_another_picture(const std::filesystem::path& path);

// By its first bytes and its size alone. Throws UserError on a file that read_picture refuses for them.
void check_begins_as_picture(const std::filesystem::path& path);

// By what the file holds, whatever its name. Red, green and blue of 256 levels: grey ones are all three,
// palettes are looked up, 16 bits lose the lower eight, transparency is left out, as are profiles. Throws
// UserError on a file that is none, is damaged or cut short, or is wider or higher than 16,384.
Picture read_picture(const std::filesystem::path& path);

// The part of a picture that becomes an image.
struct PictureRegion {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool mirrored = false;
};

// How pictures vary from epoch to epoch.
enum class Augmentation : std::uint8_t {
  none,       // the whole picture
  flip,       // mirrored or not
  crop_flip,  // a part of 8% to 100% of it, 3:4 to 4:3 (Szegedy et al., arXiv 1409.4842), mirrored or not
};

// Drawn by the seed and the sample's number alone.
PictureRegion region_of(const Picture& picture, Augmentation augmentation, std::uint64_t seed,
                        std::int64_t number);

// The region scaled to height x width by triangles as wide as what a pixel stands for (what PIL calls
// bilinear), channel by channel: 3 x height x width levels.
std::vector<float> scaled(const Picture& picture, const PictureRegion& region, std::int64_t height,
                          std::int64_t width);

}  // namespace orrery::exec
