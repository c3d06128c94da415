#include "extern_kernels/vector_exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

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

#if defined(__x86_64__)
typedef float Half __attribute__((vector_size(32), may_alias));
typedef int32_t HalfInts __attribute__((vector_size(32), may_alias));

__attribute__((target("avx2,fma"))) void exp_fused(float* x) {
  Half in, out;
  std::memcpy(&in, x, sizeof in);
  exp_of_negative_fused<HalfInts>(in, Half{} + kLeastPower, out);
  std::memcpy(x, &out, sizeof out);
}

TEST(VectorExp, FusedKeepsItsBound) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP();
  constexpr int kSteps = 40000, kLanes = 8;
  double worst = 0; // of what is allowed
  for (int step = 0; step < kSteps; ++step) {
    float x[kLanes], y[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
      x[lane] = y[lane] = -87.0f * (step * kLanes + lane) / (kSteps * kLanes);
    exp_fused(y);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double wanted = std::exp(static_cast<double>(x[lane]));
      // Of tests, which are compiled without fused products: |x| / 2 more.
      const double allowed = (2 + std::abs(x[lane]) * 5 / 8) * 0x1p-23;
      worst = std::max(worst, std::abs(y[lane] - wanted) / wanted / allowed);
    }
  }
  EXPECT_LT(worst, 1);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  float ends[kLanes] = {0, -kInf, NAN, -NAN, -88.1f, -1e30f, -0.0f, -std::numeric_limits<float>::max()};
  exp_fused(ends);
  EXPECT_TRUE(std::isnan(ends[2]) && std::isnan(ends[3]));
  for (int i : {0, 6}) EXPECT_EQ(ends[i], 1);
  for (int i : {1, 4, 5, 7}) EXPECT_EQ(ends[i], 0);
}
#endif

} // namespace
} // namespace tbx::extern_kernels
