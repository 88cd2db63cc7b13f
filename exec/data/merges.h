// Byte-pair merging of one word (Sennrich et al., arXiv 1508.07909).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace orrery::exec {

class Merges {
 public:
  // Merges come best first; one that is there already stays as it is.
  void add(std::int32_t first, std::int32_t second, std::int32_t token);
  std::size_t size() const { return merges_.size(); }
  // Round by round: of all neighbours the pair that comes first of the merges, everywhere it stands, from the
  // left. A heap finds it, so that a word of a million letters takes no quadratic time.
  std::vector<std::int32_t> merged(const std::vector<std::int32_t>& word) const;

 private:
  struct Merge {
    int rank = 0;
    std::int32_t token = 0;
  };
  std::unordered_map<std::uint64_t, Merge> merges_;  // by both tokens
};

}  // namespace orrery::exec
