// The evaluator on bodies and nests of every kind. One file: all cases are built and checked by one fixture.
#include "ir/evaluate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "ir/lane_ops.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kStorage[] = {DType::boolean,  DType::i8,     DType::u8,    DType::i16, DType::u16,
                              DType::i32,      DType::u32,    DType::i64,   DType::u64, DType::f32,
                              DType::f64,      DType::f16,    DType::bf16,  DType::i4,  DType::u4,
                              DType::f8e4m3fn, DType::f8e5m2, DType::f4e2m1};
constexpr DType kCompute[] = {DType::boolean, DType::i8,  DType::u8,  DType::i16, DType::u16, DType::i32,
                              DType::u32,     DType::i64, DType::u64, DType::f32, DType::f64};

bool is_real(DType t) { return t == DType::f32 || t == DType::f64; }

struct EvaluateTest : testing::Test {
  Context c;
  std::map<BufferId, Tensor> tensors;
  std::vector<int64_t> symbols;
  std::mt19937 random{1};
  SymInt i0 = c.var(0), i1 = c.var(1), r0 = c.rvar(0), r1 = c.rvar(1);

  int pick(int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); }

  template <class T> BufferId tensor(DType dtype, std::vector<int64_t> dims, std::vector<T> values) {
    Tensor t = Tensor::make(dtype, std::move(dims));
    EXPECT_EQ(t.numel(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) t.as_mutable<T>()[i] = values[i];
    return keep(std::move(t));
  }
  BufferId keep(Tensor t) {
    auto id = static_cast<BufferId>(tensors.size());
    tensors.emplace(id, std::move(t));
    return id;
  }

  Scalar some_value(DType type) {
    if (is_real(type)) {
      constexpr double kSpecial[] = {0.0, -0.0, 1, -1, kInf, -kInf, kNaN, 1e-40, 1e30, 0.5};
      double v = pick(3) ? std::normal_distribution<>(0, 3)(random) : kSpecial[pick(10)];
      return apply_cast(DType::f64, type, {0, v});
    }
    constexpr int64_t kSpecial[] = {0, 1, -1, 2, 7, std::numeric_limits<int64_t>::min(), 63, 64};
    return {wrap_integer(type, pick(2) ? kSpecial[pick(8)]
                                       : static_cast<int64_t>(random() * uint64_t{0x9E3779B97F4A7C15})),
            0};
  }
  BufferId random_tensor(DType dtype, std::vector<int64_t> dims) {
    Tensor t = Tensor::make(dtype, std::move(dims));
    for (int64_t i = 0; i < t.numel(); ++i)
      store_element(dtype, t.mutable_data(), i, some_value(compute_type(dtype)));
    return keep(std::move(t));
  }

  Tensor run(const Loops& loops) {
    return evaluate_loops(
        loops, [&](BufferId b) -> const Tensor& { return tensors.at(b); }, symbols);
  }
  Tensor pointwise(DType dtype, SymInts ranges, Expr body) {
    Loops l;
    l.ranges = std::move(ranges);
    l.dtype = dtype;
    l.body = body;
    return run(l);
  }
  Tensor reduction(ReduceOp op, DType dtype, SymInts ranges, SymInts reduced, Expr body) {
    Loops l;
    l.kind = LoopKind::reduction;
    l.ranges = std::move(ranges);
    l.reduction_ranges = std::move(reduced);
    l.reduce = op;
    l.dtype = dtype;
    l.body = body;
    return run(l);
  }
  Tensor scan(ReduceOp op, DType dtype, SymInts ranges, int axis, bool exclusive, bool reverse, Expr body) {
    Loops l;
    l.kind = LoopKind::scan;
    l.ranges = std::move(ranges);
    l.scan_axis = axis;
    l.exclusive = exclusive;
    l.reverse = reverse;
    l.reduce = op;
    l.dtype = dtype;
    l.body = body;
    return run(l);
  }

  /// One point, node by node: the plain meaning of a body.
  Scalar meaning(Expr root, std::vector<int64_t> vars, std::vector<int64_t> rvars = {}) {
    std::map<Expr, Scalar> value;
    auto index = [&](SymInt e) {
      return evaluate(e, symbols, vars, rvars, [&](const SymNode& n) { return value.at(n.value).i; }).value();
    };
    visit(root, [&](Expr e) {
      auto arg = [&](int i) { return value.at(e->args[i]); };
      DType from = e->num_args ? e->args[0]->dtype : DType::undefined;
      Scalar& out = value[e];
      switch (e->op) {
      case Op::constant: out = is_real(e->dtype) ? Scalar{0, e->as_double()} : Scalar{e->as_int(), 0}; break;
      case Op::index: out = {index(e->indices[0]), 0}; break;
      case Op::load: {
        if (e->mask() && !arg(0).i) break;
        const Tensor& t = tensors.at(e->buffer);
        int64_t at = 0;
        for (size_t k = 0; k < t.dims.size(); ++k) at = at * t.dims[k] + index(e->indices[k]);
        out = load_element(t.dtype, t.data, at);
        break;
      }
      case Op::where: out = arg(0).i ? arg(1) : arg(2); break;
      case Op::cast: out = apply_cast(from, e->dtype, arg(0)); break;
      case Op::bitcast: out = apply_bitcast(from, e->dtype, arg(0)); break;
      case Op::round_to: out = apply_round(e->format, e->bits != 0, arg(0)); break;
      default:
        out = e->num_args == 1 ? apply_unary(e->op, from, arg(0)) : apply_binary(e->op, from, arg(0), arg(1));
      }
    });
    return value.at(root);
  }

  void expect_element(Scalar want, const Tensor& got, int64_t i, const std::string& what) {
    Tensor one = Tensor::make(got.dtype, {1});
    store_element(got.dtype, one.mutable_data(), 0, want);
    Scalar a = load_element(got.dtype, one.data, 0), b = load_element(got.dtype, got.data, i);
    if (std::isnan(a.f)) {
      EXPECT_TRUE(std::isnan(b.f)) << what << " element " << i << " is " << b.f;
    } else {
      EXPECT_EQ(a.i, b.i) << what << " element " << i;
      EXPECT_EQ(std::bit_cast<uint64_t>(a.f), std::bit_cast<uint64_t>(b.f))
          << what << " element " << i << " " << a.f;
    }
  }
  void expect_pointwise(DType dtype, SymInts ranges, Expr body, const std::string& what) {
    Tensor got = pointwise(dtype, ranges, body);
    std::vector<int64_t> at(got.dims.size(), 0);
    for (int64_t i = 0; i < got.numel() && !HasFailure(); ++i) {
      expect_element(meaning(body, at), got, i, what);
      for (size_t k = at.size(); k-- > 0;) {
        if (++at[k] < got.dims[k]) break;
        at[k] = 0;
      }
    }
  }
};

