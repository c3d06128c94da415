// What Context's constructors of Expr nodes put in place of a node: constants, index arithmetic, exact
// identities.
#pragma once

#include "ir/expr.h"

namespace tbx::ir {

// Each gives nullptr when it has nothing better than the node.

/// Identities that hold for every operand, NaN, infinities and -0 included.
Expr fold_unary(Context& c, Op op, Expr a);
Expr fold_binary(Context& c, Op op, Expr a, Expr b);
Expr fold_where(Context& c, Expr condition, Expr if_true, Expr if_false);
Expr fold_cast(Context& c, Expr a, DType to);

} // namespace tbx::ir
