// Copies of caches, token by token and whole, between any strides: against plain loops, and nothing else is
// written.
#include "extern_kernels/attention/carried.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace tbx::test {
namespace {

using extern_kernels::TensorRef;
using extern_kernels::attention::Carried;
using Index = std::array<int64_t, 4>;

/// [B, H, T, D] in memory of any order of dimensions, the last of `order` densest, rows `pad` elements
/// longer.
struct Cache {
  Cache(Index s, std::array<int, 4> order, int64_t pad) : sizes(s) {
    int64_t step = 1;
    for (int k = 3; k >= 0; --k) {
      strides[order[k]] = step;
      step *= sizes[order[k]] + (k == 3 ? pad : 0);
    }
    memory.assign(static_cast<size_t>(step), -1);
  }
  float& at(const Index& i) {
    return memory[static_cast<size_t>(std::inner_product(i.begin(), i.end(), strides.begin(), int64_t{0}))];
  }
  TensorRef ref() { return {memory.data(), DType::f32, sizes, strides}; }

  Index sizes, strides{};
  std::vector<float> memory;
};

constexpr std::array<int, 4> kPlain = {0, 1, 2, 3}, kTokensFirst = {0, 2, 1, 3}, kDepthFirst = {0, 1, 3, 2};

void check(Index sizes, std::array<int, 4> from_order, std::array<int, 4> to_order, int64_t from_pad,
           int64_t to_pad, int64_t first, int64_t end) {
  Cache from(sizes, from_order, from_pad), to(sizes, to_order, to_pad), expected = to;
  std::iota(from.memory.begin(), from.memory.end(), 0.0f);
  const TensorRef source = from.ref(), target = to.ref();
  const Carried carried(source, target);
  const bool all = end < 0;
  if (all)
    carried.copy_all();
  else
    carried.copy(sizes[0] - 1, sizes[1] - 1, first, end);
  for (int64_t b = all ? 0 : sizes[0] - 1; b < sizes[0]; ++b)
    for (int64_t h = all ? 0 : sizes[1] - 1; h < sizes[1]; ++h)
      for (int64_t t = all ? 0 : first; t < (all ? sizes[2] : std::min(end, sizes[2])); ++t)
        for (int64_t d = 0; d < sizes[3]; ++d) expected.at({b, h, t, d}) = from.at({b, h, t, d});
  EXPECT_EQ(to.memory, expected.memory) << sizes[2] << " tokens from " << first << " to " << end;
}

TEST(Carried, CopiesBetweenAnyStrides) {
  for (const auto& from : {kPlain, kTokensFirst, kDepthFirst})
    for (const auto& to : {kPlain, kTokensFirst, kDepthFirst})
      for (const int64_t from_pad : {0, 3})
        for (const int64_t to_pad : {0, 5})
          for (const int64_t depth : {1, 7, 16}) {
            check({2, 3, 10, depth}, from, to, from_pad, to_pad, 0, -1);
            for (const auto& [first, end] : {std::pair{0, 10}, {0, 9}, {3, 4}, {9, 12}, {10, 20}, {4, 4}})
              check({2, 3, 10, depth}, from, to, from_pad, to_pad, first, end);
          }
}

/// More than the caches are asked to keep, which goes past them in whole lines.
TEST(Carried, CopiesLongOnes) {
  for (const int64_t tokens : {511, 512, 513, 1600})
    for (const int64_t pad : {0, 1}) {
      check({1, 3, tokens, 65}, kPlain, kPlain, pad, 0, 0, -1);
      check({1, 3, tokens, 65}, kPlain, kPlain, 0, pad, 1, tokens - 1);
    }
}

TEST(Carried, CopiesNothing) {
  check({1, 2, 0, 16}, kPlain, kPlain, 0, 0, 0, -1);
  check({1, 2, 5, 0}, kPlain, kPlain, 0, 0, 0, -1);
}

} // namespace
} // namespace tbx::test
