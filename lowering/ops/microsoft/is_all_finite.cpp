// com.microsoft IsAllFinite.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// One boolean over all inputs.
Values is_all_finite(OpContext& ctx) {
  bool nan_only = ctx.attr_int("isnan_only", 0) != 0, inf_only = ctx.attr_int("isinf_only", 0) != 0;
  TBX_MODEL(!(nan_only && inf_only), "isnan_only and isinf_only exclude each other");
  TensorBox all;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const TensorBox& x = ctx.in(i);
    AxisReducer reduce(ctx, x.sizes(), axes_from(0, x.rank()));
    auto good = [&](Expr e) {
      Expr nan = ir::unary(Op::is_nan, e), inf = ir::unary(Op::is_inf, e);
      return ir::unary(Op::logical_not, nan_only   ? nan
                                        : inf_only ? inf
                                                   : ir::binary(Op::logical_or, nan, inf));
    };
    TensorBox one = x.rank() == 0 ? map(ctx, DType::boolean, x, good)
                                  : reduce.drop(reduce(ReduceOp::all, DType::boolean, x, good));
    all = all.defined() ? map(ctx, DType::boolean, all, one,
                              [](Expr a, Expr b) { return ir::binary(Op::logical_and, a, b); })
                        : one;
  }
  TBX_MODEL(all.defined(), "no inputs");
  return {all};
}

} // namespace

void register_is_all_finite(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("IsAllFinite", since(1), is_all_finite, domain);
}

} // namespace tbx::lowering
