// Gradients of products as polynomials of the factors: what is differentiated again must be right in its
// derivatives, too, where factors are 0. The forms of adjoint.cpp are shorter, but divide by factors, and
// tell zeros from other numbers.
#include "base/error.h"
#include "lowering/adjoint.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {

using ir::ReduceOp;

/// The other factors are those before and those behind, along one reduced dimension after the other: along
/// the first, factors are products over all further ones.
void Adjoint::of_product(const ir::Loops& l, Boxes locals) {
  const int kept = static_cast<int>(l.ranges.size()), reduced = static_cast<int>(l.reduction_ranges.size());
  SymInts ranges = l.ranges;
  ranges.insert(ranges.end(), l.reduction_ranges.begin(), l.reduction_ranges.end());
  ir::Substitution flat; // the reduced loops behind the others
  for (int k = 0; k < kept + reduced; ++k) (k < kept ? flat.vars : flat.rvars).push_back(c_.var(k));
  const Expr x = ir::substitute(l.body, flat);

  Expr seed = c_.local(0, x->dtype);
  TensorBox factors = ir::make_pointwise(to_, x->dtype, ranges, replay_(x, locals));
  for (int axis = kept + reduced; axis-- > kept;) {
    const SymInts sizes(ranges.begin(), ranges.begin() + axis + 1);
    SymInts at = loop_vars(c_, axis + 1);
    const Expr factor = factors.load(to_, at);
    for (bool behind : {false, true})
      seed = ir::mul(seed, local(locals, ir::make_scan(to_, ReduceOp::prod, x->dtype, sizes, axis,
                                                       /*exclusive=*/true, behind, factor)));
    at.back() = c_.rvar(0);
    factors = ir::make_reduction(to_, ReduceOp::prod, x->dtype, {sizes.begin(), sizes.end() - 1},
                                 {sizes.back()}, factors.load(to_, at));
  }
  spread(x, seed, nullptr, {ranges, {}}, locals);
}

/// Of the product up to k, the factor i has the product before i times that between i and k. The latter is a
/// table over i and k, so this takes the square of the length.
Expr Adjoint::running_product_polynomial(const ir::Loops& l, Boxes& locals) {
  const int rank = static_cast<int>(l.ranges.size()), axis = l.scan_axis;
  const DType type = l.body->dtype;
  const SymInt i = c_.var(axis);
  auto place = [&](SymInt k) {
    SymInts at = loop_vars(c_, rank);
    at[axis] = k;
    return at;
  };
  auto holds = [&](Op op, SymInt k) { return ir::binary(op, c_.index(k), c_.index(i)); };
  Expr before = local(locals, scan(l, ReduceOp::prod, /*exclusive=*/true, l.reverse, l.body, locals));

  SymInts pairs = l.ranges;
  pairs.push_back(l.ranges[axis]);
  const SymInt column = c_.var(rank);
  Expr factor = replay_(ir::substitute(l.body, {place(column), {}}), locals);
  Expr behind = holds(l.reverse ? Op::less : Op::greater, column);
  TensorBox between = ir::make_scan(to_, ReduceOp::prod, type, pairs, rank, l.exclusive, l.reverse,
                                    ir::where(behind, factor, number(factor, 1)));

  const SymInt k = c_.rvar(0);
  SymInts pair = loop_vars(c_, rank);
  pair.push_back(k);
  Expr part = ir::mul(locals[0].load(to_, place(k)), between.load(to_, pair));
  const Op reaches =
      l.exclusive ? (l.reverse ? Op::less : Op::greater) : (l.reverse ? Op::less_equal : Op::greater_equal);
  TensorBox sums = ir::make_reduction(to_, ReduceOp::sum, type, l.ranges, {l.ranges[axis]},
                                      ir::where(holds(reaches, k), part, number(part, 0)));
  return ir::mul(before, local(locals, sums));
}

} // namespace tbx::lowering
