// SymInt on random expressions against direct arithmetic, and reshape round trips.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "ir/context_impl.h"
#include "symint_helper.h"

namespace tbx::ir {
namespace {

int64_t seed_from_environment() {
  const char* text = std::getenv("TBX_TEST_SEED");
  return text ? std::atoll(text) : 20240611;
}

/// A tree over which arithmetic is done twice: by SymInt and directly.
struct Tree {
  enum Kind { constant, symbol, var, rvar, add, sub, mul, floordiv, mod, min, max } kind;
  int64_t value = 0;
  std::unique_ptr<Tree> a, b;
};

struct Point {
  std::vector<int64_t> symbols, vars, rvars;
};

std::optional<int64_t> direct(const Tree& t, const Point& p) {
  switch (t.kind) {
  case Tree::constant: return t.value;
  case Tree::symbol: return p.symbols[t.value];
  case Tree::var: return p.vars[t.value];
  case Tree::rvar: return p.rvars[t.value];
  default: break;
  }
  auto x = direct(*t.a, p), y = direct(*t.b, p);
  if (!x || !y) return std::nullopt;
  switch (t.kind) {
  case Tree::add: return *x + *y;
  case Tree::sub: return *x - *y;
  case Tree::mul: return *x * *y;
  case Tree::min: return std::min(*x, *y);
  case Tree::max: return std::max(*x, *y);
  default: break;
  }
  if (*y <= 0) return std::nullopt;
  int64_t q = *x / *y - (*x % *y < 0);
  return t.kind == Tree::floordiv ? q : *x - q * *y;
}

class Random {
public:
  explicit Random(uint64_t seed) : rng_(seed) {}
  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
  }

  std::unique_ptr<Tree> leaf() {
    auto t = std::make_unique<Tree>();
    int k = below(8);
    t->kind = k < 2 ? Tree::constant : k < 4 ? Tree::symbol : k < 7 ? Tree::var : Tree::rvar;
    t->value = k < 2 ? between(-6, 12) : t->kind == Tree::rvar ? below(2) : below(3);
    return t;
  }
  std::unique_ptr<Tree> divisor() {
    static const int64_t values[] = {2, 3, 4, 6, 8, 12};
    auto t = std::make_unique<Tree>();
    int k = below(6);
    t->kind = k < 4 ? Tree::constant : Tree::symbol;
    t->value = k < 4 ? values[below(6)] : below(3);
    if (below(5) != 0) return t;
    auto sum = std::make_unique<Tree>();
    sum->kind = below(2) ? Tree::add : Tree::mul;
    sum->a = std::move(t);
    sum->b = divisor();
    return sum;
  }
  std::unique_ptr<Tree> tree(int depth) {
    if (depth == 0 || below(8) == 0) return leaf();
    static const Tree::Kind kinds[] = {Tree::add, Tree::add,      Tree::add,      Tree::sub,
                                       Tree::mul, Tree::mul,      Tree::floordiv, Tree::mod,
                                       Tree::mod, Tree::floordiv, Tree::min,      Tree::max};
    auto t = std::make_unique<Tree>();
    t->kind = kinds[below(12)];
    t->a = tree(depth - 1);
    bool divides = t->kind == Tree::floordiv || t->kind == Tree::mod;
    t->b = divides && below(6) ? divisor() : tree(depth - 1);
    return t;
  }

private:
  std::mt19937_64 rng_;
};

SymInt build(Context& c, const Tree& t, const SymInts& symbols) {
  switch (t.kind) {
  case Tree::constant: return t.value;
  case Tree::symbol: return symbols[t.value];
  case Tree::var: return c.var(static_cast<int>(t.value));
  case Tree::rvar: return c.rvar(static_cast<int>(t.value));
  default: break;
  }
  SymInt x = build(c, *t.a, symbols), y = build(c, *t.b, symbols);
  switch (t.kind) {
  case Tree::add: return x + y;
  case Tree::sub: return x - y;
  case Tree::mul: return x * y;
  case Tree::min: return min(x, y);
  case Tree::max: return max(x, y);
  case Tree::floordiv: return floordiv(x, y);
  default: return mod(x, y);
  }
}

struct RandomCase {
  Context c;
  SymInts symbols;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  Extents extents;
  std::unique_ptr<Tree> tree;
  SymInt e;

