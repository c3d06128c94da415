// Rows of 8-bit digits times packed integers, against loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "extern_kernels/gemv/byte_rows.h"

namespace tbx::extern_kernels::gemv {
namespace {

struct Case {
  int64_t k, n, block;
  int bits;
  bool zeros;
};

/// A matrix as QuantizedPanels takes it, and its elements.
struct Matrix {
  std::vector<uint8_t> data;
  std::vector<float> scales, zeros;
  std::vector<double> elements; ///< [n, padded k]
  int64_t padded;

  explicit Matrix(const Case& c) {
    const int64_t blocks = (c.k + c.block - 1) / c.block;
    padded = blocks * c.block;
    data.assign(static_cast<size_t>(c.n * padded * c.bits / 8), 0);
    for (int64_t i = 0; i < c.n * blocks; ++i) {
      scales.push_back(static_cast<float>(1 + i * 7 % 11) / 16);
      if (c.zeros) zeros.push_back(static_cast<float>(i * 5 % (1 << c.bits)));
    }
    for (int64_t i = 0; i < c.n * padded; ++i) {
      const int q = static_cast<int>(i * 2654435761u >> 7) & ((1 << c.bits) - 1);
      data[static_cast<size_t>(i * c.bits / 8)] |= static_cast<uint8_t>(q << (i * c.bits % 8));
      const auto b = static_cast<size_t>(i / c.block);
      elements.push_back((q - (c.zeros ? zeros[b] : 1 << (c.bits - 1))) * double{scales[b]});
    }
  }
};

float input(int64_t i) { // of very different sizes, which a step per row would lose
  const auto sign = static_cast<float>(i * 13 % 17 - 8);
  return i % 5 == 4 ? sign / 4096 : i % 29 == 3 ? sign * 100 : sign / 8;
}

void check(const Case& c, int64_t rows, Digits digits) {
  const Matrix m(c);
  const QuantizedPanels panels(
      {c.k, c.n, c.block, c.bits, m.data.data(), m.scales.data(), c.zeros ? m.zeros.data() : nullptr});
  std::vector<float> x(static_cast<size_t>(rows * m.padded), 0.0f);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < c.k; ++i) x[static_cast<size_t>(r * m.padded + i)] = input(r * c.k + i);
  std::vector<std::byte> memory(static_cast<size_t>(ByteRows::bytes(rows, m.padded, c.block, digits)));
  const ByteRows of_bytes(x.data(), rows, m.padded, m.padded, c.block, c.bits, digits, memory.data());
  ASSERT_TRUE(of_bytes.made());
  if (digits == Digits::one)
    for (int64_t r = 0; r < rows; ++r) round_to_bytes(x.data() + r * m.padded, m.padded, c.block);
  std::vector<float> sums(static_cast<size_t>(kMostTileRows * kMaxPanel));
  for (int64_t first = 0; first < rows; first += of_bytes.tile_rows()) {
    const int count = static_cast<int>(std::min<int64_t>(of_bytes.tile_rows(), rows - first));
    for (int64_t j = 0; j < c.n; ++j) {
      of_bytes.multiply(panels, j / panels.width(), first, count, sums.data());
      for (int r = 0; r < count; ++r) {
        double want = 0, bound = 0;
        for (int64_t b = 0; b < m.padded; b += c.block) {
          double most = 0, weights = 0;
          for (int64_t i = b; i < b + c.block; ++i) {
            const double element = m.elements[static_cast<size_t>(j * m.padded + i)];
            const double value = x[static_cast<size_t>((first + r) * m.padded + i)];
            want += element * value;
            most = std::max(most, std::fabs(value));
            weights += (1 << c.bits) * double{m.scales[static_cast<size_t>((j * m.padded + i) / c.block)]};
          }
          bound += most * weights;
        }
        ASSERT_NEAR(sums[static_cast<size_t>(r * panels.width() + j % panels.width())], want, bound * 0x1p-23)
            << c.k << " x " << c.n << ", " << c.bits << " bits, block " << c.block << ", " << rows
            << " rows, column " << j;
      }
    }
  }
}

TEST(ByteRows, ProductsAreThoseOfFloats) {
  if (!ByteRows::usable(32, 4)) GTEST_SKIP() << "this CPU does not multiply bytes";
  for (const int bits : {2, 4, 8})
    for (const bool zeros : {false, true})
      for (const Case& c : {Case{1, 1, 16, bits, zeros}, Case{16, 0, 16, bits, zeros},
                            Case{70, 33, 32, bits, zeros}, Case{300, 130, 128, bits, zeros}})
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 25})
          for (const Digits digits : {Digits::one, Digits::three}) check(c, rows, digits);
}

TEST(ByteRows, WhatHasNoStepIsNotMade) {
  if (!ByteRows::usable(16, 8)) GTEST_SKIP() << "this CPU does not multiply bytes";
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::pair<float, bool> cases[] = {{infinity, false}, {-infinity, false}, {nan, false},
                                          {1e-38f, false},   {3e38f, true},      {0.0f, true}};
  for (const Digits digits : {Digits::one, Digits::three})
    for (const auto& [value, made] : cases) {
      std::vector<float> x(32, 0.0f);
      x[21] = value;
      std::vector<std::byte> memory(static_cast<size_t>(ByteRows::bytes(1, 32, 16, digits)));
      EXPECT_EQ(ByteRows(x.data(), 1, 32, 32, 16, 8, digits, memory.data()).made(), made) << value;
    }
}

} // namespace
} // namespace tbx::extern_kernels::gemv
