#include "extern_kernels/onednn/scaled_sums.h"

namespace tbx::extern_kernels::onednn {
namespace {

/// One number of float32, or with more `columns` one for each of them, side by side.
bool is_along(const TensorRef& t, const TensorRef& result, size_t dimension, int64_t columns) {
  if (t.dtype != DType::f32 || t.sizes.size() != result.sizes.size()) return false;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (d != dimension && t.sizes[d] != 1) return false;
  return t.sizes[dimension] == columns && (columns == 1 || t.strides[dimension] == 1);
}

} // namespace

ScaledSums scaled_sums(const std::vector<PostOp>& ops, std::span<const TensorRef> inputs,
                       const TensorRef& result, size_t columns) {
  ScaledSums s;
  const int64_t count = result.sizes[columns];
  if (ops.empty()) return s;
  const PostOp& first = ops[0];
  if (first.kind == PostOp::linear && first.beta == 0) {
    s.factor = &first.alpha;
  } else if (first.kind == PostOp::mul) {
    s.is_of_columns = count > 1 && is_along(inputs[first.operand], result, columns, count);
    if (s.is_of_columns || is_along(inputs[first.operand], result, columns, 1)) s.scale = first.operand;
  }
  s.post_ops = s.has_scale() ? 1 : 0;
  if (s.post_ops < ops.size() && ops[s.post_ops].kind == PostOp::add &&
      is_along(inputs[ops[s.post_ops].operand], result, columns, count))
    s.bias = ops[s.post_ops++].operand;
  return s;
}

Argument scale_argument(const ScaledSums& sums, const dnnl::memory::dims& columns) {
  using dnnl::memory;
  const memory::dims one{1};
  const memory::desc desc(sums.is_of_columns ? columns : one, memory::data_type::f32, one);
  // oneDNN knows no constant memory.
  return {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, desc, sums.scale, -1, const_cast<float*>(sums.factor)};
}

} // namespace tbx::extern_kernels::onednn
