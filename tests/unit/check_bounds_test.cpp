// Indices of lowered programs: proven, checked before a run, or checked where they are used. Random nests are
// held against all points of their loops.
#include "ir/check_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace tbx::ir {
namespace {

struct CheckBoundsTest : testing::Test {
  Program p;
  CheckBoundsTest() { p.context = std::make_shared<Context>(); }

  Context& c() { return *p.context; }
  SymInt v(int k) { return c().var(k); }
  SymInt s(const std::string& name) { return c().symbol(name); }
  Expr at(SymInt e) { return c().index(e); }

  BufferId input(SymInts sizes) {
    BufferId id = p.new_buffer("x", DType::f32, std::move(sizes));
    p.at(id).kind = BufferKind::input;
    return id;
  }
  /// A nest over `ranges` that reads `from` at `indices`.
  void read(BufferId from, SymInts ranges, SymInts indices, Expr mask = nullptr) {
    Expr body = c().load(from, DType::f32, std::move(indices), mask);
    make_pointwise(p, DType::f32, std::move(ranges), body).storage()->realize(p, "test");
  }
  const Loops& nest() const { return std::get<Compute>(p.operations.back().what).loops; }
  BoundsReport checked() {
    BoundsReport r = check_bounds(p);
    verify(p);
    return r;
  }
};

TEST_F(CheckBoundsTest, WhatTheLoopsProveNeedsNoCheck) {
  SymInt n = s("n"), m = s("m");
  BufferId x = input({n, m});
  read(x, {n, m}, {v(0), m - SymInt(1) - v(1)});
  read(x, {n * m}, {floordiv(v(0), m), mod(v(0), m)});
  BoundsReport r = checked();
  EXPECT_EQ(0, r.plan_checks + r.kernel_checks);
  EXPECT_TRUE(p.checks.empty());
}

TEST_F(CheckBoundsTest, SizesAreComparedBeforeARun) {
  SymInt n = s("n"), m = s("m");
  BufferId x = input({n});
  p.origin_names = {"y (Gather)"};
  read(x, {m}, {v(0) + SymInt(3)});
  p.operations.back().origins = {0};
  EXPECT_EQ(1, checked().plan_checks);
  ASSERT_EQ(1u, p.checks.size());
  EXPECT_EQ("node 'y' (Gather)", p.checks[0].where);
  EXPECT_EQ("index m + 2 is outside an axis of size n (dimension 0 of 'x')", p.checks[0].message);
  auto passes = [&](int64_t n_is, int64_t m_is) {
    return *evaluate(p.checks[0].value, std::vector<int64_t>{n_is, m_is}) >= 0;
  };
  EXPECT_TRUE(passes(8, 5));
  EXPECT_FALSE(passes(7, 5));
  EXPECT_TRUE(passes(0, 0)) << "an empty nest reads nothing";
}

TEST_F(CheckBoundsTest, EarlierChecksAreFacts) {
  SymInt n = s("n"), m = s("m"), k = s("k");
  BufferId x = input({n, k});
  p.add_check(max(n - m, m - n), true, "n is m");
  p.add_check(k - s("j"), false, "j is at most k");
  read(x, {m, s("j")}, {v(0), v(1)});
  BoundsReport r = checked();
  EXPECT_EQ(0, r.plan_checks + r.kernel_checks);
}

TEST_F(CheckBoundsTest, AProductOfSizesIsAFact) {
  SymInt n = s("n"), m = s("m"), j = s("j"), k = s("k");
  BufferId x = input({n, m});
  p.add_check(n * m - j * k, true, "as many elements");
  read(x, {j, k}, {floordiv(v(0) * k + v(1), m), mod(v(0) * k + v(1), m)});
  BoundsReport r = checked();
  EXPECT_EQ(0, r.plan_checks + r.kernel_checks);
}

TEST_F(CheckBoundsTest, AMaskIsAFact) {
  SymInt n = s("n"), i = v(0) - SymInt(2);
  BufferId x = input({n});
  Expr inside =
      binary(Op::logical_and, binary(Op::greater_equal, at(i), at(0)), binary(Op::less, at(i), at(n)));
  read(x, {n + SymInt(4)}, {i}, inside);
  BoundsReport r = checked();
  EXPECT_EQ(0, r.plan_checks + r.kernel_checks);
}

TEST_F(CheckBoundsTest, WhatOnlyPointsTellIsCheckedInTheKernel) {
  SymInt n = s("n");
  BufferId x = input({n});
  read(x, {n}, {v(0) + SymInt(2)}, binary(Op::not_equal, at(v(0)), at(5)));
  EXPECT_EQ(1, checked().kernel_checks);
  EXPECT_TRUE(has_indirect(nest().body->indices[0]));
}

TEST_F(CheckBoundsTest, WhatIsOutsideAtAllSizesIsRefused) {
  BufferId x = input({5});
  read(x, {3}, {v(0) + SymInt(3)});
  EXPECT_THROW(check_bounds(p), Error);
}

TEST_F(CheckBoundsTest, EmptyNestsReadNothing) {
  BufferId x = input({5});
  read(x, {SymInt(0)}, {v(0) + SymInt(30)});
  EXPECT_NO_THROW(checked());
}

TEST_F(CheckBoundsTest, OperandsOfCalls) {
  SymInt n = s("n");
  BufferId x = input({n, 4});
  ExternCall call;
  // Row 7 as a matrix of one row.
  call.inputs.push_back({x, {1, 4}, {0, 0, 0, 1}, {7, 0}});
  p.operations.push_back({call, {}, ""});
  EXPECT_EQ(1, checked().plan_checks);
  EXPECT_GE(*evaluate(p.checks[0].value, std::vector<int64_t>{8}), 0);
  EXPECT_LT(*evaluate(p.checks[0].value, std::vector<int64_t>{7}), 0);
}

/// Random sizes, loops and indices of them.
class RandomNest : public CheckBoundsTest, public testing::WithParamInterface<int> {
protected:
  std::mt19937 random{static_cast<uint32_t>(GetParam())};
  SymInts symbols;

