#include "ir/expr.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct ExprTest : testing::Test {
  Context c;
  SymInt i0 = c.var(0), i1 = c.var(1), n = c.symbol("n");
  Expr load(BufferId b, DType t = DType::f32) { return c.load(b, t, {i0}); }
  Expr f32(double v) { return c.constant(DType::f32, v); }
  Expr i64(int64_t v) { return c.constant_int(DType::i64, v); }
  Expr x = load(0), y = load(1), k = load(2, DType::i64), b = load(3, DType::boolean);
};

TEST_F(ExprTest, EqualNodesAreTheSameNode) {
  EXPECT_EQ(add(x, y), add(x, y));
  EXPECT_EQ(add(x, y), add(y, x));
  EXPECT_NE(sub(x, y), sub(y, x));
  EXPECT_EQ(c.constant(DType::f32, 0.1), c.constant(DType::f32, static_cast<double>(0.1f)));
  EXPECT_NE(f32(0.0), f32(-0.0));
  EXPECT_EQ(f32(kNaN), f32(kNaN));
  EXPECT_NE(c.load(0, DType::f32, {i0}), c.load(0, DType::f32, {i1}));
  EXPECT_NE(c.round_to(x, DType::f8e5m2, true), c.round_to(x, DType::f8e5m2, false));
}

TEST_F(ExprTest, FoldsConstants) {
  EXPECT_EQ(f32(3), add(f32(1), f32(2)));
  EXPECT_EQ(f32(static_cast<double>(0.1f + 0.2f)), add(f32(0.1), f32(0.2)));
  EXPECT_EQ(c.constant_int(DType::i8, -128),
            add(c.constant_int(DType::i8, 127), c.constant_int(DType::i8, 1)));
  EXPECT_EQ(c.constant_int(DType::u8, 255), sub(c.constant_int(DType::u8, 0), c.constant_int(DType::u8, 1)));
  EXPECT_EQ(i64(0), div(i64(5), i64(0)));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(i64(kMin), div(i64(kMin), i64(-1)));
  EXPECT_EQ(i64(-2), div(i64(-7), i64(3)));
  EXPECT_EQ(i64(2), binary(Op::floor_mod, i64(-7), i64(3)));
  EXPECT_EQ(i64(-1), binary(Op::fmod, i64(-7), i64(3)));
  EXPECT_EQ(i64(0), binary(Op::shift_left, i64(1), i64(64)));
  EXPECT_EQ(c.boolean(true), binary(Op::less, f32(-kInf), f32(0)));
  EXPECT_EQ(c.boolean(false), binary(Op::equal, f32(kNaN), f32(kNaN)));
  EXPECT_TRUE(std::isnan(binary(Op::max, f32(kNaN), f32(1))->as_double()));
  EXPECT_EQ(c.constant_int(DType::i8, 127), c.cast(f32(300), DType::i8));
  EXPECT_EQ(c.constant_int(DType::i8, 0), c.cast(f32(kNaN), DType::i8));
  EXPECT_EQ(c.constant_int(DType::i8, 44), c.cast(i64(300), DType::i8));
  EXPECT_EQ(c.boolean(true), c.cast(f32(0.5), DType::boolean));
  EXPECT_EQ(f32(static_cast<double>(0.099975586f)), c.round_to(f32(0.1), DType::f16));
  EXPECT_EQ(c.constant_int(DType::u32, 0x3f800000), c.bitcast(f32(1), DType::u32));
}

TEST_F(ExprTest, IdentitiesThatHoldForEveryFloat) {
  EXPECT_EQ(x, mul(x, f32(1)));
  EXPECT_EQ(x, add(x, f32(-0.0)));
  EXPECT_NE(x, add(x, f32(0.0))); // -0 + 0 is 0
  EXPECT_EQ(x, sub(x, f32(0.0)));
  EXPECT_NE(x, sub(x, f32(-0.0)));
  EXPECT_NE(f32(0), mul(x, f32(0))); // NaN
  EXPECT_NE(f32(0), sub(x, x));
  EXPECT_NE(c.boolean(true), binary(Op::equal, x, x));
  EXPECT_EQ(x, div(x, f32(1)));
  EXPECT_EQ(mul(x, f32(0.25)), div(x, f32(4)));
  EXPECT_EQ(Op::div, div(x, f32(3))->op);
  EXPECT_EQ(mul(x, x), binary(Op::pow, x, f32(2)));
  EXPECT_EQ(x, unary(Op::neg, unary(Op::neg, x)));
  EXPECT_EQ(unary(Op::abs, x), unary(Op::abs, unary(Op::neg, x)));
  EXPECT_EQ(unary(Op::floor, x), unary(Op::round_even, unary(Op::floor, x)));
  EXPECT_EQ(binary(Op::max, x, f32(0)), binary(Op::max, binary(Op::max, x, f32(0)), f32(0)));
}

