// Activations as expressions, spelled once: lowering builds them, fusion recognises them (equal nodes are
// identical).
#pragma once

#include "ir/expr.h"

namespace tbx::ir {

/// max(x, 0), NaN stays NaN.
Expr relu(Expr x);
/// x < 0 ? alpha*x : x
Expr leaky_relu(Expr x, double alpha);
/// x < 0 ? alpha*(exp(x)-1) : x
Expr elu(Expr x, double alpha);
/// 0.5*x*(1 + erf(x/sqrt(2)))
Expr gelu_erf(Expr x);
/// 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))
Expr gelu_tanh(Expr x);
/// x*sigmoid(alpha*x); alpha 1 is SiLU / Swish
Expr silu(Expr x, double alpha = 1);
/// max(0, min(1, alpha*x + beta))
Expr hard_sigmoid(Expr x, double alpha, double beta);
/// x * hard_sigmoid(x, 1/6, 0.5)
Expr hard_swish(Expr x);

} // namespace tbx::ir
