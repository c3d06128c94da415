// com.microsoft CDist: distances between rows.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Distances between the rows of A [m, n] and of B [k, n].
Values cdist(OpContext& ctx) {
  const TensorBox &a = ctx.in(0), &b = ctx.in(1);
  std::string metric = ctx.attr_string("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean") throw_unsupported("metric '{}'", metric);
  TBX_MODEL(a.rank() == 2 && b.rank() == 2, "A and B have ranks {} and {}, expected 2", a.rank(), b.rank());
  ctx.program.add_check(a.sizes()[1] - b.sizes()[1], true, "CDist: rows of A and B differ in length");
  SymInts space{a.sizes()[0], b.sizes()[0], a.sizes()[1]};
  realize_if_repeated(ctx.program, a, space);
  realize_if_repeated(ctx.program, b, space);
  AxisReducer reduce(ctx, space, {2});
  TensorBox sum = reduce.drop(reduce(ReduceOp::sum, a.dtype(), [&](std::span<const SymInt> at) {
    const SymInt row_a[] = {at[0], at[2]}, row_b[] = {at[1], at[2]};
    Expr d = ir::sub(a.load(ctx.program, row_a), b.load(ctx.program, row_b));
    return ir::mul(d, d);
  }));
  if (metric == "sqeuclidean") return {sum};
  return {map(ctx, a.dtype(), sum, [](Expr e) { return ir::unary(Op::sqrt, e); })};
}

} // namespace

void register_distances(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("CDist", since(1), cdist, domain);
  r.type_from(0, {"CDist"}, domain);
}

} // namespace tbx::lowering
