#include "extern_kernels/attention/blocks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/isa.h"
#include "extern_kernels/vector_exp.h"

namespace tbx::extern_kernels::attention {
namespace {

template <int kBytes> struct VectorOf {
  typedef float Lanes __attribute__((vector_size(kBytes), may_alias));
  typedef int32_t Ints __attribute__((vector_size(kBytes), may_alias));
};

/// For distances 1, 2, 4, ...: indices into two vectors a and b that give the elements of both where a bit of
/// the lane is 0 (`low`: of a, and those of b moved there) and where it is 1. As data: the compiler would
/// make them each time.
template <int kLanes> struct Exchanges {
  static constexpr int kMost = 4;
  alignas(64) int32_t low[kMost][kLanes] = {}, high[kMost][kLanes] = {};
  constexpr Exchanges() {
    for (int k = 0; 1 << k < kLanes; ++k)
      for (int i = 0, s = 1 << k; i < kLanes; ++i) {
        low[k][i] = (i & s) == 0 ? i : kLanes + i - s;
        high[k][i] = (i & s) == 0 ? i + s : kLanes + i;
      }
  }
};
template <int kLanes> constexpr Exchanges<kLanes> kExchanges;

template <int kLanes>
constexpr auto kLaneNumbers = [] {
  std::array<int32_t, kLanes> numbers = {};
  for (int i = 0; i < kLanes; ++i) numbers[i] = i;
  return numbers;
}();

// One body for all instruction sets, inlined into a function per target (as in gemv/panels.cpp); by
// reference, since vectors wider than the base target's have no calling convention there.

template <int B> struct Body {
  using Lanes = typename VectorOf<B>::Lanes;
  using Ints = typename VectorOf<B>::Ints;
  static constexpr int64_t kLanes = B / 4;
  static constexpr int kVectors = B == 64 ? 4 : 2; ///< of a whole panel
  static constexpr int64_t kPanel = kVectors * kLanes;

  [[gnu::always_inline]] static inline void load(Lanes& v, const float* p) { __builtin_memcpy(&v, p, B); }
  [[gnu::always_inline]] static inline void store(float* p, const Lanes& v) { __builtin_memcpy(p, &v, B); }
  /// The first `n` lanes, `rest` in the others.
  [[gnu::always_inline]] static inline void load_some(Lanes& v, const float* p, int64_t n, float rest) {
    float all[kLanes];
    for (int i = 0; i < kLanes; ++i) all[i] = i < n ? p[i] : rest;
    load(v, all);
  }

  /// Lane i becomes lane order[i] of `a` and, behind it, `b`.
  [[gnu::always_inline]] static inline void shuffle(const Lanes& a, const Lanes& b, const Ints& order,
                                                    Lanes& to) {
#if defined(__clang__) // has only shuffles of an order that is written out
    for (int i = 0; i < kLanes; ++i) to[i] = order[i] < kLanes ? a[order[i]] : b[order[i] - kLanes];
#else
    to = __builtin_shuffle(a, b, order);
#endif
  }

  /// Columns to rows for contiguous columns: [kLanes][kLanes] in registers.
  [[gnu::always_inline]] static inline void transpose(Lanes* v) {
#pragma GCC unroll 4
    for (int k = 0, s = 1; s < kLanes; ++k, s *= 2) {
      Ints low, high;
      __builtin_memcpy(&low, kExchanges<kLanes>.low[k], B);
      __builtin_memcpy(&high, kExchanges<kLanes>.high[k], B);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i & s) continue;
        Lanes a = v[i], b = v[i + s];
        shuffle(a, b, low, v[i]);
        shuffle(a, b, high, v[i + s]);
      }
    }
  }

