#include "ir/tensor_box.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tbx::ir {
namespace {

struct TensorBoxTest : testing::Test {
  Program p;
  TensorBoxTest() { p.context = std::make_shared<Context>(); }

  Context& c() { return *p.context; }
  SymInts vars(int rank) {
    SymInts v;
    for (int k = 0; k < rank; ++k) v.push_back(c().var(k));
    return v;
  }
  TensorBox input(SymInts sizes, DType dtype = DType::f32) {
    BufferId id = p.new_buffer("x", dtype, std::move(sizes));
    p.at(id).kind = BufferKind::input;
    return make_buffer_box(p, id);
  }
  TensorBox exp_of(const TensorBox& x) {
    return make_pointwise(p, x.dtype(), x.sizes(), unary(Op::exp, x.load(p, vars(x.rank()))));
  }
  template <class T> Tensor tensor(DType dtype, std::vector<int64_t> dims, std::vector<T> values) {
    Tensor t = Tensor::make(dtype, std::move(dims));
    std::copy(values.begin(), values.end(), t.as_mutable<T>().begin());
    return t;
  }
};

TEST_F(TensorBoxTest, PointwiseProducersAreInlined) {
  TensorBox x = input({4, 8}), y = permute(p, exp_of(x), std::vector<int>{1, 0});
  Expr e = y.load(p, vars(2));
  EXPECT_EQ(unary(Op::exp, c().load(0, DType::f32, {c().var(1), c().var(0)})), e);
  EXPECT_TRUE(p.operations.empty());
}

TEST_F(TensorBoxTest, RealizingHappensOnceAndKeepsOrigins) {
  TensorBox y = exp_of(input({4}));
  y.storage()->origins = {3, 5};
  y.storage()->name = "y";
  TensorBox view = unsqueeze(p, y, std::vector<int>{0});
  BufferId id = y.storage()->realize(p, "used twice");
  EXPECT_EQ(id, y.storage()->realize(p, "again"));
  ASSERT_EQ(1u, p.operations.size());
  EXPECT_EQ((std::vector<int>{3, 5}), p.operations[0].origins);
  EXPECT_EQ("used twice", p.operations[0].reason);
  EXPECT_EQ("y", p.at(id).name);
  // Views made before see the buffer.
  EXPECT_EQ(c().load(id, DType::f32, {c().var(1)}), view.load(p, vars(2)));
  verify(p);
}

TEST_F(TensorBoxTest, ReductionsAreRealizedBeforeTheyAreRead) {
  TensorBox x = input({4, 8});
  TensorBox sum = make_reduction(p, ReduceOp::sum, DType::f32, {4}, {8},
                                 x.load(p, std::vector<SymInt>{c().var(0), c().rvar(0)}));
  Expr e = sum.load(p, vars(1));
  EXPECT_EQ(Op::load, e->op);
  EXPECT_EQ(1u, p.operations.size());
  // Over single elements nothing is reduced.
  TensorBox one = make_reduction(p, ReduceOp::sum, DType::f32, {4}, {1},
                                 x.load(p, std::vector<SymInt>{c().var(0), c().rvar(0)}));
  EXPECT_EQ(c().load(0, DType::f32, {c().var(0), 0}), one.load(p, vars(1)));
  verify(p);
}

TEST_F(TensorBoxTest, UniformConstantsAreInlined) {
  TensorBox scalar = make_constant(p, tensor<float>(DType::f32, {}, {2.5f}));
  EXPECT_EQ(c().constant(DType::f32, 2.5), scalar.load(p, {}));
  TensorBox ones = make_constant(p, tensor<int8_t>(DType::i8, {3}, {7, 7, 7}));
  EXPECT_EQ(c().constant_int(DType::i8, 7), ones.load(p, vars(1)));
  TensorBox mixed = make_constant(p, tensor<float>(DType::f32, {2}, {0.0f, -0.0f}));
  EXPECT_EQ(Op::load, mixed.load(p, vars(1))->op);
}

TEST_F(TensorBoxTest, SymbolicValues) {
  SymInt n = c().symbol("n");
  TensorBox shape = make_symbolic(p, {n, 8});
  EXPECT_EQ((SymInts{n, 8}), *shape.known_values);
  EXPECT_EQ(c().index(n), shape.load(p, std::vector<SymInt>{0}));
  EXPECT_EQ(c().constant_int(DType::i64, 8), shape.load(p, std::vector<SymInt>{1}));
  EXPECT_EQ(c().index(n), make_symbolic(p, {n}, true).load(p, {}));
  TensorBox constant = make_symbolic(p, {3, -4}, false, DType::i32);
  ASSERT_NE(nullptr, constant.constant);
  EXPECT_EQ((std::vector<int64_t>{3, -4}), to_ints(*constant.constant));
  EXPECT_EQ(DType::i32, constant.dtype());
  EXPECT_EQ((SymInts{3, -4}), *constant.known_values);
  EXPECT_EQ(0, make_symbolic(p, {}).sizes()[0].constant());
}

TEST_F(TensorBoxTest, AffineViewsOfBuffersAreNotCopied) {
  SymInt n = c().symbol("n");
  TensorBox x = input({n, 8});
  TensorBox y = permute(p, slice(p, x, 1, 6, -2, 3), std::vector<int>{1, 0});
  StridedView v = realize_strided(p, y, "needed");
  EXPECT_EQ(0, v.buffer);
  EXPECT_EQ((SymInts{3, n}), v.sizes);
  EXPECT_EQ((SymInts{0, -2, 1, 0}), v.coefficients);
  EXPECT_EQ((SymInts{0, 6}), v.start);
  EXPECT_TRUE(p.operations.empty());
}

TEST_F(TensorBoxTest, RegroupedDimensionsOfABufferAreNotCopied) {
  SymInt b = c().symbol("b"), s = c().symbol("s");
  TensorBox x = input({b, s, 8});
  StridedView rows = realize_strided(p, reshape(p, x, {b * s, 8}), "needed");
  EXPECT_EQ((SymInts{0, 0, 8, 0, 0, 1}), rows.coefficients);
  EXPECT_TRUE(p.operations.empty());
  EXPECT_EQ(contiguous_strides(p.at(0).sizes), p.at(0).strides);
}

TEST_F(TensorBoxTest, OtherViewsAreCopied) {
  TensorBox x = input({3, 4}), y = reshape(p, permute(p, x, std::vector<int>{1, 0}), {12});
  StridedView v = realize_strided(p, y, "needed");
  EXPECT_NE(0, v.buffer);
  EXPECT_EQ((SymInts{1}), v.coefficients);
  ASSERT_EQ(1u, p.operations.size());
  EXPECT_EQ("needed", p.operations[0].reason);
  verify(p);
}

TEST_F(TensorBoxTest, OnlyTheViewOfANestIsComputed) {
  TensorBox y = slice(p, exp_of(input({100})), 0, 10, 1, 5);
  BufferId id = realize_strided(p, y, "needed").buffer;
  EXPECT_EQ((SymInts{5}), p.at(id).sizes);
  EXPECT_FALSE(y.storage()->is_realized());
  EXPECT_EQ((SymInts{5}), p.at(realize_whole(p, slice(p, input({9}), 0, 1, 1, 5), "whole")).sizes);
  verify(p);
}

TEST_F(TensorBoxTest, VerifyNamesWhatIsBroken) {
  auto fails = [&](const char* what) {
    try {
      verify(p);
      ADD_FAILURE() << what << " is not noticed";
    } catch (const Error& e) {
      EXPECT_EQ(ErrorKind::internal, e.kind());
      EXPECT_NE(std::string::npos, std::string(e.what()).find("pointwise")) << e.what();
    }
  };
  BufferId a = p.new_buffer("a", DType::f32, {4}), b = p.new_buffer("b", DType::f32, {4});
  auto compute = [&](BufferId out, Expr body, SymInts ranges = {4}) {
    Loops l;
    l.ranges = std::move(ranges);
    l.dtype = DType::f32;
    l.body = body;
    p.operations = {{Compute{l, out}, {}, ""}};
  };
  compute(b, c().load(a, DType::f32, {c().var(0)}));
  fails("a buffer that is read before it is written");
  p.at(a).kind = BufferKind::input;
  verify(p);
  compute(b, c().load(a, DType::f32, {c().var(1)}));
  fails("a variable of no loop");
  compute(b, c().load(a, DType::f32, {c().var(0), 0}));
  fails("an index of the wrong rank");
  compute(b, c().load(a, DType::f64, {c().var(0)}));
  fails("a load of another type");
  compute(b, c().load(a, DType::f32, {4}));
  fails("an index out of bounds");
  compute(b, c().constant(DType::f64, 1));
  fails("a body of another type");
  compute(b, c().constant(DType::f32, 1), {4, 4});
  fails("a nest of another rank");
}

TEST_F(TensorBoxTest, Prints) {
  SymInt n = c().symbol("n");
  TensorBox y = exp_of(input({n, 4}));
  BufferId id = y.storage()->realize(p, "output");
  p.outputs.push_back({"y", id});
  p.add_check(n - SymInt(2), false, "n is at least 2");
  EXPECT_EQ("b0: input float32[n, 4]  # x\n"
            "b1: float32[n, 4]\n"
            "b1 = pointwise [n, 4]: exp(load(b0, [i0, i1]))\n"
            "output y = b1\n"
            "check n - 2 >= 0: n is at least 2\n",
            to_string(p));
}

} // namespace
} // namespace tbx::ir
