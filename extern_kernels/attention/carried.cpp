#include "extern_kernels/attention/carried.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tbx::extern_kernels::attention {
namespace {

/// Copies of so many bytes go past the caches: nobody reads them before weights have filled these.
constexpr int64_t kLong = 256 << 10;
constexpr int64_t kLine = 64;
constexpr int64_t kPart = 512; ///< tokens that one thread copies

/// Writes whole lines, which no cache has to read first.
void copy_past_caches(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__x86_64__)
  const auto behind = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  const int64_t head = std::min(bytes, behind == 0 ? 0 : kLine - behind);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* x = reinterpret_cast<const __m128i*>(from + at);
    auto* y = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1), c = _mm_loadu_si128(x + 2),
                  d = _mm_loadu_si128(x + 3);
    _mm_stream_si128(y, a);
    _mm_stream_si128(y + 1, b);
    _mm_stream_si128(y + 2, c);
    _mm_stream_si128(y + 3, d);
  }
  _mm_sfence();
  to += at;
  from += at;
  bytes -= at;
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

} // namespace

Carried::Carried(const TensorRef& from, const TensorRef& to)
    : from_(from), to_(to), width_(size_of(from.dtype)), is_long_(from.numel() * width_ >= kLong) {}

void Carried::copy(int64_t batch, int64_t head, int64_t first, int64_t end) const {
  end = std::min(end, tokens());
  const int64_t depth = from_.sizes[3];
  if (first >= end || depth == 0) return;
  auto place = [&](const TensorRef& t) {
    return static_cast<std::byte*>(t.data) +
           (batch * t.strides[0] + head * t.strides[1] + first * t.strides[2]) * width_;
  };
  const std::byte* from = place(from_);
  std::byte* to = place(to_);
  const bool rows = depth == 1 || (from_.strides[3] == 1 && to_.strides[3] == 1);
  const bool whole = rows && from_.strides[2] == depth && to_.strides[2] == depth;
  if (whole) {
    const int64_t bytes = (end - first) * depth * width_;
    if (is_long_) return copy_past_caches(to, from, bytes);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t t = 0; t < end - first; ++t) {
    const std::byte* x = from + t * from_.strides[2] * width_;
    std::byte* y = to + t * to_.strides[2] * width_;
    if (rows)
      std::memcpy(y, x, static_cast<size_t>(depth * width_));
    else
      for (int64_t d = 0; d < depth; ++d)
        std::memcpy(y + d * to_.strides[3] * width_, x + d * from_.strides[3] * width_,
                    static_cast<size_t>(width_));
  }
}

void Carried::copy_all() const {
  const int64_t heads = from_.sizes[1], parts = (tokens() + kPart - 1) / kPart;
  tbb::parallel_for(int64_t{0}, from_.sizes[0] * heads * parts, [&](int64_t i) {
    const int64_t head = i / parts, first = i % parts * kPart;
    copy(head / heads, head % heads, first, first + kPart);
  });
}

} // namespace tbx::extern_kernels::attention
