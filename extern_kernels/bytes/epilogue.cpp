#include "extern_kernels/bytes/epilogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "extern_kernels/bytes/avx2.h"
#include "extern_kernels/post_ops.h"

namespace tbx::extern_kernels::bytes {

std::string Epilogue::refusal(const std::vector<PostOp>& ops, std::span<const OperandInfo> inputs,
                              DType result) {
  for (const PostOp& op : ops) {
    if (op.operand < 0) continue;
    const DType type = inputs[static_cast<size_t>(op.operand)].dtype;
    if (type != DType::f32 && !is_byte(type)) return fmt::format("{} operands", name_of(type));
  }
  if (result != DType::f32 && !is_byte(result) && (result != DType::i32 || !ops.empty()))
    return fmt::format("a {} result", name_of(result));
  return {};
}

#if defined(__x86_64__)
namespace {

/// A row of a tile. All rows of one are in registers from the first operation to the last, whether there are
/// as many or not.
struct Row {
  __m256 low, high;
};

// What is made of eight elements, and of the two numbers of the operation or of an operand. Objects, since of
// a lambda the compiler asks for the type of its result before it has seen for which instructions it is.
#define TBX_EIGHT(name, parameters, value)                                                                   \
  struct name {                                                                                              \
    TBX_AVX2_INLINE __m256 operator() parameters const { return value; }                                     \
  }
TBX_EIGHT(Add, (__m256 x, __m256 y), _mm256_add_ps(x, y));
TBX_EIGHT(Sub, (__m256 x, __m256 y), _mm256_sub_ps(x, y));
TBX_EIGHT(Mul, (__m256 x, __m256 y), _mm256_mul_ps(x, y));
TBX_EIGHT(Div, (__m256 x, __m256 y), _mm256_div_ps(x, y));
// Where an operand of a comparison is NaN the second one is the result.
TBX_EIGHT(Relu, (__m256 x, __m256, __m256), _mm256_max_ps(_mm256_setzero_ps(), x));
TBX_EIGHT(LeakyRelu, (__m256 x, __m256 a, __m256),
          _mm256_blendv_ps(x, _mm256_mul_ps(a, x), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
TBX_EIGHT(Clip, (__m256 x, __m256 a, __m256 b), _mm256_min_ps(b, _mm256_max_ps(a, x)));
TBX_EIGHT(Linear, (__m256 x, __m256 a, __m256 b), _mm256_fmadd_ps(a, x, b));
TBX_EIGHT(Round, (__m256 x, __m256, __m256),
          _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
TBX_EIGHT(HardSigmoid, (__m256 x, __m256 a, __m256 b),
          _mm256_max_ps(_mm256_setzero_ps(), _mm256_min_ps(_mm256_set1_ps(1), _mm256_fmadd_ps(a, x, b))));
TBX_EIGHT(SixthAndHalf, (__m256 x), _mm256_add_ps(_mm256_div_ps(x, _mm256_set1_ps(6)), _mm256_set1_ps(0.5f)));
TBX_EIGHT(HardSwish, (__m256 x, __m256, __m256),
          _mm256_mul_ps(x, _mm256_max_ps(_mm256_setzero_ps(),
                                         _mm256_min_ps(_mm256_set1_ps(1), SixthAndHalf{}(x)))));
#undef TBX_EIGHT

template <class F> TBX_AVX2_INLINE void each(Row* tile, const PostOp& op) {
  const __m256 a = _mm256_set1_ps(op.alpha), b = _mm256_set1_ps(op.beta);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) tile[r] = {F{}(tile[r].low, a, b), F{}(tile[r].high, a, b)};
}

template <class F> TBX_AVX2_INLINE void combine(Row* tile, const float* const* operand) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
    tile[r] = {F{}(tile[r].low, _mm256_loadu_ps(operand[r])),
               F{}(tile[r].high, _mm256_loadu_ps(operand[r] + 8))};
}

TBX_AVX2_INLINE __m256 eight(const uint8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
TBX_AVX2_INLINE __m256 eight(const int8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
TBX_AVX2_INLINE __m256 eight(const float* from) { return _mm256_loadu_ps(from); }

/// Rounded by itself: compilers may make one operation of it and of a sum that follows.
TBX_AVX2_INLINE __m256 rounded_product(__m256 x, __m256 y) {
  __m256 product = _mm256_mul_ps(x, y);
  asm("" : "+x"(product));
  return product;
}

/// With whole rows of an operand, where they lie.
template <class F, class S>
TBX_AVX2_INLINE void combine_rows(Row* tile, const S* from, const int64_t* rows, int count) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const S* row = from + rows[std::min(r, count - 1)];
    tile[r] = {F{}(tile[r].low, eight(row)), F{}(tile[r].high, eight(row + 8))};
  }
}

template <class F>
TBX_AVX2_INLINE void combine_rows(Row* tile, const Walk& w, const int64_t* rows, int count, int64_t column) {
  switch (w.dtype) {
  case DType::u8: return combine_rows<F>(tile, static_cast<const uint8_t*>(w.data) + column, rows, count);
  case DType::i8: return combine_rows<F>(tile, static_cast<const int8_t*>(w.data) + column, rows, count);
  default: return combine_rows<F>(tile, static_cast<const float*>(w.data) + column, rows, count);
  }
}

/// An operand of a tile, each row as sixteen floats; those beyond `width` are 1.
class Operand {
public:
  template <class S>
  TBX_AVX2 void load(const Walk& w, const int64_t* rows, int count, int64_t column, int width) {
    const S* from = static_cast<const S*>(w.data) + column * w.column_step;
    const bool is_whole = w.column_step == 1 && width == kPanel;
    for (int r = 0; r < kRows; ++r) {
      if (r >= count || (r > 0 && rows[r] == rows[r - 1])) {
        rows_[r] = rows_[r - 1];
        continue;
      }
      if constexpr (std::is_same_v<S, float>)
        if (is_whole) {
          rows_[r] = from + rows[r];
          continue;
        }
      float* to = copies_[r];
      rows_[r] = to;
      if (is_whole) {
        _mm256_storeu_ps(to, eight(from + rows[r]));
        _mm256_storeu_ps(to + 8, eight(from + rows[r] + 8));
      } else {
        for (int j = 0; j < kPanel; ++j)
          to[j] = j < width ? static_cast<float>(from[rows[r] + j * w.column_step]) : 1.0f;
      }
    }
  }
  const float* const* rows() const { return rows_; }

private:
  const float* rows_[kRows];
  float copies_[kRows][kPanel];
};

void load(Operand& operand, const Walk& w, const int64_t* rows, int count, int64_t column, int width) {
  switch (w.dtype) {
  case DType::u8: return operand.load<uint8_t>(w, rows, count, column, width);
  case DType::i8: return operand.load<int8_t>(w, rows, count, column, width);
  default: return operand.load<float>(w, rows, count, column, width);
  }
}

/// Sixteen bytes, rounded to even and saturated.
TBX_AVX2 __m128i to_bytes(const Row& x, bool is_signed) {
  const __m256 low = _mm256_set1_ps(is_signed ? -128.0f : 0.0f),
               high = _mm256_set1_ps(is_signed ? 127.0f : 255.0f);
  const __m256i first_eight = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x.low, low), high)),
                others = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x.high, low), high));
  const __m256i halves = _mm256_packs_epi32(first_eight, others); // in turns of four
  const __m256i ordered = _mm256_permute4x64_epi64(halves, 0xd8);
  const __m128i first = _mm256_castsi256_si128(ordered), second = _mm256_extracti128_si256(ordered, 1);
  return is_signed ? _mm_packs_epi16(first, second) : _mm_packus_epi16(first, second);
}

