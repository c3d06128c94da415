// The vocabulary of operator lowerings.
#include "lowering/op_helpers.h"

#include <numeric>

#include "lowering/realize_policy.h"

namespace tbx::lowering {

SymInts loop_vars(ir::Context& c, int rank) {
  SymInts out;
  for (int k = 0; k < rank; ++k) out.push_back(c.var(k));
  return out;
}

Expr to_compute(Expr e, DType type) {
  DType compute = compute_type(type);
  if (e->dtype == compute) return e;
  if (compute == DType::boolean) return ir::binary(Op::not_equal, e, number(e, 0));
  return e->context->cast(e, compute);
}

Expr size_as(ir::Context& c, SymInt size, DType type) {
  DType compute = compute_type(type);
  if (size.is_constant())
    return is_float(compute) ? c.constant(compute, static_cast<double>(size.constant()))
                             : c.constant_int(compute, size.constant());
  return to_compute(c.index(size), compute);
}

Expr rounded(Expr e, DType type) { return is_low_precision_float(type) ? e->context->round_to(e, type) : e; }

SymInts broadcast_all(OpContext& ctx, std::span<const TensorBox> xs) {
  SymInts sizes;
  for (const TensorBox& x : xs) sizes = ir::broadcast_sizes(ctx.program, sizes, x.sizes());
  return sizes;
}

TensorBox broadcast_to(OpContext& ctx, const TensorBox& x, const SymInts& sizes) {
  if (x.sizes() == sizes) return x;
  realize_if_repeated(ctx.program, x, sizes);
  return ir::expand(ctx.program, x, sizes);
}

TensorBox map(OpContext& ctx, DType dtype, std::span<const TensorBox> xs, const NaryBody& body) {
  SymInts sizes = broadcast_all(ctx, xs), at = loop_vars(ctx.c, static_cast<int>(sizes.size()));
  std::vector<Expr> values;
  for (const TensorBox& x : xs) values.push_back(broadcast_to(ctx, x, sizes).load(ctx.program, at));
  return ir::make_pointwise(ctx.program, dtype, sizes, to_compute(body(values), dtype));
}

TensorBox map(OpContext& ctx, DType dtype, const TensorBox& x, const UnaryBody& body) {
  return map(ctx, dtype, {&x, 1}, [&](std::span<const Expr> v) { return body(v[0]); });
}

TensorBox map(OpContext& ctx, DType dtype, const TensorBox& x, const TensorBox& y, const BinaryBody& body) {
  const TensorBox xs[] = {x, y};
  return map(ctx, dtype, xs, [&](std::span<const Expr> v) { return body(v[0], v[1]); });
}

TensorBox convert(OpContext& ctx, const TensorBox& x, DType to) {
  if (x.dtype() == to) return x;
  return map(ctx, to, x, [&](Expr e) { return rounded(to_compute(e, to), to); });
}

TensorBox generate(OpContext& ctx, DType dtype, const SymInts& sizes,
                   const std::function<Expr(std::span<const SymInt>)>& body) {
  Expr e = body(loop_vars(ctx.c, static_cast<int>(sizes.size())));
  return ir::make_pointwise(ctx.program, dtype, sizes, to_compute(e, dtype));
}

TensorBox full(OpContext& ctx, DType dtype, const SymInts& sizes, double value) {
  return generate(ctx, dtype, sizes,
                  [&](std::span<const SymInt>) { return ctx.c.constant(compute_type(dtype), value); });
}

LowerFn pointwise(Op op) {
  return pointwise([op](Expr x) { return ir::unary(op, x); });
}

LowerFn pointwise(UnaryBody body) {
  return [body = std::move(body)](OpContext& ctx) -> std::vector<LoweredValue> {
    return {map(ctx, ctx.in(0).dtype(), ctx.in(0), body)};
  };
}

LowerFn pointwise2(BinaryBody body) {
  return [body = std::move(body)](OpContext& ctx) -> std::vector<LoweredValue> {
    return {map(ctx, ctx.in(0).dtype(), ctx.in(0), legacy_operand(ctx), body)};
  };
}

LowerFn comparison(BinaryBody body) {
  return [body = std::move(body)](OpContext& ctx) -> std::vector<LoweredValue> {
    return {map(ctx, DType::boolean, ctx.in(0), legacy_operand(ctx), body)};
  };
}

TensorBox legacy_operand(OpContext& ctx) {
  const TensorBox& b = ctx.in(1);
  TBX_MODEL(b.dtype() == ctx.in(0).dtype(), "operands are of types {} and {}", name_of(ctx.in(0).dtype()),
            name_of(b.dtype()));
  if (ctx.opset() >= 7 || !ctx.node.domain.empty() || !ctx.has_attr("axis")) return b;
  int rank = ctx.in(0).rank(), axis = ctx.axis(ctx.attr_int("axis", 0), rank);
  int behind = rank - axis - b.rank();
  TBX_MODEL(behind >= 0, "operand of rank {} does not fit at axis {} of rank {}", b.rank(), axis, rank);
  std::vector<int> fresh(behind);
  std::iota(fresh.begin(), fresh.end(), b.rank());
  return ir::unsqueeze(ctx.program, b, fresh);
}

TensorBox per_channel(OpContext& ctx, const TensorBox& x, int rank) {
  TBX_MODEL(x.rank() == 1 && rank >= 2, "a per-channel vector of rank {} for data of rank {}", x.rank(),
            rank);
  std::vector<int> fresh(rank - 2);
  std::iota(fresh.begin(), fresh.end(), 1);
  return ir::unsqueeze(ctx.program, x, fresh);
}

void require_broadcast(OpContext& ctx, SymInt from, SymInt to, std::string_view what) {
  if (from.is(1) || ir::provably_equal(from, to)) return;
  auto distance = [](SymInt a, SymInt b) { return ir::max(a - b, b - a); };
  SymInt unlike = distance(from, to);
  if (!from.is_constant()) unlike = ir::min(unlike, distance(from, 1));
  ctx.program.add_check(unlike, true,
                        fmt::format("dimension {} of {} cannot be broadcast to {}", ir::to_string(from), what,
                                    ir::to_string(to)));
}

std::vector<int> axes_from(int first, int rank) {
  std::vector<int> out(rank - first);
  std::iota(out.begin(), out.end(), first);
  return out;
}

void shared(OpContext& ctx, const TensorBox& x, int users) { realize_if_shared(ctx.program, x, users); }

void realize(OpContext& ctx, const TensorBox& x, std::string reason) {
  x.storage()->realize(ctx.program, std::move(reason));
}

} // namespace tbx::lowering
