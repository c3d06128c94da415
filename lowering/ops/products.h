// What lowerings that end in a matrix product share.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

ir::ExternOperand operand_of(const ir::StridedView& v);

/// a [..., m, k] times b [..., k, n], batches broadcast, plus beta*bias when given (broadcastable to [m, n]
/// rows of the result), scaled by alpha. A single b for all batches becomes one product over all rows.
TensorBox matrix_product(OpContext& ctx, TensorBox a, TensorBox b, const TensorBox* bias, float alpha,
                         float beta, DType result_type);

/// Joins boxes of equal rank along `axis` (lowering/ops/shape.cpp).
TensorBox concatenate(OpContext& ctx, const std::vector<TensorBox>& xs, int axis);

} // namespace tbx::lowering
