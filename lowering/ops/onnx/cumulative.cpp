// Running sums and products along one axis.
#include <algorithm>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// Parts of a long axis that threads of a GPU go through side by side; 1 where there are enough rows or
/// columns.
int64_t parts_of_axis(OpContext& ctx, const TensorBox& x, int along) {
  constexpr int64_t kRows = 1024, kRowOfPart = 1 << 12, kColumns = 1 << 17, kColumnOfPart = 64;
  auto elements = ir::product(x.sizes()).as_constant(), length = x.sizes()[along].as_constant();
  if (!ctx.program.target.cuda || !elements || !length || *elements == 0) return 1;
  const bool rows = along + 1 == x.rank(); // a block for each, else a thread for each column
  const int64_t most = std::min((rows ? kRows : kColumns) / (*elements / *length),
                                *length / (rows ? kRowOfPart : kColumnOfPart));
  for (int64_t n = most; n >= std::max<int64_t>(2, most / 4); --n)
    if (*length % n == 0) return n;
  return 1;
}

/// Sums of the parts first, then those of all parts before each, with which its running sums begin.
TensorBox sum_in_parts(OpContext& ctx, const TensorBox& x, int along, int64_t parts, bool reverse) {
  ir::Program& p = ctx.program;
  const DType type = is_float(x.dtype()) ? compute_type(x.dtype()) : x.dtype();
  SymInts split = x.sizes();
  const SymInt length = split[along].constant() / parts;
  split[along] = length;
  split.insert(split.begin() + along, SymInt(parts));
  TensorBox pieces = ir::reshape(p, x, split);
  SymInts kept = split, of_sums = loop_vars(ctx.c, x.rank()), at = of_sums;
  kept.erase(kept.begin() + along + 1);
  at.insert(at.begin() + along + 1, ctx.c.rvar(0));
  TensorBox sums =
      ir::make_reduction(p, ReduceOp::sum, type, kept, {length}, to_compute(pieces.load(p, at), type));
  realize(ctx, sums, "sums of the parts of a long axis");
  TensorBox before = ir::make_scan(p, ReduceOp::sum, type, kept, along, true, reverse, sums.load(p, of_sums));
  realize(ctx, before, "what the parts of a long axis begin with");
  SymInts point = loop_vars(ctx.c, x.rank() + 1), part = point;
  const SymInt place = point[along + 1];
  part.erase(part.begin() + along + 1);
  Expr value = to_compute(pieces.load(p, point), type);
  Expr first =
      ir::binary(Op::equal, ctx.c.index(place), ctx.c.index(reverse ? length - SymInt(1) : SymInt(0)));
  Expr begun = ir::where(first, ir::add(value, before.load(p, part)), value);
  TensorBox running = ir::make_scan(p, ReduceOp::sum, x.dtype(), split, along + 1, false, reverse, begun);
  return ir::reshape(p, running, x.sizes());
}

LowerFn scan(ReduceOp op) {
  return [op](OpContext& ctx) -> std::vector<LoweredValue> {
    const TensorBox& x = ctx.in(0);
    std::vector<int64_t> axis = ctx.ints_or_throw(1, "axis");
    TBX_MODEL(axis.size() == 1, "{} axes", axis.size());
    int along = ctx.axis(axis[0], x.rank());
    const bool exclusive = ctx.attr_int("exclusive", 0) != 0, reverse = ctx.attr_int("reverse", 0) != 0;
    if (const int64_t parts = parts_of_axis(ctx, x, along); parts > 1 && op == ReduceOp::sum && !exclusive)
      return {sum_in_parts(ctx, x, along, parts, reverse)};
    return {ir::make_scan(ctx.program, op, x.dtype(), x.sizes(), along, exclusive, reverse,
                          x.load(ctx.program, loop_vars(ctx.c, x.rank())))};
  };
}

} // namespace

void register_cumulative(Registry& r) {
  r.add("CumSum", since(11), scan(ReduceOp::sum));
  r.add("CumProd", since(26), scan(ReduceOp::prod));
  for (const char* op : {"CumSum", "CumProd"}) r.need(op, 1, axis_of_input());
  // What is summed counts: a mask, of which all is let through.
  r.need("CumSum", 0, between(1, 2));
}

} // namespace tbx::lowering