  [[gnu::always_inline]] static inline void pack(const float* x, int64_t rs, int64_t cs, int64_t rows,
                                                 int64_t columns, float* to) {
    for (int64_t first = 0; first < columns; first += kPanel) {
      int64_t here = std::min<int64_t>(kPanel, columns - first),
              width = (here + kLanes - 1) / kLanes * kLanes;
      int64_t r = 0;
      // Columns of contiguous elements (keys): tiles of kLanes rows.
      for (; rs == 1 && cs != 1 && r + kLanes <= rows; r += kLanes)
        for (int64_t c = 0; c < width; c += kLanes) {
          Lanes v[kLanes];
#pragma GCC unroll 16
          for (int i = 0; i < kLanes; ++i) {
            v[i] = Lanes{};
            if (c + i < here) load(v[i], x + r + (first + c + i) * cs);
          }
          transpose(v);
#pragma GCC unroll 16
          for (int i = 0; i < kLanes; ++i) store(to + (r + i) * width + c, v[i]);
        }
      for (; r < rows; ++r) {
        const float* from = x + r * rs + first * cs;
        float* row = to + r * width;
        int64_t c = 0;
        for (; cs == 1 && c + kLanes <= here; c += kLanes) {
          Lanes v;
          load(v, from + c);
          store(row + c, v);
        }
        for (; c < here; ++c) row[c] = from[c * cs];
        for (; c < width; ++c) row[c] = 0;
      }
      to += rows * width;
    }
  }

  template <int V, int M>
  [[gnu::always_inline]] static inline void tile(const float* a, int64_t lda, int64_t k, const float* b,
                                                 float* c, int64_t ldc, bool add) {
    Lanes sum[M][V];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[m][v] = Lanes{};
    for (int64_t l = 0; l < k; ++l) {
      Lanes row[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) load(row[v], b + (l * V + v) * kLanes);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[m][v] += row[v] * a[m * lda + l];
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        float* at = c + m * ldc + v * kLanes;
        Lanes old = Lanes{};
        if (add) load(old, at);
        store(at, old + sum[m][v]);
      }
  }

  template <int V, int M>
  [[gnu::always_inline]] static inline void rows_of(const float* a, int64_t lda, int64_t m, int64_t k,
                                                    const float* b, float* c, int64_t ldc, bool add) {
    for (; m >= M; m -= M, a += M * lda, c += M * ldc) tile<V, M>(a, lda, k, b, c, ldc, add);
    for (; m >= 2; m -= 2, a += 2 * lda, c += 2 * ldc) tile<V, 2>(a, lda, k, b, c, ldc, add);
    for (; m >= 1; --m, a += lda, c += ldc) tile<V, 1>(a, lda, k, b, c, ldc, add);
  }

  [[gnu::always_inline]] static inline void multiply(const float* a, int64_t lda, int64_t m, int64_t k,
                                                     const float* b, int64_t b_rows, int64_t first, int64_t n,
                                                     float* c, int64_t ldc, bool add) {
    for (int64_t j = 0; j < n; j += kPanel) {
      int64_t vectors = (std::min<int64_t>(kPanel, n - j) + kLanes - 1) / kLanes, width = vectors * kLanes;
      const float* panel = b + first * width;
      // As many sums as there are registers for.
      if constexpr (B == 64) {
        if (vectors == 4)
          rows_of<4, 6>(a, lda, m, k, panel, c + j, ldc, add);
        else if (vectors == 3)
          rows_of<3, 8>(a, lda, m, k, panel, c + j, ldc, add);
        else if (vectors == 2)
          rows_of<2, 12>(a, lda, m, k, panel, c + j, ldc, add);
        else
          rows_of<1, 12>(a, lda, m, k, panel, c + j, ldc, add);
      } else {
        if (vectors == 2)
          rows_of<2, 4>(a, lda, m, k, panel, c + j, ldc, add);
        else
          rows_of<1, 6>(a, lda, m, k, panel, c + j, ldc, add);
      }
      b += b_rows * width;
    }
  }

  /// Lane i becomes lane i + Step.
  template <int Step, int... I>
  [[gnu::always_inline]] static inline void turn(const Lanes& v, Lanes& to,
                                                 std::integer_sequence<int, I...>) {
    shuffle(v, v, Ints{(I + Step) % kLanes...}, to);
  }

