// The parts of blocked attention for every instruction set of this CPU, against loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/float_formats.h"
#include "extern_kernels/attention/blocks.h"

namespace tbx::extern_kernels::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kRoom = 16; ///< numbers behind a row, as many as the widest vector has

std::vector<float> random_numbers(int64_t n, int seed, float size = 3) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> d(-size, size);
  std::vector<float> all(static_cast<size_t>(n));
  for (float& x : all) x = d(random);
  return all;
}

/// Those of bfloat16, too.
std::vector<const Blocks*> every_kind() {
  std::vector<const Blocks*> all = all_blocks();
  for (const Blocks* narrow : {bf16_blocks(), tile_blocks()})
    if (narrow) all.push_back(narrow);
  return all;
}

/// Shares as floats, whatever they are stored as.
std::vector<float> shares_of(const Blocks& b, const std::vector<float>& stored, int64_t n) {
  std::vector<float> shares(stored.begin(), stored.begin() + n);
  if (b.per_word == 2)
    decode_halves(DType::bf16, reinterpret_cast<const uint16_t*>(stored.data()), n, shares.data());
  return shares;
}

TEST(AttentionBlocks, SoftmaxOfRowsInParts) {
  for (const Blocks* b : every_kind())
    for (const int64_t n : {1, 7, 16, 33, 64, 100, 259})
      for (const float scale : {1.0f, 0.125f, -0.5f, 0.0f})
        for (const int64_t mask_stride : {-1, 0, 1, 3}) { // -1: none
          constexpr int64_t kWidth = 21;
          RowState state{-kInf, 0};
          std::vector<float> out(kWidth, 1.0f);
          double greatest = -kInf, sum = 0, weight = 1; // weight: of what is in `out`
          for (int part = 0; part < 3; ++part) {
            std::vector<float> scores = random_numbers(n + kRoom, 10 + part, 4.0f * (part + 1));
            const std::vector<float> mask = random_numbers(n * 3, 20 + part);
            std::vector<double> wanted(static_cast<size_t>(n));
            for (int64_t j = 0; j < n; ++j)
              wanted[j] = double{scores[j]} * scale + (mask_stride < 0 ? 0 : mask[j * mask_stride]);
            float left = scale;
            const float top =
                b->prepare(scores.data(), n, left, mask_stride < 0 ? nullptr : mask.data(), mask_stride);
            const double largest = *std::max_element(wanted.begin(), wanted.end());
            ASSERT_NEAR(top, largest, 1e-5);
            const double before = greatest;
            greatest = std::max(greatest, largest);
            weight *= std::exp(before - greatest);
            sum *= std::exp(before - greatest);
            b->softmax(scores.data(), n, left, top, state, out.data(), kWidth, scores.data());
            if (part == 0) std::fill(out.begin(), out.end(), 1.0f), weight = 1;
            const std::vector<float> shares = shares_of(*b, scores, n);
            for (int64_t j = 0; j < n; ++j) {
              const double share = std::exp(wanted[j] - greatest);
              sum += share;
              ASSERT_NEAR(shares[j], share, b->per_word == 2 ? 2.0 / 512 : 1e-5) << n << " " << j;
            }
            ASSERT_NEAR(state.sum, sum, 1e-5 * sum);
            for (float x : out) ASSERT_NEAR(x, weight, 1e-5);
          }
        }
}

TEST(AttentionBlocks, ScoresThatAreNoNumbers) {
  for (const Blocks* b : every_kind())
    for (const int64_t n : {5, 16, 77}) {
      for (const float value : {-kInf, NAN, -NAN}) {
        std::vector<float> scores(static_cast<size_t>(n + kRoom), value);
        RowState state{-kInf, 0};
        float scale = 0.5f, out = 0;
        const float greatest = b->prepare(scores.data(), n, scale, nullptr, 0);
        EXPECT_EQ(greatest, -kInf);
        b->softmax(scores.data(), n, scale, greatest, state, &out, 1, scores.data());
        EXPECT_EQ(state.greatest, -kInf);
        if (std::isnan(value))
          EXPECT_TRUE(std::isnan(state.sum));
        else
          EXPECT_EQ(state.sum, 0);
      }
      // One number among nothing; behind the row lies what must not be seen.
      for (int64_t at = 0; at < n; ++at) {
        std::vector<float> scores(static_cast<size_t>(n + kRoom), -kInf);
        std::fill(scores.begin() + n, scores.end(), 1e30f);
        scores[at] = -3e38f; // the lowest mask there is
        RowState state{-kInf, 0};
        float scale = 1, out = 0;
        const float greatest = b->prepare(scores.data(), n, scale, nullptr, 0);
        EXPECT_EQ(greatest, -3e38f);
        b->softmax(scores.data(), n, scale, greatest, state, &out, 1, scores.data());
        EXPECT_EQ(state.sum, 1);
        const std::vector<float> shares = shares_of(*b, scores, n);
        for (int64_t j = 0; j < n; ++j) EXPECT_EQ(shares[j], j == at ? 1 : 0);
      }
    }
}

