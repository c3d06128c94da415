// Kernel values of a row against all support vectors of a machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tbx::extern_kernels {

enum class KernelType { linear, poly, rbf, sigmoid };

class SvmKernels {
public:
  SvmKernels() = default;
  /// `support` has at least `vectors` * `features` elements.
  SvmKernels(KernelType type, double gamma, double coef0, double degree, std::span<const float> support,
             int64_t vectors, int64_t features);

  /// Values of x [features] in the first `vectors` elements of `out`, which is resized.
  void operator()(const float* x, std::vector<float>& out) const;

private:
  KernelType type_ = KernelType::linear;
  double gamma_ = 0, coef0_ = 0, degree_ = 0;
  int64_t vectors_ = 0, features_ = 0;
  std::vector<float> blocks_; ///< [vectors / 16][features][16]
};

} // namespace tbx::extern_kernels