  /// `f` joins its second argument with the first; in the end the first lane has what all gave.
  template <int Step = kLanes / 2, class F> [[gnu::always_inline]] static inline void fold(Lanes& v, F&& f) {
    Lanes other;
    turn<Step>(v, other, std::make_integer_sequence<int, kLanes>());
    f(v, other);
    if constexpr (Step > 1) fold<Step / 2>(v, f);
  }

  [[gnu::always_inline]] static inline float total(const Lanes& v) {
    Lanes all = v;
    fold(
        all, [](Lanes & a, const Lanes& b) __attribute__((always_inline)) { a += b; });
    return all[0];
  }

  /// NaN is not larger than anything.
  [[gnu::always_inline]] static inline void keep_larger(Lanes& a, const Lanes& b) { a = b > a ? b : a; }

  template <int M>
  [[gnu::always_inline]] static inline void dot_rows(const float* a, int64_t lda, int64_t k, const float* row,
                                                     float* c, int64_t ldc) {
    Lanes sum[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) sum[m] = Lanes{};
    int64_t l = 0;
    for (; l + kLanes <= k; l += kLanes) {
      Lanes x, y;
      load(x, row + l);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        load(y, a + m * lda + l);
        sum[m] += x * y;
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      float s = total(sum[m]);
      for (int64_t r = l; r < k; ++r) s += row[r] * a[m * lda + r];
      c[m * ldc] = s;
    }
  }

  /// Asks for a row that is read soon.
  [[gnu::always_inline]] static inline void ahead(const float* row, int64_t n) {
    constexpr int64_t kLine = 64 / sizeof(float);
    for (int64_t j = 0; j < n; j += kLine) __builtin_prefetch(row + j);
  }

  /// Lane t of v[0] becomes the sum of the lanes of v[t]: halves of two vectors at a time.
  template <int K = 0, int64_t J = 0> [[gnu::always_inline]] static inline void fold(Lanes* v) {
    if constexpr (1 << K < kLanes) {
      Ints low, high;
      __builtin_memcpy(&low, kExchanges<kLanes>.low[K], B);
      __builtin_memcpy(&high, kExchanges<kLanes>.high[K], B);
      const Lanes a = v[2 * J], b = v[2 * J + 1];
      Lanes even, odd;
      shuffle(a, b, low, even);
      shuffle(a, b, high, odd);
      v[J] = even + odd;
      constexpr bool kLast = J + 1 == kLanes >> (K + 1);
      fold<kLast ? K + 1 : K, kLast ? 0 : J + 1>(v);
    }
  }

  /// kLanes dots at a time.
  [[gnu::always_inline]] static inline void dots_of_one(const float* a, int64_t k, const float* b, int64_t rs,
                                                        float* c) {
    Lanes sum[kLanes], x, y;
#pragma GCC unroll 16
    for (int t = 0; t < kLanes; ++t) sum[t] = Lanes{};
    int64_t l = 0;
    for (; l + kLanes <= k; l += kLanes) {
      load(x, a + l);
#pragma GCC unroll 16
      for (int t = 0; t < kLanes; ++t) {
        load(y, b + t * rs + l);
        sum[t] += x * y;
      }
    }
    fold(sum);
    store(c, sum[0]);
    for (; l < k; ++l)
      for (int t = 0; t < kLanes; ++t) c[t] += a[l] * b[t * rs + l];
  }