  int draw(int lo, int hi) { return std::uniform_int_distribution(lo, hi)(random); }
  SymInt size() {
    switch (draw(0, 4)) {
    case 0: return draw(0, 6);
    case 1: return symbols[draw(0, 2)] + SymInt(draw(0, 2));
    case 2: return symbols[draw(0, 2)] * symbols[draw(0, 2)];
    default: return symbols[draw(0, 2)];
    }
  }
  SymInt index(int rank) {
    SymInt e = draw(0, 2) ? SymInt(0) : SymInt(draw(-2, 4));
    for (int k = 0; k < rank; ++k) e += SymInt(draw(-1, 2)) * v(k);
    if (draw(0, 3) == 0) e += symbols[draw(0, 2)];
    switch (draw(0, 5)) {
    case 0: return floordiv(e, draw(1, 3));
    case 1: return min(max(e, 0), symbols[draw(0, 2)] - SymInt(1));
    case 2: return mod(e, symbols[draw(0, 2)] + SymInt(1));
    default: return e;
    }
  }
};

TEST_P(RandomNest, ChecksPassExactlyWhereAllPointsAreInside) {
  for (const char* name : {"a", "b", "c"}) symbols.push_back(c().symbol(name));
  const SymInts sizes{size(), size()}, ranges{size(), size()}, indices{index(2), index(2)};
  BufferId x = input(sizes);
  read(x, ranges, indices);
  bool refused = false;
  try {
    checked();
  } catch (const Error& e) {
    ASSERT_EQ(ErrorKind::model, e.kind()) << e.what();
    refused = true;
  }
  Expr load = nest().body;
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<int64_t> values{draw(0, 5), draw(0, 5), draw(0, 5)};
    auto value = [&](SymInt e, std::vector<int64_t> at = {}) { return *evaluate(e, values, at); };
    bool passes = !refused;
    for (const Check& check : p.checks) passes = passes && value(check.value) >= 0;
    bool inside[] = {true, true};
    for (int64_t i = 0; i < value(ranges[0]); ++i)
      for (int64_t j = 0; j < value(ranges[1]); ++j)
        for (size_t d = 0; d < 2; ++d) {
          const int64_t at = value(indices[d], {i, j});
          inside[d] = inside[d] && at >= 0 && at < value(sizes[d]);
        }
    // What the kernel checks says nothing here, nor does it forbid a run.
    bool wanted = true;
    for (size_t d = 0; d < 2; ++d)
      wanted = wanted && (inside[d] || (!refused && load->op == Op::load && has_indirect(load->indices[d])));
    EXPECT_EQ(wanted, passes) << to_string(p) << testing::PrintToString(values);
    if (wanted != passes) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomNest, testing::Range(0, 300));

} // namespace
} // namespace tbx::ir
