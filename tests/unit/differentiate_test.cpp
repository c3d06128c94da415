// Differentiation of expressions: slopes at kinks, and products with slopes that are not taken.
#include "ir/differentiate.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tbx::ir {
namespace {

class Differentiate : public testing::Test {
protected:
  Context c;
  Expr x = c.load(0, DType::f64, {c.var(0)}), w = c.load(1, DType::f64, {c.var(0)});
  Expr one = number(1);
  Expr number(double v) { return c.constant(DType::f64, v); }
  /// d body / dx with seed 1; nullptr where nothing arrives.
  Expr slope(Expr body) {
    auto all = differentiate(body, one, [&](Expr load) { return load == x; });
    EXPECT_LE(all.size(), 1u);
    return all.empty() ? nullptr : gated(all[0]);
  }
};

TEST_F(Differentiate, OneRulePerOperator) {
  EXPECT_EQ(slope(mul(x, w)), w);
  EXPECT_EQ(slope(add(x, x)), add(one, one));
  EXPECT_EQ(slope(unary(Op::sin, x)), unary(Op::cos, x));
  EXPECT_EQ(slope(unary(Op::sin, mul(x, w))), mul(unary(Op::cos, mul(x, w)), w));
  EXPECT_EQ(slope(w), nullptr);
  EXPECT_EQ(slope(unary(Op::floor, x)), nullptr);
  EXPECT_EQ(slope(c.cast(c.cast(x, DType::i64), DType::f64)), nullptr);
}

TEST_F(Differentiate, BranchesThatAreNotTakenGiveNothingAtAll) {
  Expr negative = binary(Op::less, x, number(0));
  // Not 0 * exp(x), which is not a number for large x.
  EXPECT_EQ(slope(where(negative, unary(Op::exp, x), x)), where(negative, unary(Op::exp, x), one));
  EXPECT_EQ(slope(where(negative, unary(Op::exp, x), w)), where(negative, unary(Op::exp, x), number(0)));
}

TEST_F(Differentiate, ConstantsWinTies) {
  EXPECT_EQ(slope(binary(Op::max, x, number(0))), where(binary(Op::greater, x, number(0)), one, number(0)));
}

TEST_F(Differentiate, BitsAreRefused) {
  Expr bits = binary(Op::bitwise_and, c.bitcast(x, DType::i64), c.constant_int(DType::i64, -8));
  EXPECT_THROW(slope(c.bitcast(bits, DType::f64)), NoDerivative);
}

} // namespace
} // namespace tbx::ir