/// `width` of the numbers in a row of a tile.
template <class S> void store(const S* from, const Walk& w, int64_t at, int width) {
  S* to = static_cast<S*>(w.data) + at;
  for (int j = 0; j < width; ++j) to[j * w.column_step] = from[j];
}

TBX_AVX2_INLINE void store(const Row& x, const Walk& w, int64_t at, int width) {
  const bool is_whole = w.column_step == 1 && width == kPanel;
  if (w.dtype == DType::f32) {
    float values[kPanel];
    float* to = is_whole ? static_cast<float*>(w.data) + at : values;
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
    if (!is_whole) store(values, w, at, width);
    return;
  }
  int8_t values[kPanel];
  int8_t* to = is_whole ? static_cast<int8_t*>(w.data) + at : values;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), to_bytes(x, w.dtype == DType::i8));
  if (!is_whole) store(values, w, at, width);
}

/// Those that take many registers of their own.
TBX_AVX2_INLINE void activate_all(Row* tile, const PostOp& op) {
  float values[kRows * kPanel]; // the tile itself must not be seen in memory, or it would stay there
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(values + r * kPanel, tile[r].low);
    _mm256_storeu_ps(values + r * kPanel + 8, tile[r].high);
  }
  activate(op, values, std::size(values));
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; ++r) tile[r] = {eight(values + r * kPanel), eight(values + r * kPanel + 8)};
}