TEST_F(EvaluateTest, EveryStorageTypeIsReadAndWritten) {
  for (DType t : kStorage) {
    BufferId b = random_tensor(t, {3, 301});
    Tensor got = pointwise(t, {3, 301}, c.load(b, compute_type(t), {i0, i1}));
    for (int64_t i = 0; i < got.numel(); ++i)
      expect_element(load_element(t, tensors.at(b).data, i), got, i, std::string(name_of(t)));
  }
}

TEST_F(EvaluateTest, ConversionsBetweenAllTypes) {
  for (DType from : kCompute)
    for (DType to : kCompute) {
      BufferId b = random_tensor(from, {70});
      expect_pointwise(to, {70}, c.cast(c.load(b, from, {i0}), to),
                       std::string(name_of(from)) + " to " + std::string(name_of(to)));
    }
}

TEST_F(EvaluateTest, CastsAreTotal) {
  BufferId b = tensor<float>(DType::f32, {6}, {-INFINITY, INFINITY, NAN, 300.7f, -300.7f, 3e9f});
  auto as = [&](DType t) { return to_ints(pointwise(t, {6}, c.cast(c.load(b, DType::f32, {i0}), t))); };
  EXPECT_EQ((std::vector<int64_t>{-128, 127, 0, 127, -128, 127}), as(DType::i8));
  EXPECT_EQ((std::vector<int64_t>{0, 255, 0, 255, 0, 255}), as(DType::u8));
  EXPECT_EQ((std::vector<int64_t>{-2147483648, 2147483647, 0, 300, -300, 2147483647}), as(DType::i32));
  EXPECT_EQ((std::vector<int64_t>{0, 4294967295, 0, 300, 0, 3000000000}), as(DType::u32));
  EXPECT_EQ((std::vector<int64_t>{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 0,
                                  300, -300, 3000000000}),
            as(DType::i64));
}

