#include "base/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace orrery {
namespace {

template <std::size_t N>
std::string scaled(double value, double step, const std::array<std::string_view, N>& names) {
  std::size_t i = 0;
  while (i + 1 < N && std::abs(value) >= step) {
    value /= step;
    ++i;
  }
  const int digits = std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, names[i]);
}

}  // namespace

std::string human_bytes(double bytes) {
  return scaled(bytes, 1024, std::array<std::string_view, 6>{"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string human_seconds(double seconds) {
  if (std::abs(seconds) >= 1) return fmt::format("{:.3f} s", seconds);
  if (std::abs(seconds) >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} us", seconds * 1e6);
}

std::string human_duration(double seconds) {
  constexpr double kHour = 3600;
  if (seconds >= 2 * 24 * kHour) return fmt::format("{:.2f} days", seconds / 24 / kHour);
  if (seconds >= 2 * kHour) return fmt::format("{:.2f} hours", seconds / kHour);
  if (seconds >= 120) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return seconds > 0 ? human_seconds(seconds) : "0 s";
}

std::string human_change(double to, double from) {
  if (from <= 0) return "";
  return to < 10 * from ? fmt::format("{:+.1f}%", 100 * (to / from - 1))
                        : fmt::format("{:.3g} times", to / from);
}

std::string human_rate(double bytes_per_s) {
  return scaled(bytes_per_s, 1000, std::array<std::string_view, 5>{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

std::string human_flops_rate(double flops_per_s) {
  return scaled(
      flops_per_s, 1000,
      std::array<std::string_view, 6>{"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"});
}

std::string human_count(double count) {
  return scaled(count, 1000, std::array<std::string_view, 5>{"", "k", "M", "B", "T"});
}

std::string with_commas(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", with_commas(count), what, count == 1 ? "" : "s");
}

}  // namespace orrery
