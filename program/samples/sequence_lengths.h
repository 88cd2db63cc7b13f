// Sequences of unequal length: how many tokens a micro-batch of them computes, and who waits for whom.
//
// Padded, a micro-batch is as long as its longest sequence. Packed, sequences stand one behind another in
// rows of the full length and see no further than themselves, so that rows are full and only attention
// differs. Lengths are draws of one distribution; what is drawn together are expected values, nothing is
// random here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct SequenceLengths {
  // Tokens, ascending: each stands for as many of the sequences. Empty: all are as long as the training says.
  std::vector<int> tokens;
  bool packed = false;
  // Whoever deals them out looks at their lengths: micro-batches that are computed at once are alike
  // (sequences of like length stand together; packed rows get even sums of squares).
  bool balanced = false;
  // Samples of a replica and step over which different lengths average where a plan stands for one of more;
  // 0: its own.
  std::int64_t samples_each = 0;
  bool waits = true;  // replicas wait for the one that has the longest

  bool any() const { return !tokens.empty(); }
  bool operator==(const SequenceLengths&) const = default;
};

// "lognormal:MEAN,SD" (in tokens, of the distribution before it is cut off), or a file of whole numbers, one
// for each sequence: cut off at `longest`, as its quantiles. `cut`: is told how many of a file's. Throws
// UserError with what is wrong.
struct CutOff {
  std::size_t lengths = 0, of = 0;
};
SequenceLengths sequence_lengths_from(std::string_view said, int longest, CutOff* cut = nullptr);

// Of one sequence: how many tokens, and how long the sequences are that these stand in, in the mean over
// tokens (attention's work is their product).
struct Extent {
  double tokens = 0;
  double attended = 0;
};
// What is said, without padding. `longest`: of a row where packed.
Extent content(const SequenceLengths& lengths, int longest);
// What a micro-batch of so many computes for each of its sequences.
Extent computed(const SequenceLengths& lengths, int longest, int micro_batch);
// The most that a sequence of a micro-batch can take: what memory must have room for.
int longest_of(const SequenceLengths& lengths, int longest);

// For people, behind "sequences": "of 12 to 2,048 tokens, 270 in the mean, packed".
std::string describe(const SequenceLengths& lengths);

// How a step is divided, as far as waiting goes.
struct Division {
  std::int64_t replicas = 1;       // that wait for each other
  std::int64_t micro_batches = 1;  // of each, of
  int micro_batch = 1;             // sequences
  int stages = 1;
  bool at_each =
      false;  // they wait at each micro-batch (sharded weights, experts over replicas), not once a step
  double attention_share = 0;  // of the work, at the length attended: all that differs where packed
};
// By how much what the slowest replica computes exceeds the mean: at least 1. The largest of n sums is taken
// as that of normal draws (expected_largest); stages that fill wait for the longest of all micro-batches.
double wait_for_longest(const SequenceLengths& lengths, int longest, const Division& division);

}  // namespace orrery