TEST_F(EvaluateTest, UnaryOperatorsAgainstTheStandardLibrary) {
  std::map<Op, double (*)(double)> table = {
      {Op::neg, [](double x) { return -x; }},
      {Op::abs, [](double x) { return std::fabs(x); }},
      {Op::sign, [](double x) { return x > 0   ? 1.0
                                       : x < 0 ? -1.0
                                               : x; }},
      {Op::ceil, [](double x) { return std::ceil(x); }},
      {Op::floor, [](double x) { return std::floor(x); }},
      {Op::round_even, [](double x) { return std::nearbyint(x); }},
      {Op::trunc, [](double x) { return std::trunc(x); }},
      {Op::sqrt, [](double x) { return std::sqrt(x); }},
      {Op::rsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {Op::reciprocal, [](double x) { return 1 / x; }},
      {Op::exp, [](double x) { return std::exp(x); }},
      {Op::expm1, [](double x) { return std::expm1(x); }},
      {Op::log, [](double x) { return std::log(x); }},
      {Op::log1p, [](double x) { return std::log1p(x); }},
      {Op::sin, [](double x) { return std::sin(x); }},
      {Op::cos, [](double x) { return std::cos(x); }},
      {Op::tan, [](double x) { return std::tan(x); }},
      {Op::asin, [](double x) { return std::asin(x); }},
      {Op::acos, [](double x) { return std::acos(x); }},
      {Op::atan, [](double x) { return std::atan(x); }},
      {Op::sinh, [](double x) { return std::sinh(x); }},
      {Op::cosh, [](double x) { return std::cosh(x); }},
      {Op::tanh, [](double x) { return std::tanh(x); }},
      {Op::asinh, [](double x) { return std::asinh(x); }},
      {Op::acosh, [](double x) { return std::acosh(x); }},
      {Op::atanh, [](double x) { return std::atanh(x); }},
      {Op::erf, [](double x) { return std::erf(x); }},
      {Op::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {Op::softplus, [](double x) { return x > 700 ? x : std::log1p(std::exp(x)); }},
  };
  std::vector<double> values = {0.0, -0.0, 1,  -1,  0.5,  -0.5, 1.5,   2.5, -2.5,
                                3.7, -3.7, 80, -80, 1e-6, kInf, -kInf, kNaN};
  for (int i = 0; i < 300; ++i) values.push_back(std::normal_distribution<>(0, 2)(random));
  auto n = static_cast<int64_t>(values.size());
  BufferId f64 = tensor<double>(DType::f64, {n}, values);
  BufferId f32 = tensor<float>(DType::f32, {n}, std::vector<float>(values.begin(), values.end()));
  for (DType t : {DType::f32, DType::f64})
    for (auto& [op, reference] : table) {
      BufferId b = t == DType::f32 ? f32 : f64;
      Tensor got = pointwise(t, {n}, unary(op, c.load(b, t, {i0})));
      double tolerance = t == DType::f32 ? 4e-7 : 4e-15;
      for (int64_t i = 0; i < n; ++i) {
        double want = reference(element_as_double(tensors.at(b), i)), have = element_as_double(got, i);
        if (t == DType::f32) want = static_cast<double>(static_cast<float>(want));
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(have)) << name_of(op) << "(" << values[i] << ") = " << have;
        } else if (want != have) {
          EXPECT_LE(std::fabs(want - have), tolerance * std::max(std::fabs(want), 1e-30))
              << name_of(op) << "(" << values[i] << ")";
        }
      }
    }
}

