// Strides of dense tensors, and which tensors lie so.
#include "base/strides.h"

#include <gtest/gtest.h>

namespace tbx::test {
namespace {

using Sizes = std::vector<int64_t>;

TEST(Strides, OfDenseTensors) {
  EXPECT_EQ((Sizes{20, 5, 1}), row_major_strides(Sizes{3, 4, 5}));
  EXPECT_EQ((Sizes{60, 1, 15, 3}), channels_last_strides(Sizes{2, 3, 4, 5}));
  EXPECT_EQ((Sizes{3, 1}), channels_last_strides(Sizes{2, 3}));
  EXPECT_EQ(Sizes(), row_major_strides(Sizes()));
}

TEST(Strides, RowMajorOrder) {
  EXPECT_TRUE(is_row_major(Sizes{3, 4, 5}, Sizes{20, 5, 1}));
  EXPECT_FALSE(is_row_major(Sizes{3, 4, 5}, Sizes{20, 1, 4}));
  EXPECT_FALSE(is_row_major(Sizes{3, 4}, Sizes{5, 1})); // with gaps
  EXPECT_TRUE(is_row_major(Sizes(), Sizes()));
}

TEST(Strides, ChannelsLast) {
  EXPECT_TRUE(is_channels_last(Sizes{2, 3, 4, 5}, Sizes{60, 1, 15, 3}));
  EXPECT_FALSE(is_channels_last(Sizes{2, 3, 4, 5}, Sizes{60, 20, 5, 1}));
  EXPECT_FALSE(is_channels_last(Sizes{2, 3, 4, 5}, Sizes{90, 1, 15, 3})); // with gaps
  EXPECT_TRUE(is_channels_last(Sizes{1, 3, 1, 5}, Sizes{7, 1, 99, 3}));
}

TEST(Strides, OfOneElementNoneOrAnUnknownNumber) {
  EXPECT_TRUE(is_row_major(Sizes{3, 1, 5}, Sizes{5, 77, 1}));
  EXPECT_TRUE(is_row_major(Sizes{2, 0, 5}, Sizes{9, 9, 1}));
  EXPECT_TRUE(is_row_major(Sizes{2, -1, 5}, Sizes{9, 5, 1}));
  EXPECT_FALSE(is_row_major(Sizes{2, -1, 5}, Sizes{9, 5, 2})); // within what is known
}

} // namespace
} // namespace tbx::test
