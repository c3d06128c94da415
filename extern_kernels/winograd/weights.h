// Weights of a convolution of 3 x 3 elements, packed for Winograd's products.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "extern_kernels/kernel.h"
#include "extern_kernels/winograd/loops.h"

namespace tbx::extern_kernels::winograd {

class Weights {
public:
  /// Transforms a constant [results, channels, 3, 3] of known strides, on all threads of the arena. `tile`:
  /// results along both sides.
  Weights(const OperandInfo& weights, int tile);

  int64_t out_channels() const { return out_channels_; }
  int64_t in_channels() const { return in_channels_; }
  int64_t panels() const { return panels_; }
  /// Elements of a panel for one product.
  int64_t panel_size() const { return panel_size_; }
  int64_t bytes() const { return products_ * panels_ * panel_size_ * static_cast<int64_t>(sizeof(float)); }

  /// [product, panel, channel, kPanel], zeros behind the last result.
  const float* transformed() const { return static_cast<const float*>(transformed_.get()); }
  /// Not transformed, [panel, element, channel, kPanel]. Made by the first call: few runs need them. The
  /// elements in the middle of a kernel's sides and of the kernel come back from the transformed ones, with
  /// their sign, 0 as 0, else within 2^-20 of the largest of their kernel; the corners are as they were.
  const float* plain() const;
  /// Weights that are kept beside the transformed ones, which do not tell them as closely.
  size_t kept() const { return kept_.size(); }

private:
  /// A weight as it was, and where it is in plain().
  struct Kept {
    int64_t at;
    float value;
  };

  int64_t place(int64_t panel, int element, int64_t channel) const {
    return (panel * 9 + element) * panel_size_ + channel * kPanel;
  }
  template <int M> void transform_all(const OperandInfo& weights);
  template <int M> void recover_all(float* plain) const;

  int64_t out_channels_, in_channels_;
  int products_;
  int64_t panels_, panel_size_;
  std::shared_ptr<void> transformed_;
  std::vector<Kept> kept_;
  mutable std::once_flag plain_once_;
  mutable std::shared_ptr<void> plain_;
};

} // namespace tbx::extern_kernels::winograd
