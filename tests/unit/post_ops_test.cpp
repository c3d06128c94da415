// Post-operations in vectors against the functions of the C library in double.
#include "extern_kernels/post_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

TEST(PostOps, AreAsExactAsFloatsAre) {
  constexpr int64_t kCount = 1 << 16;
  std::vector<float> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[i] = (static_cast<float>(i) - kCount / 2) / 2048 * 0.99f;
  for (const PostOp& op : std::vector<PostOp>{{PostOp::relu},
                                              {PostOp::leaky_relu, 0.2f},
                                              {PostOp::clip, -1, 2.5f},
                                              {PostOp::gelu_erf},
                                              {PostOp::gelu_tanh},
                                              {PostOp::silu, 2},
                                              {PostOp::sigmoid},
                                              {PostOp::tanh},
                                              {PostOp::hard_sigmoid, 0.2f, 0.5f},
                                              {PostOp::hard_swish},
                                              {PostOp::linear, 2, 3},
                                              {PostOp::round}}) {
    std::vector<float> y = x;
    activate(op, y.data(), kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      const double want = apply_post_op(op, x[i], 0);
      // What is cancelled is lost to all who compute it so: the scale is that of x there.
      const bool is_plain = op.kind == PostOp::silu || op.kind == PostOp::sigmoid || op.kind == PostOp::tanh;
      const double scale = std::max(std::fabs(want), is_plain ? 1e-30 : std::fabs(static_cast<double>(x[i])));
      ASSERT_LE(std::fabs(y[i] - want), 0x1p-21 * scale)
          << "kind " << op.kind << " of " << x[i] << ": " << y[i] << ", wanted " << want;
    }
  }
}

TEST(PostOps, NumbersWithoutEndStay) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  for (const PostOp::Kind kind : {PostOp::relu, PostOp::gelu_erf, PostOp::gelu_tanh, PostOp::silu,
                                  PostOp::sigmoid, PostOp::tanh, PostOp::hard_swish, PostOp::round}) {
    std::vector<float> y(16, 1.0f);
    y[0] = kNan;
    y[1] = kInf;
    activate({kind, 1}, y.data(), 16);
    EXPECT_TRUE(std::isnan(y[0])) << "kind " << kind;
    EXPECT_EQ(y[1], kind == PostOp::sigmoid || kind == PostOp::tanh ? 1 : kInf) << "kind " << kind;
  }
}

/// Vectors are computed several at a time, and the rest alone.
TEST(PostOps, GeluOfAnyNumberOfVectors) {
  constexpr int64_t kVector = 16; // of the widest ones
  for (int64_t n = 0; n <= 20 * kVector; n += kVector) {
    std::vector<float> x(static_cast<size_t>(n) + kVector, -1.5f);
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 37 % 101) * 0.13f - 8;
    std::vector<float> y = x;
    activate({PostOp::gelu_erf}, y.data(), n);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_LE(std::fabs(y[i] - apply_post_op({PostOp::gelu_erf}, x[i], 0)), 0x1p-22 * std::fabs(x[i]))
          << i << " of " << n << ": gelu of " << x[i];
    for (int64_t i = n; i < n + kVector; ++i) ASSERT_EQ(y[i], -1.5f) << "what is behind " << n;
  }
}

/// Far below 0 there is next to nothing of x left, and nothing in the end, however large it is.
TEST(PostOps, GeluFarBelowZero) {
  std::vector<float> y(16);
  for (size_t i = 0; i < y.size(); ++i) y[i] = -std::ldexp(1.0f, static_cast<int>(i * 9)); // to 2^135: -inf
  std::vector<float> x = y;
  activate({PostOp::gelu_erf}, y.data(), static_cast<int64_t>(y.size()));
  for (size_t i = 1; i + 1 < y.size(); ++i) ASSERT_NEAR(y[i], 0, 1e-30) << "gelu of " << x[i];
}

TEST(PostOps, OperandsHaveAnyStep) {
  for (const int64_t n : {0, 1, 7, 8, 16, 17, 33})
    for (const int64_t step : {-2, 0, 1, 3})
      for (const PostOp::Kind kind : {PostOp::add, PostOp::sub, PostOp::mul, PostOp::div, PostOp::sum}) {
        std::vector<float> x(static_cast<size_t>(n)), operand(static_cast<size_t>(4 * n + 1));
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 1;
        for (size_t i = 0; i < operand.size(); ++i) operand[i] = static_cast<float>(i % 11) + 0.5f;
        const float* from = operand.data() + (step < 0 ? -step * n : 0);
        std::vector<float> y = x;
        combine(kind, y.data(), from, step, n);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_FLOAT_EQ(y[i], static_cast<float>(apply_post_op({kind}, x[i], from[i * step])))
              << n << " by " << step;
      }
}

} // namespace
} // namespace tbx::extern_kernels