TEST(AttentionBlocks, PackedProducts) {
  for (const Blocks* b : all_blocks())
    for (const int64_t n : {1, 15, 64, 70, 130})
      for (const int64_t k : {1, 16, 37})
        for (const int64_t m : {1, 5, 12, 19})
          for (const bool transposed : {false, true}) {
            const std::vector<float> a = random_numbers(m * k, 1), x = random_numbers(n * k, 2);
            const int64_t whole = (n + b->lanes - 1) / b->lanes * b->lanes;
            std::vector<float> panels(static_cast<size_t>(whole * k)),
                c(static_cast<size_t>(m * whole), 1.0f);
            const int64_t row = transposed ? 1 : n, column = transposed ? k : 1;
            b->pack(x.data(), row, column, k, n, panels.data());
            b->multiply(a.data(), k, m, k, panels.data(), k, 0, n, c.data(), whole, true);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                double sum = 1;
                for (int64_t l = 0; l < k; ++l) sum += double{a[i * k + l]} * x[l * row + j * column];
                ASSERT_NEAR(c[i * whole + j], sum, 1e-5 * (k + 1) * 9);
              }
          }
}

/// Pairs of bfloat16 are multiplied exactly, and added in f32. Rows and words that no operand has are there.
TEST(AttentionBlocks, PackedProductsOfPairs) {
  for (const Blocks* b : {bf16_blocks(), tile_blocks()})
    for (const int64_t n : {1, 15, 16, 64, 70, 130, 512})
      for (const int64_t k : {1, 2, 31, 64, 77, 200})
        for (const int64_t m : {1, 5, 16, 19, 33, 48})
          for (const bool add : {false, true}) {
            if (!b) continue;
            auto up = [](int64_t size, int64_t to) { return (size + to - 1) / to * to; };
            const int64_t words = up((k + 1) / 2, b->step), rows = up(m, b->rows), whole = up(n, b->lanes);
            std::vector<float> a(static_cast<size_t>(rows * words)), x(static_cast<size_t>(words * n)),
                panels(static_cast<size_t>(words * whole)), c(static_cast<size_t>(rows * whole), 1.0f);
            std::vector<float> a_values = random_numbers(m * k, 1), x_values = random_numbers(k * n, 2);
            auto* a_bits = reinterpret_cast<uint16_t*>(a.data());
            auto* x_bits = reinterpret_cast<uint16_t*>(x.data());
            for (int64_t i = 0; i < m; ++i)
              for (int64_t l = 0; l < k; ++l)
                encode_halves(DType::bf16, &a_values[i * k + l], 1, a_bits + i * 2 * words + l);
            for (int64_t l = 0; l < k; ++l)
              for (int64_t j = 0; j < n; ++j)
                encode_halves(DType::bf16, &x_values[l * n + j], 1, x_bits + (l / 2 * n + j) * 2 + l % 2);
            b->pack(x.data(), n, 1, words, n, panels.data());
            if (b->begin) b->begin();
            b->multiply(a.data(), words, m, words, panels.data(), words, 0, n, c.data(), whole, add);
            if (b->end) b->end();
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                double sum = add ? 1 : 0;
                for (int64_t l = 0; l < k; ++l) {
                  float left = 0, right = 0;
                  decode_halves(DType::bf16, a_bits + i * 2 * words + l, 1, &left);
                  decode_halves(DType::bf16, x_bits + (l / 2 * n + j) * 2 + l % 2, 1, &right);
                  sum += double{left} * right;
                }
                ASSERT_NEAR(c[i * whole + j], sum, 0x1p-23 * static_cast<double>(k + 1) * 9)
                    << b->name << " " << m << " " << n << " " << k;
              }
          }
}

TEST(AttentionBlocks, PairsAndRoundedRows) {
  for (const Blocks* b : {bf16_blocks(), tile_blocks()})
    for (const int64_t n : {0, 1, 15, 16, 50}) {
      if (!b) continue;
      std::vector<float> from = random_numbers(n, 5);
      if (n > 1) from[1] = NAN;
      std::vector<uint16_t> rounded(static_cast<size_t>(n + 1), 7), wanted(static_cast<size_t>(n));
      b->divide_to_bf16(from.data(), n, 0.3f, rounded.data());
      for (float& x : from) x /= 0.3f;
      encode_halves(DType::bf16, from.data(), n, wanted.data());
      std::vector<uint32_t> pairs(static_cast<size_t>(n + 1), 9);
      b->pair(rounded.data(), wanted.data(), n, reinterpret_cast<float*>(pairs.data()));
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(rounded[j], wanted[j]) << j;
        EXPECT_EQ(pairs[j], rounded[j] | uint32_t{wanted[j]} << 16) << j;
      }
      EXPECT_EQ(rounded[n], 7);
      EXPECT_EQ(pairs[n], 9u);
    }
}

TEST(AttentionBlocks, ScalesAndDivides) {
  for (const Blocks* b : all_blocks())
    for (const int64_t n : {0, 1, 15, 16, 50}) {
      const std::vector<float> from = random_numbers(n, 5);
      std::vector<float> to(static_cast<size_t>(n + 1), 7.0f);
      b->scale(from.data(), n, 0.3f, to.data());
      for (int64_t j = 0; j < n; ++j) EXPECT_EQ(to[j], from[j] * 0.3f);
      b->divide(from.data(), n, 0.3f, to.data());
      for (int64_t j = 0; j < n; ++j) EXPECT_EQ(to[j], from[j] / 0.3f);
      EXPECT_EQ(to[n], 7.0f);
    }
}

} // namespace
} // namespace tbx::extern_kernels::attention