  /// False when the expression is not one (division by a constant that is not positive).
  bool make(Random& random, int depth) {
    static const std::pair<int64_t, int64_t> choices[] = {
        {0, kMaxSize}, {0, kMaxSize}, {1, kMaxSize}, {2, 7}, {0, 4}};
    for (int k = 0; k < 3; ++k) {
      ranges.push_back(choices[random.below(5)]);
      symbols.push_back(
          c.symbol(std::string(1, static_cast<char>('s' + k)), ranges[k].first, ranges[k].second));
    }
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12};
    auto extent = [&]() -> SymInt {
      SymInt s = symbols[random.below(3)];
      switch (random.below(7)) {
      case 0: return s;
      case 1: return s * sizes[random.below(7)];
      case 2: return s + 1;
      case 3: return s * symbols[random.below(3)];
      default: return sizes[random.below(7)];
      }
    };
    for (int k = 0; k < 3; ++k) extents.vars.push_back(extent());
    for (int k = 0; k < 2; ++k) extents.rvars.push_back(extent());
    tree = random.tree(depth);
    try {
      e = build(c, *tree, symbols);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::model);
      return false;
    }
    return true;
  }

  /// A point inside the ranges; nullopt when a loop is empty.
  std::optional<Point> point(Random& random) {
    Point p;
    for (auto [lo, hi] : ranges) p.symbols.push_back(random.between(lo, std::min<int64_t>(hi, 9)));
    for (bool inner : {false, true}) {
      for (SymInt size : inner ? extents.rvars : extents.vars) {
        int64_t n = *evaluate(size, p.symbols);
        if (n <= 0) return std::nullopt;
        // The ends of a loop show most mistakes.
        int64_t i = random.below(3) == 0 ? n - 1 : random.below(3) == 0 ? 0 : random.between(0, n - 1);
        (inner ? p.rvars : p.vars).push_back(i);
      }
    }
    return p;
  }
};

TEST(SymIntProperty, SimplifyAgreesWithBruteForce) {
  const int64_t seed = seed_from_environment();
  const char* rounds_text = std::getenv("TBX_TEST_ROUNDS");
  const int rounds = rounds_text ? std::atoi(rounds_text) : 4000;
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<uint64_t>(seed + round));
    RandomCase k;
    if (!k.make(random, 1 + random.below(4))) continue;
    SymInt simple = simplify(k.e, k.extents);
    auto where = [&] {
      return "TBX_TEST_SEED=" + std::to_string(seed + round) + "\n  expression " + to_string(k.e) +
             "\n  simplified " + to_string(simple) + "\n  extents " + to_string(k.extents.vars) + " " +
             to_string(k.extents.rvars);
    };
    ASSERT_EQ(simplify(simple, k.extents), simple) << "not idempotent: " << where();
    Bounds before = bounds_of(k.e, k.extents), after = bounds_of(simple, k.extents);
    bool nonnegative = provably_nonnegative(k.e, k.extents), positive = provably_positive(simple, k.extents);
    for (int i = 0; i < 24; ++i) {
      auto p = k.point(random);
      if (!p) continue;
      auto want = direct(*k.tree, *p);
      if (!want) continue;
      ++compared;
      auto got = evaluate(k.e, p->symbols, p->vars, p->rvars),
           got_simple = evaluate(simple, p->symbols, p->vars, p->rvars);
      auto at = [&] {
        return where() + "\n  at " + testing::PrintToString(p->symbols) + testing::PrintToString(p->vars) +
               testing::PrintToString(p->rvars);
      };
      ASSERT_EQ(got, want) << "construction: " << at();
      ASSERT_EQ(got_simple, want) << "simplify: " << at();
      ASSERT_TRUE(before.lo <= *want && *want <= before.hi) << "bounds of the expression: " << at();
      ASSERT_TRUE(after.lo <= *want && *want <= after.hi) << "bounds of the simplified expression: " << at();
      ASSERT_FALSE(nonnegative && *want < 0) << "proof that it is nonnegative: " << at();
      ASSERT_FALSE(positive && *want <= 0) << "proof that it is positive: " << at();
    }
  }
  EXPECT_GT(compared, rounds * 5);
}

