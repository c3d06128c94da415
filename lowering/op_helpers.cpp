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

AxisReducer::AxisReducer(OpContext& ctx, SymInts sizes, std::vector<int> axes)
    : ctx_(ctx), sizes_(std::move(sizes)), axes_(std::move(axes)), count_(1) {
  size_t next = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    bool reduce = next < axes_.size() && axes_[next] == static_cast<int>(d);
    next += reduce;
    (reduce ? reduced_ : kept_).push_back(sizes_[d]);
  }
  count_ = ir::product(reduced_);
}

TensorBox AxisReducer::operator()(ReduceOp op, DType dtype, const Body& body) const {
  SymInts at;
  size_t next = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    bool reduce = next < axes_.size() && axes_[next] == static_cast<int>(d);
    int k = static_cast<int>(reduce ? next : d - next);
    at.push_back(reduce ? ctx_.c.rvar(k) : ctx_.c.var(k));
    next += reduce;
  }
  ir::Program& p = ctx_.program;
  if (auto split = choose_split(op)) {
    // Parts first, each a row of its own for the threads; then the parts together.
    auto [axis, parts] = *split;
    const int part = static_cast<int>(kept_.size());
    SymInts rows = kept_, rest = reduced_;
    rows.push_back(parts);
    rest[axis] = reduced_[axis].constant() / parts;
    at[axes_[axis]] = ctx_.c.var(part) * rest[axis] + ctx_.c.rvar(static_cast<int>(axis));
    DType wide = is_float(dtype) ? compute_type(dtype) : dtype;
    TensorBox partial = ir::make_reduction(p, op, wide, rows, rest, body(at));
    realize(ctx_, partial, "parts of a long reduction with few rows");
    SymInts from;
    for (int k = 0; k < part; ++k) from.push_back(ctx_.c.var(k));
    from.push_back(ctx_.c.rvar(0));
    return ir::unsqueeze(p, ir::make_reduction(p, op, dtype, kept_, {parts}, partial.load(p, from)), axes_);
  }
  return ir::unsqueeze(p, ir::make_reduction(p, op, dtype, kept_, reduced_, body(at)), axes_);
}

std::optional<std::pair<size_t, int64_t>> AxisReducer::choose_split(ReduceOp op) const {
  constexpr int64_t kRows = 8;         // enough rows for the threads as they are
  constexpr int64_t kLength = 1 << 18; // shorter ones are not worth a second kernel
  constexpr int64_t kMinParts = 8, kMaxParts = 256;
  if (op >= ReduceOp::argmax) return std::nullopt; // positions count along the whole axis
  auto rows = ir::product(kept_).as_constant(), length = count_.as_constant();
  if (!rows || !length || *rows == 0 || *rows >= kRows || *length < kLength) return std::nullopt;
  for (size_t k = 0; k < reduced_.size(); ++k)
    for (int64_t parts = kMaxParts; parts >= kMinParts; --parts)
      if (reduced_[k].constant() % parts == 0) return std::pair(k, parts);
  return std::nullopt;
}

TensorBox AxisReducer::operator()(ReduceOp op, DType dtype, const TensorBox& x,
                                  const UnaryBody& before) const {
  return (*this)(op, dtype, [&](std::span<const SymInt> at) {
    Expr e = x.load(ctx_.program, at);
    return before ? before(e) : e;
  });
}

TensorBox AxisReducer::drop(const TensorBox& result) const {
  return ir::squeeze(ctx_.program, result, axes_);
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
