// The arithmetic of blocked attention: products with packed panels and the running softmax, in the widest
// vectors of this machine.
#pragma once

#include <cstdint>
#include <vector>

namespace tbx::extern_kernels::attention {

/// One row of scores on its way through the softmax.
struct RowState {
  float greatest; ///< of all scores so far; -inf before the first
  float sum;      ///< of exp(score - greatest) so far
};

/// A matrix [rows, columns] is packed as panels of `panel` columns (the last one rounded up to `lanes`), each
/// row by row, padded with zeros. Its elements are words: one f32, or two bf16 that are neighbours along the
/// sum, of which pack() knows nothing.
struct Blocks {
  const char* name; ///< of the instructions
  int lanes, panel;
  int per_word; ///< elements of the sum in a word of the operands of multiply()
  int rows;     ///< multiply() takes so many rows at a time: there is memory for them,
  int step;     ///< and so many words of the sum: those behind the last one are 0
  /// panels <- x[r * row_stride + c * column_stride]
  void (*pack)(const float* x, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
               float* panels);
  /// c[i * ldc + j] (+)= sum over l of a[i * lda + l] * b[l, j]. `b` is packed with `b_rows` rows, of which
  /// the `k` from `first` on are used; writes whole vectors.
  void (*multiply)(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t b_rows,
                   int64_t first, int64_t n, float* c, int64_t ldc, bool add);
  /// Around the calls of multiply() of one task, which calls no other kernel meanwhile; null: nothing to do.
  void (*begin)();
  void (*end)();
  /// scores[i * ld + j] += dot of a[i * lda ..] and row j of b, without packing: for few rows.
  void (*dots)(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t row_stride,
               int64_t n, float* c, int64_t ldc);
  /// Scores become what softmax() takes: times `scale`, plus `mask` (may be null) with its stride. What is
  /// left to multiply them by goes to `scale`. There is room for whole vectors, which are filled up with
  /// -inf. Gives the greatest of what scores are in the end; -inf where there is none; NaN is not greater
  /// than anything.
  float (*prepare)(float* scores, int64_t n, float& scale, const float* mask, int64_t mask_stride);
  /// Prepared scores, of which `greatest` is the greatest, become exp(score - greatest so far), stored one
  /// after the other as multiply() takes them; `out` (of `width` numbers) is scaled to the new greatest.
  /// `shares` may be the same memory or before it.
  void (*softmax)(const float* scores, int64_t n, float scale, float greatest, RowState& state, float* out,
                  int64_t width, void* shares);
  /// to[j] = from[j] * by.
  void (*scale)(const float* from, int64_t n, float by, float* to);
  /// to[j] = from[j] / by.
  void (*divide)(const float* from, int64_t n, float by, float* to);
  /// to[j] = from[j] / by, rounded to bfloat16; null: not here.
  void (*divide_to_bf16)(const float* from, int64_t n, float by, uint16_t* to);
  /// Words of an element of each of two rows of bfloat16; null: not here.
  void (*pair)(const uint16_t* low, const uint16_t* high, int64_t n, float* to);
  /// Scores become cap * tanh(score / cap).
  void (*softcap)(float* scores, int64_t n, float cap);
  /// out[i * ldo + j] += sum over l of p[i * ldp + l] * v[l * row_stride + j], without packing: for few rows.
  void (*add_rows)(const float* p, int64_t ldp, int64_t m, int64_t k, const float* v, int64_t row_stride,
                   int64_t n, float* out, int64_t ldo);
};

const Blocks& blocks();

/// Those of every instruction set of this CPU, the last ones are blocks(): for tests.
std::vector<const Blocks*> all_blocks();

/// The same with bfloat16 operands of multiply(), added in f32; null where this CPU multiplies none.
const Blocks* bf16_blocks();

/// Those with tile registers (AMX); null where this CPU, or its system, has none.
const Blocks* tile_blocks();

} // namespace tbx::extern_kernels::attention
