#include "ir/differentiate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace tbx::ir {
namespace {

bool is_real(Expr e) { return e->dtype == DType::f32 || e->dtype == DType::f64; }
Expr number(Expr like, double v) { return like->context->constant(like->dtype, v); }
Expr neg(Expr a) { return unary(Op::neg, a); }
Expr square(Expr a) { return mul(a, a); }
Expr one_minus(Expr a) { return sub(number(a, 1), a); }
Expr one_plus(Expr a) { return add(number(a, 1), a); }
Expr reciprocal(Expr a) { return unary(Op::reciprocal, a); }
/// 1 - x*x without the cancellation near 1 and -1.
Expr one_minus_square(Expr x) { return mul(one_minus(x), one_plus(x)); }

Expr both(Expr a, Expr b) { return !a ? b : !b ? a : binary(Op::logical_and, a, b); }
bool complementary(Expr a, Expr b) {
  return a && b && (unary(Op::logical_not, a) == b || unary(Op::logical_not, b) == a);
}

/// The derivative of a function of one operand x with result y; nullptr where it is 0.
Expr slope(Op op, Expr x, Expr y) {
  switch (op) {
  case Op::neg: return number(x, -1);
  case Op::abs: return unary(Op::sign, x);
  case Op::sqrt: return div(number(x, 0.5), y);
  case Op::rsqrt: return mul(number(x, -0.5), div(y, x));
  case Op::reciprocal: return neg(square(y));
  case Op::exp: return y;
  case Op::expm1: return unary(Op::exp, x);
  case Op::log: return reciprocal(x);
  case Op::log1p: return reciprocal(one_plus(x));
  case Op::sin: return unary(Op::cos, x);
  case Op::cos: return neg(unary(Op::sin, x));
  case Op::tan: return one_plus(square(y));
  case Op::asin: return unary(Op::rsqrt, one_minus_square(x));
  case Op::acos: return neg(unary(Op::rsqrt, one_minus_square(x)));
  case Op::atan: return reciprocal(one_plus(square(x)));
  case Op::sinh: return unary(Op::cosh, x);
  case Op::cosh: return unary(Op::sinh, x);
  case Op::tanh: return one_minus(square(y));
  case Op::asinh: return unary(Op::rsqrt, one_plus(square(x)));
  case Op::acosh: return unary(Op::rsqrt, mul(sub(x, number(x, 1)), one_plus(x)));
  case Op::atanh: return reciprocal(one_minus_square(x));
  case Op::erf: return mul(number(x, 2 / std::sqrt(std::numbers::pi)), unary(Op::exp, neg(square(x))));
  case Op::sigmoid: return mul(y, one_minus(y));
  case Op::softplus: return unary(Op::sigmoid, x);
  default: return nullptr;
  }
}

/// Functions whose slope dies out while what stands inside may grow beyond all bounds.
bool saturates(Op op) {
  return op == Op::tanh || op == Op::sigmoid || op == Op::erf || op == Op::softplus || op == Op::exp;
}

class Differentiator {
public:
  Differentiator(Expr body, const std::function<bool(Expr)>& wanted) : c_(*body->context) {
    visit(body, [&](Expr e) {
      order_.push_back(e);
      bool depends = e->op == Op::load && is_real(e) && wanted(e), of_bits = false;
      for (int i = 0; i < e->num_args && e->op != Op::load; ++i) {
        depends = depends || depends_.count(e->args[i]) != 0;
        of_bits = of_bits || bits_.count(e->args[i]) != 0;
      }
      // What comes out of integers and booleans does not vary smoothly, unless they are the bits of numbers.
      if (is_real(e) && (depends || (of_bits && e->op == Op::bitcast))) depends_.insert(e);
      if (!is_real(e) && e->dtype != DType::boolean && (of_bits || (depends && e->op == Op::bitcast)))
        bits_.insert(e);
    });
  }