  [[gnu::always_inline]] static inline void dots(const float* a, int64_t lda, int64_t m, int64_t k,
                                                 const float* b, int64_t rs, int64_t n, float* c,
                                                 int64_t ldc) {
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      // Rows are read a vector of each in turn, which hardware prefetchers do not follow.
      for (int64_t t = j + kLanes; t < std::min(j + 2 * kLanes, n); ++t) ahead(b + t * rs, k);
      for (int64_t i = 0; i < m; ++i) dots_of_one(a + i * lda, k, b + j * rs, rs, c + i * ldc + j);
    }
    for (; j < n; ++j) {
      int64_t i = 0;
      for (; i + 4 <= m; i += 4) dot_rows<4>(a + i * lda, lda, k, b + j * rs, c + i * ldc + j, ldc);
      for (; i < m; ++i) dot_rows<1>(a + i * lda, lda, k, b + j * rs, c + i * ldc + j, ldc);
    }
  }

  /// e^x for x <= 0: 0 far below 0, NaN for NaN. `least`: kLeastPower.
  [[gnu::always_inline]] static inline void exp_of(const Lanes& least, Lanes& x) {
    if constexpr (B > 16) { // with FMA
      const Lanes in = x;
      exp_of_negative_fused<Ints>(in, least, x);
    } else {
      const auto low = x < -87.0f;
      const Lanes in = low ? Lanes{} : x;
      exp_of_negative<Ints>(in, x);
      x = low ? Lanes{} : x;
    }
  }

  /// `top` becomes the larger of itself and what `change(lanes, j)` makes of the scores from `j` on, which is
  /// stored where `kStore`. Four at a time: each comparison waits for the one before it.
  template <bool kStore, class F>
  [[gnu::always_inline]] static inline void change_and_compare(float* s, int64_t whole, Lanes& top,
                                                               F&& change) {
    constexpr int kAtOnce = 4;
    Lanes tops[kAtOnce], v;
    for (Lanes& t : tops) t = top;
    int64_t j = 0;
    for (; j + kAtOnce * kLanes <= whole; j += kAtOnce * kLanes)
#pragma GCC unroll 4
      for (int64_t i = 0; i < kAtOnce; ++i) {
        load(v, s + j + i * kLanes);
        change(v, j + i * kLanes);
        if (kStore) store(s + j + i * kLanes, v);
        keep_larger(tops[i], v);
      }
    for (; j < whole; j += kLanes) {
      load(v, s + j);
      change(v, j);
      if (kStore) store(s + j, v);
      keep_larger(tops[0], v);
    }
    keep_larger(tops[0], tops[1]);
    keep_larger(tops[2], tops[3]);
    keep_larger(tops[0], tops[2]);
    top = tops[0];
  }

  [[gnu::always_inline]] static inline float prepare(float* s, int64_t n, float& left, const float* mask,
                                                     int64_t mask_stride) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    float scale = left;
    left = 1;
    if (mask && mask_stride != 1) {
      for (int64_t j = 0; j < n; ++j) s[j] = s[j] * scale + mask[j * mask_stride];
      scale = 1;
      mask = nullptr;
    }
    const int64_t whole = n / kLanes * kLanes;
    Lanes top = Lanes{} - kInf;
    if (mask)
      change_and_compare<true>(
          s, whole, top, [&](Lanes & v, int64_t j) __attribute__((always_inline)) {
            Lanes m;
            load(m, mask + j);
            v = v * scale + m;
          });
    else if (scale != 1)
      change_and_compare<true>(
          s, whole, top, [&](Lanes & v, int64_t) __attribute__((always_inline)) { v = v * scale; });
    else
      change_and_compare<false>(s, whole, top, [](Lanes&, int64_t) __attribute__((always_inline)){});
    if (whole < n) {
      Lanes v, m = Lanes{};
      load(v, s + whole);
      if (mask) load_some(m, mask + whole, n - whole, 0);
      v = v * scale + m;
      Ints lane;
      __builtin_memcpy(&lane, kLaneNumbers<kLanes>.data(), B);
      v = lane < Ints{} + static_cast<int32_t>(n - whole) ? v : Lanes{} - kInf;
      store(s + whole, v);
      keep_larger(top, v);
    }
    fold(
        top, [](Lanes & a, const Lanes& b) __attribute__((always_inline)) { keep_larger(a, b); });
    return top[0];
  }

  [[gnu::always_inline]] static inline void softmax(const float* s, int64_t n, float here, RowState& state,
                                                    float* out, int64_t width, float* to) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float greatest = here > state.greatest ? here : state.greatest;
    // Nothing but -inf so far: any finite value to subtract gives 0; NaN stays.
    const float shift = greatest == -kInf ? 0 : greatest;
    const Lanes least = Lanes{} + kLeastPower;
    Lanes sum = Lanes{}, v;
    for (int64_t j = 0; j < n; j += kLanes) {
      load(v, s + j);
      v = v - shift;
      exp_of(least, v);
      store(to + j, v);
      sum += v;
    }
    if (greatest != state.greatest) {
      Lanes factor = Lanes{} + (state.greatest - greatest);
      exp_of(least, factor);
      state.sum *= factor[0];
      scale(out, width, factor[0], out);
      state.greatest = greatest;
    }
    state.sum += total(sum);
  }

  /// to[j] = f(from[j]) for vectors and single numbers.
  template <class F>
  [[gnu::always_inline]] static inline void map(const float* from, int64_t n, float* to, F&& f) {
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      Lanes v;
      load(v, from + j);
      f(v);
      store(to + j, v);
    }
    for (; j < n; ++j) {
      to[j] = from[j];
      f(to[j]);
    }
  }
  [[gnu::always_inline]] static inline void scale(const float* from, int64_t n, float by, float* to) {
    map(
        from, n, to, [=](auto& x) __attribute__((always_inline)) { x = x * by; });
  }
  [[gnu::always_inline]] static inline void divide(const float* from, int64_t n, float by, float* to) {
    map(
        from, n, to, [=](auto& x) __attribute__((always_inline)) { x = x / by; });
  }

  [[gnu::always_inline]] static inline void softcap(float* s, int64_t n, float cap) {
    const Lanes least = Lanes{} + kLeastPower;
    auto capped = [&](Lanes & v) __attribute__((always_inline)) {
      Lanes size = v < 0.0f ? -v : v;
      Lanes e = size * (-2 / cap);
      exp_of(least, e);
      Lanes t = (1 - e) / (1 + e) * cap;
      v = v < 0.0f ? -t : t;
    };
    int64_t j = 0;
    Lanes v;
    for (; j + kLanes <= n; j += kLanes) {
      load(v, s + j);
      capped(v);
      store(s + j, v);
    }
    if (j == n) return;
    load_some(v, s + j, n - j, 0);
    capped(v);
    for (int64_t i = j; i < n; ++i) s[i] = v[i - j];
  }

  template <int M>
  [[gnu::always_inline]] static inline void add_some(const float* p, int64_t ldp, int64_t k, const float* v,
                                                     int64_t rs, int64_t n, float* out, int64_t ldo) {
    constexpr int64_t kAhead = 16; // rows
    int64_t j = 0;
    for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
      Lanes sum[M][4], x[4];
#pragma GCC unroll 16
      for (int i = 0; i < 4 * M; ++i) load(sum[i / 4][i % 4], out + i / 4 * ldo + j + i % 4 * kLanes);
      for (int64_t l = 0; l < k; ++l) {
        ahead(v + (l + kAhead) * rs + j, 4 * kLanes);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) load(x[i], v + l * rs + j + i * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < 4 * M; ++i) sum[i / 4][i % 4] += x[i % 4] * p[i / 4 * ldp + l];
      }
