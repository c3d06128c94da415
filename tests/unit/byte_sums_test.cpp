// Sums of the positive and of the negative bytes of a dimension, against plain loops in int64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "base/byte_sums.h"

namespace tbx {
namespace {

using Dims = std::vector<int64_t>;

/// Dense strides whose last dimension in memory is the last of `order`.
Dims strides_of(const Dims& sizes, const std::vector<size_t>& order) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0; step *= std::max<int64_t>(1, sizes[order[i]]))
    strides[order[i]] = step;
  return strides;
}

void expect_sums(DType type, const Dims& sizes, const Dims& strides, const std::vector<uint8_t>& bytes) {
  for (size_t kept = 0; kept < sizes.size(); ++kept) {
    Dims above(sizes[kept], 0), below = above;
    int64_t count = 1;
    for (int64_t n : sizes) count *= n;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at = 0, place = 0;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        at += rest % sizes[d] * strides[d];
        if (d == kept) place = rest % sizes[d];
      }
      const int64_t v =
          type == DType::u8 ? int64_t{bytes[at]} - 128 : int64_t{static_cast<int8_t>(bytes[at])};
      (v > 0 ? above : below)[place] += std::abs(v);
    }
    const ByteSums sums =
        byte_sums(reinterpret_cast<const std::byte*>(bytes.data()), type, sizes, strides, kept);
    EXPECT_EQ(sums.above, above) << "kept " << kept;
    EXPECT_EQ(sums.below, below) << "kept " << kept;
  }
}

TEST(ByteSums, AreThoseOfPlainLoops) {
  std::mt19937 rng(20261126);
  const std::vector<Dims> all = {{1, 1},    {0, 5},    {5, 0},       {7, 3},       {33, 17},      {768, 100},
                                 {300, 65}, {64, 515}, {5, 3, 3, 3}, {9, 1, 5, 1}, {20, 30, 3, 2}};
  for (const Dims& sizes : all)
    for (DType type : {DType::i8, DType::u8}) {
      std::vector<size_t> order(sizes.size());
      std::iota(order.begin(), order.end(), 0);
      do {
        int64_t count = 1;
        for (int64_t n : sizes) count *= n;
        std::vector<uint8_t> bytes(count);
        for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
        SCOPED_TRACE(testing::PrintToString(sizes) + " in the order " + testing::PrintToString(order));
        expect_sums(type, sizes, strides_of(sizes, order), bytes);
      } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST(ByteSums, OfTheLargestBytesDoNotOverflow) {
  for (uint8_t byte : {0x80, 0x7f, 0xff, 0x00})
    for (DType type : {DType::i8, DType::u8})
      for (const Dims& sizes : {Dims{1000, 48}, Dims{48, 40000}})
        expect_sums(type, sizes, {sizes[1], 1}, std::vector<uint8_t>(sizes[0] * sizes[1], byte));
}

} // namespace
} // namespace tbx
