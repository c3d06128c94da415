// What lowerings that end in a matrix product share.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

ir::ExternOperand operand_of(const ir::StridedView& v);
/// The box in memory as libraries read it: forwards along each dimension. What a slice with a negative step
/// shows is copied, since with sizes of a run nobody else sees which way it goes.
ir::ExternOperand library_operand(OpContext& ctx, const TensorBox& x, const std::string& reason);
/// A vector, [n] or [1, n], as kernels read a bias or zero points: n elements side by side, whatever its
/// strides. Of one that is repeated or lies in a column of a matrix a copy is read.
ir::ExternOperand dense_operand(OpContext& ctx, const TensorBox& x, const std::string& reason);

/// Narrow floats as f32; other boxes as they are.
TensorBox wide(OpContext& ctx, const TensorBox& x);
/// Where `x` shows a buffer of f16 or bf16 as f32: that buffer, else `x`.
TensorBox shown_half(OpContext& ctx, const TensorBox& x);
/// Where `x` shows a constant of f16 or bf16 as f32: that constant, which library kernels widen once.
TensorBox narrow_constant(OpContext& ctx, const TensorBox& x);

/// Operands of a product that memory holds, or will hold, in a narrow float stay so where the library has a
/// fast kernel for both together; else what memory holds narrow is taken as f32. `result`: sizes.
void choose_operand_types(OpContext& ctx, const extern_kernels::Problem& problem, TensorBox& a, TensorBox& b,
                          const SymInts& result);

/// The model, or the precision that was asked for, has the node's first result in f16 or bf16.
bool gives_half(OpContext& ctx);
/// What memory holds of the result of a product with this (chosen) left operand. Libraries of GPUs give what
/// they multiply, unless nothing is added to a matrix product.
DType result_in_memory(OpContext& ctx, const extern_kernels::Problem& problem, const TensorBox& operand);
/// Whether a library of the CPU gives the result of this product, whose operands are of `type`, quickly as
/// float32 and slowly as `type`.
bool is_slow_as(const ir::Program& program, const ir::ExternCall& call, DType type);
/// The bias of a product, realized: in the type of a narrow `result`, else in f32.
ir::ExternOperand bias_operand(OpContext& ctx, const TensorBox& bias, DType result);

/// Zero points of 8-bit operands: i32 of shape [1], or undefined for 0.
struct ZeroPoints {
  TensorBox left, right;
};
/// Makes `zero` an input of the call, whose number is `number` then; nothing where it is undefined.
void append_zero_point(OpContext& ctx, ir::ExternCall& call, const TensorBox& zero, int& number);

/// a [..., m, k] times b [..., k, n], batches broadcast, plus beta*bias when given (broadcastable to [m, n]
/// rows of the result), scaled by alpha. A single b for all batches becomes one product over all rows.
TensorBox matrix_product(OpContext& ctx, TensorBox a, TensorBox b, const TensorBox* bias, float alpha,
                         float beta, DType result_type, const ZeroPoints* zeros = nullptr);

/// numpy's matmul of two tensors of rank 1 or more, stored as `type`; ModelError for scalars.
TensorBox matmul_boxes(OpContext& ctx, const TensorBox& x, const TensorBox& y, DType type,
                       const ZeroPoints* zeros = nullptr);

/// Convolution as the attributes of the node say, stored as `type`; `bias` may be null.
TensorBox conv_boxes(OpContext& ctx, const TensorBox& x, const TensorBox& w, const TensorBox* bias,
                     DType type, const ZeroPoints* zeros = nullptr);

/// Quotient, rounded to even, plus zero point (may be null), clamped to the integers of type `to`, which have
/// at most 16 bits; for floats of at most 8 bits their sum, saturated. ModelError for other types.
Expr quantized(Expr quotient, Expr zero, DType to);

/// Joins boxes of equal rank along `axis` (lowering/ops/onnx/shape.cpp).
TensorBox concatenate(OpContext& ctx, const std::vector<TensorBox>& xs, int axis);

/// A convolution with input 2 as bias (may be absent) plus `z` (may be undefined) through attribute
/// `activation`.
TensorBox activated_conv(OpContext& ctx, LoweredValue x, LoweredValue w, const TensorBox& z);

} // namespace tbx::lowering
