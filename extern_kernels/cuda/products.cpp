#include "extern_kernels/cuda/products.h"

#include <algorithm>
#include <cstdint>

namespace tbx::extern_kernels::cuda {

namespace {

/// cudaDataType; -1: not of the library.
int type_of(DType t) {
  switch (t) {
  case DType::f32: return lt::kF32;
  case DType::f64: return lt::kF64;
  case DType::f16: return lt::kF16;
  case DType::bf16: return lt::kBf16;
  case DType::i8: return lt::kI8;
  case DType::i32: return lt::kI32;
  default: return -1;
  }
}

/// A matrix with dense rows, or dense columns.
struct Matrix {
  bool fits = false, columns = false;
  int64_t step = 0;
};

Matrix matrix_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const bool one_row = rows == 1, one_column = columns == 1;
  if ((column_stride == 1 || one_column) && (row_stride >= columns || one_row))
    return {true, false, one_row ? columns : row_stride};
  if ((row_stride == 1 || one_row) && (column_stride >= rows || one_column))
    return {true, true, one_column ? rows : column_stride};
  return {};
}

} // namespace

Products products_of(const MatMulProblem& p, const Epilogue& e, std::span<const TensorRef> in,
                     const TensorRef& c) {
  Products out;
  auto refuse = [&](const char* why) {
    out.refusal = why;
    return out;
  };
  const TensorRef &a = in[0], &b = in[1];
  const size_t rank = c.sizes.size(), row = rank - 2, column = rank - 1;
  Gemm& g = out.gemm;
  g.type = type_of(a.dtype), g.result = type_of(c.dtype);
  g.tf32 = p.precision == Precision::any && a.dtype == DType::f32;
  g.m = c.sizes[row], g.n = c.sizes[column], g.k = a.sizes[column];
  if (g.k == 0) return refuse("an empty inner dimension");
  const Matrix ma = matrix_of(g.m, g.k, a.strides[row], a.strides[column]),
               mb = matrix_of(g.k, g.n, b.strides[row], b.strides[column]),
               mc = matrix_of(g.m, g.n, c.strides[row], c.strides[column]);
  if (!ma.fits || !mb.fits) return refuse("operands without dense rows or columns");
  if (!mc.fits || mc.columns) return refuse("a result without dense rows");
  g.a_columns = ma.columns, g.a_step = ma.step;
  g.b_columns = mb.columns, g.b_step = mb.step;
  g.c_step = mc.step;
  g.bias = e.bias >= 0, g.residual = e.residual >= 0, g.activation = e.activation;
  const TensorRef* residual = g.residual ? &in[e.residual] : nullptr;
  if (residual) {
    const Matrix mr = matrix_of(g.m, g.n, residual->strides[row], residual->strides[column]);
    if (!mr.fits || mr.columns) return refuse("an addition without dense rows");
    g.residual_step = mr.step;
  }
  if (g.bias && g.n > 1 && in[e.bias].strides.back() != 1 &&
      *std::max_element(in[e.bias].strides.begin(), in[e.bias].strides.end()) != 1)
    return refuse("a bias that is not dense");
  std::vector<BatchStep> steps;
  auto stride = [](const TensorRef& t, size_t d) { return t.sizes[d] == 1 ? 0 : t.strides[d]; };
  for (size_t d = 0; d < row; ++d) {
    if (c.sizes[d] == 1) continue;
    const BatchStep s{c.sizes[d], stride(a, d), stride(b, d), c.strides[d],
                      residual ? stride(*residual, d) : 0};
    // Two dimensions that lie as one would.
    if (!steps.empty()) {
      BatchStep& last = steps.back();
      if (last.a == s.a * s.size && last.b == s.b * s.size && last.c == s.c * s.size &&
          last.residual == s.residual * s.size) {
        last = {last.size * s.size, s.a, s.b, s.c, s.residual};
        continue;
      }
    }
    steps.push_back(s);
  }
  // A batch of which b knows nothing is more rows.
  if (!steps.empty() && !g.a_columns) {
    const BatchStep s = steps.back();
    const bool residual_fits = !residual || s.residual == g.residual_step * g.m;
    if (s.b == 0 && s.a == g.a_step * g.m && s.c == g.c_step * g.m && residual_fits &&
        (g.m > 1 || s.a >= g.k)) {
      g.m *= s.size;
      steps.pop_back();
    }
  }
  if (!steps.empty()) {
    const auto largest = std::max_element(
        steps.begin(), steps.end(), [](const BatchStep& x, const BatchStep& y) { return x.size < y.size; });
    g.batch = largest->size;
    g.a_batch = largest->a, g.b_batch = largest->b, g.c_batch = largest->c,
    g.residual_batch = largest->residual;
    steps.erase(largest);
  }
  if (std::max({g.m, g.n, g.k, g.batch}) > INT32_MAX) return refuse("a dimension above 2^31 - 1");
  out.outer = std::move(steps);
  return out;
}

} // namespace tbx::extern_kernels::cuda
