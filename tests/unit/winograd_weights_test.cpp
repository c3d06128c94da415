// Weights of Winograd's convolutions: what comes back from the transformed ones, which are all that is kept.
#include "extern_kernels/winograd/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tbx::test {
namespace {

using extern_kernels::OperandInfo;
using extern_kernels::winograd::kPanel, extern_kernels::winograd::Weights;

/// [results, channels, 3, 3] of what `next` gives.
template <class Next> OperandInfo operand(int64_t results, int64_t channels, Next next) {
  auto tensor = std::make_shared<Tensor>(Tensor::make(DType::f32, {results, channels, 3, 3}));
  for (float& w : tensor->as_mutable<float>()) w = next();
  return {DType::f32, tensor->dims, {channels * 9, 9, 3, 1}, tensor};
}

/// The bounds of plain() for every weight. NaN as NaN.
void expect_recovered(const OperandInfo& info, const Weights& weights) {
  const auto was = info.constant->as<float>();
  const int64_t channels = info.sizes[1];
  for (int64_t kernel = 0; kernel < info.sizes[0] * channels; ++kernel) {
    const int64_t result = kernel / channels, channel = kernel % channels;
    float most = 0;
    for (int64_t e = 0; e < 9; ++e) most = std::fmax(most, std::fabs(was[kernel * 9 + e]));
    for (int64_t e = 0; e < 9; ++e) {
      const float g = was[kernel * 9 + e];
      const float is =
          weights
              .plain()[(result / kPanel * 9 + e) * weights.panel_size() + channel * kPanel + result % kPanel];
      const bool is_corner = e % 2 == 0 && e != 4;
      if (is_corner || !std::isfinite(g)) {
        ASSERT_TRUE(is == g || (std::isnan(is) && std::isnan(g)))
            << kernel << " " << e << ": " << is << ", " << g;
        continue;
      }
      ASSERT_EQ(is == 0, g == 0) << kernel << " " << e << ": " << is << ", " << g;
      ASSERT_EQ(is < 0, g < 0) << kernel << " " << e;
      ASSERT_LE(std::fabs(static_cast<double>(is) - g), 0x1p-20 * most) << kernel << " " << e;
    }
  }
}

class WinogradWeights : public testing::TestWithParam<int> {
protected:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  float next() { return normal_(random_); }
};

TEST_P(WinogradWeights, ComeBack) {
  for (const auto& [results, channels] : {std::pair{1, 1}, {31, 3}, {33, 27}, {64, 130}}) {
    const OperandInfo info = operand(results, channels, [&] { return next(); });
    const Weights weights(info, GetParam());
    EXPECT_LE(weights.kept(), 2u); // smaller than what is nothing: one of a million
    expect_recovered(info, weights);
  }
}

TEST_P(WinogradWeights, ZerosAreKeptAsNothing) {
  const OperandInfo info = operand(64, 64, [&] { return random_() % 3 != 0 ? 0.0F : next(); });
  const Weights weights(info, GetParam());
  EXPECT_LE(weights.kept(), 2u);
  expect_recovered(info, weights);
}

TEST_P(WinogradWeights, ThatTheirKernelHidesAreKept) {
  const float hidden[] = {1e-30F, -1e-9F, 1e-44F, -1e-45F, 1e-7F, 6e-7F, -2e-6F, 1, -1};
  const OperandInfo info = operand(40, 30, [&] { return next() * hidden[random_() % 9]; });
  const Weights weights(info, GetParam());
  EXPECT_GT(weights.kept(), 0u);
  expect_recovered(info, weights);
}

TEST_P(WinogradWeights, OneThatItsKernelHidesIsKept) {
  for (const float size : {1e-8F, 1e-6F}) // some of the latter are large enough
    for (const int64_t hidden : {1, 3, 4, 5, 7}) {
      int64_t at = 0;
      const OperandInfo info = operand(40, 30, [&] { return at++ % 9 == hidden ? size * next() : next(); });
      const Weights weights(info, GetParam());
      EXPECT_GT(weights.kept(), size == 1e-8F ? 1000u : 500u) << hidden;
      expect_recovered(info, weights);
    }
}

/// Their products have fewer digits than others, or none.
TEST_P(WinogradWeights, OfTinyKernelsAreKept) {
  for (const float size : {1e-31F, 1e-37F, 1e-41F}) {
    const OperandInfo info = operand(40, 30, [&] { return next() * size; });
    expect_recovered(info, Weights(info, GetParam()));
  }
}

TEST_P(WinogradWeights, WithoutTransformsAreKept) {
  const float inf = std::numeric_limits<float>::infinity(), some[] = {3e38F, -3.4e38F, inf, -inf, NAN};
  const OperandInfo info = operand(40, 30, [&] { return random_() % 9 ? next() : some[random_() % 5]; });
  expect_recovered(info, Weights(info, GetParam()));
  const OperandInfo all = operand(2, 2, [&] { return 3.4e38F; });
  expect_recovered(all, Weights(all, GetParam()));
}

TEST_P(WinogradWeights, AreNoConstantAnyMore) {
  OperandInfo info = operand(8, 8, [&] { return next(); });
  const std::weak_ptr<const Tensor> constant = info.constant;
  const Weights weights(info, GetParam());
  info.constant.reset();
  EXPECT_TRUE(constant.expired());
  EXPECT_TRUE(std::isfinite(weights.plain()[0]));
}

INSTANTIATE_TEST_SUITE_P(Tiles, WinogradWeights, testing::Values(2, 4));

} // namespace
} // namespace tbx::test