TEST_F(EvaluateTest, EveryOperatorOfEveryTypeMeansWhatItsScalarFormMeans) {
  auto applies = [](Op op, DType t) {
    if (op == Op::random || op == Op::cast || op == Op::round_to || op == Op::bitcast) return false;
    if (is_comparison(op)) return true;
    bool logical =
        op == Op::logical_not || op == Op::logical_and || op == Op::logical_or || op == Op::logical_xor;
    if (t == DType::boolean) return logical;
    bool bits =
        op == Op::bitwise_not || op == Op::popcount || (op >= Op::bitwise_and && op <= Op::shift_right);
    if (logical) return false;
    if (is_real(t)) return !bits;
    if (bits) return true;
    return op == Op::neg || op == Op::abs || op == Op::sign || (op >= Op::add && op <= Op::max) ||
           op == Op::is_nan;
  };
  for (DType t : kCompute) {
    BufferId a = random_tensor(t, {600}), b = random_tensor(t, {600});
    Expr x = c.load(a, t, {i0}), y = c.load(b, t, {i0});
    for (int o = static_cast<int>(Op::neg); o <= static_cast<int>(Op::random); ++o) {
      Op op = static_cast<Op>(o);
      if (!applies(op, t)) continue;
      Expr e = is_unary(op) ? unary(op, x) : binary(op, x, y);
      expect_pointwise(e->dtype, {600}, e, std::string(name_of(op)) + " of " + std::string(name_of(t)));
    }
    Expr less = binary(Op::less, x, y);
    expect_pointwise(t, {600}, where(less, x, y), "where of " + std::string(name_of(t)));
  }
}

TEST_F(EvaluateTest, IntegerCorners) {
  BufferId b = tensor<int32_t>(DType::i32, {4}, {7, -7, INT32_MIN, 0});
  Expr x = c.load(b, DType::i32, {i0});
  auto with = [&](Op op, int64_t v) {
    return to_ints(pointwise(DType::i32, {4}, binary(op, x, c.constant_int(DType::i32, v))));
  };
  EXPECT_EQ((std::vector<int64_t>{3, -3, -1073741824, 0}), with(Op::div, 2));
  EXPECT_EQ((std::vector<int64_t>{0, 0, 0, 0}), with(Op::div, 0));
  EXPECT_EQ((std::vector<int64_t>{-7, 7, INT32_MIN, 0}), with(Op::div, -1));
  EXPECT_EQ((std::vector<int64_t>{1, 2, 1, 0}), with(Op::floor_mod, 3));
  EXPECT_EQ((std::vector<int64_t>{1, -1, -2, 0}), with(Op::fmod, 3));
  EXPECT_EQ((std::vector<int64_t>{0, 0, 0, 0}), with(Op::shift_left, 32));
  EXPECT_EQ((std::vector<int64_t>{3, -4, -1073741824, 0}), with(Op::shift_right, 1));
  EXPECT_EQ((std::vector<int64_t>{6, -8, INT32_MAX, -1}), with(Op::sub, 1));
}

TEST_F(EvaluateTest, RoundToAndBitcast) {
  BufferId b = random_tensor(DType::f32, {300});
  Expr x = c.load(b, DType::f32, {i0});
  for (DType t : {DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2fnuz})
    expect_pointwise(DType::f32, {300}, c.round_to(x, t), "round");
  expect_pointwise(DType::u32, {300}, c.bitcast(x, DType::u32), "bitcast");
  expect_pointwise(DType::f32, {300},
                   c.bitcast(add(c.bitcast(x, DType::i32), c.constant_int(DType::i32, 1)), DType::f32),
                   "bitcast");
}

