// Gradient: every rule against differences along random directions, in double precision.
#include <gmock/gmock.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "../support/extern_runner.h"
#include "../support/onnx_text.h"
#include "graph_helper.h"

namespace tbx {
namespace {

using test::error_of;
using test::tensor;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs text with inputs in order.
std::vector<Tensor> run_text(const std::string& text, std::vector<Tensor> inputs) {
  Graph g = test::import_proto(test::parse_text(
      "<ir_version: 10, opset_import: [\"\": 18, \"ai.onnx.preview.training\": 1]>\n" + text));
  return lowering::run_program(lowering::lower_or_throw(g), std::move(inputs), test::run_extern);
}

struct Case {
  std::vector<int64_t> x, w; ///< sizes of the inputs
  std::string body;          ///< makes y, a number, or c, whose sines are summed
  /// Of the differences; larger where the body computes in single precision.
  double step = 1e-6, tolerance = 2e-7;
};

Tensor random_doubles(const std::vector<int64_t>& dims, std::mt19937& random) {
  Tensor t = Tensor::make(DType::f64, dims);
  std::uniform_real_distribution<double> size(0.1, 0.95);
  for (double& v : t.as_mutable<double>()) v = (random() % 2 ? 1 : -1) * size(random);
  return t;
}

std::string list(const std::vector<int64_t>& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

void expect_gradients(const Case& k) {
  SCOPED_TRACE(k.body);
  const bool whole = k.body.find("y = ") != std::string::npos;
  const std::string text = fmt::format(
      "g (double{0} x, double{1} w) => (double[] y, double{0} dx, double{1} dw) {{\n{2}{3}\n"
      "dx, dw = ai.onnx.preview.training.Gradient<xs=[\"x\", \"w\"], y=\"y\">(x, w) }}",
      list(k.x), list(k.w), k.body, whole ? "" : " sines = Sin(c) y = ReduceSum<keepdims=0>(sines)");
  std::mt19937 random(7);
  const Tensor inputs[] = {random_doubles(k.x, random), random_doubles(k.w, random)};
  auto moved = [&](int which, const Tensor& direction, double step) {
    std::vector<Tensor> in;
    for (int i = 0; i < 2; ++i) {
      in.push_back(Tensor::make(DType::f64, inputs[i].dims));
      for (int64_t e = 0; e < in[i].numel(); ++e)
        in[i].as_mutable<double>()[e] =
            inputs[i].as<double>()[e] + (i == which ? step * direction.as<double>()[e] : 0);
    }
    return in;
  };
  const auto out = run_text(text, moved(0, inputs[0], 0));
  for (int which = 0; which < 2; ++which) {
    ASSERT_EQ(out[1 + which].dims, inputs[which].dims);
    for (int round = 0; round < 3; ++round) {
      const Tensor direction = random_doubles(inputs[which].dims, random);
      double slope = 0;
      for (int64_t e = 0; e < direction.numel(); ++e)
        slope += direction.as<double>()[e] * out[1 + which].as<double>()[e];
      const double h = k.step;
      const double above = values_of(run_text(text, moved(which, direction, h))[0])[0];
      const double below = values_of(run_text(text, moved(which, direction, -h))[0])[0];
      EXPECT_NEAR(slope, (above - below) / (2 * h), k.tolerance * (1 + std::fabs(slope)))
          << (which ? "w" : "x");
    }
  }
}

TEST(Gradient, OfPointwiseOperatorsReductionsAndProducts) {
  const Case cases[] = {
      {{2, 3}, {3, 2}, "h = MatMul(x, w) t = Tanh(h) y = ReduceSum<keepdims=0>(t)"},
      {{2, 3},
       {3, 2},
       "h = MatMul(x, w) s = Softmax<axis=-1>(h) l = Log(s) p = Mul(s, l) "
       "y = ReduceMean<keepdims=0>(p)"},
      {{2, 3},
       {3, 2},
       "t = Transpose<perm=[1, 0]>(x) d = Div(t, w) e = Exp(d) q = Sqrt(e) "
       "y = ReduceSum<keepdims=0>(q)"},
      {{2, 3},
       {3, 2},
       "h = Gemm<alpha=0.5, transA=1, transB=1>(x, w) s = Sigmoid(h) l = LogSoftmax<axis=0>(s) "
       "y = ReduceMax<keepdims=0>(l)"},
      {{2, 3},
       {3, 2},
       "one = Constant<value_ints=[1]>() r = ReduceMean<keepdims=1>(x, one) d = Sub(x, r) "
       "p = Mul(d, d) t = Transpose(p) m = Max(t, w) e = Erf(m) y = ReduceSum<keepdims=0>(e)"},
      {{2, 3},
       {3, 2},
       "t = Transpose(x) k = Concat<axis=0>(t, w) s = Sin(k) a = Abs(s) q = Softplus(a) "
       "l = LeakyRelu(s) b = Add(q, l) y = ReduceSum<keepdims=0>(b)"},
      {{2, 3},
       {3, 2},
       "f = Flatten(x) u = Reciprocal(f) n = Neg(u) m = MatMul(n, w) e = Elu(m) "
       "y = ReduceMin<keepdims=0>(e)"},
      {{3}, {3, 2}, "c = MatMul(x, w)"},
      {{2, 4, 3}, {3}, "c = MatMul(x, w)"},
      {{3}, {3}, "c = MatMul(x, w)"},
      {{2, 4, 3}, {5, 1, 3, 2}, "c = MatMul(x, w)"},
      {{2, 3}, {4, 3}, "c = Einsum<equation=\"ij, kj -> ki\">(x, w)"},
      {{2, 3, 4}, {4, 2}, "c = Einsum<equation=\"bij,jb->ib\">(x, w)"},
      {{3, 4},
       {4},
       "a = Acos(x) b = Asin(x) d = Asinh(x) e = Atanh(x) f = Add(a, b) g2 = Mul(d, e) h = Mul(f, g2) "
       "c = Add(h, w)"},
      {{3, 4}, {4}, "two = Constant<value = double {2}>() s = Add(x, two) a = Acosh(s) c = Mul(a, w)"},
      {{3, 4},
       {3},
       "a = Constant<value_ints=[1]>() m = ReduceL2<keepdims=0>(x, a) n = ReduceL1<keepdims=0>(x, a) "
       "o = ReduceSumSquare<keepdims=0>(x, a) p = Mul(m, n) q = Mul(p, o) c = Mul(q, w)"},
      {{3, 4},
       {3, 1},
       "a = Constant<value_ints=[-1]>() b = Abs(x) m = ReduceLogSum(b, a) n = ReduceLogSumExp(x, a) "
       "p = Mul(m, n) c = Mul(p, w)"},
      {{3, 4},
       {3, 4},
       "a = Constant<value_int=1>() m = CumSum<exclusive=1>(x, a) n = CumSum<reverse=1>(w, a) "
       "c = Mul(m, n)"},
      {{3, 4}, {4}, "a = Dropout(x) c = Mul(a, w)"},
  };
  for (const Case& k : cases) expect_gradients(k);
}

TEST(Gradient, OfOperatorsThatMoveElements) {
  const Case cases[] = {
      {{3, 5},
       {3},
       "s = Constant<value_ints=[-1]>() e = Constant<value_ints=[-10]>() a = Constant<value_ints=[1]>() "
       "st = Constant<value_ints=[-2]>() c1 = Slice(x, s, e, a, st) c = Mul(c1, w)"},
      {{3, 5}, {4}, "i = Constant<value_ints=[4, 0, -1, 4]>() c1 = Gather<axis=1>(x, i) c = Mul(c1, w)"},
      {{3, 5},
       {2, 2},
       "i = Constant<value = int64[2, 2] {2, 0, 2, 1}>() c1 = GatherElements<axis=0>(x, i) "
       "c = Mul(c1, w)"},
      {{3, 5}, {2, 1}, "i = Constant<value = int64[2, 1] {2, 2}>() c1 = GatherND(x, i) c = Mul(c1, w)"},
      {{2, 3}, {4, 3}, "r = Constant<value_ints=[2, 1]>() c1 = Tile(x, r) c = Mul(c1, w)"},
      {{2, 5},
       {2, 1},
       "s = Constant<value_ints=[2, 3]>() p, q = Split<axis=1>(x, s) m = Mul(p, w) n = Sin(q) "
       "c = Concat<axis=1>(m, n)"},
      {{2, 5}, {2, 2}, "s = Constant<value_ints=[2, 3]>() p, q = Split<axis=1>(x, s) c = Mul(p, w)"},
      {{4, 4}, {4}, "c1 = Trilu<upper=0>(x) c = Mul(c1, w)"},
      {{1, 8, 1, 2}, {4}, "c1 = DepthToSpace<blocksize=2, mode=\"CRD\">(x) c = Mul(c1, w)"},
      {{1, 2, 2, 4}, {2}, "c1 = SpaceToDepth<blocksize=2>(x) c = Mul(c1, w)"},
      {{2, 3},
       {5},
       "p = Constant<value_ints=[0, 1, 1, 1]>() v = Constant<value = double {0.7}>() "
       "c1 = Pad(x, p, v) c = Mul(c1, w)"},
      {{2, 3},
       {6},
       "p = Constant<value_ints=[0, 1, 0, 2]>() c1 = Pad<mode=\"reflect\">(x, p) c = Mul(c1, w)"},
      {{3, 3},
       {2, 2},
       "i = Constant<value = int64[2, 2] {2, 0, 1, 0}>() c = ScatterElements<axis=0>(x, i, w)"},
      {{4}, {3}, "i = Constant<value = int64[3, 1] {1, 3, 1}>() c = ScatterND(x, i, w)"},
      {{1, 1, 2, 3}, {6}, "s = Constant<value = float[4] {1, 1, 2, 2}>() c1 = Resize(x, , s) c = Mul(c1, w)"},
      {{2, 5}, {2}, "k = Constant<value_ints=[2]>() c1, i = TopK(x, k) c = Mul(c1, w)"},
      {{4, 2}, {2}, "k = Constant<value = bool[3] {1, 0, 1}>() c1 = Compress<axis=0>(x, k) c = Mul(c1, w)"},
      {{4, 2}, {2}, "l = Constant<value = int64[2] {3, 2}>() c1 = ReverseSequence(x, l) c = Mul(c1, w)"},
  };
  for (const Case& k : cases) expect_gradients(k);
}

TEST(Gradient, OfConvolutionsPoolingsAndNormalisations) {
  const Case cases[] = {
      {{2, 2, 5, 6}, {4, 2, 3, 2}, "c = Conv<strides=[2, 1], pads=[1, 0, 1, 1]>(x, w)"},
      {{3, 4, 8}, {6, 2, 2}, "c = Conv<group=2, dilations=[2], strides=[3]>(x, w)"},
      {{1, 1, 5, 4}, {2, 1, 2, 3}, "c = Conv<auto_pad=\"SAME_LOWER\", strides=[2, 2]>(x, w)"},
      {{1, 1, 5, 4}, {2, 1, 2, 3}, "c = Conv<auto_pad=\"SAME_UPPER\", strides=[2, 3]>(x, w)"},
      {{2, 2, 4},
       {3},
       "k = Constant<value = double[3, 2, 2] {1, 2, -1, 0.5, 3, 1, 0.2, -2, 1, 1, 0.1, 2}>() "
       "c = Conv(x, k, w)"},
      {{2, 2, 3, 4},
       {2, 3, 2, 3},
       "c = ConvTranspose<strides=[2, 3], pads=[0, 1, 1, 0], output_padding=[1, 2]>(x, w)"},
      {{2, 4, 3}, {4, 1, 3}, "c = ConvTranspose<group=2, strides=[2], output_shape=[6]>(x, w)"},
      {{1, 4, 3}, {4, 1, 3}, "c = ConvTranspose<strides=[2], auto_pad=\"SAME_UPPER\">(x, w)"},
      {{1, 2, 5, 5},
       {1},
       "m = MaxPool<kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], ceil_mode=1>(x) "
       "c = Mul(m, w)"},
      {{2, 2, 5, 6},
       {1},
       "m = AveragePool<kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]>(x) c = Mul(m, w)"},
      {{1, 1, 6, 5},
       {1},
       "m = AveragePool<kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1], "
       "count_include_pad=1, ceil_mode=1>(x) c = Mul(m, w)"},
      {{1, 1, 6}, {1}, "m = AveragePool<kernel_shape=[3], strides=[2], ceil_mode=1>(x) c = Mul(m, w)"},
      {{2, 3, 2, 2}, {3, 1, 1}, "a = GlobalAveragePool(x) m = GlobalMaxPool(x) p = Mul(a, m) c = Mul(p, w)"},
      {{2, 3, 2}, {3}, "v = Abs(w) c = BatchNormalization(x, w, w, w, v)"},
      {{2, 3, 4}, {3}, "c = InstanceNormalization(x, w, w)"},
      {{2, 3, 4}, {4}, "c = LayerNormalization(x, w)", 3e-3, 1e-3},
      {{2, 4, 3}, {2}, "c = GroupNormalization<num_groups=2>(x, w, w)", 3e-3, 1e-3},
      {{3, 4},
       {4},
       "a = Mish(x) t = ThresholdedRelu<alpha=0.3>(x) z = Add(a, t) b = PRelu(z, w) e = HardSwish(b) f = "
       "Selu(e) c = HardSigmoid(f)"},
      {{3, 4},
       {4},
       "l = Constant<value = int64[3] {1, 0, 3}>() s = Mul(x, w) y = SoftmaxCrossEntropyLoss(s, l)"},
  };
  for (const Case& k : cases) expect_gradients(k);
}

TEST(Gradient, OfAGradientAndAtAnotherPoint) {
  const char* text = R"(g (float[n] x, float[n] p) => (float[] y, float[n] d, float[n] dd, float[n] at_p) {
    c = Mul(x, x) e = Mul(c, x) y = ReduceSum<keepdims=0>(e)
    d = ai.onnx.preview.training.Gradient<xs=["x"], y="y">(x)
    dd = ai.onnx.preview.training.Gradient<xs=["x"], y="d">(x)
    at_p = ai.onnx.preview.training.Gradient<xs=["x"], y="y">(p) })";
  auto out = run_text(text, {tensor({3}, {1, 2, -3}), tensor({3}, {1, 4, 5})});
  EXPECT_THAT(values_of(out[1]), ElementsAre(3, 12, 27));
  EXPECT_THAT(values_of(out[2]), ElementsAre(6, 12, -18));
  EXPECT_THAT(values_of(out[3]), ElementsAre(3, 48, 75));
}

TEST(Gradient, OpensOnlyBodiesBehindItsSources) {
  Graph g = test::import_proto(test::parse_text(
      "<ir_version: 10, opset_import: [\"\": 18, \"ai.onnx.preview.training\": 1]>\n"
      "g (float[3, 1, 2] x, float[1, 2, 2] w) => (float[3, 1, 2] d) { a = Constant<value_ints=[1]>() "
      "t, l = RNN<hidden_size=2>(x, w, w) h = Squeeze(t, a) u, y = RNN<hidden_size=2>(h, w, w) "
      "d = ai.onnx.preview.training.Gradient<xs=[\"h\"], y=\"y\">(h) }"));
  auto count = [&](const char* op) {
    return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op_type == op; });
  };
  EXPECT_EQ(count("RNN"), 1);
  EXPECT_GE(count("Scan"), 2);
}

