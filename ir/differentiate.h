// Differentiation of the body of a loop nest: reverse mode over the expression DAG, one rule per operator.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/expr.h"

namespace tbx::ir {

/// What one load contributes to a gradient: `value` where `gate` (nullptr: everywhere) is true, else nothing.
/// Outside of the gate the value may be anything, infinite and NaN included.
struct Partial {
  Expr load, gate, value;
};

/// Thrown for what no rule differentiates, and caught by who knows which operator that is. No Error, so
/// nobody takes it for one.
struct NoDerivative {
  std::string why;
};

/// seed * d body / d load for every load that `wanted` names and that the body depends on smoothly, in order
/// of creation. `seed` has the type of the body.
///
/// Where a function has a kink: |x| has slope 0 at 0; of min and max a constant operand wins a tie, two
/// others share it; `where` passes on to the operand it takes. Rounding to a narrow float is taken as the
/// identity, functions of integer or boolean value (comparisons, floor, sign, ...) have slope 0. A product
/// with a slope that is not taken or that has died out is no product: 0 * infinity does not arise where the
/// body is finite. NoDerivative where a float is seen as bits.
std::vector<Partial> differentiate(Expr body, Expr seed, const std::function<bool(Expr load)>& wanted);

/// The value of a contribution, 0 outside of its gate.
Expr gated(const Partial& p);

} // namespace tbx::ir
