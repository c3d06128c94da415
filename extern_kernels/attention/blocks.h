// The arithmetic of blocked attention: products with packed panels and the running softmax, in the widest
// vectors of this machine.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::attention {

/// One row of scores on its way through the softmax.
struct RowState {
  float greatest; ///< of all scores so far; -inf before the first
  float sum;      ///< of exp(score - greatest) so far
};

/// A matrix [rows, columns] is packed as panels of `panel` columns (the last one rounded up to `lanes`), each
/// row by row, padded with zeros.
struct Blocks {
  int lanes, panel;
  /// panels <- x[r * row_stride + c * column_stride]
  void (*pack)(const float* x, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
               float* panels);
  /// c[i * ldc + j] (+)= sum over l of a[i * lda + l] * b[l, j]. `b` is packed with `b_rows` rows, of which
  /// the `k` from `first` on are used; writes whole vectors.
  void (*multiply)(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t b_rows,
                   int64_t first, int64_t n, float* c, int64_t ldc, bool add);
  /// scores[i * ld + j] += dot of a[i * lda ..] and row j of b, without packing: for few rows.
  void (*dots)(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t row_stride,
               int64_t n, float* c, int64_t ldc);
  /// Scores become exp(score - greatest so far); `out` (of `width` numbers) is scaled to the new greatest.
  /// `mask` (may be null) is added with its stride first.
  void (*softmax)(float* scores, int64_t n, const float* mask, int64_t mask_stride, RowState& state,
                  float* out, int64_t width);
  /// Scores become cap * tanh(score / cap).
  void (*softcap)(float* scores, int64_t n, float cap);
  /// out[j] += sum over l of p[l] * v[l * row_stride + j], for one row.
  void (*add_rows)(const float* p, int64_t k, const float* v, int64_t row_stride, int64_t n, float* out);
};

const Blocks& blocks();

} // namespace tbx::extern_kernels::attention
