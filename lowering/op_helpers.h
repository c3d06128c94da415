// What lowerings of operators are written with: broadcast pointwise maps, reductions over axes, constants.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/error.h"
#include "lowering/op_registry.h"

namespace tbx::lowering {

using ir::Expr;
using ir::Op;
using ir::ReduceOp;
using ir::SymInt;
using ir::SymInts;
using ir::TensorBox;

/// A constant of the compute type of `like`; exact for integers.
inline Expr number(Expr like, double v) { return like->context->constant(like->dtype, v); }
/// The loop variables var(0), ..., var(rank - 1).
SymInts loop_vars(ir::Context& c, int rank);
/// The value of a size as an expression of compute type `type`.
Expr size_as(ir::Context& c, SymInt size, DType type);
/// `e` converted to the compute type of `type`; no-op when it has it.
Expr to_compute(Expr e, DType type);
/// Rounds to `type` as if stored and loaded again (narrow floats only).
Expr rounded(Expr e, DType type);

using UnaryBody = std::function<Expr(Expr)>;
using BinaryBody = std::function<Expr(Expr, Expr)>;
using NaryBody = std::function<Expr(std::span<const Expr>)>;

/// numpy broadcast of all shapes.
SymInts broadcast_all(OpContext& ctx, std::span<const TensorBox> xs);
/// `x` shown in the shape `sizes`; puts it into memory first when each element would be computed many times.
TensorBox broadcast_to(OpContext& ctx, const TensorBox& x, const SymInts& sizes);
/// Pointwise over inputs broadcast together; the body sees one value per input in its compute type.
TensorBox map(OpContext& ctx, DType dtype, std::span<const TensorBox> xs, const NaryBody& body);
TensorBox map(OpContext& ctx, DType dtype, const TensorBox& x, const UnaryBody& body);
TensorBox map(OpContext& ctx, DType dtype, const TensorBox& x, const TensorBox& y, const BinaryBody& body);
/// Element conversion as in ONNX Cast with its defaults.
TensorBox convert(OpContext& ctx, const TensorBox& x, DType to);
/// A tensor of one value.
TensorBox full(OpContext& ctx, DType dtype, const SymInts& sizes, double value);
/// A tensor given by its indices.
TensorBox generate(OpContext& ctx, DType dtype, const SymInts& sizes,
                   const std::function<Expr(std::span<const SymInt>)>& body);

/// Lowerings with one input (or two, broadcast) and a result of the first input's type.
LowerFn pointwise(Op op);
LowerFn pointwise(UnaryBody body);
LowerFn pointwise2(BinaryBody body);
/// Result boolean.
LowerFn comparison(BinaryBody body);

/// The second operand placed as the `axis` and `broadcast` attributes of opsets 1 to 6 say; plain from opset
/// 7 on.
TensorBox legacy_operand(OpContext& ctx);

/// `x` of shape [C] seen as [C, 1, ..., 1], to be broadcast against rank `rank` with channels in dimension 1.
TensorBox per_channel(OpContext& ctx, const TensorBox& x, int rank);

/// Mean and sum of squared deviations from it, of each row; the reduced dimensions are kept as 1.
struct Moments {
  TensorBox mean, squares;
};

/// Greatest element and sum of exponentials of each row; the reduced dimensions are kept as 1.
struct ExpSums {
  TensorBox greatest, sum;
};

/// Reductions over some axes of an iteration space; each result keeps the reduced dimensions as 1.
class AxisReducer {
public:
  AxisReducer(OpContext& ctx, SymInts sizes, std::vector<int> axes);
  using Body = std::function<Expr(std::span<const SymInt>)>;
  /// reduce over the axes of body(i0, i1, ...), which sees full indices; `dtype` is the type stored.
  TensorBox operator()(ReduceOp op, DType dtype, const Body& body) const;
  /// Of a box of the shape of the space, through `before`.
  TensorBox operator()(ReduceOp op, DType dtype, const TensorBox& x, const UnaryBody& before = {}) const;
  /// In two looks at each row, or at each part of rows that no cache holds. Both stored as `type` (f32 or
  /// f64).
  Moments moments(const TensorBox& x, DType type) const;
  /// Greatest element of each row and sum of `exp` of the distances from it, where a row is too long for one
  /// task or for the cache: in two looks at each part of it, of which the first one alone reads memory.
  std::optional<ExpSums> exp_sums(const TensorBox& x, DType type, const UnaryBody& exp) const;
  /// A result of the above without the reduced dimensions.
  TensorBox drop(const TensorBox& result) const;
  /// Number of elements reduced into one.
  SymInt count() const { return count_; }

private:
  struct Parts;
  /// Of a single image: convolutions share it among threads by its rows. A thread that summed channels
  /// instead would read from the caches of all others, and what is next written there waits for them.
  std::optional<Parts> parts_of_image(ReduceOp op) const;
  /// Where few long rows would leave threads without work.
  std::optional<Parts> parts_of_few_rows(ReduceOp op) const;
  TensorBox reduced_in(const std::optional<Parts>& parts, ReduceOp op, DType dtype, const Body& body) const;
  /// The position of the first or last best element, by those of the parts.
  TensorBox arg_of_parts(ReduceOp op, const Parts& parts, const Body& body) const;
  /// Where a row is too long to stay in cache between two looks.
  std::optional<Parts> parts_of_long_rows() const;
  std::optional<int64_t> even_parts(size_t k, int64_t first, int64_t last) const;
  /// Reduces each part: the kept dimensions, then one for the parts.
  TensorBox of_parts(ReduceOp op, DType dtype, const Parts& parts, const Body& body) const;
  SymInts indices() const;
  SymInts along_parts(const Parts& parts) const;
  SymInts in_part(const Parts& parts, SymInt i) const;

  OpContext& ctx_;
  SymInts sizes_, kept_, reduced_;
  std::vector<int> axes_;
  SymInt count_;
};

/// A dimension that a library call or loop nest reads as if it were `to` is 1 or as large: at once where both
/// are known, else before a run.
void require_broadcast(OpContext& ctx, SymInt from, SymInt to, std::string_view what);

/// Axes from `first` to the last of rank `rank`.
std::vector<int> axes_from(int first, int rank);

/// Marks a value that a lowering uses `users` times itself (realize policy).
void shared(OpContext& ctx, const TensorBox& x, int users);
/// Puts a value into memory whatever it costs to compute.
void realize(OpContext& ctx, const TensorBox& x, std::string reason);

} // namespace tbx::lowering
