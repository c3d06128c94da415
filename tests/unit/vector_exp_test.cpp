#include "extern_kernels/vector_exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tbx::extern_kernels {
namespace {

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));

TEST(VectorExp, IsOneUlpOffAtMost) {
  constexpr int kSteps = 20000, kLanes = 16;
  double worst = 0;
  for (int step = 0; step < kSteps; ++step) {
    Lanes x, y;
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = -87.0f * (step * kLanes + lane) / (kSteps * kLanes);
    exp_of_negative<Ints>(x, y);
    for (int lane = 0; lane < kLanes; ++lane) {
      double wanted = std::exp(static_cast<double>(x[lane]));
      worst = std::max(worst, std::abs(y[lane] - wanted) / wanted);
    }
  }
  EXPECT_LT(worst, 0x1p-23);
}

} // namespace
} // namespace tbx::extern_kernels