TEST_F(ExprTest, IdentitiesOfIntegersAndBooleans) {
  EXPECT_EQ(k, add(k, i64(0)));
  EXPECT_EQ(i64(0), sub(k, k));
  EXPECT_EQ(i64(0), mul(k, i64(0)));
  EXPECT_EQ(c.boolean(true), binary(Op::less_equal, k, k));
  EXPECT_EQ(b, binary(Op::logical_and, b, c.boolean(true)));
  EXPECT_EQ(c.boolean(false), binary(Op::logical_and, b, c.boolean(false)));
  EXPECT_EQ(b, binary(Op::equal, b, c.boolean(true)));
  EXPECT_EQ(unary(Op::logical_not, b), binary(Op::equal, b, c.boolean(false)));
  EXPECT_EQ(b, unary(Op::logical_not, unary(Op::logical_not, b)));
  EXPECT_EQ(unary(Op::floor, k), k);
  EXPECT_EQ(c.boolean(false), unary(Op::is_nan, k));
}

TEST_F(ExprTest, Where) {
  EXPECT_EQ(x, where(c.boolean(true), x, y));
  EXPECT_EQ(x, where(b, x, x));
  EXPECT_EQ(where(b, y, x), where(unary(Op::logical_not, b), x, y));
  EXPECT_EQ(b, where(b, c.boolean(true), c.boolean(false)));
  EXPECT_EQ(where(b, x, y), where(b, where(b, x, f32(1)), y));
}

TEST_F(ExprTest, CastsThatLoseNothingDisappear) {
  Expr i8 = load(4, DType::i8), f64 = load(5, DType::f64);
  EXPECT_EQ(x, c.cast(c.cast(x, DType::f64), DType::f32));
  EXPECT_EQ(i8, c.cast(c.cast(i8, DType::f32), DType::i8));
  EXPECT_EQ(c.cast(i8, DType::f64), c.cast(c.cast(i8, DType::i32), DType::f64));
  EXPECT_EQ(c.cast(x, DType::i32), c.cast(c.cast(x, DType::f64), DType::i32));
  EXPECT_NE(f64, c.cast(c.cast(f64, DType::f32), DType::f64));
  EXPECT_NE(k, c.cast(c.cast(k, DType::f64), DType::i64));
  // i32 -> i8 wraps, f64 -> i8 saturates
  Expr i32 = load(6, DType::i32);
  EXPECT_NE(c.cast(i32, DType::i8), c.cast(c.cast(i32, DType::f64), DType::i8));
  EXPECT_EQ(c.round_to(x, DType::f16), c.round_to(c.round_to(x, DType::f16), DType::f16));
}

TEST_F(ExprTest, IndexArithmeticStaysAnIndex) {
  Expr i = c.index(i0);
  EXPECT_EQ(c.index(i0 * SymInt(3) + SymInt(1)), add(mul(i, i64(3)), i64(1)));
  EXPECT_EQ(c.index(floordiv(i0, 2)), div(i, i64(2)));
  EXPECT_EQ(i64(5), c.index(5));
  EXPECT_EQ(c.boolean(false), binary(Op::less, i, i64(0)));
  EXPECT_EQ(c.boolean(true), binary(Op::less, c.index(n), c.index(n + SymInt(1))));
  EXPECT_EQ(Op::less, binary(Op::less, i, i64(7))->op);
  // Beyond 64 bits index arithmetic would not wrap as integers do.
  EXPECT_EQ(Op::mul, mul(i, i64(int64_t{1} << 40))->op);
}

TEST_F(ExprTest, OutOfRangeIndexValuesAreNotUnwrapped) {
  SymInt at = c.indirect(c.index(i0 + SymInt(5)), 3);
  EXPECT_TRUE(has_indirect(c.index(at)->indices[0]));
}

TEST_F(ExprTest, SubstituteReachesLoadsIndicesMasksAndIndirectValues) {
  Expr mask = binary(Op::less, c.index(i0), i64(3));
  SymInt at = c.indirect(c.load(1, DType::i64, {i0}), n);
  Expr e = add(c.load(0, DType::f32, {at, i0}, mask), c.cast(c.index(i0), DType::f32));
  SymInt j = i1 + SymInt(1);
  Expr want = add(c.load(0, DType::f32, {c.indirect(c.load(1, DType::i64, {j}), n), j},
                         binary(Op::less, c.index(j), i64(3))),
                  c.cast(c.index(j), DType::f32));
  EXPECT_EQ(want, substitute(e, {{j}, {}}));
  EXPECT_EQ(e, substitute(e, {{i0}, {}}));
  EXPECT_EQ(substitute(e, {{2}, {}})->args[0]->mask(), nullptr);
}

