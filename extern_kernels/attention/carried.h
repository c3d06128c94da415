// Caches that attention gives out longer than it was given them: tokens of before are copied as they are
// read.
#pragma once

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::attention {

/// Keys or values [B, H, P, D] of before, and where they go.
class Carried {
public:
  /// Both have the same sizes and type.
  Carried(const TensorRef& from, const TensorRef& to);

  const TensorRef& from() const { return from_; }
  int64_t tokens() const { return from_.sizes[2]; }
  /// Copies tokens from `first` to before `end` of one head, as many of them as there are.
  void copy(int64_t batch, int64_t head, int64_t first, int64_t end) const;
  /// All of them, side by side.
  void copy_all() const;

private:
  const TensorRef &from_, &to_;
  int64_t width_;
  bool is_long_;
};

} // namespace tbx::extern_kernels::attention
