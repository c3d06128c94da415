// Running sums and products along one axis.
#include <algorithm>

#include "ir/scan.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// The largest divisor of `n` within the bounds; 0: there is none.
int64_t divisor_within(int64_t n, int64_t least, int64_t most) {
  for (int64_t d = most; d >= least; --d)
    if (n % d == 0) return d;
  return 0;
}

/// The length of the parts of a long axis that threads of a GPU go through side by side; 0 where there are
/// enough rows or columns for them, or the axis has no such parts. Parts cost that memory is read twice.
int64_t part_of_axis(OpContext& ctx, const TensorBox& x, int along) {
  auto elements = ir::product(x.sizes()).as_constant(), length = x.sizes()[along].as_constant();
  if (!ctx.program.target.cuda || !elements || !length || *elements == 0) return 0;
  const int64_t others = *elements / *length;
  const Gpu& gpu = ctx.program.target.gpu;
  const int64_t lanes = Gpu::kAccessBytes / std::min<int64_t>(8, size_of(x.dtype())); // of a vector
  if (along + 1 == x.rank()) { // a row for each warp or block
    if (others > gpu.blocks() || *length < gpu.part_of_row / 2) return 0;
    const int64_t vectors = // whole ones first
        *length % lanes == 0 ? divisor_within(*length / lanes, 256 / lanes, gpu.scan_of_warp / lanes) : 0;
    if (vectors > 0) return vectors * lanes;
    const int64_t part = divisor_within(*length, 256, gpu.scan_of_warp);
    return part > 0 ? part
                    : divisor_within(*length, gpu.scan_of_warp, std::min(*length / 2, 16 * gpu.scan_of_warp));
  }
  // A thread for neighbouring columns of a vector.
  if (others > gpu.threads / 4 || *length < 2 * gpu.short_scan) return 0;
  const int64_t most = std::min(gpu.threads / 2 * lanes / others, *length / gpu.short_scan);
  const int64_t parts = divisor_within(*length, std::max<int64_t>(2, most / 4), most);
  return parts > 0 ? *length / parts : 0;
}

/// Sums of the parts first, then those of all parts before each, with which its running sums begin.
TensorBox sum_in_parts(OpContext& ctx, const TensorBox& x, int along, int64_t part, bool reverse) {
  ir::Program& p = ctx.program;
  const DType type = is_float(x.dtype()) ? compute_type(x.dtype()) : x.dtype();
  const SymInt length = part;
  SymInts kept = x.sizes(), of_sums = loop_vars(ctx.c, x.rank()), at = of_sums;
  kept[along] = floordiv(kept[along], length);
  at[along] = at[along] * length + ctx.c.rvar(0);
  TensorBox sums =
      ir::make_reduction(p, ReduceOp::sum, type, kept, {length}, to_compute(x.load(p, at), type));
  realize(ctx, sums, "sums of the parts of a long axis");
  TensorBox before = ir::make_scan(p, ReduceOp::sum, type, kept, along, true, reverse, sums.load(p, of_sums));
  realize(ctx, before, "what the parts of a long axis begin with");
  SymInts point = of_sums, of_part = of_sums;
  const SymInt place = mod(point[along], length);
  of_part[along] = floordiv(point[along], length);
  Expr value = to_compute(x.load(p, point), type);
  Expr first =
      ir::binary(Op::equal, ctx.c.index(place), ctx.c.index(reverse ? length - SymInt(1) : SymInt(0)));
  Expr begun = ir::where(first, ir::add(value, before.load(p, of_part)), value);
  return ir::make_scan_of_parts(p, ReduceOp::sum, x.dtype(), x.sizes(), along, length, false, reverse, begun);
}

LowerFn scan(ReduceOp op) {
  return [op](OpContext& ctx) -> std::vector<LoweredValue> {
    const TensorBox& x = ctx.in(0);
    std::vector<int64_t> axis = ctx.ints_or_throw(1, "axis");
    TBX_MODEL(axis.size() == 1, "{} axes", axis.size());
    int along = ctx.axis(axis[0], x.rank());
    const bool exclusive = ctx.attr_int("exclusive", 0) != 0, reverse = ctx.attr_int("reverse", 0) != 0;
    if (const int64_t part = part_of_axis(ctx, x, along); part > 0 && op == ReduceOp::sum && !exclusive)
      return {sum_in_parts(ctx, x, along, part, reverse)};
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