TEST_F(ExprTest, SubstitutionIsSimultaneous) {
  Expr e = sub(c.load(0, DType::f32, {i0, i1}), c.load(0, DType::f32, {i1, i0}));
  EXPECT_EQ(sub(c.load(0, DType::f32, {i1, i0}), c.load(0, DType::f32, {i0, i1})),
            substitute(e, {{i1, i0}, {}}));
}

TEST_F(ExprTest, RewriteSeesRewrittenOperands) {
  Expr e = add(unary(Op::exp, x), mul(unary(Op::exp, x), y));
  int calls = 0;
  Expr r = rewrite(e, [&](Expr node) {
    ++calls;
    return node->op == Op::exp ? node->args[0] : node;
  });
  EXPECT_EQ(add(x, mul(x, y)), r);
  EXPECT_EQ(5, calls); // x, y, exp, mul, add
}

TEST_F(ExprTest, RewriteSeesALoadOnceWhereOthersFoldToIt) {
  auto renamed = [&](Expr e) {
    return rewrite(e, [&](Expr node) { // 1 and 2 to 0, 0 to 7
      return node->op != Op::load ? node : load(node->buffer == 0 ? 7 : 0, node->dtype);
    });
  };
  const Expr z = load(2);
  EXPECT_EQ(x, renamed(binary(Op::max, y, z)));
  EXPECT_EQ(x, renamed(where(b, y, z)));
  EXPECT_EQ(unary(Op::exp, x), renamed(unary(Op::exp, binary(Op::min, binary(Op::max, y, z), z))));
}

TEST_F(ExprTest, MaskLoads) {
  Expr m = load(7, DType::boolean), e = mask_loads(add(c.load(0, DType::f32, {i0}, b), y), m);
  Expr masked_b = c.load(3, DType::boolean, {i0}, m);
  EXPECT_EQ(
      add(c.load(0, DType::f32, {i0}, binary(Op::logical_and, masked_b, m)), c.load(1, DType::f32, {i0}, m)),
      e);
}

TEST_F(ExprTest, SimplifyDecidesWhatExtentsProve) {
  Extents extents{{8, 4}, {}};
  Expr inside = binary(Op::less, c.index(i0 * SymInt(4) + i1), i64(32));
  EXPECT_EQ(c.boolean(true), simplify(inside, extents));
  EXPECT_EQ(c.load(0, DType::f32, {i0}),
            simplify(c.load(0, DType::f32, {floordiv(i0 * SymInt(4) + i1, 4)}), extents));
  SymInt at = c.indirect(c.load(1, DType::i64, {mod(i0, 8)}), n);
  EXPECT_EQ(c.load(0, DType::f32, {c.indirect(c.load(1, DType::i64, {i0}), n)}),
            simplify(c.load(0, DType::f32, {at}), extents));
}

TEST_F(ExprTest, Counts) {
  Expr e = unary(Op::exp, add(x, mul(x, y)));
  ExprCounts counts = count(std::span(&e, 1));
  EXPECT_EQ(3, counts.ops);
  EXPECT_EQ(2, counts.loads);
  EXPECT_EQ(1, counts.expensive);
}

TEST_F(ExprTest, Prints) {
  EXPECT_EQ("where(less(i0, 3), load(b2, [i0, i1]), 0f)",
            to_string(where(binary(Op::less, c.index(i0), i64(3)), c.load(2, DType::f32, {i0, i1}), f32(0))));
  EXPECT_EQ("%0 = exp(load(b0, [i0])); add(%0, mul(load(b1, [i0]), %0))",
            to_string(add(unary(Op::exp, x), mul(y, unary(Op::exp, x)))));
  EXPECT_EQ("load(b0, [[load(b2, [i0]) < n]] if load(b3, [i0]))",
            to_string(c.load(0, DType::f32, {c.indirect(k, n, false)}, b)));
}

TEST_F(ExprTest, LongChainsNeedNoStack) {
  Expr e = x;
  for (int i = 0; i < 20000; ++i) e = i % 2 ? unary(Op::sin, e) : add(e, y);
  int nodes = 0;
  visit(e, [&](Expr) { ++nodes; });
  EXPECT_EQ(20002, nodes);
  Expr s = substitute(e, {{i1}, {}});
  EXPECT_NE(e, s);
  EXPECT_EQ(e, substitute(s, {{i0, i0}, {}}));
  EXPECT_EQ(e, simplify(e, {{8}, {}}));
  EXPECT_EQ(e, rewrite(e, [](Expr node) { return node; }));
  EXPECT_EQ(20000, count(std::span(&e, 1)).ops);
  EXPECT_LT(to_string(e).size(), 1000000u);
}

