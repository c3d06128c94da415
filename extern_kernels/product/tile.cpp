#include "extern_kernels/product/tile.h"

#include "base/isa.h"
#include "extern_kernels/vector_tile.h"

namespace tbx::extern_kernels::product {
namespace {

template <int B> inline constexpr int kColumns = 2 * B / 4;

template <int B, int Most = kTileRows<B>>
[[gnu::always_inline]] inline void multiply_body(const float* rows, int64_t row_step, int64_t count,
                                                 int64_t depth, const float* panel, const float* start,
                                                 int64_t start_step, float* sums, int64_t sums_step) {
  if (count == Most)
    return multiply_tile<B, Most, 2, kColumns<B>>(rows, row_step, depth, panel, start, start_step, sums,
                                                  sums_step);
  if constexpr (Most > 1)
    multiply_body<B, Most - 1>(rows, row_step, count, depth, panel, start, start_step, sums, sums_step);
}

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_MULTIPLY(name, target, bytes)                                                                    \
  target void multiply_##name(const float* rows, int64_t row_step, int64_t count, int64_t depth,             \
                              const float* panel, const float* start, int64_t start_step, float* sums,       \
                              int64_t sums_step) {                                                           \
    multiply_body<bytes>(rows, row_step, count, depth, panel, start, start_step, sums, sums_step);           \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_MULTIPLY(plain, , 16)
#if defined(__x86_64__)
TBX_MULTIPLY(avx2, __attribute__((target("avx2,fma"))), 32)
TBX_MULTIPLY(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64)
#endif
#undef TBX_MULTIPLY

} // namespace

const Tile& tile() {
  static const Tile best = []() -> Tile {
#if defined(__x86_64__)
    switch (host_isa()) {
    case Isa::avx512: return {kTileRows<64>, kColumns<64>, multiply_avx512};
    case Isa::avx2: return {kTileRows<32>, kColumns<32>, multiply_avx2};
    case Isa::sse: break;
    }
#endif
    return {kTileRows<16>, kColumns<16>, multiply_plain};
  }();
  return best;
}

} // namespace tbx::extern_kernels::product
