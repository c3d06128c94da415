// Copies of elements at any steps, beside a loop over their indices.
#include "base/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tbx {
namespace {

struct Case {
  std::vector<int64_t> sizes, strides;
  int64_t first = 0;
};

std::vector<std::byte> by_index(const std::byte* from, const Case& c, int64_t bytes) {
  std::vector<std::byte> out;
  std::vector<int64_t> index(c.sizes.size());
  int64_t count = 1;
  for (int64_t n : c.sizes) count *= n;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = c.first, rest = i;
    for (size_t d = c.sizes.size(); d-- > 0; rest /= c.sizes[d]) at += rest % c.sizes[d] * c.strides[d];
    out.insert(out.end(), from + at * bytes, from + (at + 1) * bytes);
  }
  return out;
}

TEST(StridedCopy, IsThatOfALoop) {
  const std::vector<Case> cases{
      {{}, {}},
      {{7}, {3}},
      {{5, 0}, {1, 5}},
      {{70, 33}, {33, 1}},             // as it lies
      {{33, 70}, {1, 33}},             // turned
      {{2, 9, 40, 3}, {360, 1, 9, 0}}, // one dimension repeated
      {{4, 6, 5}, {-30, 5, 1}, 90},    // from the end
      {{3, 1, 64, 65}, {1, 77, 195, 3}},
  };
  for (int64_t bytes : {1, 2, 4, 8})
    for (const Case& c : cases) {
      std::vector<std::byte> from(static_cast<size_t>(16384 * bytes));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 + i / 255);
      const std::vector<std::byte> wanted = by_index(from.data(), c, bytes);
      std::vector<std::byte> got(wanted.size());
      copy_strided(from.data() + c.first * bytes, c.sizes, c.strides, bytes, got.data());
      EXPECT_EQ(got, wanted) << bytes << " bytes, rank " << c.sizes.size();
    }
}

} // namespace
} // namespace tbx
