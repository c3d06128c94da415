// SymInt: golden texts of canonical and simplified forms, proofs, errors, cost.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/context_impl.h"
#include "symint_helper.h"

namespace tbx::ir {
namespace {

struct Golden {
  const char *in, *out;
  const char* extents = "";  // of i0, i1, ...
  const char* rextents = ""; // of r0, r1, ...
};

TEST(SymIntGolden, Construction) {
  const Golden table[] = {
      {"i0 + 2*i1 - i0 + 3 - i1", "i1 + 3"},
      {"(s + 1)*(s - 1)", "s*s - 1"},
      {"(b + s)*(b - s)", "b*b - s*s"},
      {"2*(s + t) - 2*t - 2*s", "0"},
      {"s*b*4 - b*s*3", "b*s"},
      {"(8*i0 + 3)//4", "2*i0"},
      {"(8*i0 + 7)//4", "2*i0 + 1"},
      {"(8*i0 + i1)//4", "2*i0 + i1//4"},
      {"(5*i0)//4", "i0 + i0//4"},
      {"(8*i0 + i1)%4", "i1%4"},
      {"(5*i0 + 6)%4", "(i0 + 2)%4"},
      {"(6*i0)//4", "i0 + i0//2"},
      {"(6*i0)%4", "2*(i0%2)"},
      {"(i0//3)//5", "i0//15"},
      {"(i0//3 + 2)//5", "(i0 + 6)//15"},
      {"((s - 1)//2)//2", "(s + 3)//4 - 1"},
      {"(i0//s)//t", "i0//(s*t)"},
      {"(i0%12)%4", "i0%4"},
      {"(i0%12 + i1)%4", "(i0 + i1)%4"},
      {"(i0%12)//4", "(i0//4)%3"},
      {"(i0%768)//64*64 + (i0%768)%64", "i0%768"},
      {"4*(i0//4) + i0%4", "i0"},
      {"s*(i0//s) + i0%s", "i0"},
      {"12*(i0//4) + 3*(i0%4)", "3*i0"},
      {"s*t*(i0//t) + s*(i0%t)", "s*i0"},
      {"(s + 1)*(i0//(s + 1)) + i0%(s + 1)", "i0"},
      {"64*((i0//64)%12) + i0%64", "i0%768"},
      {"(s*i0)//s", "i0"},
      {"(s*i0 + s)//s", "i0 + 1"},
      {"(s*i0 - 1)//s", "i0 - 1"},
      {"(s*i0)%s", "0"},
      {"(s - 1)//s", "0"},
      {"(6*s*i0)//(4*s)", "i0 + i0//2"},
      {"(s*i0)//(s*t)", "i0//t"},
      {"(s*i0)%(s*t)", "s*(i0%t)"},
      {"(b*s + 7)//8", "(b*s + 7)//8"},
      {"((s + 1)*i0 + 2*s + 2)//(s + 1)", "i0 + 2"},
      {"min(3, 5)", "3"},
      {"min(s, -1)", "-1"},
      {"max(s, 0)", "s"},
      {"max(s, s + 1)", "s + 1"},
      {"min(min(s, 5), 3)", "min(s, 3)"},
      {"max(1, s)", "max(s, 1)"},
      {"min(s + t, s)", "s"},
      {"s//2*t", "t*(s//2)"},
      {"3*(s//2) - (s%2)*b", "3*(s//2) - b*(s%2)"},
      {"-(s//2) + 1", "-(s//2) + 1"},
      {"-s", "-s"},
  };
  for (const Golden& g : table) {
    Context c;
    declare(c);
    SymInt e = parse(c, g.in);
    EXPECT_EQ(to_string(e), g.out) << "from " << g.in;
    EXPECT_EQ(parse(c, to_string(e)), e) << "reading back " << to_string(e);
  }
}

TEST(SymIntGolden, Simplify) {
  const Golden table[] = {
      {"i0//8", "0", "8"},
      {"i0%8", "i0", "8"},
      {"i0//n", "0", "n"},
      {"i0%n", "i0", "n"},
      {"(n*i0 + i1)//n", "i0", "m,n"},
      {"(n*i0 + i1)%n", "i1", "m,n"},
      {"(4*i0 + i1)//4", "i0", "9,4"},
      {"(4*i0 + i1)//2", "2*i0 + i1//2", "9,4"},
      {"(4*i0 + i1)//8", "i0//2", "9,4"},
      {"(4*i0 + i1)%8", "i1 + 4*(i0%2)", "9,4"},
      {"(4*i0 + i1 + 1)//4", "i0", "9,3"},
      {"(4*i0 + i1 - 1)//4", "i0 + (i1 + 3)//4 - 1", "9,4"},
      {"i0", "0", "1"},
      {"i0 + i1*s", "s*i1", "1,5"},
      // rows of matrices of symbolic width, several dimensions deep
      {"(n*m*i0 + m*i1 + i2)//(n*m)", "i0", "b,n,m"},
      {"((n*m*i0 + m*i1 + i2)//m)%n", "i1", "b,n,m"},
      {"(n*m*i0 + m*i1 + i2)%m", "i2", "b,n,m"},
      {"(n*i0 + i1)//(n*m)", "i0//m", "b,n"},
      {"(n*i0 + i1)%(n*m)", "i1 + n*(i0%m)", "b,n"},
      // [b, s, 12, 64] <- [b*s, 768]
      {"(768*i0 + i1)//(768*s)", "i0//s", "b*s,768"},
      {"((768*i0 + i1)//768)%s", "i0%s", "b*s,768"},
      {"((768*i0 + i1)//64)%12", "i1//64", "b*s,768"},
      {"(768*i0 + i1)%64", "i1%64", "b*s,768"},
      // [b*s, 768] <- [b, s, 12, 64]
      {"(((i0*s + i1)*12 + i2)*64 + i3)//768", "i1 + s*i0", "b,s,12,64"},
      {"(((i0*s + i1)*12 + i2)*64 + i3)%768", "64*i2 + i3", "b,s,12,64"},
      // [s, 197, 768] <- [s*197, 768] <- [s, 197, 768]
      {"(768*(197*i0 + i1) + i2)//(197*768)", "i0", "s,197,768"},
      {"((768*(197*i0 + i1) + i2)//768)%197", "i1", "s,197,768"},
      // widths that are sums, as convolutions give them
      {"((s + 1)*i0 + i1)//(s + 1)", "i0", "b,s + 1"},
      {"((s + 1)*i0 + i1)%(s + 1)", "i1", "b,s + 1"},
      {"(((H - 1)//2 + 1)*i0 + i1)//((H - 1)//2 + 1)", "i0", "b,(H - 1)//2 + 1"},
      {"((((H - 1)//2 + 1)*i0 + i1)*((W - 1)//2 + 1) + i2)//((W - 1)//2 + 1)%((H - 1)//2 + 1)", "i1",
       "b,(H - 1)//2 + 1,(W - 1)//2 + 1"},
      {"((s + 1)*i0 + i1)//((s + 1)*(t + 1))", "i0//(t + 1)", "b,s + 1"},
      // padding and clamping
      {"min(i0, n - 1)", "i0", "n"},
      {"max(i0, 0)", "i0", "n"},
      {"min(max(i0 - 1, 0), n - 1)", "max(i0 - 1, 0)", "n"},
      {"min(i0 + i1, 10)", "i0 + i1", "5,6"},
      {"max(n, 1)", "n", "n"},
      {"max(b, 1)*i0", "b*i0", "b*s"},
      {"i0*min(n - 1, 1)", "i0", "n"},
      {"s*i0*min(n - 1, 1) + i1", "i1 + s*i0", "n,s"},
      {"n*i0*min(n, 1)", "n*i0", "b"},
      {"i0*min(n - 1, 1)", "i0*min(n - 1, 1)", "b"},
      {"(i0 + n - i1 - 1)//(2*n)", "0", "n,n"},
      {"r0//4 + i0", "i0", "3", "4"},
      {"i1//i0", "0", "1,5"}, // no value at all
      {"(b*t*(s + 1)*i0 + i1)//(b*t*(s + 1)*(s + 1))", "i0//(s + 1)", "4*(s + 1),b*t*(s + 1)"},
      {"(64*i0 + r0)//64", "i0", "s", "64"},
      {"(i0%n)//n", "0", "m"},
      {"(i0//64)%12", "i0//64", "768"},
      {"(i0//64)%b", "i0//64", "64*b"},
      {"(7 - i0)//8", "0", "8"},
      {"(i0 - 8)//8", "-1", "8"},
      {"(i0 - 8)%8", "i0", "8"},
      {"(i0 - n)%n", "i0", "n"},
      {"(i0 - n)//n", "-1", "n"},
  };
  for (const Golden& g : table) {
    Context c;
    declare(c);
    Extents extents{parse_list(c, g.extents), parse_list(c, g.rextents)};
    SymInt e = parse(c, g.in), r = simplify(e, extents);
    EXPECT_EQ(to_string(r), g.out) << "from " << g.in << " = " << to_string(e);
    EXPECT_EQ(simplify(r, extents), r) << "not idempotent: " << g.in;
  }
}

TEST(SymIntGolden, Proofs) {
  struct Case {
    const char* e;
    const char* extents;
    bool nonnegative;
  };
  const Case table[] = {
      {"s", "", true},
      {"s - 1", "", false},
      {"s - 1", "s", true},
      {"b*s - 1", "b*s", true},
      {"b - 1", "b*s", true},
      {"s*t - s", "t", true},
      {"s*t - s", "", false},
      {"s*t - s - t + 1", "s,t", true},
      {"n - 1 - i0", "n", true},
      {"n - 2 - i0", "n", false},
      {"n*m - 1 - m*i0 - i1", "n,m", true},
      {"n*m - 1 - n*i0 - i1", "n,m", false},
      {"i0 - 4*(i0//4)", "n", true},
      {"4*(i0//4) - i0 + 3", "n", true},
      {"s - 2*(s//2)", "", true},
      {"s - s//2", "", true},
      {"12*n - 1 - i0//64", "768*n", true},
      {"n - 1 - i0%n", "m", true},
      {"n - min(n, m)", "", true},
      {"max(n, m) - m", "", true},
      {"m - min(n, m - 1) - 1", "", true},
      {"min(n, m) - max(n, m)", "", false},
      {"n - min(i0 + 3, n)", "m", true},
      {"H - 2*((H - 1)//2) - 1", "", true},
      {"(H - 1)//2", "(H - 1)//2 + 1", true},
      {"H - 1 - 2*i0", "(H - 1)//2 + 1", true},
      {"H - 3 - 2*i0", "(H - 1)//2 + 1", false},
  };
  for (const Case& k : table) {
    Context c;
    declare(c);
    Extents extents{parse_list(c, k.extents), {}};
    EXPECT_EQ(provably_nonnegative(parse(c, k.e), extents), k.nonnegative) << k.e << " under " << k.extents;
  }
  Context c;
  SymInt few = c.symbol("few", 0, 10), s = c.symbol("s");
  EXPECT_TRUE(provably_nonnegative(s * 10 - s * few));
  EXPECT_TRUE(provably_less(few, 11));
  EXPECT_FALSE(provably_less(few, 10));
  EXPECT_TRUE(provably_divisible(6 * s * few, 3 * s));
  EXPECT_FALSE(provably_divisible(6 * s * few, 4 * s));
}

TEST(SymInt, OverflowIsAModelError) {
  Context c;
  SymInt s = c.symbol("s");
  auto kind_of = [](auto&& f) -> std::optional<ErrorKind> {
    try {
      f();
    } catch (const Error& e) {
      return e.kind();
    }
    return std::nullopt;
  };
  SymInt big(int64_t{1} << 62);
  EXPECT_EQ(kind_of([&] { big + big; }), ErrorKind::model);
  EXPECT_EQ(kind_of([&] { big * 4; }), ErrorKind::model);
  EXPECT_EQ(kind_of([&] { (big * s) * (s * 2 + 7); }), ErrorKind::model);
  EXPECT_EQ(kind_of([&] { floordiv(s, 0); }), ErrorKind::model);
  EXPECT_EQ(kind_of([&] { mod(s, -3); }), ErrorKind::model);
  EXPECT_EQ(kind_of([&] { SymInt(INT64_MIN) - 1; }), ErrorKind::model);
  EXPECT_EQ(SymInt(-5) - SymInt(INT64_MIN), SymInt(INT64_MAX - 4));
  // What overflows only on the way to a rewrite is not an error.
  SymInt q = floordiv(floordiv(s, int64_t{1} << 40), int64_t{1} << 40);
  EXPECT_EQ(evaluate(q, std::vector<int64_t>{int64_t{1} << 47}), 0);
  EXPECT_EQ(evaluate(s * s, std::vector<int64_t>{int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(evaluate(floordiv(c.symbol("t"), s), std::vector<int64_t>{0, 5}), std::nullopt);
}

size_t count_nodes(SymInt e) {
  size_t n = 0;
  visit(e, [&](const SymNode&) { ++n; });
  return n;
}

Expr load(Context& c, BufferId buffer, SymInt index) { return c.load(buffer, DType::i64, {index}); }

TEST(SymIntIndirect, IsRewrittenInside) {
  Context c;
  SymInt s = c.symbol("s"), i = c.indirect(load(c, 0, floordiv(c.var(0), 4)), s, false);
  SymInt e = 8 * i + c.var(1);
  EXPECT_TRUE(has_indirect(e));
  EXPECT_TRUE(has_loop_variable(i));
  EXPECT_TRUE(depends_on(e, c.var(0).node()));
  EXPECT_FALSE(depends_on(e, c.var(2).node()));
  EXPECT_EQ(substitute(e, {{4 * c.var(2), c.var(0)}, {}}),
            8 * c.indirect(load(c, 0, c.var(2)), s, false) + c.var(0));
  EXPECT_EQ(simplify(e, {{4, 8}, {}}), 8 * c.indirect(load(c, 0, 0), s, false) + c.var(1));
  EXPECT_EQ(replace(e, {{s.node(), 5}}),
            8 * c.indirect(load(c, 0, floordiv(c.var(0), 4)), 5, false) + c.var(1));
  EXPECT_EQ(replace(e, {{i.node(), c.var(2)}}), 8 * c.var(2) + c.var(1));
  EXPECT_EQ(simplify(floordiv(e, 8), {{100, 8}, {}}), i);
  EXPECT_EQ(simplify(mod(8 * i + 7, 8 * s), {{100}, {}}), 8 * i + 7);
  EXPECT_FALSE(affine_in(e, c.var(0).node()).has_value());
  auto in_indirect = affine_in(e, i.node());
  ASSERT_TRUE(in_indirect.has_value());
  EXPECT_TRUE(in_indirect->coefficient.is(8));
  EXPECT_EQ(
      evaluate(e, std::vector<int64_t>{9}, std::vector<int64_t>{0, 3}, {}, [](const SymNode&) { return 7; }),
      59);
  EXPECT_EQ(evaluate(e, std::vector<int64_t>{9}, std::vector<int64_t>{0, 3}), std::nullopt);
  EXPECT_EQ(to_string(e), "8*[load(b0, [i0//4]) < s] + i1");
}

TEST(SymIntIndirect, KnownValuesNeedNoIndirection) {
  Context c;
  SymInt s = c.symbol("s");
  EXPECT_TRUE(c.indirect(c.constant_int(DType::i64, 3), 8).is(3));
  EXPECT_TRUE(c.indirect(c.constant_int(DType::i64, -3), 8).is(5));
  EXPECT_EQ(c.indirect(c.index(s), s + 1), s);
  EXPECT_TRUE(has_indirect(c.indirect(c.index(s), s))); // out of range: reported at run time
  EXPECT_TRUE(has_indirect(c.indirect(c.constant_int(DType::i64, 8), 8)));
}

TEST(SymIntIndirect, SharedChainsStayLinear) {
  Context c;
  SymInt s = c.symbol("s"), x = c.var(0);
  // Each level reads two tables at the index the level before has found; the paths double, the nodes do not.
  constexpr int kLevels = 2000;
  for (int k = 0; k < kLevels; ++k)
    x = c.indirect(binary(Op::add, load(c, 0, x), load(c, 1, x + 1)), s, false);
  size_t syms = c.impl().sym_arena.size(), exprs = c.impl().expr_arena.size();
  EXPECT_EQ(count_nodes(x), 2u * kLevels + 2);
  SymInt y = substitute(x, {{c.var(1) + 1}, {}});
  EXPECT_EQ(count_nodes(y), 2u * kLevels + 3); // i1 + 1 is one more leaf
  EXPECT_LT(c.impl().sym_arena.size(), 3 * syms);
  EXPECT_LT(c.impl().expr_arena.size(), 3 * exprs);
  EXPECT_EQ(simplify(x, {{s}, {}}), x);
  EXPECT_EQ(count_nodes(simplify(x, {{1}, {}})), 2u * kLevels);
  EXPECT_EQ(count_nodes(replace(x, {{s.node(), s + 5}})), 2u * kLevels + 3);
  EXPECT_LE(to_string(x).size(), 100u * kLevels);
  EXPECT_EQ(bounds_of(x).lo, 0);
}

TEST(SymIntCost, DiamondsStayLinear) {
  Context c;
  SymInt s = c.symbol("s"), t = c.symbol("t"), x = c.var(0);
  // Every level uses the one before three times.
  constexpr int kLevels = 150;
  std::vector<size_t> nodes;
  for (int k = 0; k < kLevels; ++k) {
    x = min(floordiv(x + k, 3) * s + mod(x, 5), max(x - t, 7));
    nodes.push_back(c.impl().sym_arena.size());
  }
  // Per level a bounded number of new nodes, those of failed proofs included.
  size_t early = nodes[kLevels / 2] - nodes[0], late = nodes[kLevels - 1] - nodes[kLevels / 2 - 1];
  EXPECT_LT(late, early * 2);
  EXPECT_LT(count_nodes(x), kLevels * 12u);
  Extents extents{{s * 8}, {}};
  SymInt simple = simplify(x, extents);
  EXPECT_LT(count_nodes(simple), kLevels * 24u);
  SymInt renewed = substitute(x, {{2 * c.var(1)}, {}});
  EXPECT_LT(count_nodes(renewed), kLevels * 24u);
  EXPECT_FALSE(depends_on(renewed, c.var(0).node()));
  EXPECT_LT(c.impl().sym_arena.size(), kLevels * 2000u);
  EXPECT_TRUE(evaluate(x, std::vector<int64_t>{1, 1}, std::vector<int64_t>{5}).has_value());
  EXPECT_GT(bounds_of(x, extents).hi, 0);
  EXPECT_LE(to_string(x).size(), (64u << 10) + 3);
}

TEST(SymIntCost, DivisionChainsStayLinear) {
  Context c;
  SymInt x = c.var(0), sum = 0;
  for (int k = 0; k < 120; ++k) x = floordiv(x, 3) + mod(x, 5);
  EXPECT_LT(c.impl().sym_arena.size(), 120u * 60);
  for (int k = 0; k < 400; ++k) sum += floordiv(c.var(0), 2 + k) * c.var(k % 7);
  EXPECT_EQ(sum.node()->terms.size(), 400u);
  EXPECT_LT(count_nodes(simplify(sum, {{1000}, {}})), 2000u);
}

TEST(SymIntCost, PowersStaySmall) {
  Context c;
  SymInt s = c.symbol("s"), sum = s + 1, power = s;
  EXPECT_THROW(
      {
        for (int k = 0; k < 100; ++k) sum = sum * sum + s;
      },
      Error);
  EXPECT_LT(c.impl().sym_arena.size(), 100u * 100);
  EXPECT_THROW(
      {
        for (int k = 0; k < 100; ++k) power = power * power;
      },
      Error);
}

/// A plan keeps sizes written out: what is shared here stands there as often as it is used.
TEST(SymIntCost, SizesWrittenOutAreBounded) {
  Context c;
  const SymInt s = c.symbol("s");
  auto levels = [&](SymInt x, auto next) {
    for (int k = 0; k < 200; ++k) {
      try {
        x = next(x);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::unsupported);
        return k;
      }
    }
    return 200;
  };
  const int shared = levels(s, [](SymInt x) { return floordiv(x, 3) + mod(x, 7); });
  EXPECT_GT(shared, 10); // 3 * 2^k operations
  EXPECT_LT(shared, 17);
  const int waiting = levels(s, [&](SymInt x) { return floordiv(s, x + 5); });
  EXPECT_GT(waiting, 25); // two more numbers wait at each level
  EXPECT_LT(waiting, 33);
  EXPECT_EQ(levels(s, [](SymInt x) { return floordiv(x, 3) + 1; }), 200);
  EXPECT_EQ(levels(c.var(0), [](SymInt x) { return floordiv(x, 3) + mod(x, 7); }), 200); // an index, no size
}

TEST(SymIntCost, NestingIsBounded) {
  Context c;
  SymInt x = c.var(0), s = c.symbol("s");
  EXPECT_THROW(
      {
        for (int k = 0; k < 100000; ++k) x = k % 2 ? min(x * s - k, s) : max(x - s * k, s - 1);
      },
      Error);
  ASSERT_GT(x.node()->depth, 300);
  // Every walk copes with the deepest expression there can be.
  Extents extents{{s}, {}};
  EXPECT_FALSE(to_string(x).empty());
  EXPECT_TRUE(depends_on(x, c.var(0).node()));
  bounds_of(x, extents);
  provably_positive(x, extents);
  simplify(x, extents);
  substitute(x, {{c.var(1)}, {}});
  affine_in(x, c.var(0).node());
  EXPECT_TRUE(evaluate(x, std::vector<int64_t>{1}, std::vector<int64_t>{0}).has_value());
}

} // namespace
} // namespace tbx::ir