TEST(Gradient, AnOperatorThatIsNoLoopNestIsNamed) {
  auto error = [](const char* body, std::vector<int64_t> dims, std::vector<float> x) {
    const std::string shape = fmt::format("float[{}]", fmt::join(dims, ", "));
    const std::string text = fmt::format(R"(g ({0} x) => ({0} d) {{ u = {1} y = ReduceSum<keepdims=0>(u)
      d = ai.onnx.preview.training.Gradient<xs=["x"], y="y">(x) }})",
                                         shape, body);
    return error_of([&] { run_text(text, {tensor(dims, x)}); });
  };
  EXPECT_THAT(error("Unique(x)", {3}, {1, 2, 2}),
              HasSubstr("Unique cannot be differentiated: a run decides how large its result is"));
  EXPECT_THAT(error("Det(x)", {2, 2}, {1, 2, 2, 1}),
              HasSubstr("Det cannot be differentiated: its lowering calls the kernel"));
}

TEST(Gradient, OfControlFlowGoesThroughCaptures) {
  const char* text = R"(g (float[2] x, bool k) => (float[2] d) {
    y = If (k) <then_branch = t () => (float[2] a) { a = Mul(x, x) }, else_branch = e () => (float[2] b) { b = Neg(x) }>
    d = ai.onnx.preview.training.Gradient<xs=["x"], y="y">(x) })";
  Graph g = test::import_proto(test::parse_text(
      "<ir_version: 10, opset_import: [\"\": 18, \"ai.onnx.preview.training\": 1]>\n" + std::string(text)));
  lowering::LowerOptions options;
  for (int k : {0, 1}) {
    options.known_inputs["k"] = std::make_shared<const Tensor>(test::booleans({}, {k}));
    auto out = lowering::run_program(lowering::lower_or_throw(g, options),
                                     {tensor({2}, {3, 4}), test::booleans({}, {k})}, test::run_extern);
    EXPECT_THAT(values_of(out[0]), k ? ElementsAre(6, 8) : ElementsAre(-1, -1));
  }
}

} // namespace
} // namespace tbx