/// How many operations there are before those that storing a byte does.
size_t count_before_storing(const std::vector<PostOp>& ops, DType result) {
  size_t count = ops.size();
  const float low = result == DType::u8 ? 0 : -128;
  if (is_byte(result) && count > 0 && ops[count - 1].kind == PostOp::clip && ops[count - 1].alpha == low &&
      ops[count - 1].beta == low + 255)
    --count;
  return is_byte(result) && count > 0 && ops[count - 1].kind == PostOp::round ? count - 1 : count;
}

/// Of sixteen columns, and of all of them.
struct Columns {
  __m256 scale[2], bias[2];
};
struct Numbers {
  __m256 low, high, alpha, beta, gamma, delta;
};

/// Eight sums as integers that are still to saturate.
template <bool kMore, bool kOperand>
TBX_AVX2_INLINE __m256i work_on(const int32_t* sums, __m256 scale, __m256 bias, const Numbers& n,
                                const uint8_t* operand) {
  __m256 x = _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)));
  x = _mm256_add_ps(rounded_product(x, scale), bias);
  if constexpr (kMore) {
    x = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    x = _mm256_min_ps(n.high, _mm256_max_ps(n.low, x));
  }
  if constexpr (kOperand)
    x = _mm256_fmadd_ps(_mm256_add_ps(rounded_product(x, n.alpha), eight(operand)), n.gamma, n.delta);
  else if constexpr (kMore)
    x = _mm256_fmadd_ps(x, n.alpha, n.beta);
  if constexpr (!kOperand) x = _mm256_min_ps(_mm256_set1_ps(255), x);
  return _mm256_cvtps_epi32(x);
}

/// Two rows at a time. Steps are those of `rows`: of the result, and of the operand.
template <bool kMore, bool kOperand>
TBX_AVX2 void work_on_all(const int32_t* sums, int count, const Columns& c, const Numbers& n, uint8_t* result,
                          const int64_t* places, const uint8_t* operand, const int64_t* operand_places) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int r = 0; r < count; r += 2) {
    __m256i x[2][2];
    const int second = std::min(r + 1, count - 1);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int row = i == 0 ? r : second;
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j)
        x[i][j] =
            work_on<kMore, kOperand>(sums + int64_t{row} * kPanel + int64_t{8} * j, c.scale[j], c.bias[j], n,
                                     kOperand ? operand + operand_places[row] + int64_t{8} * j : nullptr);
    }
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_packus_epi16(_mm256_packs_epi32(x[0][0], x[0][1]), _mm256_packs_epi32(x[1][0], x[1][1])),
        order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(result + places[second]), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(result + places[r]), _mm256_castsi256_si128(bytes));
  }
}

} // namespace

TBX_AVX2 void Epilogue::finish_work(const int32_t* sums, int count, int64_t column,
                                    const int64_t* const* rows) const {
  const float *scale = static_cast<const float*>(operands_[0].data) + rows[1][0] + column,
              *bias = static_cast<const float*>(operands_[1].data) + rows[2][0] + column;
  const Columns c{{eight(scale), eight(scale + 8)}, {eight(bias), eight(bias + 8)}};
  const TileWork& w = *work_;
  const Numbers n{_mm256_set1_ps(w.low),  _mm256_set1_ps(w.high),  _mm256_set1_ps(w.alpha),
                  _mm256_set1_ps(w.beta), _mm256_set1_ps(w.gamma), _mm256_set1_ps(w.delta)};
  auto* result = static_cast<uint8_t*>(result_.data) + column;
  if (w.operand >= 0)
    work_on_all<true, true>(sums, count, c, n, result, rows[0],
                            static_cast<const uint8_t*>(operands_[2].data) + column, rows[3]);
  else if (w.is_more)
    work_on_all<true, false>(sums, count, c, n, result, rows[0], nullptr, nullptr);
  else
    work_on_all<false, false>(sums, count, c, n, result, rows[0], nullptr, nullptr);
}

