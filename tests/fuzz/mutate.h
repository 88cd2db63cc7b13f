// Damage to real files, by a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"

namespace orrery::fuzz {

inline std::string mutate(std::string bytes, std::uint64_t seed) {
  static const std::vector<std::string> words = {"0",
                                                 "-1",
                                                 "1e999",
                                                 "null",
                                                 "true",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 "\"",
                                                 "9223372036854775807",
                                                 "4294967295",
                                                 "2147483648",
                                                 "nan",
                                                 "",
                                                 "\xff\xff\xff\xff\x7f",
                                                 "\x00",
                                                 "layers",
                                                 "inputs: 0"};
  const CounterRandom random(seed, 0);
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t n) { return n == 0 ? 0 : random.bits(draw++) % n; };
  for (std::uint64_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = std::min<std::size_t>(below(16), bytes.size() - at);
    switch (below(6)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), 64));
        break;
      case 3:
        bytes.replace(at, length, words[below(words.size())]);
        break;
      case 4:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      default: {
        // A digit more or another one: numbers are where parsers break.
        const auto digit = bytes.find_first_of("0123456789", at);
        if (digit != std::string::npos) bytes.insert(digit, 1, static_cast<char>('0' + below(10)));
        break;
      }
    }
  }
  return bytes;
}

}  // namespace orrery::fuzz