TEST_F(ExprTest, VisitsEachNodeOnceBehindItsOperands) {
  std::mt19937 random(7);
  std::vector<Expr> made{x, y};
  for (const int operations : {3, 60, 70, 4000}) { // few, and more than a walk remembers without the heap
    for (int i = 0; i < operations; ++i) {
      auto any = [&] { return made[random() % made.size()]; };
      made.push_back(random() % 8 == 0 ? c.load(1, DType::f32, {c.indirect(c.cast(any(), DType::i64), n)})
                                       : binary(Op::sub, any(), any()));
    }
    std::set<Expr> wanted;
    std::function<void(Expr)> collect = [&](Expr e) {
      if (!wanted.insert(e).second) return;
      for (int k = 0; k < e->num_args; ++k) collect(e->args[k]);
      for (SymInt index : e->indices)
        visit(index, [&](const SymNode& s) {
          if (s.kind == SymKind::indirect) collect(s.value);
        });
    };
    for (size_t r = 0; r < 3; ++r) collect(made[made.size() - 1 - r]);
    std::set<Expr> seen;
    visit(std::span(made).last(3), [&](Expr e) {
      for (int k = 0; k < e->num_args; ++k) EXPECT_TRUE(seen.contains(e->args[k]));
      EXPECT_TRUE(seen.insert(e).second);
    });
    EXPECT_EQ(seen, wanted);
  }
}