TBX_AVX2 void Epilogue::finish(const int32_t* sums, int count, int64_t column, int width,
                               const int64_t* const* rows) const {
  const int64_t first = column * result_.column_step;
  if (result_.dtype == DType::i32) {
    for (int64_t r = 0; r < count; ++r) store(sums + r * kPanel, result_, rows[0][r] + first, width);
    return;
  }
  if (work_ && width == kPanel) return finish_work(sums, count, column, rows);
  Row tile[kRows];
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; ++r) {
    const auto* from = reinterpret_cast<const __m256i*>(sums + std::min<int64_t>(r, count - 1) * kPanel);
    tile[r] = {_mm256_cvtepi32_ps(_mm256_loadu_si256(from)),
               _mm256_cvtepi32_ps(_mm256_loadu_si256(from + 1))};
  }
  const bool scales = scales_first_ && width == kPanel;
  if (scales) {
    const float *scale = static_cast<const float*>(operands_[0].data) + rows[1][0] + column,
                *bias = static_cast<const float*>(operands_[1].data) + rows[2][0] + column;
    const __m256 low = eight(scale), high = eight(scale + 8), bias_low = eight(bias),
                 bias_high = eight(bias + 8);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
      tile[r] = {_mm256_add_ps(rounded_product(tile[r].low, low), bias_low),
                 _mm256_add_ps(rounded_product(tile[r].high, high), bias_high)};
  }
  Operand operand;
  size_t number = scales ? 2 : 0;
  for (size_t i = number; i < count_; ++i) {
    const PostOp& op = ops_[i];
    if (op.operand >= 0) {
      const Walk& w = operands_[number++];
      if (w.column_step == 1 && width == kPanel) {
        switch (op.kind) {
        case PostOp::sub: combine_rows<Sub>(tile, w, rows[number], count, column); break;
        case PostOp::mul: combine_rows<Mul>(tile, w, rows[number], count, column); break;
        case PostOp::div: combine_rows<Div>(tile, w, rows[number], count, column); break;
        default: combine_rows<Add>(tile, w, rows[number], count, column); break;
        }
        continue;
      }
      load(operand, w, rows[number], count, column, width);
    }
    switch (op.kind) {
    case PostOp::relu: each<Relu>(tile, op); break;
    case PostOp::leaky_relu: each<LeakyRelu>(tile, op); break;
    case PostOp::clip: each<Clip>(tile, op); break;
    case PostOp::linear: each<Linear>(tile, op); break;
    case PostOp::round: each<Round>(tile, op); break;
    case PostOp::hard_sigmoid: each<HardSigmoid>(tile, op); break;
    case PostOp::hard_swish: each<HardSwish>(tile, op); break;
    case PostOp::add:
    case PostOp::sum: combine<Add>(tile, operand.rows()); break;
    case PostOp::sub: combine<Sub>(tile, operand.rows()); break;
    case PostOp::mul: combine<Mul>(tile, operand.rows()); break;
    case PostOp::div: combine<Div>(tile, operand.rows()); break;
    default: activate_all(tile, op); break;
    }
  }
  if (is_byte(result_.dtype) && result_.column_step == 1 && width == kPanel) {
    int8_t* to = static_cast<int8_t*>(result_.data) + first;
    const bool is_signed = result_.dtype == DType::i8;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
      if (r < count)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + rows[0][r]), to_bytes(tile[r], is_signed));
    return;
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
    if (r < count) store(tile[r], result_, rows[0][r] + first, width);
}

/// One number for each column, side by side.
static bool is_row(const Walk& w, size_t outer) {
  return w.dtype == DType::f32 && w.column_step == 1 &&
         std::all_of(w.steps.begin() + static_cast<std::ptrdiff_t>(outer), w.steps.end(),
                     [](int64_t step) { return step == 0; });
}

Epilogue::Epilogue(const std::vector<PostOp>& ops, const Walk& result, std::span<const Walk> operands,
                   size_t outer)
    : ops_(ops), count_(count_before_storing(ops, result.dtype)),
      scales_first_(count_ >= 2 && ops[0].kind == PostOp::mul && ops[0].operand >= 0 &&
                    ops[1].kind == PostOp::add && ops[1].operand >= 0 && is_row(operands[0], outer) &&
                    is_row(operands[1], outer)),
      result_(result), operands_(operands) {
  if (!scales_first_ || result.dtype != DType::u8 || result.column_step != 1) return;
  work_ = TileWork::of(std::span(ops).first(count_).subspan(2));
  if (work_ && work_->operand >= 0 && (operands[2].dtype != DType::u8 || operands[2].column_step != 1))
    work_.reset();
}
#else
Epilogue::Epilogue(const std::vector<PostOp>& ops, const Walk& result, std::span<const Walk> operands, size_t)
    : ops_(ops), count_(ops.size()), result_(result), operands_(operands) {}
void Epilogue::finish(const int32_t*, int, int64_t, int, const int64_t* const*) const { TBX_INTERNAL(false); }
#endif

} // namespace tbx::extern_kernels::bytes
