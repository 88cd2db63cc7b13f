// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2; constants of PyTorch's
// GradScaler): gradients in half precision neither vanish nor overflow.
#pragma once

namespace orrery::exec {

class LossScaler {
 public:
  LossScaler() = default;
  LossScaler(float scale, int good) : scale_(scale), good_(good) {}  // as a checkpoint has it
  int good() const { return good_; }
  float scale() const { return scale_; }
  // After each step; whether its gradients were finite.
  void update(bool finite) {
    good_ = finite ? good_ + 1 : 0;
    if (!finite) {
      scale_ *= 0.5F;
    } else if (good_ == kGrowthInterval) {
      scale_ *= 2;
      good_ = 0;
    }
  }

 private:
  static constexpr int kGrowthInterval = 2000;
  float scale_ = 65536;
  int good_ = 0;  // finite steps in a row
};

}  // namespace orrery::exec
