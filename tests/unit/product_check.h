// What a product of Operands is, by plain loops in double.
#pragma once

#include "guarded_operand.h"

namespace tbx::extern_kernels {

/// Holds each element of `out` against its sum, with the bound that float32 gives it. Operands are a, b, bias
/// and those of post-operations; `before` are the elements that the result had, which a `sum` adds.
inline void expect_product(const MatMulProblem& p, const std::vector<Operand>& in, const Operand& out,
                           const std::vector<double>& before = {}) {
  const size_t rank = out.sizes.size();
  const int64_t depth = in[0].sizes.back();
  for (int64_t i = 0; i < element_count(out.sizes); ++i) {
    const Dims index = index_of(i, out.sizes);
    Dims left = index, right = index;
    double want = 0, magnitude = 0;
    for (int64_t l = 0; l < depth; ++l) {
      left[rank - 1] = right[rank - 2] = l;
      const double term = in[0].at(left) * in[1].at(right);
      want += term;
      magnitude += std::fabs(term);
    }
    Expected expected(want, magnitude, depth);
    if (p.alpha != 1) expected.apply({PostOp::linear, p.alpha, 0}, 0);
    if (p.has_bias) expected.apply({PostOp::add}, in[2].at(index));
    for (const PostOp& op : p.post_ops)
      expected.apply(op, op.kind == PostOp::sum ? before[i] : op.operand >= 0 ? in[op.operand].at(index) : 0);
    ASSERT_NEAR(out.at(index), expected.value, expected.error)
        << to_string(Problem(p)) << " of " << out.sizes[rank - 2] << " x " << depth << " x "
        << out.sizes.back() << ", element " << i;
  }
}

} // namespace tbx::extern_kernels
