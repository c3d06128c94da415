#include "base/byte_sums.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tbx {
namespace {

/// Lines of bytes that are added in 16 bits without overflow: 255 times 128.
constexpr int64_t kLines = 255;
constexpr int64_t kVector = 16, kWide = 2 * kVector; ///< bytes of a line that are added together

using Bytes [[gnu::vector_size(kVector)]] = int8_t;
using Pairs [[gnu::vector_size(kVector)]] = int16_t; ///< of bytes, the first one in the lower half

/// Adds `count` lines of `vectors` times 16 bytes, `step` apart, to sums of each place of a line.
template <int64_t vectors>
void add_lines(const std::byte* from, int64_t count, int64_t step, int8_t flip, int64_t* above,
               int64_t* below) {
  constexpr int kByte = 8, kSign = 15;
  const Bytes flips = Bytes{} ^ flip;
  for (; count > 0; count -= kLines) {
    Pairs more[vectors * 2] = {}, less[vectors * 2] = {}; // of first bytes, then of second ones
    for (int64_t i = std::min(count, kLines); i > 0; --i, from += step)
      for (int64_t v = 0; v < vectors; ++v) {
        Bytes bytes;
        std::memcpy(&bytes, from + v * kVector, kVector);
        const auto both = std::bit_cast<Pairs>(bytes ^ flips);
        for (int64_t of = 0; of < 2; ++of) {
          const Pairs x = (of == 0 ? both << kByte : both) >> kByte, negative = x >> kSign;
          more[v * 2 + of] += x & ~negative;
          less[v * 2 + of] -= x & negative;
        }
      }
    for (int64_t i = 0; i < vectors * kVector; ++i) {
      const int64_t at = i / kVector * 2 + i % 2, lane = i % kVector / 2;
      above[i] += more[at][lane];
      below[i] += less[at][lane];
    }
  }
}

/// The same of one byte of each line.
void add_each(const std::byte* from, int64_t count, int64_t step, int8_t flip, int64_t& above,
              int64_t& below) {
  for (int64_t i = 0; i < count; ++i, from += step) {
    const int v = static_cast<int8_t>(static_cast<int8_t>(*from) ^ flip);
    above += std::max(v, 0);
    below -= std::min(v, 0);
  }
}

/// One column whose bytes lie one behind the other.
void add_run(const std::byte* from, int64_t count, int8_t flip, int64_t& above, int64_t& below) {
  int64_t more[kWide] = {}, less[kWide] = {};
  const int64_t lines = count / kWide;
  add_lines<kWide / kVector>(from, lines, kWide, flip, more, less);
  for (int64_t k = 0; k < kWide; ++k) {
    above += more[k];
    below += less[k];
  }
  add_each(from + lines * kWide, count - lines * kWide, 1, flip, above, below);
}

struct Dim {
  int64_t size, step;
};

/// The dimensions that are summed over, the smallest step last; those that follow each other are one.
std::vector<Dim> summed(std::span<const int64_t> sizes, std::span<const int64_t> strides, size_t kept) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (d != kept && sizes[d] != 1) dims.push_back({sizes[d], strides[d]});
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.step > b.step; });
  std::vector<Dim> joined;
  for (const Dim& d : dims)
    if (!joined.empty() && joined.back().step == d.step * d.size)
      joined.back() = {joined.back().size * d.size, d.step};
    else
      joined.push_back(d);
  if (joined.empty()) joined.push_back({1, 1});
  return joined;
}

} // namespace

ByteSums byte_sums(const std::byte* data, DType type, std::span<const int64_t> sizes,
                   std::span<const int64_t> strides, size_t kept) {
  const int64_t columns = sizes[kept], along = strides[kept];
  ByteSums sums{std::vector<int64_t>(columns, 0), std::vector<int64_t>(columns, 0)};
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return sums;
  const int8_t flip = type == DType::u8 ? -128 : 0;
  std::vector<Dim> outer = summed(sizes, strides, kept);
  const Dim down = outer.back();
  outer.pop_back();
  int64_t places = 1;
  for (const Dim& d : outer) places *= d.size;
  for (int64_t i = 0; i < places; ++i) {
    const std::byte* from = data;
    int64_t rest = i;
    for (size_t d = outer.size(); d-- > 0; rest /= outer[d].size)
      from += rest % outer[d].size * outer[d].step;
    int64_t c = 0;
    for (; along == 1 && c + kWide <= columns; c += kWide)
      add_lines<kWide / kVector>(from + c, down.size, down.step, flip, &sums.above[c], &sums.below[c]);
    for (; along == 1 && c + kVector <= columns; c += kVector)
      add_lines<1>(from + c, down.size, down.step, flip, &sums.above[c], &sums.below[c]);
    for (; c < columns; ++c)
      if (down.step == 1)
        add_run(from + c * along, down.size, flip, sums.above[c], sums.below[c]);
      else
        add_each(from + c * along, down.size, down.step, flip, sums.above[c], sums.below[c]);
  }
  return sums;
}

} // namespace tbx