TEST(SymIntProperty, SubstituteAgreesWithEvaluate) {
  const int64_t seed = seed_from_environment();
  for (int round = 0; round < 2000; ++round) {
    Random random(static_cast<uint64_t>(seed + round) * 31 + 7);
    RandomCase k;
    if (!k.make(random, 1 + random.below(4))) continue;
    // i0 -> 2*i1 + s, i1 -> i0 // 2, r0 -> i2 + 1; the rest stays.
    Substitution s{{2 * k.c.var(1) + k.symbols[0], floordiv(k.c.var(0), 2)}, {k.c.var(2) + 1}};
    SymInt renewed;
    try {
      renewed = substitute(k.e, s);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::model); // a divisor became a constant that is not positive
      continue;
    }
    for (int i = 0; i < 8; ++i) {
      Point p;
      for (auto [lo, hi] : k.ranges) p.symbols.push_back(random.between(lo, std::min<int64_t>(hi, 9)));
      for (int j = 0; j < 3; ++j) p.vars.push_back(random.below(20));
      for (int j = 0; j < 2; ++j) p.rvars.push_back(random.below(20));
      Point q = p;
      q.vars[0] = 2 * p.vars[1] + p.symbols[0];
      q.vars[1] = p.vars[0] / 2;
      q.rvars[0] = p.vars[2] + 1;
      auto want = direct(*k.tree, q);
      if (!want) continue;
      ASSERT_EQ(evaluate(renewed, p.symbols, p.vars, p.rvars), want)
          << "seed " << seed << " round " << round << ": " << to_string(k.e) << " -> " << to_string(renewed);
    }
  }
}

TEST(SymIntProperty, AffineFormAddsUp) {
  const int64_t seed = seed_from_environment();
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    Random random(static_cast<uint64_t>(seed + round) * 17 + 3);
    RandomCase k;
    if (!k.make(random, 1 + random.below(3))) continue;
    SymInt v = k.c.var(0);
    auto affine = affine_in(k.e, v.node());
    if (!affine) continue;
    found += !affine->coefficient.is(0);
    ASSERT_EQ(affine->coefficient * v + affine->rest, k.e) << to_string(k.e);
    ASSERT_FALSE(depends_on(affine->rest, v.node()));
    ASSERT_FALSE(has_loop_variable(affine->coefficient));
  }
  EXPECT_GT(found, 100);
}

/// The index of a dense tensor of shape `from` that the element var(0), var(1), ... of its reshape to `to`
/// shows.
SymInts reshape_map(const SymInts& from, const SymInts& to, const SymInts& at) {
  SymInts to_strides = contiguous_strides(to), map;
  SymInt flat = 0;
  for (size_t k = 0; k < to.size(); ++k) flat += at[k] * to_strides[k];
  SymInts strides = contiguous_strides(from);
  for (size_t k = 0; k < from.size(); ++k) {
    SymInt index = floordiv(flat, strides[k]);
    map.push_back(k == 0 ? index : mod(index, from[k]));
  }
  return map;
}

