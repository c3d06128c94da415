// Weights of a convolution of 3 x 3 elements, packed for Winograd's products.
#pragma once

#include <memory>
#include <mutex>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::winograd {

class Weights {
public:
  /// Transforms a constant [results, channels, 3, 3] of known strides, on all threads of the arena. `tile`:
  /// results along both sides.
  Weights(const OperandInfo& weights, int tile);

  int64_t out_channels() const { return info_.sizes[0]; }
  int64_t in_channels() const { return info_.sizes[1]; }
  int64_t panels() const { return panels_; }
  /// Elements of a panel for one product.
  int64_t panel_size() const { return panel_size_; }
  int64_t bytes() const { return products_ * panels_ * panel_size_ * static_cast<int64_t>(sizeof(float)); }

  /// [product, panel, channel, kPanel], zeros behind the last result.
  const float* transformed() const { return static_cast<const float*>(transformed_.get()); }
  /// As they are, [panel, element, channel, kPanel]. Made by the first call: few runs need them.
  const float* plain() const;

private:
  template <class Put> void each_line(Put put) const;

  OperandInfo info_;
  int products_;
  int64_t panels_, panel_size_;
  std::shared_ptr<void> transformed_;
  mutable std::once_flag plain_once_;
  mutable std::shared_ptr<void> plain_;
};

} // namespace tbx::extern_kernels::winograd