TEST_F(EvaluateTest, UniformRandomNumbers) {
  Expr e = binary(Op::random, c.constant_int(DType::i64, 42), c.index(i0));
  Tensor t = pointwise(DType::f32, {100000}, e);
  double mean = 0;
  for (float v : t.as<float>()) {
    ASSERT_GE(v, 0.0f);
    ASSERT_LT(v, 1.0f);
    mean += v / 1e5;
  }
  EXPECT_NEAR(0.5, mean, 0.005);
  EXPECT_EQ(t.as<float>()[7], philox_uniform(42, 7));
}

TEST_F(EvaluateTest, IndicesThatAreNotAffine) {
  SymInt n = c.symbol("n"), m = c.symbol("m");
  symbols = {5, 7};
  BufferId b = random_tensor(DType::f32, {5, 7, 3});
  SymInts at = {floordiv(i1, m), mod(i1, m), min(max(i0 - SymInt(1), 0), 2)};
  expect_pointwise(DType::f32, {4, 35}, c.load(b, DType::f32, at), "merged");
  at = {mod(floordiv(i0 * SymInt(35) + i1, 21), n), mod(floordiv(i0 * SymInt(35) + i1, 3), m),
        mod(i0 * SymInt(35) + i1, 3)};
  expect_pointwise(DType::f32, {3, 35}, c.load(b, DType::f32, at), "flat");
  expect_pointwise(DType::i64, {9, 300},
                   c.index(floordiv(i1 - SymInt(150), 7) * i0 + mod(SymInt(-3) * i1, 11) * i1), "value");
}

TEST_F(EvaluateTest, IndirectIndicesAreCheckedAndWrap) {
  BufferId data = random_tensor(DType::f32, {4, 3});
  BufferId at = tensor<int64_t>(DType::i64, {5}, {0, 3, -1, -4, 2});
  SymInt row = c.indirect(c.load(at, DType::i64, {i0}), 4);
  Expr e = c.load(data, DType::f32, {row, i1});
  Tensor got = pointwise(DType::f32, {5, 3}, e);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 3; ++j) {
      int64_t from = tensors.at(at).as<int64_t>()[i];
      expect_element(load_element(DType::f32, tensors.at(data).data, (from + 4) % 4 * 3 + j), got, i * 3 + j,
                     "gather");
    }
  for (int64_t bad : {int64_t{4}, int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    tensors.at(at).as_mutable<int64_t>()[4] = bad;
    try {
      pointwise(DType::f32, {5, 3}, e);
      ADD_FAILURE() << "no error for " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(ErrorKind::model, error.kind()) << error.what();
      EXPECT_NE(std::string::npos, error.message().find("axis of size 4")) << error.what();
    }
  }
  // Where the mask is false nothing is read, whatever the index says.
  Expr masked = mask_loads(e, binary(Op::less, c.index(i0), c.constant_int(DType::i64, 4)));
  Tensor most = pointwise(DType::f32, {5, 3}, masked);
  EXPECT_EQ(0.0f, most.as<float>()[12]);
  expect_element(load_element(DType::f32, tensors.at(data).data, 0), most, 0, "masked");
}

TEST_F(EvaluateTest, NestedIndirectIndices) {
  BufferId data = random_tensor(DType::i32, {6}), outer = tensor<int64_t>(DType::i64, {3}, {2, 0, 1}),
           inner = tensor<int64_t>(DType::i64, {300}, std::vector<int64_t>(300, 1));
  SymInt a = c.indirect(c.load(inner, DType::i64, {i0}), 3);
  SymInt b = c.indirect(c.load(outer, DType::i64, {a}), 3);
  Tensor got = pointwise(DType::i32, {300}, c.load(data, DType::i32, {b * SymInt(2) + SymInt(1)}));
  for (int i = 0; i < 300; ++i) EXPECT_EQ(tensors.at(data).as<int32_t>()[1], got.as<int32_t>()[i]);
}