  std::vector<Partial> run(Expr body, Expr seed) {
    give(body, nullptr, seed);
    std::vector<Partial> found;
    for (size_t i = order_.size(); i-- > 0;) {
      Expr e = order_[i];
      auto it = adjoints_.find(e);
      if (it == adjoints_.end()) continue;
      if (e->op == Op::load)
        found.push_back({e, it->second.gate, it->second.value});
      else
        push(e, it->second.gate, it->second.value);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

private:
  struct Adjoint {
    Expr gate, value;
  };

  Expr masked(const Adjoint& a) { return a.gate ? c_.where(a.gate, a.value, number(a.value, 0)) : a.value; }

  /// Adds to what flows into `e`.
  void give(Expr e, Expr gate, Expr value) {
    if (!depends_.count(e)) return;
    auto [it, fresh] = adjoints_.try_emplace(e, Adjoint{gate, value});
    if (fresh) return;
    Adjoint& sum = it->second;
    const Adjoint part{gate, value};
    if (sum.gate == gate)
      sum.value = add(sum.value, value);
    else if (complementary(sum.gate, gate))
      sum = {nullptr, c_.where(gate, value, sum.value)};
    else
      sum = {sum.gate && gate ? binary(Op::logical_or, sum.gate, gate) : nullptr,
             add(masked(sum), masked(part))};
  }

  /// Hands what flows into `e` on to its operands.
  void push(Expr e, Expr gate, Expr s) {
    if (is_binary(e->op)) return push_binary(e, gate, s);
    Expr x = e->args[e->op == Op::where ? 1 : 0];
    switch (e->op) {
    case Op::where:
      give(x, both(gate, e->args[0]), s);
      return give(e->args[2], both(gate, unary(Op::logical_not, e->args[0])), s);
    case Op::round_to: return give(x, gate, s);
    case Op::bitcast: throw NoDerivative{"its lowering takes numbers as bits"};
    case Op::cast:
      if (is_real(x)) give(x, gate, c_.cast(s, x->dtype));
      return;
    default: break;
    }
    Expr d = slope(e->op, x, e);
    if (!d || !depends_.count(x)) return;
    if (saturates(e->op) && x->op != Op::load) gate = both(gate, binary(Op::not_equal, d, number(d, 0)));
    give(x, gate, e->op == Op::neg ? neg(s) : mul(s, d));
  }

  void push_binary(Expr e, Expr gate, Expr s) {
    Expr a = e->args[0], b = e->args[1];
    const bool to_a = depends_.count(a) != 0, to_b = depends_.count(b) != 0;
    auto compare = [&](Op op) { return both(gate, binary(op, a, b)); };
    switch (e->op) {
    case Op::add: give(a, gate, s); return give(b, gate, s);
    case Op::sub: give(a, gate, s); return give(b, gate, neg(s));
    case Op::mul:
      if (to_a) give(a, gate, mul(s, b));
      if (to_b) give(b, gate, mul(s, a));
      return;
    case Op::div:
      if (to_a) give(a, gate, div(s, b));
      if (to_b) give(b, gate, neg(div(mul(s, e), b)));
      return;
    case Op::fmod:
    case Op::floor_mod:
      give(a, gate, s);
      if (to_b) give(b, gate, neg(mul(s, unary(e->op == Op::fmod ? Op::trunc : Op::floor, div(a, b)))));
      return;
    case Op::pow: return push_pow(e, gate, s);
    case Op::min:
    case Op::max: {
      Expr part = a->op == Op::constant || b->op == Op::constant
                      ? nullptr
                      : c_.where(binary(Op::equal, a, b), mul(s, number(s, 0.5)), s);
      const bool less = e->op == Op::min;
      give(a, compare(part ? (less ? Op::less_equal : Op::greater_equal) : (less ? Op::less : Op::greater)),
           part ? part : s);
      return give(
          b, compare(part ? (less ? Op::greater_equal : Op::less_equal) : (less ? Op::greater : Op::less)),
          part ? part : s);
    }
    case Op::atan2: {
      Expr d = div(s, add(square(a), square(b)));
      give(a, gate, mul(d, b));
      return give(b, gate, neg(mul(d, a)));
    }
    default: return;
    }
  }

  /// x^0 is 1 also at x = 0, where 0 * x^-1 is not a number; 0^b is 0 for all b > 0.
  void push_pow(Expr e, Expr gate, Expr s) {
    Expr x = e->args[0], n = e->args[1];
    if (depends_.count(x)) {
      Expr lower = binary(Op::pow, x, sub(n, number(n, 1)));
      give(x, both(gate, binary(Op::not_equal, n, number(n, 0))), mul(s, mul(n, lower)));
    }
    if (depends_.count(n))
      give(n, both(gate, binary(Op::greater, x, number(x, 0))), mul(s, mul(e, unary(Op::log, x))));
  }

  Context& c_;
  std::vector<Expr> order_;
  std::unordered_set<Expr> depends_, bits_;
  std::unordered_map<Expr, Adjoint> adjoints_;
};

} // namespace

std::vector<Partial> differentiate(Expr body, Expr seed, const std::function<bool(Expr)>& wanted) {
  TBX_INTERNAL(seed->dtype == body->dtype);
  return Differentiator(body, wanted).run(body, seed);
}

Expr gated(const Partial& p) { return p.gate ? where(p.gate, p.value, number(p.value, 0)) : p.value; }

} // namespace tbx::ir
