#include "base/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace tbx {
namespace {

/// A dimension, with the steps of both sides in bytes.
struct Dimension {
  int64_t size, from, to;
};

/// Two dimensions, of which one side has its elements side by side along the one and the other along the
/// other: in blocks, whose lines stay in the cache.
template <int64_t Bytes>
void copy_plane(const std::byte* from, std::byte* to, Dimension outer, Dimension inner) {
  // Whole lines, so few that they fit into two sets of a cache.
  constexpr int64_t kOuter = 64 / Bytes, kInner = 16;
  if (inner.from == Bytes && inner.to == Bytes) {
    for (int64_t a = 0; a < outer.size; ++a)
      std::memcpy(to + a * outer.to, from + a * outer.from, static_cast<size_t>(inner.size * Bytes));
    return;
  }
  for (int64_t i = 0; i < outer.size; i += kOuter)
    for (int64_t j = 0; j < inner.size; j += kInner)
      for (int64_t a = i; a < std::min(i + kOuter, outer.size); ++a) {
        const std::byte* in = from + a * outer.from + j * inner.from;
        std::byte* out = to + a * outer.to + j * inner.to;
        const int64_t count = std::min(kInner, inner.size - j);
        for (int64_t b = 0; b < count; ++b) std::memcpy(out + b * inner.to, in + b * inner.from, Bytes);
      }
}

template <int64_t Bytes>
void copy_all(const std::byte* from, std::byte* to, std::span<const Dimension> around, const Dimension& outer,
              const Dimension& inner) {
  if (around.empty()) return copy_plane<Bytes>(from, to, outer, inner);
  const Dimension& first = around[0];
  for (int64_t i = 0; i < first.size; ++i)
    copy_all<Bytes>(from + i * first.from, to + i * first.to, around.subspan(1), outer, inner);
}

} // namespace

void copy_strided(const std::byte* from, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                  int64_t element_bytes, std::byte* to) {
  std::vector<Dimension> dimensions;
  int64_t step = element_bytes;
  for (size_t d = sizes.size(); d-- > 0; step *= sizes[d])
    if (sizes[d] == 0)
      return;
    else if (sizes[d] > 1)
      dimensions.insert(dimensions.begin(), {sizes[d], strides[d] * element_bytes, step});
  auto take = [&](auto nearer) {
    if (dimensions.empty()) return Dimension{1, 0, 0};
    const auto it = std::min_element(dimensions.begin(), dimensions.end(), nearer);
    const Dimension taken = *it;
    dimensions.erase(it);
    return taken;
  };
  const Dimension inner = take([](const Dimension& a, const Dimension& b) { return a.to < b.to; });
  const Dimension outer =
      take([](const Dimension& a, const Dimension& b) { return std::abs(a.from) < std::abs(b.from); });
  switch (element_bytes) {
  case 1: return copy_all<1>(from, to, dimensions, outer, inner);
  case 2: return copy_all<2>(from, to, dimensions, outer, inner);
  case 4: return copy_all<4>(from, to, dimensions, outer, inner);
  case 8: return copy_all<8>(from, to, dimensions, outer, inner);
  default: TBX_INTERNAL(false);
  }
}

} // namespace tbx
