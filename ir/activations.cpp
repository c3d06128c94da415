#include "ir/activations.h"

#include <cmath>

namespace tbx::ir {
namespace {
Expr number(Expr like, double v) { return like->context->constant(like->dtype, v); }
} // namespace

Expr relu(Expr x) { return binary(Op::max, x, number(x, 0)); }

Expr leaky_relu(Expr x, double alpha) {
  return where(binary(Op::less, x, number(x, 0)), mul(x, number(x, alpha)), x);
}

Expr elu(Expr x, double alpha) {
  return where(binary(Op::less, x, number(x, 0)), mul(unary(Op::expm1, x), number(x, alpha)), x);
}

Expr gelu_erf(Expr x) {
  Expr erf = unary(Op::erf, mul(x, number(x, M_SQRT1_2)));
  return mul(mul(x, number(x, 0.5)), add(erf, number(x, 1)));
}

Expr gelu_tanh(Expr x) {
  Expr cube = mul(mul(x, x), x);
  Expr inner = mul(add(mul(cube, number(x, 0.044715)), x), number(x, std::sqrt(2 / M_PI)));
  return mul(mul(x, number(x, 0.5)), add(unary(Op::tanh, inner), number(x, 1)));
}

Expr silu(Expr x, double alpha) {
  Expr scaled = alpha == 1 ? x : mul(x, number(x, alpha));
  return mul(x, unary(Op::sigmoid, scaled));
}

Expr hard_sigmoid(Expr x, double alpha, double beta) {
  Expr line = add(mul(x, number(x, alpha)), number(x, beta));
  return binary(Op::max, binary(Op::min, line, number(x, 1)), number(x, 0));
}

Expr hard_swish(Expr x) { return mul(x, hard_sigmoid(x, 1.0 / 6, 0.5)); }

} // namespace tbx::ir
