// Running sums and products along one axis.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

LowerFn scan(ReduceOp op) {
  return [op](OpContext& ctx) -> std::vector<LoweredValue> {
    const TensorBox& x = ctx.in(0);
    std::vector<int64_t> axis = ctx.ints_or_throw(1, "axis");
    TBX_MODEL(axis.size() == 1, "{} axes", axis.size());
    int along = ctx.axis(axis[0], x.rank());
    const bool exclusive = ctx.attr_int("exclusive", 0) != 0, reverse = ctx.attr_int("reverse", 0) != 0;
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
