#include "base/encoded.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/float_formats.h"
#include "base/side_by_side.h"

namespace tbx {

/// Large constants by several threads: they are read from a file for the first time.
std::optional<Tensor> encoded(DType type, const Tensor& from) {
  constexpr int64_t kEach = 1 << 18; // elements, about a millisecond
  Tensor to = Tensor::make(type, from.dims);
  const auto parts = static_cast<size_t>((from.numel() + kEach - 1) / kEach);
  const float* values = from.as<float>().data();
  uint16_t* bits = to.as_mutable<uint16_t>().data();
  const uint16_t infinity = type == DType::f16 ? 0x7c00 : 0x7f80;
  std::atomic<bool> overflows = false;
  rethrow_first(side_by_side(parts, [&](size_t part) {
    const int64_t begin = static_cast<int64_t>(part) * kEach, end = std::min(begin + kEach, from.numel());
    encode_halves(type, values + begin, end - begin, bits + begin);
    bool found = false;
    for (int64_t i = begin; i < end; ++i) found |= (bits[i] & 0x7fff) == infinity && std::isfinite(values[i]);
    if (found) overflows = true;
  }));
  if (overflows) return std::nullopt;
  return to;
}

} // namespace tbx
