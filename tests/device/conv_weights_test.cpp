// Weights of convolutions in the order of GPUs, which needs none to be made.
#include "extern_kernels/cuda/conv_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace tbx::test {
namespace {

using extern_kernels::OperandInfo;

/// int16 numbers 0, 1, 2, ... in the order of `strides`.
OperandInfo weights(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  auto tensor = std::make_shared<Tensor>(Tensor::make(DType::i16, sizes));
  const auto values = tensor->as_mutable<int16_t>();
  std::iota(values.begin(), values.end(), int16_t{0});
  return {DType::i16, std::move(sizes), std::move(strides), tensor};
}

TEST(ConvWeights, AreOrderedWithChannelsInnermost) {
  struct Case {
    std::vector<int64_t> sizes, strides;
  };
  for (const Case& c :
       {Case{{1, 1, 1}, {1, 1, 1}}, Case{{5, 3, 4}, {12, 4, 1}}, Case{{7, 6, 3, 5}, {90, 15, 5, 1}},
        Case{{4, 9, 2, 3}, {1, 4, 36, 72}}, Case{{3, 2, 2, 3, 2}, {24, 12, 6, 2, 1}},
        Case{{0, 2, 3, 3}, {18, 9, 3, 1}}, Case{{130, 17, 1, 1}, {17, 1, 1, 1}}}) {
    const OperandInfo w = weights(c.sizes, c.strides);
    const std::vector<char> ordered = extern_kernels::cuda::with_channels_last(w);
    const auto* from = reinterpret_cast<const int16_t*>(w.constant->data);
    int64_t taps = 1;
    for (size_t d = 2; d < c.sizes.size(); ++d) taps *= c.sizes[d];
    ASSERT_EQ(static_cast<int64_t>(ordered.size()), 2 * c.sizes[0] * c.sizes[1] * taps);
    for (int64_t k = 0; k < c.sizes[0]; ++k)
      for (int64_t i = 0; i < c.sizes[1]; ++i)
        for (int64_t tap = 0; tap < taps; ++tap) {
          int64_t at = k * c.strides[0] + i * c.strides[1], rest = tap;
          for (size_t d = c.sizes.size(); d-- > 2; rest /= c.sizes[d]) at += rest % c.sizes[d] * c.strides[d];
          int16_t got = 0;
          std::memcpy(&got, ordered.data() + 2 * ((k * taps + tap) * c.sizes[1] + i), sizeof got);
          ASSERT_EQ(got, from[at]) << k << " " << i << " " << tap;
        }
  }
}

} // namespace
} // namespace tbx::test
