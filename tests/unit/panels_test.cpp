// Panels of a constant matrix: products against plain loops in double, and what is told of the source's
// bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/float_formats.h"
#include "extern_kernels/gemv/panels.h"
#include "tests/support/denormals_as_zero.h"

namespace tbx::extern_kernels::gemv {
namespace {

/// Sizes 0, 1 and odd ones, and one of several strips whose last panel is narrow.
struct Shape {
  int64_t k, n;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 0}, {7, 65}, {129, 200}, {20'000, 130}};

TEST(Panels, EveryByteIsToldOnceAndProductsAreRight) {
  for (const Shape s : kShapes)
    for (const bool by_columns : {false, true}) {
      const auto count = static_cast<size_t>(s.k * s.n);
      std::vector<float> matrix(count), x(static_cast<size_t>(s.k));
      for (size_t i = 0; i < count; ++i)
        matrix[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 13 % 17) - 8) / 16;
      std::vector<int> told(count * sizeof(float), 0);
      const int64_t row = by_columns ? 1 : s.n, column = by_columns ? s.k : 1;
      const Panels panels(matrix.data(), DType::f32, s.k, s.n, row, column,
                          [&](const void* begin, int64_t bytes) {
                            const auto at = static_cast<const std::byte*>(begin) -
                                            reinterpret_cast<const std::byte*>(matrix.data());
                            for (int64_t i = at; i < at + bytes; ++i) ++told.at(static_cast<size_t>(i));
                          });
      for (const int times : told) ASSERT_EQ(times, 1) << s.k << " x " << s.n;
      for (int64_t j = 0; j < s.n; ++j) {
        alignas(64) float sums[kPanel];
        panels.multiply(j / kPanel, x.data(), sums);
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < s.k; ++i) {
          const double term = static_cast<double>(x[i]) * matrix[i * row + j * column];
          want += term;
          magnitude += std::fabs(term);
        }
        ASSERT_NEAR(sums[j % kPanel], want, magnitude * static_cast<double>(s.k) * 0x1p-24 + 1e-30)
            << s.k << " x " << s.n << " column " << j;
      }
    }
}

/// The first columns of wider rows: what is told ends with the last of them.
TEST(Panels, AViewIsNotLeft) {
  constexpr int64_t k = 30'000, n = 70, row = 100, count = (k - 1) * row + n;
  const std::vector<float> matrix(static_cast<size_t>(count), 1), x(static_cast<size_t>(k), 0.5f);
  int64_t most = 0;
  const Panels panels(matrix.data(), DType::f32, k, n, row, 1, [&](const void* begin, int64_t bytes) {
    most = std::max(most, static_cast<const std::byte*>(begin) + bytes -
                              reinterpret_cast<const std::byte*>(matrix.data()));
  });
  EXPECT_EQ(most, count * static_cast<int64_t>(sizeof(float)));
  alignas(64) float sums[kPanel];
  panels.multiply(1, x.data(), sums);
  EXPECT_EQ(sums[0], k / 2);
  EXPECT_EQ(sums[n - kPanel], 0);
}

/// By rows, by columns and with other steps, of rows and columns that blocks of a copy do not divide.
template <class T> void expect_copied() {
  for (const Shape s : {Shape{1, 1}, {15, 5}, {16, 24}, {17, 23}, {33, 130}, {160, 48}, {1000, 77}})
    for (const int64_t width : {4, 6, 16, 24, 64})
      for (const auto& [row, column] : {std::pair{s.n, int64_t{1}},
                                        {int64_t{1}, s.k},
                                        {s.n + 3, int64_t{1}},
                                        {int64_t{1}, s.k + 5},
                                        {2 * s.n, int64_t{2}}}) {
        std::vector<T> matrix(static_cast<size_t>((s.k - 1) * row + (s.n - 1) * column + 1));
        for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<T>(i % 60'000 + 1);
        const int64_t count = (s.n + width - 1) / width;
        std::vector<T> panels(static_cast<size_t>(count * s.k * width), T(-1));
        copy_panels(matrix.data(), panels.data(), width, s.k, s.n, row, column, {});
        for (int64_t p = 0; p < count; ++p)
          for (int64_t i = 0; i < s.k; ++i)
            for (int64_t j = 0; j < width; ++j) {
              const int64_t at = p * width + j;
              ASSERT_EQ(panels[(p * s.k + i) * width + j], at < s.n ? matrix[i * row + at * column] : T(0))
                  << s.k << " x " << s.n << " in " << width << ", steps " << row << " " << column << " at "
                  << i << " " << at;
            }
      }
}

/// All halves there are, at odd places: as they are one by one.
TEST(Panels, HalvesAreWidenedOnTheWay) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const bool by_columns : {false, true})
      for (const Shape s : {Shape{1, 1}, {7, 19}, {256, 257}, {300, 221}})
        for (const int64_t width : {6, 16, 24}) {
          const int64_t row = by_columns ? 1 : s.n + 1, column = by_columns ? s.k + 3 : 1;
          std::vector<uint16_t> matrix(static_cast<size_t>((s.k - 1) * row + (s.n - 1) * column + 1));
          for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i);
          const int64_t count = (s.n + width - 1) / width;
          std::vector<float> panels(static_cast<size_t>(count * s.k * width), -1);
          copy_panels(type, matrix.data(), panels.data(), width, s.k, s.n, row, column, {});
          for (int64_t p = 0; p < count; ++p)
            for (int64_t i = 0; i < s.k; ++i)
              for (int64_t j = 0; j < width; ++j) {
                const int64_t at = p * width + j;
                const float want = at < s.n ? decode_float(type, matrix[i * row + at * column]) : 0;
                const float got = panels[(p * s.k + i) * width + j];
                ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                             : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want))
                    << s.k << " x " << s.n << " in " << width << " at " << i << " " << at;
              }
        }
}

/// Weights that are denormal halves are multiplied as normal numbers of f32.
TEST(Panels, DenormalHalvesAreNoDenormals) {
  constexpr int64_t k = 1023, n = 70;
  std::vector<uint16_t> matrix(static_cast<size_t>(k * n));
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i % 0x400);
  const std::vector<float> x(static_cast<size_t>(k), 1);
  const Panels panels(matrix.data(), DType::f16, k, n, n, 1, {});
  const test::DenormalsAsZero here;
  for (int64_t p = 0; p * kPanel < n; ++p) {
    alignas(64) float sums[kPanel];
    panels.multiply(p, x.data(), sums);
    for (int64_t j = p * kPanel; j < std::min(n, (p + 1) * kPanel); ++j) {
      int64_t want = 0; // of 2^-24, exact in f32
      for (int64_t i = 0; i < k; ++i) want += matrix[i * n + j];
      ASSERT_EQ(sums[j % kPanel], static_cast<float>(want) * 0x1p-24f) << "column " << j;
    }
  }
}

TEST(Panels, EveryElementIsCopiedToItsPlace) {
  expect_copied<float>();
  expect_copied<uint16_t>();
}

} // namespace
} // namespace tbx::extern_kernels::gemv