/// Reshapes along the way and back must show every element where it was.
void expect_round_trip(Context& c, const std::vector<SymInts>& shapes, const std::string& what) {
  // The index in shapes[0] of an element of the last shape, one reshape after the other, as views compose.
  SymInts map;
  for (size_t k = 0; k < shapes[0].size(); ++k) map.push_back(c.var(static_cast<int>(k)));
  std::vector<SymInts> path = shapes;
  path.push_back(shapes[0]);
  for (size_t step = 1; step < path.size(); ++step) {
    SymInts at;
    for (size_t k = 0; k < path[step].size(); ++k) at.push_back(c.var(static_cast<int>(k)));
    Substitution s{reshape_map(path[step - 1], path[step], at), {}};
    for (SymInt& e : map) e = simplify(substitute(e, s), {path[step], {}});
  }
  for (size_t k = 0; k < map.size(); ++k) {
    if (shapes[0][k].is(1)) {
      EXPECT_TRUE(map[k].is(0)) << what;
    } else {
      EXPECT_EQ(map[k], c.var(static_cast<int>(k)))
          << what << " dimension " << k << ": " << to_string(map[k]);
    }
  }
}

TEST(SymIntReshape, RoundTripsAreIdentity) {
  const std::vector<std::vector<const char*>> table = {
      {"b,s,12,64", "b*s,768"},
      {"b*s,768", "b,s,12,64"},
      {"s,197,768", "197*s,768"},
      {"197*s,768", "s,197,768"},
      {"s,197,768", "197*s,768", "s,197,12,64", "s*197*12,64"},
      {"b,s,t", "b*s*t", "b*s,t"},
      {"4,6", "8,3"},
      {"b,4,6", "b,8,3", "24*b"},
      {"b,n,7,m,7,96", "b*n,7,m*7,96", "b,7*n,7*m,96"},
      {"b,96,(H - 1)//2 + 1,(W - 1)//2 + 1", "b,96,((H - 1)//2 + 1)*((W - 1)//2 + 1)"},
      {"b,96,((H - 1)//2 + 1)*((W - 1)//2 + 1)", "b,96,(H - 1)//2 + 1,(W - 1)//2 + 1"},
      {"b,s + 1,64", "b*(s + 1),64"},
      {"b*(s + 1),64", "b,s + 1,64"},
      {"1,b,1,s", "b*s,1"},
      {"2*b,s,3,n", "b,2*s,3*n"},
      {"b,32,s//2,2", "b,64*(s//2)"},
  };
  for (const auto& row : table) {
    Context c;
    declare(c);
    std::vector<SymInts> shapes;
    std::string what;
    for (const char* text : row) {
      shapes.push_back(parse_list(c, text));
      what += std::string(what.empty() ? "[" : " -> [") + text + "]";
    }
    expect_round_trip(c, shapes, what);
  }
}

TEST(SymIntReshape, RandomRoundTripsAreIdentity) {
  const int64_t seed = seed_from_environment();
  for (int round = 0; round < 600; ++round) {
    Random random(static_cast<uint64_t>(seed + round) * 101);
    Context c;
    declare(c);
    // A list of prime-like factors; a shape is a way to group neighbours.
    SymInts factors;
    const char* choices[] = {
        "b", "s", "t", "n", "2", "3", "4", "7", "64", "12", "b", "(H - 1)//2 + 1", "W//2 + 1", "s + 1"};
    int n = 2 + random.below(5);
    for (int k = 0; k < n; ++k) {
      int choice = random.below(14);
      // Powers of sums are beyond what is promised; each occurs once.
      factors.push_back(parse(c, choices[choice]));
      if (choice >= 11) choices[choice] = "5";
    }
    std::vector<SymInts> shapes;
    std::string what = "seed " + std::to_string(seed) + " round " + std::to_string(round) + ":";
    for (int k = 2 + random.below(2); k > 0; --k) {
      SymInts shape{factors[0]};
      for (int f = 1; f < n; ++f) {
        if (random.below(2))
          shape.push_back(factors[f]);
        else
          shape.back() *= factors[f];
      }
      what += " " + to_string(shape);
      shapes.push_back(std::move(shape));
    }
    expect_round_trip(c, shapes, what);
  }
}

} // namespace
} // namespace tbx::ir
