// SymInt: canonical forms, simplification and bounds against brute force, golden texts, reshape round trips,
// cost.
#include "ir/symint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "ir/context_impl.h"

namespace tbx::ir {
namespace {

/// Reads what to_string writes.
class Parser {
public:
  Parser(Context& c, std::string text) : c_(c), s_(std::move(text)) {}

  SymInt whole() {
    SymInt e = sum();
    skip();
    EXPECT_EQ(at_, s_.size()) << "rest not read of: " << s_;
    return e;
  }

private:
  void skip() { at_ = std::min(s_.find_first_not_of(' ', at_), s_.size()); }
  bool take(std::string_view token) {
    skip();
    if (s_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  SymInt sum() {
    SymInt e = take("-") ? -term() : term();
    for (;;) {
      if (take("+"))
        e = e + term();
      else if (take("-"))
        e = e - term();
      else
        return e;
    }
  }
  SymInt term() {
    SymInt e = atom();
    for (;;) {
      if (take("*"))
        e = e * atom();
      else if (take("//"))
        e = floordiv(e, atom());
      else if (take("%"))
        e = mod(e, atom());
      else
        return e;
    }
  }
  SymInt atom() {
    if (take("(")) {
      SymInt e = sum();
      EXPECT_TRUE(take(")")) << s_;
      return e;
    }
    bool is_min = take("min(");
    if (is_min || take("max(")) {
      SymInt a = sum();
      EXPECT_TRUE(take(",")) << s_;
      SymInt b = sum();
      EXPECT_TRUE(take(")")) << s_;
      return is_min ? min(a, b) : max(a, b);
    }
    skip();
    size_t end = at_;
    while (end < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[end])) || s_[end] == '_')) ++end;
    std::string word = s_.substr(at_, end - at_);
    at_ = end;
    if (word.empty()) {
      ADD_FAILURE() << "cannot read " << s_ << " at " << at_;
      at_ = s_.size();
      return 0;
    }
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return SymInt(int64_t{std::stoll(word)});
    bool numbered = word.size() > 1 && std::all_of(word.begin() + 1, word.end(), ::isdigit);
    if (numbered && word[0] == 'i') return c_.var(std::stoi(word.substr(1)));
    if (numbered && word[0] == 'r') return c_.rvar(std::stoi(word.substr(1)));
    return c_.symbol(word);
  }

  Context& c_;
  std::string s_;
  size_t at_ = 0;
};

SymInt parse(Context& c, const std::string& text) { return Parser(c, text).whole(); }

SymInts parse_list(Context& c, const std::string& text) {
  SymInts list;
  size_t depth = 0, start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > start) list.push_back(parse(c, text.substr(start, i - start)));
    start = i + 1;
  }
  return list;
}

/// Symbols and variables in one order of creation, so that texts do not depend on the test.
void declare(Context& c) {
  for (const char* name : {"b", "s", "t", "n", "m", "H", "W"}) c.symbol(name);
  for (int k = 0; k < 5; ++k) c.var(k);
  for (int k = 0; k < 3; ++k) c.rvar(k);
}

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
  for (int k = 0; k < 100; ++k) sum = sum * sum + s;
  EXPECT_LT(c.impl().sym_arena.size(), 100u * 100);
  EXPECT_THROW(
      {
        for (int k = 0; k < 100; ++k) power = power * power;
      },
      Error);
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
