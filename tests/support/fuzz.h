// Damaged inputs for parsers: truncated, overwritten, repeated and spliced, from printed seeds.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/random.h"

namespace orrery::testing {

// `sound` with one to eight kinds of damage, the same for the same seed.
inline std::string damaged(const std::string& sound, std::uint64_t seed) {
  const CounterRandom random(seed, 0xF022);
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random.bits(drawn++) % n; };
  std::string text = sound;
  const std::size_t wounds = 1 + below(8);
  for (std::size_t i = 0; i < wounds; ++i) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(64, text.size() - at) + 1);
    switch (below(7)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 4:
        text.insert(at, std::string(1 + below(3), "0123456789-.{}<>\"[]:e"[below(21)]));
        break;
      case 5:
        text.insert(at, "99999999999999999999");
        break;
      default:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
    }
  }
  return text;
}

// Calls `parse` on `rounds` damaged copies: it may succeed or throw UserError or NoAnswer, nothing else.
// Returns how many were refused.
template <typename Parse>
int survive(const std::string& sound, int rounds, const Parse& parse) {
  int refused = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    CAPTURE(seed);
    const std::string text = damaged(sound, static_cast<std::uint64_t>(seed));
    try {
      parse(text);
    } catch (const UserError& error) {
      ++refused;
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    } catch (const std::exception& error) {
      FAIL("seed " << seed << ": " << error.what());
    }
  }
  return refused;
}

}  // namespace orrery::testing