TEST_F(ExprTest, NestedIndirectIndicesAreHandledOnce) {
  Expr e = k;
  for (int i = 0; i < 200; ++i) e = c.load(2, DType::i64, {c.indirect(e, n)});
  auto start = std::chrono::steady_clock::now();
  Expr s = substitute(e, {{i1}, {}});
  EXPECT_EQ(e, substitute(s, {{i0, i0}, {}}));
  EXPECT_EQ(e, simplify(e, {{8}, {}}));
  Expr masked = mask_loads(e, b);
  EXPECT_NE(e, masked);
  EXPECT_LT(to_string(e).size(), 100000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(ExprTest, TypesMustAgree) {
  EXPECT_THROW(add(x, k), TypeError);
  EXPECT_THROW(where(x, x, x), TypeError);
  EXPECT_THROW(c.load(0, DType::f16, {i0}), Error);
}

/// Builds random DAGs while computing what each node means on one assignment of the leaves; the built DAG,
/// folded as it is, must mean the same.
class Folding {
public:
  explicit Folding(unsigned seed) : random_(seed) {}

  void run() {
    constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8,  DType::u8,
                                DType::i32, DType::i64, DType::u64, DType::boolean};
    for (DType t : kTypes)
      for (int i = 0; i < 3; ++i) leaf(t);
    for (int i = 0; i < 3; ++i) {
      vars_.push_back(pick(5));
      add({c_.index(c_.var(i)), {vars_.back(), 0}});
    }
    for (int step = 0; step < 120; ++step) grow();
  }

private:
  struct Value {
    Expr expr;
    Scalar scalar;
  };

  int pick(size_t below) { return static_cast<int>(random_() % below); }

  Scalar interesting(DType t) {
    if (t == DType::f32 || t == DType::f64) {
      constexpr double kValues[] = {0.0, -0.0, 1, -1, 2, 0.5, kInf, -kInf, kNaN, 3.25, -7, 1e30};
      return {0, apply_cast(DType::f64, t, {0, kValues[pick(std::size(kValues))]}).f};
    }
    constexpr int64_t kValues[] = {0, 1, -1, 2, 3, 7, -128, 127, 255, std::numeric_limits<int64_t>::min(),
                                   64};
    return {wrap_integer(t, kValues[pick(std::size(kValues))]), 0};
  }

  void leaf(DType t) {
    Scalar s = interesting(t);
    bool real = t == DType::f32 || t == DType::f64;
    if (pick(2)) {
      add({real ? c_.constant(t, s.f) : c_.constant_int(t, s.i), s});
    } else {
      loads_.push_back(s);
      add({c_.load(static_cast<BufferId>(loads_.size() - 1), t, {c_.var(0)}), s});
    }
  }

  void add(Value v) {
    check(v);
    values_.push_back(v);
  }

  const Value& any(DType t) {
    for (;;) {
      const Value& v = values_[pick(values_.size())];
      if (v.expr->dtype == t) return v;
    }
  }

  void grow() {
    Value a = values_[pick(values_.size())];
    DType t = a.expr->dtype;
    bool real = t == DType::f32 || t == DType::f64;
    switch (pick(4)) {
    case 0: {
      constexpr Op kReal[] = {Op::neg,        Op::abs,   Op::sign,   Op::ceil,   Op::floor,
                              Op::round_even, Op::trunc, Op::is_nan, Op::is_inf, Op::sqrt,
                              Op::reciprocal, Op::exp,   Op::sigmoid};
      constexpr Op kInteger[] = {Op::neg,      Op::abs,   Op::sign,  Op::bitwise_not,
                                 Op::popcount, Op::floor, Op::is_nan};
      Op op = t == DType::boolean ? Op::logical_not
              : real              ? kReal[pick(std::size(kReal))]
                                  : kInteger[pick(std::size(kInteger))];
      return add({c_.unary(op, a.expr), apply_unary(op, t, a.scalar)});
    }
    case 1: {
      constexpr Op kReal[] = {Op::add, Op::sub, Op::mul,       Op::div, Op::min,
                              Op::max, Op::pow, Op::floor_mod, Op::fmod};
      constexpr Op kInteger[] = {Op::add,        Op::sub,         Op::mul,        Op::div,
                                 Op::min,        Op::max,         Op::floor_mod,  Op::fmod,
                                 Op::pow,        Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor,
                                 Op::shift_left, Op::shift_right};
      constexpr Op kCompare[] = {Op::equal,      Op::not_equal, Op::less,
                                 Op::less_equal, Op::greater,   Op::greater_equal};
      constexpr Op kLogic[] = {Op::logical_and, Op::logical_or, Op::logical_xor, Op::equal, Op::not_equal};
      Value b = pick(8) ? any(t) : a;
      Op op = t == DType::boolean ? kLogic[pick(std::size(kLogic))]
              : pick(3) == 0      ? kCompare[pick(std::size(kCompare))]
              : real              ? kReal[pick(std::size(kReal))]
                                  : kInteger[pick(std::size(kInteger))];
      return add({c_.binary(op, a.expr, b.expr), apply_binary(op, t, a.scalar, b.scalar)});
    }
    case 2: {
      Value b = any(t), cond = any(DType::boolean);
      return add({c_.where(cond.expr, a.expr, b.expr), cond.scalar.i ? a.scalar : b.scalar});
    }
    default: {
      constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8,  DType::u8,
                                  DType::i32, DType::i64, DType::u64, DType::boolean};
      DType to = kTypes[pick(std::size(kTypes))];
      return add({c_.cast(a.expr, to), apply_cast(t, to, a.scalar)});
    }
    }
  }

  Scalar meaning(Expr root) {
    std::unordered_map<Expr, Scalar> value;
    visit(root, [&](Expr e) {
      auto arg = [&](int i) { return value.at(e->args[i]); };
      DType from = e->num_args ? e->args[0]->dtype : DType::undefined;
      Scalar& out = value[e];
      switch (e->op) {
      case Op::constant:
        out = e->dtype == DType::f32 || e->dtype == DType::f64 ? Scalar{0, e->as_double()}
                                                               : Scalar{e->as_int(), 0};
        break;
      case Op::index: out = {evaluate(e->indices[0], {}, vars_).value(), 0}; break;
      case Op::load: out = loads_[e->buffer]; break;
      case Op::where: out = arg(0).i ? arg(1) : arg(2); break;
      case Op::cast: out = apply_cast(from, e->dtype, arg(0)); break;
      default:
        out = e->num_args == 1 ? apply_unary(e->op, from, arg(0)) : apply_binary(e->op, from, arg(0), arg(1));
      }
    });
    return value.at(root);
  }

  void check(const Value& v) {
    Scalar got = meaning(v.expr);
    ASSERT_EQ(v.scalar.i, got.i) << to_string(v.expr);
    if (std::isnan(v.scalar.f)) {
      ASSERT_TRUE(std::isnan(got.f)) << to_string(v.expr);
    } else {
      ASSERT_EQ(std::bit_cast<uint64_t>(v.scalar.f), std::bit_cast<uint64_t>(got.f))
          << v.scalar.f << " " << got.f << " " << to_string(v.expr);
    }
  }

  std::mt19937 random_;
  Context c_;
  std::vector<Value> values_;
  std::vector<Scalar> loads_;
  std::vector<int64_t> vars_;
};

TEST(ExprFolding, KeepsTheMeaning) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Folding(seed).run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

} // namespace
} // namespace tbx::ir
