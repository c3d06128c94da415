#include "extern_kernels/widen.h"

#include <tbb/parallel_for.h>

#include <bit>

namespace tbx::extern_kernels {
namespace {

// Both loops are plain integer and float arithmetic, which compilers turn into vectors.
void widen_f16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = from[i] & 0x7fffu, sign = (from[i] & 0x8000u) << 16;
    // Exponents differ by 112; the product also makes denormals normal.
    const auto bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    to[i] = std::bit_cast<float>(bits | special | sign);
  }
}

void widen_bf16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
}

} // namespace

void widen_here(DType from, const void* elements, int64_t count, float* to) {
  const auto* bits = static_cast<const uint16_t*>(elements);
  from == DType::f16 ? widen_f16(bits, count, to) : widen_bf16(bits, count, to);
}

void widen(DType from, const void* elements, int64_t count, float* to) {
  constexpr int64_t kChunk = 1 << 16;
  const auto* bits = static_cast<const uint16_t*>(elements);
  tbb::parallel_for(int64_t{0}, (count + kChunk - 1) / kChunk, [&](int64_t c) {
    const int64_t begin = c * kChunk, n = std::min(kChunk, count - begin);
    widen_here(from, bits + begin, n, to + begin);
  });
}

std::shared_ptr<const Tensor> widened(const std::shared_ptr<const Tensor>& t) {
  if (!is_half(t->dtype)) return t;
  Tensor wide = Tensor::make(DType::f32, t->dims);
  widen(t->dtype, t->data, t->numel(), wide.as_mutable<float>().data());
  drop_pages(*t);
  return std::make_shared<const Tensor>(std::move(wide));
}

} // namespace tbx::extern_kernels