TEST_F(EvaluateTest, EmptyAndScalarNests) {
  EXPECT_EQ(0, pointwise(DType::f32, {3, 0}, c.constant(DType::f32, 1)).numel());
  EXPECT_EQ(2.5f, pointwise(DType::f32, {}, c.constant(DType::f32, 2.5)).as<float>()[0]);
  BufferId b = random_tensor(DType::f32, {3, 0});
  Expr body = c.load(b, DType::f32, {i0, r0});
  EXPECT_EQ(0.0f, reduction(ReduceOp::sum, DType::f32, {3}, {0}, body).as<float>()[2]);
  EXPECT_EQ(1.0f, reduction(ReduceOp::prod, DType::f32, {3}, {0}, body).as<float>()[2]);
  EXPECT_EQ(-kInf, reduction(ReduceOp::max, DType::f32, {3}, {0}, body).as<float>()[2]);
}

TEST_F(EvaluateTest, ReductionsOfEveryTypeAndShape) {
  struct Shape {
    int64_t rows, a, b;
  };
  // Lanes run over the rows in some, over the innermost reduced dimension in others.
  for (Shape shape : {Shape{1, 1, 700}, {3, 2, 300}, {600, 3, 5}, {40, 7, 1}, {1, 1, 1}, {257, 1, 3}})
    for (DType t : kCompute)
      for (ReduceOp op :
           {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::any, ReduceOp::all,
            ReduceOp::argmax, ReduceOp::argmin, ReduceOp::argmax_last, ReduceOp::argmin_last}) {
        bool logical = op == ReduceOp::any || op == ReduceOp::all, arg = op >= ReduceOp::argmax;
        if (logical != (t == DType::boolean)) continue;
        BufferId b = random_tensor(t, {shape.rows, shape.a, shape.b});
        DType result = arg ? DType::i64 : t;
        Tensor got = reduction(op, result, {shape.rows}, {shape.a, shape.b}, c.load(b, t, {i0, r0, r1}));
        std::string what = std::string(name_of(op)) + " of " + std::string(name_of(t));
        for (int64_t row = 0; row < shape.rows && !HasFailure(); ++row) {
          int64_t n = shape.a * shape.b, best = 0;
          auto element = [&](int64_t i) { return load_element(t, tensors.at(b).data, row * n + i); };
          Scalar want = element(0);
          for (int64_t i = 1; i < n; ++i) {
            Scalar x = element(i), top = element(best);
            bool last = op == ReduceOp::argmax_last || op == ReduceOp::argmin_last;
            bool up = op == ReduceOp::argmax || op == ReduceOp::argmax_last;
            switch (op) {
            case ReduceOp::sum:
              want = apply_binary(Op::add, t == DType::f32 ? DType::f64 : t, want, x);
              break;
            case ReduceOp::prod: want = apply_binary(Op::mul, t, want, x); break;
            case ReduceOp::max: want = apply_binary(Op::max, t, want, x); break;
            case ReduceOp::min: want = apply_binary(Op::min, t, want, x); break;
            case ReduceOp::any: want.i |= x.i; break;
            case ReduceOp::all: want.i &= x.i; break;
            default:
              if (std::isnan(x.f) || std::isnan(top.f)) {
                if (std::isnan(x.f) && (!std::isnan(top.f) || last)) best = i;
              } else if (apply_binary(up ? Op::greater : Op::less, t, x, top).i ||
                         (last && apply_binary(Op::equal, t, x, top).i)) {
                best = i;
              }
            }
          }
          if (arg) {
            EXPECT_EQ(best, got.as<int64_t>()[row]) << what;
          } else if (is_real(t) && !std::isnan(want.f) && !std::isinf(want.f) && op == ReduceOp::sum) {
            EXPECT_NEAR(want.f, element_as_double(got, row), 1e-6 * std::fabs(want.f) + 1e-6) << what;
          } else if ((op == ReduceOp::max || op == ReduceOp::min) && want.f == 0) {
            EXPECT_EQ(want.i, load_element(t, got.data, row).i) << what; // of zeros either sign will do
          } else {
            expect_element(apply_cast(op == ReduceOp::sum && t == DType::f32 ? DType::f64 : t, t, want), got,
                           row, what);
          }
        }
      }
}