#pragma GCC unroll 16
      for (int i = 0; i < 4 * M; ++i) store(out + i / 4 * ldo + j + i % 4 * kLanes, sum[i / 4][i % 4]);
    }
    for (int64_t l = 0; j < n && l < k; ++l)
      for (int m = 0; m < M; ++m)
        for (int64_t c = j; c < n; ++c) out[m * ldo + c] += p[m * ldp + l] * v[l * rs + c];
  }

  [[gnu::always_inline]] static inline void add_rows(const float* p, int64_t ldp, int64_t m, int64_t k,
                                                     const float* v, int64_t rs, int64_t n, float* out,
                                                     int64_t ldo) {
    constexpr int kMost = B == 64 ? 4 : 2; // as many as leave the sums in registers
    for (; m >= kMost; m -= kMost, p += kMost * ldp, out += kMost * ldo)
      add_some<kMost>(p, ldp, k, v, rs, n, out, ldo);
    if (m == 3) return add_some < kMost == 4 ? 3 : 1 > (p, ldp, k, v, rs, n, out, ldo);
    if (m == 2) return add_some<2>(p, ldp, k, v, rs, n, out, ldo);
    if (m == 1) return add_some<1>(p, ldp, k, v, rs, n, out, ldo);
  }
};

// The functions of one instruction set.
// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_BLOCKS(name, bytes, target)                                                                      \
  namespace name {                                                                                           \
  target void pack(const float* x, int64_t rs, int64_t cs, int64_t rows, int64_t columns, float* to) {       \
    Body<bytes>::pack(x, rs, cs, rows, columns, to);                                                         \
  }                                                                                                          \
  target void multiply(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t b_rows,    \
                       int64_t first, int64_t n, float* c, int64_t ldc, bool add) {                          \
    Body<bytes>::multiply(a, lda, m, k, b, b_rows, first, n, c, ldc, add);                                   \
  }                                                                                                          \
  target void dots(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t rs, int64_t n, \
                   float* c, int64_t ldc) {                                                                  \
    Body<bytes>::dots(a, lda, m, k, b, rs, n, c, ldc);                                                       \
  }                                                                                                          \
  target float prepare(float* s, int64_t n, float& scale, const float* mask, int64_t stride) {               \
    return Body<bytes>::prepare(s, n, scale, mask, stride);                                                  \
  }                                                                                                          \
  target void softmax(const float* s, int64_t n, float /*scale: 1*/, float greatest, RowState& state,        \
                      float* out, int64_t width, void* shares) {                                             \
    Body<bytes>::softmax(s, n, greatest, state, out, width, static_cast<float*>(shares));                    \
  }                                                                                                          \
  target void scale(const float* from, int64_t n, float by, float* to) {                                     \
    Body<bytes>::scale(from, n, by, to);                                                                     \
  }                                                                                                          \
  target void divide(const float* from, int64_t n, float by, float* to) {                                    \
    Body<bytes>::divide(from, n, by, to);                                                                    \
  }                                                                                                          \
  target void softcap(float* s, int64_t n, float cap) { Body<bytes>::softcap(s, n, cap); }                   \
  target void add_rows(const float* p, int64_t ldp, int64_t m, int64_t k, const float* v, int64_t rs,        \
                       int64_t n, float* out, int64_t ldo) {                                                 \
    Body<bytes>::add_rows(p, ldp, m, k, v, rs, n, out, ldo);                                                 \
  }                                                                                                          \
  constexpr Blocks kAll = {#name,                                                                            \
                           Body<bytes>::kLanes,                                                              \
                           Body<bytes>::kPanel,                                                              \
                           1,                                                                                \
                           1,                                                                                \
                           1,                                                                                \
                           pack,                                                                             \
                           multiply,                                                                         \
                           nullptr,                                                                          \
                           nullptr,                                                                          \
                           dots,                                                                             \
                           prepare,                                                                          \
                           softmax,                                                                          \
                           scale,                                                                            \
                           divide,                                                                           \
                           nullptr,                                                                          \
                           nullptr,                                                                          \
                           softcap,                                                                          \
                           add_rows};                                                                        \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_BLOCKS(sse, 16, )
#if defined(__x86_64__)
TBX_BLOCKS(avx2, 32, __attribute__((target("avx2,fma"))))
TBX_BLOCKS(avx512, 64, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))))
#endif
#undef TBX_BLOCKS

} // namespace

std::vector<const Blocks*> all_blocks() {
  std::vector<const Blocks*> all = {&sse::kAll};
#if defined(__x86_64__)
  if (host_isa() >= Isa::avx2) all.push_back(&avx2::kAll);
  if (host_isa() == Isa::avx512) all.push_back(&avx512::kAll);
#endif
  return all;
}

const Blocks& blocks() {
  static const Blocks& chosen = *all_blocks().back();
  return chosen;
}

} // namespace tbx::extern_kernels::attention
