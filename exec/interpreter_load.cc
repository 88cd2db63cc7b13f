// The interpreter's input: which samples, and which of their tokens, a rank loads.
#include <algorithm>
#include <span>

#include "exec/interpreter.h"
#include "exec/objective.h"
#include "exec/ring_attention.h"

namespace orrery::exec {

// A whole sample of the global batch, as the model's objective wants it.
void Interpreter::load_whole_sample(std::int64_t sample, std::span<std::int32_t> tokens,
                                    std::span<std::int32_t> targets) const {
  data_.sample(step_, sample, tokens, targets);
  if (plan_.job->workload.transformer->mlm_head)
    hide_tokens(*plan_.job, step_, sample, data_.largest_token() + 1, tokens, targets);
}

// This rank's rows of a sample: all, or its two parts of the sequence.
void Interpreter::load_sample(std::int64_t sample, std::span<std::int32_t> tokens,
                              std::span<std::int32_t> targets) const {
  const Choices& choices = plan_.choices;
  if (choices.cp == 1) {
    load_whole_sample(sample, tokens, targets);
    return;
  }
  const auto seq = static_cast<std::size_t>(plan_.job->training.seq_len);
  std::vector<std::int32_t> all_tokens(seq);
  std::vector<std::int32_t> all_targets(seq);
  load_whole_sample(sample, all_tokens, all_targets);
  const ContextPart part = context_part(plan_.job->training.seq_len, choices.cp, program_.at.cp);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto from = static_cast<std::size_t>(part.first[i]);
    const auto length = static_cast<std::size_t>(part.length);
    std::copy_n(all_tokens.begin() + static_cast<std::ptrdiff_t>(from), length,
                tokens.begin() + static_cast<std::ptrdiff_t>(i * length));
    std::copy_n(all_targets.begin() + static_cast<std::ptrdiff_t>(from), length,
                targets.begin() + static_cast<std::ptrdiff_t>(i * length));
  }
}

void Interpreter::compile_load(const Instruction& instruction, std::vector<Step>& steps) {
  const int micro_batch = instruction.micro_batch;
  if (one_process()) {
    compile_load_for_all(instruction, steps);
    return;
  }
  steps.push_back([this, micro_batch] {
    const auto rows = static_cast<std::size_t>(layers_.rows());
    const auto per_sample = rows / static_cast<std::size_t>(plan_.choices.micro_batch);
    std::vector<std::int32_t> tokens(rows);
    std::vector<std::int32_t> targets(rows);
    for (int i = 0; i < plan_.choices.micro_batch; ++i) {
      const std::int64_t sample =
          first_sample_ + static_cast<std::int64_t>(micro_batch) * plan_.choices.micro_batch + i;
      const std::size_t at = static_cast<std::size_t>(i) * per_sample;
      load_sample(sample, std::span(tokens).subspan(at, per_sample),
                  std::span(targets).subspan(at, per_sample));
    }
    const std::int64_t offset = micro_batch * layers_.rows();
    device_.copy_to_device(batch_.tokens + offset, tokens.data(), rows * sizeof(std::int32_t));
    device_.copy_to_device(batch_.targets + offset, targets.data(), rows * sizeof(std::int32_t));
  });
}

}  // namespace orrery::exec