TEST_F(EvaluateTest, LongSumsStayAccurate) {
  constexpr int64_t kN = 1000000;
  BufferId b = tensor<float>(DType::f32, {kN}, std::vector<float>(kN, 0.1f));
  Tensor row = reduction(ReduceOp::sum, DType::f32, {}, {kN}, c.load(b, DType::f32, {r0}));
  EXPECT_EQ(static_cast<float>(kN * static_cast<double>(0.1f)), row.as<float>()[0]);
}

TEST_F(EvaluateTest, Scans) {
  for (auto [rows, columns] : {std::pair{3, 400}, {400, 3}, {1, 1}})
    for (int axis : {0, 1})
      for (bool exclusive : {false, true})
        for (bool reverse : {false, true}) {
          BufferId b = random_tensor(DType::i32, {rows, columns});
          Tensor got = scan(ReduceOp::sum, DType::i32, {rows, columns}, axis, exclusive, reverse,
                            c.load(b, DType::i32, {i0, i1}));
          const int32_t* x = tensors.at(b).as<int32_t>().data();
          int extent = axis == 0 ? rows : columns;
          for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) {
              uint32_t want = 0;
              for (int k = 0; k < extent; ++k) {
                int here = axis == 0 ? i : j;
                bool taken = reverse ? k > here : k < here;
                if (taken || (k == here && !exclusive))
                  want += static_cast<uint32_t>(axis == 0 ? x[k * columns + j] : x[i * columns + k]);
              }
              ASSERT_EQ(static_cast<int32_t>(want), got.as<int32_t>()[i * columns + j]);
            }
        }
  BufferId b = tensor<float>(DType::f32, {4}, {3, 1, 4, 2});
  Tensor top = scan(ReduceOp::max, DType::f32, {4}, 0, false, false, c.load(b, DType::f32, {i0}));
  EXPECT_EQ((std::vector<float>{3, 3, 4, 4}),
            std::vector<float>(top.as<float>().begin(), top.as<float>().end()));
}

TEST_F(EvaluateTest, RandomBodies) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    SymInts ranges = {1 + pick(5), 1 + pick(400)};
    int64_t rows = ranges[0].constant(), columns = ranges[1].constant();
    std::vector<Expr> values;
    for (DType t : {DType::f32, DType::i64, DType::u8, DType::boolean}) {
      BufferId b = random_tensor(t, {rows, columns});
      values.push_back(c.load(b, t, {i0, i1}));
      values.push_back(c.load(b, t, {rows - 1 - i0, mod(i1 * SymInt(3), columns)}));
      values.push_back(c.load(b, t,
                              {0, c.indirect(binary(Op::fmod, c.cast(values.back(), DType::i64),
                                                    c.constant_int(DType::i64, columns)),
                                             columns)}));
    }
    values.push_back(c.index(i0 + floordiv(i1, 3)));
    for (int step = 0; step < 25; ++step) {
      Expr a = values[pick(static_cast<int>(values.size()))],
           b = values[pick(static_cast<int>(values.size()))];
      b = c.cast(b, a->dtype);
      constexpr Op kOps[] = {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max};
      Expr e = a->dtype == DType::boolean ? binary(Op::logical_xor, a, b) : binary(kOps[pick(6)], a, b);
      if (pick(4) == 0) e = where(c.cast(b, DType::boolean), e, a);
      if (pick(8) == 0)
        e = mask_loads(e, binary(Op::less, c.index(i1), c.constant_int(DType::i64, columns / 2)));
      values.push_back(e);
    }
    expect_pointwise(values.back()->dtype, ranges, values.back(), to_string(values.back()));
    if (HasFailure()) return;
  }
}

TEST_F(EvaluateTest, AddressesOutsideTheBufferAreNeverTouched) {
  BufferId b = random_tensor(DType::f32, {4});
  try {
    pointwise(DType::f32, {8}, c.load(b, DType::f32, {i0}));
    ADD_FAILURE() << "read outside";
  } catch (const Error& e) {
    EXPECT_EQ(ErrorKind::internal, e.kind());
  }
}

} // namespace
} // namespace tbx::ir
