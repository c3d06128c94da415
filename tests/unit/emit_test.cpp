// Generated kernels against the evaluator: the shapes of loops, accesses, reductions, scans and scatters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/emit.h"
#include "kernel_helper.h"

namespace tbx::test {
namespace {

using namespace ir;
using Cases = std::vector<std::shared_ptr<KernelCase>>;

const DType kTypes[] = {DType::boolean,  DType::i8,     DType::u8,         DType::i16,        DType::u16,
                        DType::i32,      DType::u32,    DType::i64,        DType::u64,        DType::f32,
                        DType::f64,      DType::f16,    DType::bf16,       DType::i4,         DType::u4,
                        DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1,
                        DType::f8e8m0};
const int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49};

std::shared_ptr<KernelCase> make(std::string name) { return std::make_shared<KernelCase>(std::move(name)); }

TEST(Emit, CopiesEveryTypeAtEverySize) {
  Cases cases;
  for (DType t : kTypes)
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{16}, int64_t{49}}) {
      auto k = make(fmt::format("copy {} {}", name_of(t), n));
      SymInt size = k->symbol("n", n), i = k->c().var(0);
      int x = k->buffer(t, size, Access::read), y = k->buffer(t, size, Access::write);
      k->kernel.outer = {size};
      k->phase();
      k->store(y, i, k->load(x, i));
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(Emit, ConvertsBetweenTypes) {
  Cases cases;
  for (DType from : {DType::boolean, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32,
                     DType::i64, DType::u64, DType::f32, DType::f64}) {
    auto k = make(fmt::format("cast from {}", name_of(from)));
    k->kernel.outer = {37};
    int x = k->buffer(from, 37, Access::read);
    SymInt i = k->c().var(0);
    k->phase();
    for (DType to : kTypes) {
      if (is_low_precision_float(to) && to != DType::f16) continue;
      int y = k->buffer(to, 37, Access::write);
      k->store(y, i, k->c().cast(k->load(x, i), compute_type(to)));
    }
    if (is_float(from))
      k->fill = [](int, int64_t i) {
        const double values[] = {0.0,   -0.0, 1.5,     -1.5,    127.5, 128,      -128.9,    -129,
                                 255.9, 256,  32767.5, 65535.5, -0.9,  3e9,      -3e9,      4.2e9,
                                 4.3e9, 1e18, 1e19,    2e19,    -1e19, INFINITY, -INFINITY, NAN};
        return values[i % 24];
      };
    cases.push_back(k);
  }
  run_cases(cases);
}

TEST(Emit, ClampsBeforeItNarrows) {
  Cases cases;
  const double values[] = {0.0, -0.0, 0.5,  1.5, -1.5, 127,  128,   -128,     -129,      254.9, 255,
                           256, 300,  -300, 3e9, -3e9, 1e30, -1e30, INFINITY, -INFINITY, NAN,   2147483648.0};
  for (int64_t n : {1, 5, 16, 40}) {
    auto k = make(fmt::format("clamps {}", n));
    Context& c = k->c();
    SymInt i = c.var(0);
    k->kernel.outer = {n};
    int x = k->buffer(DType::f32, n, Access::read);
    k->phase();
    auto number = [&](double v) { return c.constant(DType::f32, v); };
    for (DType t : {DType::i8, DType::u8}) {
      const double low = t == DType::i8 ? -128 : 0, high = low + 255;
      for (auto [least, most] :
           {std::pair{low, high}, {low + 3, high - 5}, {low - 1, high}, {low, high + 1}}) {
        Expr v = k->load(x, i);
        Expr above = binary(Op::max, v, number(least)), below = binary(Op::min, v, number(most));
        for (Expr clamped :
             {binary(Op::min, above, number(most)), binary(Op::max, below, number(least)), above, below}) {
          int y = k->buffer(t, n, Access::write);
          k->store(y, i, c.cast(clamped, t));
        }
      }
    }
    k->fill = [&values](int, int64_t i) { return values[i % std::size(values)]; };
    cases.push_back(k);
  }
  run_cases(cases);
}

TEST(Emit, PointwiseLayouts) {
  Cases cases;
  for (int64_t n : kSizes)
    for (int64_t m : {1, 3, 17, 40}) {
      auto k = make(fmt::format("layouts {}x{}", m, n));
      SymInt i = k->c().var(0), j = k->c().var(1);
      k->kernel.outer = {m, n};
      int rows = k->buffer(DType::f32, m * n, Access::read), bias = k->buffer(DType::f32, n, Access::read);
      int scale = k->buffer(DType::f32, m, Access::read), turned = k->buffer(DType::f32, m * n, Access::read);
      int wide = k->buffer(DType::f32, 3 * n * m + 1, Access::read),
          flip = k->buffer(DType::f32, n, Access::read);
      int out = k->buffer(DType::f32, m * n, Access::write),
          out_turned = k->buffer(DType::f32, m * n, Access::write);
      Expr x = mul(add(k->load(rows, i * n + j), k->load(bias, j)), k->load(scale, i));
      x = add(x, sub(k->load(turned, j * m + i), k->load(wide, i * (3 * n) + j * 3 + 1)));
      x = add(x, k->load(flip, SymInt(n - 1) - j));
      k->phase();
      k->store(out, i * n + j, x);
      k->store(out_turned, j * m + i, x);
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(Emit, DividedIndices) {
  Cases cases;
  for (int64_t c : {1, 3, 4, 8, 16, 32, 49, 64})
    for (int64_t n : {96, 128, 147}) {
      auto k = make(fmt::format("divided by {} of {}", c, n));
      SymInt i = k->c().var(0);
      k->kernel.outer = {n};
      int x = k->buffer(DType::f32, (n + c - 1) / c, Access::read),
          y = k->buffer(DType::f32, c, Access::read);
      int out = k->buffer(DType::f32, n, Access::write);
      k->phase();
      k->store(out, i, add(k->load(x, floordiv(i, c)), k->load(y, mod(i, c))));
      cases.push_back(k);
    }
  run_cases(cases);
}

// A copy that enlarges rows of an image whose channels come last: one gather for a vector, not an element at
// a time.
TEST(Emit, EnlargedRowsAreVectors) {
  auto k = make("enlarged");
  SymInt i = k->c().var(0), j = k->c().var(1);
  k->kernel.outer = {3, 64};
  int x = k->buffer(DType::f32, 3 * 16 * 5, Access::read), out = k->buffer(DType::f32, 3 * 64, Access::write);
  k->phase();
  k->store(out, 64 * i + j, k->load(x, 80 * i + 5 * floordiv(j, 4)));
  run_cases({k});
  for (Isa isa : {Isa::avx512, Isa::avx2}) {
    Target target;
    target.isa = isa;
    const std::string text = codegen::emit_cpp(k->kernel, target).text;
    EXPECT_NE(text.find("ldx("), std::string::npos) << text;
  }
}

TEST(Emit, MaskedPadding) {
  Cases cases;
  for (int64_t n : kSizes)
    for (DType t : {DType::f32, DType::i8, DType::i64, DType::f16}) {
      auto k = make(fmt::format("pad {} {}", name_of(t), n));
      Context& c = k->c();
      SymInt i = c.var(0), j = c.var(1);
      k->kernel.outer = {3, n + 4};
      int x = k->buffer(t, 2 * n, Access::read), out = k->buffer(t, 3 * (n + 4), Access::write);
      Expr row = binary(Op::less, c.index(i), c.constant_int(DType::i64, 2));
      Expr left = binary(Op::greater_equal, c.index(j), c.constant_int(DType::i64, 2));
      Expr right = binary(Op::less, c.index(j), c.constant_int(DType::i64, n + 2));
      Expr inside = binary(Op::logical_and, row, binary(Op::logical_and, left, right));
      k->phase();
      Expr pad = c.constant(compute_type(t), 7);
      k->store(out, i * (n + 4) + j, where(inside, k->load(x, i * n + j - 2, inside), pad));
      k->store(out, i * (n + 4) + j, pad, binary(Op::equal, c.index(j), c.constant_int(DType::i64, 0)));
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(Emit, Gathers) {
  Cases cases;
  for (int64_t n : kSizes)
    for (bool bad : {false, true}) {
      if (n == 0 && bad) continue;
      auto k = make(fmt::format("gather {}{}", n, bad ? " out of range" : ""));
      Context& c = k->c();
      SymInt i = c.var(0), j = c.var(1);
      k->kernel.outer = {n, 20};
      int index = k->buffer(DType::i64, n, Access::read),
          table = k->buffer(DType::f32, 10 * 20, Access::read);
      int lanes = k->buffer(DType::i32, 20, Access::read), row = k->buffer(DType::f16, 12, Access::read);
      int out = k->buffer(DType::f32, n * 20, Access::write);
      SymInt at = c.indirect(k->load(index, i), 10);
      SymInt lane = c.indirect(c.cast(k->load(lanes, j), DType::i64), 12, false);
      k->phase();
      k->store(out, i * 20 + j, add(k->load(table, at * 20 + j), k->load(row, lane)));
      k->fill = [=](int b, int64_t e) -> double {
        if (b == index) return bad && e == n - 1 ? 10 : static_cast<double>(e * 7 % 20 - 10);
        if (b == lanes) return static_cast<double>(e * 5 % 12);
        return static_cast<double>(e) / 4;
      };
      k->fails = bad;
      cases.push_back(k);
    }
  run_cases(cases);
}

// Positions that fit 32 bits although the size that bounds them is computed from one that does not.
TEST(Emit, GathersBelowBoundedSizes) {
  Cases cases;
  for (int64_t rows : {7, 100})
    for (bool bad : {false, true})
      for (int64_t n : {5, 16, 61}) {
        auto k = make(fmt::format("gather {} of {}{}", n, rows, bad ? " out of range" : ""));
        Context& c = k->c();
        SymInt i = c.var(0), size = k->symbol("rows", rows), below = ir::min(size, 20);
        k->kernel.outer = {n};
        int index = k->buffer(DType::i64, n, Access::read),
            table = k->buffer(DType::f32, 20 * 5, Access::read);
        int out = k->buffer(DType::f32, n, Access::write), parts = k->buffer(DType::f32, n, Access::write);
        SymInt at = c.indirect(k->load(index, i), below);
        SymInt part = c.indirect(k->load(index, i), below * 4);
        k->phase();
        k->store(out, i, k->load(table, at * 5 + 1));
        k->store(parts, i, k->load(table, floordiv(part, 4) * 5 + mod(part, 4)));
        k->fill = [=](int b, int64_t e) -> double {
          if (b == index) return static_cast<double>(bad && e == n - 1 ? std::min<int64_t>(rows, 20) : e % 7);
          return static_cast<double>(e) / 4;
        };
        k->fails = bad;
        cases.push_back(k);
      }
  run_cases(cases);
}

TEST(Emit, MaskedGathersDoNotLook) {
  Cases cases;
  for (int64_t n : {1, 5, 16, 40}) {
    auto k = make(fmt::format("masked gather {}", n));
    Context& c = k->c();
    SymInt i = c.var(0);
    k->kernel.outer = {n};
    int index = k->buffer(DType::i64, n, Access::read), table = k->buffer(DType::f32, 3, Access::read);
    int out = k->buffer(DType::f32, n, Access::write);
    Expr x = k->load(index, i);
    Expr ok = binary(Op::less, x, c.constant_int(DType::i64, 3));
    k->phase();
    k->store(out, i, k->load(table, c.indirect(x, 3, false), ok));
    k->fill = [=](int b, int64_t e) -> double { return b == index ? static_cast<double>(e % 5) : 1.5; };
    cases.push_back(k);
  }
  run_cases(cases);
}

TEST(Emit, RowReductions) {
  Cases cases;
  const ReduceOp ops[] = {ReduceOp::sum,    ReduceOp::prod,   ReduceOp::max,         ReduceOp::min,
                          ReduceOp::argmax, ReduceOp::argmin, ReduceOp::argmax_last, ReduceOp::argmin_last};
  for (DType t :
       {DType::i8, DType::u8, DType::i32, DType::i64, DType::u64, DType::f32, DType::f64, DType::f16})
    for (int64_t n : {1, 3, 16, 37, 150})
      for (bool turned : {false, true}) {
        auto k = make(fmt::format("reduce {} {}{}", name_of(t), n, turned ? " columns" : ""));
        SymInt i = k->c().var(0), r = k->c().rvar(0);
        SymInt rows = k->symbol("rows", 19), size = n == 16 ? SymInt(16) : k->symbol("n", n);
        k->kernel.outer = {rows};
        int x = k->buffer(t, rows * size, Access::read);
        Expr v = k->load(x, turned ? r * rows + i : i * size + r);
        if (is_float(t)) v = mul(v, k->c().constant(v->dtype, 0.25));
        k->phase({size});
        std::vector<Expr> results;
        for (ReduceOp op : ops) results.push_back(k->reduce(op, v));
        k->phase();
        for (Expr e : results) {
          DType out = e->dtype == DType::i64 ? DType::i64 : t;
          int y = k->buffer(out, rows, Access::write);
          k->store(y, i, e);
        }
        k->relative = t == DType::f16 ? 2e-3 : 2e-5;
        k->absolute = t == DType::f16 ? 4e-3 : 2e-5;
        cases.push_back(k);
      }
  for (int64_t n : {0, 1, 16, 21, 200})
    for (bool turned : {false, true}) {
      auto k = make(fmt::format("any, all {}", n));
      SymInt i = k->c().var(0), r = k->c().rvar(0), size = k->symbol("n", n);
      k->kernel.outer = {9};
      int x = k->buffer(DType::boolean, size * 9, Access::read);
      Expr v = k->load(x, turned ? r * 9 + i : i * size + r);
      k->phase({size});
      Expr any = k->reduce(ReduceOp::any, v), all = k->reduce(ReduceOp::all, v);
      Expr sum = k->reduce(ReduceOp::sum, k->c().cast(v, DType::f32));
      k->phase();
      for (Expr e : {any, all, sum}) k->store(k->buffer(e->dtype, 9, Access::write), i, e);
      k->fill = [](int, int64_t e) -> double { return e % 23 != 7; };
      cases.push_back(k);
    }
  run_cases(cases);
}

// Bodies of which several vectors run side by side, with every kind of rest.
TEST(Emit, LongChains) {
  Cases cases;
  for (int64_t n : {1, 15, 16, 33, 64, 80, 131, 1040, 1099, 2064, 4112})
    for (bool symbolic : {false, true})
      for (bool rows : {false, true}) {
        auto k = make(fmt::format("long chain {} {} {}", n, symbolic ? "symbolic" : "", rows ? "rows" : ""));
        Context& c = k->c();
        SymInt size = symbolic ? k->symbol("n", n) : SymInt(n), i = c.var(0), j = rows ? c.rvar(0) : c.var(1);
        k->kernel.outer = {3};
        if (!rows) k->kernel.outer.push_back(size);
        int x = k->buffer(DType::f32, size * 3, Access::read), y = k->buffer(DType::f32, size, Access::read);
        int out = k->buffer(DType::f32, size * 3, Access::write);
        k->phase(rows ? SymInts{size} : SymInts{});
        Expr a = k->load(x, i * size + j), b = k->load(y, j);
        Expr e = mul(unary(Op::sigmoid, a), unary(Op::tanh, sub(a, b)));
        e = div(unary(Op::exp, e), add(unary(Op::abs, b), c.constant(DType::f32, 1)));
        k->store(out, i * size + j, e);
        if (rows) {
          Expr sum = k->reduce(ReduceOp::sum, e), most = k->reduce(ReduceOp::max, e);
          k->phase();
          k->store(k->buffer(DType::f32, 3, Access::write), i, add(sum, most));
        }
        k->relative = 1e-5, k->absolute = 1e-6;
        cases.push_back(k);
      }
  run_cases(cases);
}

TEST(Emit, SeveralInnerLoops) {
  Cases cases;
  for (int64_t a : {0, 1, 3, 70})
    for (int64_t b : {1, 5, 33}) {
      auto k = make(fmt::format("inner {}x{}", a, b));
      SymInt i = k->c().var(0), r = k->c().rvar(0), s = k->c().rvar(1), size = k->symbol("a", a);
      k->kernel.outer = {6};
      int x = k->buffer(DType::f32, size * (6 * b), Access::read);
      Expr v = k->load(x, r * (6 * b) + i * b + s);
      k->phase({size, b});
      Expr sum = k->reduce(ReduceOp::sum, v), best = k->reduce(ReduceOp::argmax, v);
      k->phase();
      k->store(k->buffer(DType::f32, 6, Access::write), i, sum);
      k->store(k->buffer(DType::i64, 6, Access::write), i, best);
      k->fill = [](int, int64_t e) { return static_cast<double>(e * 37 % 101) / 8; };
      k->relative = 1e-5;
      cases.push_back(k);
    }
  run_cases(cases);
}

/// Softmax of rows, then a mean and variance over the result: row-local values, several phases, lets.
TEST(Emit, RowResidentChains) {
  Cases cases;
  for (int64_t n : {0, 1, 4, 16, 31, 100})
    for (bool fixed : {false, true})
      for (bool columns : {false, true}) {
        auto k = make(fmt::format("softmax {}{}{}", n, fixed ? " fixed" : "", columns ? " columns" : ""));
        Context& c = k->c();
        SymInt i = c.var(0), r = c.rvar(0), size = fixed ? SymInt(n) : k->symbol("n", n),
               rows = k->symbol("rows", 21);
        k->kernel.outer = {rows};
        int x = k->buffer(DType::f32, rows * size, Access::read),
            scale = k->buffer(DType::f32, size, Access::read);
        int row = k->buffer(DType::f32, size, Access::row_local),
            out = k->buffer(DType::f16, rows * size, Access::write);
        SymInt at = columns ? r * rows + i : i * size + r;
        k->phase({size});
        Expr most = k->reduce(ReduceOp::max, k->load(x, at));
        k->phase({size});
        Expr e = unary(Op::exp, sub(k->load(x, at), most));
        k->store(row, r, e);
        Expr sum = k->reduce(ReduceOp::sum, e), squares = k->reduce(ReduceOp::sum, mul(e, e));
        k->phase();
        Expr inverse = k->let(div(c.constant(DType::f32, 1), sum));
        Expr deviation = k->let(unary(Op::rsqrt, add(mul(squares, inverse), c.constant(DType::f32, 1e-5))));
        k->phase({size});
        Expr shifted = k->let(sub(k->load(row, r), inverse));
        k->store(out, at, mul(mul(shifted, deviation), k->load(scale, r)));
        k->fill = [](int, int64_t j) { return static_cast<double>(j * 31 % 17) / 5 - 1; };
        k->relative = 2e-3;
        k->absolute = 1e-5;
        cases.push_back(k);
      }
  run_cases(cases);
}

TEST(Emit, LongSumsStayAccurate) {
  Cases cases;
  for (bool columns : {false, true}) {
    auto k = make(fmt::format("long sum{}", columns ? " columns" : ""));
    SymInt i = k->c().var(0), r = k->c().rvar(0), n = k->symbol("n", 300000);
    k->kernel.outer = {columns ? 17 : 2};
    int x = k->buffer(DType::f32, n * k->kernel.outer[0], Access::read);
    k->phase({n});
    Expr sum = k->reduce(ReduceOp::sum, k->load(x, columns ? r * 17 + i : i * n + r));
    k->phase();
    k->store(k->buffer(DType::f32, k->kernel.outer[0], Access::write), i, sum);
    k->fill = [](int, int64_t) { return 0.1; };
    k->relative = 5e-6;
    cases.push_back(k);
  }
  run_cases(cases);
}

TEST(Emit, Scans) {
  Cases cases;
  for (int64_t n : {0, 1, 17, 40})
    for (bool columns : {false, true})
      for (bool exclusive : {false, true}) {
        auto k =
            make(fmt::format("scan {}{}{}", n, columns ? " columns" : "", exclusive ? " exclusive" : ""));
        SymInt i = k->c().var(0), r = k->c().rvar(0);
        k->kernel.outer = {18};
        int x = k->buffer(DType::f32, 18 * n, Access::read), y = k->buffer(DType::i32, 18 * n, Access::read);
        int a = k->buffer(DType::f32, 18 * n, Access::write),
            b = k->buffer(DType::i32, 18 * n, Access::write);
        int reversed = k->buffer(DType::i32, 18 * n, Access::write);
        SymInt at = columns ? r * 18 + i : i * n + r;
        k->phase({n});
        k->scan(ReduceOp::sum, a, at, k->load(x, at), exclusive);
        k->scan(ReduceOp::max, b, at, k->load(y, at), exclusive);
        SymInt back = columns ? (SymInt(n - 1) - r) * 18 + i : i * n + (SymInt(n - 1) - r);
        k->scan(ReduceOp::prod, reversed, back, k->load(y, back), exclusive);
        k->fill = [](int, int64_t e) { return static_cast<double>(e * 29 % 13) - 6; };
        k->relative = 1e-6;
        cases.push_back(k);
      }
  run_cases(cases);
}

TEST(Emit, Scatters) {
  Cases cases;
  for (StoreMode mode : {StoreMode::set, StoreMode::add, StoreMode::mul, StoreMode::max, StoreMode::min})
    for (DType t : {DType::f32, DType::i32, DType::f16, DType::u8}) {
      auto k = make(fmt::format("scatter {} {}", static_cast<int>(mode), name_of(t)));
      Context& c = k->c();
      SymInt i = c.var(0), j = c.var(1);
      k->kernel.outer = {11, 19};
      k->kernel.sequential = true;
      int index = k->buffer(DType::i64, 11 * 19, Access::read), update = k->buffer(t, 11 * 19, Access::read);
      int out = k->buffer(t, 8 * 19, Access::read_write);
      SymInt at = c.indirect(k->load(index, i * 19 + j), 8);
      k->phase();
      Expr mask = binary(Op::not_equal, c.index(j), c.constant_int(DType::i64, 3));
      k->store(out, at * 19 + (mode == StoreMode::set ? j : SymInt(0)), k->load(update, i * 19 + j), mask,
               mode);
      k->fill = [=](int b, int64_t e) -> double {
        return b == index ? static_cast<double>(e * 7 % 16 - 8) : static_cast<double>(e % 5);
      };
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(Emit, InPlace) {
  Cases cases;
  for (int64_t n : kSizes) {
    auto k = make(fmt::format("in place {}", n));
    SymInt i = k->c().var(0);
    k->kernel.outer = {n};
    int x = k->buffer(DType::f32, n, Access::read_write);
    k->phase();
    k->store(x, i, mul(k->load(x, i), k->c().constant(DType::f32, 2)));
    cases.push_back(k);
  }
  run_cases(cases);
}

} // namespace
} // namespace tbx::test
