// The interpreter's input: which samples, and which of their tokens, a rank loads.
#include <algorithm>
#include <span>
#include <utility>

#include "exec/math/image_layers.h"
#include "exec/math/objective.h"
#include "exec/run/interpreter.h"
#include "program/operator_shard.h"
#include "workloads/image_operator.h"

namespace orrery::exec {

// A whole sample of the global batch, as the model's objective wants it.
void Interpreter::load_whole_sample(std::int64_t sample, std::span<std::int32_t> tokens,
                                    std::span<std::int32_t> targets) const {
  text_->sample(step_, sample, tokens, targets);
  if (plan_.job->workload.transformer->mlm_head)
    hide_tokens(*plan_.job, step_, sample, text_->largest_token().value() + 1, tokens, targets,
                text_->mask_token());
}

// Of images all samples: tensor ranks share them, and split operators compute all.
std::int64_t Interpreter::keyed_rows() const {
  return images_ != nullptr ? plan_.choices.micro_batch : math_->rows();
}

void Interpreter::load_row_keys() {
  if (batch_.row_keys == nullptr) return;
  const Choices& choices = plan_.choices;
  const int seq = images_ != nullptr ? 1 : plan_.job->training.seq_len;
  std::vector<int> positions;
  if (choices.cp > 1) {
    const ContextPart part = context_part(seq, choices.cp, program_.at.cp);
    for (const int first : part.first)
      for (int i = 0; i < part.length; ++i) positions.push_back(first + i);
  } else {
    for (int i = 0; i < seq; ++i) positions.push_back(i);
  }
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(micro_batches_ * keyed_rows()), kKeepsAll);
  auto key = keys.begin();
  for (std::int64_t micro_batch = 0; !evaluating_ && micro_batch < micro_batches_; ++micro_batch) {
    // One process deals out each micro-batch's samples member by member.
    const std::int64_t before = one_process() ? micro_batch * choices.dp + program_.at.dp : micro_batch;
    const std::int64_t first = (one_process() ? 0 : first_sample_) + before * choices.micro_batch;
    for (std::int64_t i = 0; i < choices.micro_batch; ++i)
      for (const int position : positions)
        *key++ = dropout_row_key(plan_.job->training.seed, step_, first + i, position);
  }
  device_.copy_to_device(batch_.row_keys, keys.data(), keys.size() * sizeof(std::uint64_t));
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
  // Samples are read when their micro-batch is loaded, here from the page cache.
  if (instruction.writes.front().kind == TensorKind::next_batch) return;
  const int micro_batch = instruction.micro_batch;
  if (one_process()) {
    compile_load_for_all(instruction, steps);
    return;
  }
  if (images_ != nullptr) {
    compile_load_images(instruction, steps);
    return;
  }
  steps.push_back([this, micro_batch] {
    const auto rows = static_cast<std::size_t>(math_->rows());
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
    const std::int64_t offset = micro_batch * math_->rows();
    device_.copy_to_device(batch_.tokens + offset, tokens.data(), rows * sizeof(std::int32_t));
    device_.copy_to_device(batch_.targets + offset, targets.data(), rows * sizeof(std::int32_t));
  });
}

std::int64_t Interpreter::picture_elements() const {
  return images_ == nullptr ? 0 : picture_shape(plan_.job->workload).elements();
}

// The pictures where the first operators are, the classes everywhere; tensor ranks share the samples, but for
// pictures that a split operator reads.
void Interpreter::compile_load_images(const Instruction& instruction, std::vector<Step>& steps) {
  const auto per_sample = static_cast<std::size_t>(picture_elements());
  const auto rows = static_cast<std::size_t>(math_->rows());
  const bool reads = program_.at.pp == 0;
  const int micro_batch = instruction.micro_batch;
  const auto own = static_cast<std::size_t>(program_.at.tp) * rows;  // this rank's first
  const auto pictures_read = reads ? static_cast<std::size_t>(math_->picture_rows()) : rows;
  const std::size_t first = pictures_read > rows ? 0 : own;
  const Pictures into =
      reads ? define_pictures(micro_batch, static_cast<std::int64_t>(pictures_read * per_sample))
            : Pictures{};
  const std::size_t load = loads_.size();
  loads_.push_back(
      {static_cast<std::int64_t>(micro_batch) * plan_.choices.micro_batch + static_cast<std::int64_t>(first),
       static_cast<std::int64_t>(pictures_read)});
  steps.push_back([=, this] {
    load_images(load);
    if (reads) {
      device_.copy_to_device(values_.at(into.loaded), pictures_.pictures.data(),
                             pictures_.pictures.size() * sizeof(float));
      hold_pictures(into);
    }
    device_.copy_to_device(batch_.targets + micro_batch * math_->rows(),
                           pictures_.labels.data() + (own - first), rows * sizeof(std::int32_t));
  });
}

Interpreter::Pictures Interpreter::define_pictures(int micro_batch, std::int64_t elements) {
  Pictures pictures;
  pictures.elements = elements;
  pictures.held = values_.define(ImageLayers::images(micro_batch), elements);
  pictures.loaded = values_.type(pictures.held) == DType::fp32
                        ? pictures.held
                        : values_.define_unnamed(DType::fp32, elements);
  return pictures;
}

void Interpreter::hold_pictures(const Pictures& pictures) {
  if (pictures.loaded == pictures.held) return;
  device_.narrow(values_.type(pictures.held), values_.floats(pictures.loaded),
                 static_cast<std::uint16_t*>(values_.at(pictures.held)),
                 static_cast<std::size_t>(pictures.elements), 1, false);
}

// Of the global batch. What first_sample_ is, servers' workers know when they have asked.
SampleRange Interpreter::samples_of(std::size_t load) const {
  SampleRange samples = loads_[load];
  if (!one_process()) samples.first += first_sample_;
  return samples;
}

// Load `load` of this step becomes pictures_.
void Interpreter::load_images(std::size_t load) {
  if (ahead_) return ahead_->take(step_, load, pictures_);
  make_images(*images_, step_, samples_of(load), static_cast<std::size_t>(picture_elements()), pictures_);
}

void Interpreter::load_ahead(std::int64_t end_step) {
  if (images_ == nullptr || servers_ || loads_.empty()) return;
  std::vector<SampleRange> loads;
  for (std::size_t load = 0; load < loads_.size(); ++load) loads.push_back(samples_of(load));
  ahead_.emplace(*images_, static_cast<std::size_t>(picture_elements()), std::move(loads), end_step);
}

}  // namespace orrery::exec
