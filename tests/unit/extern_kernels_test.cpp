// oneDNN convolutions and matrix products against the plain loops in double precision, on random problems.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

namespace {

/// A tensor with its own memory and any strides.
struct Operand {
  Dims sizes, strides;
  std::vector<float> data;
  TensorRef ref() { return {data.data(), DType::f32, sizes, strides}; }
  OperandInfo info() const { return {DType::f32, sizes, strides, nullptr}; }
};

std::mt19937 rng(20261120);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

/// Dense over the dimensions in `order`, outermost first.
Operand make(Dims sizes, std::vector<int> order = {}) {
  Operand t{sizes, dense_strides(sizes, std::move(order)), {}};
  t.data.resize(
      static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>())));
  std::normal_distribution<float> normal;
  for (float& v : t.data) v = normal(rng);
  return t;
}

void run(const ExternKernel& kernel, std::vector<Operand>& in, Operand& out,
         const std::vector<PostOp>& post_ops = {}) {
  std::vector<TensorRef> inputs, outputs{out.ref()};
  for (Operand& t : in) inputs.push_back(t.sizes.empty() ? TensorRef{} : t.ref());
  for (const PostOp& op : post_ops)
    if (op.kind == PostOp::sum) { // its operand lies where the result will
      out.data = in[op.operand].data;
      inputs[op.operand] = out.ref();
    }
  run(kernel, inputs, outputs);
}

void expect_close(const Operand& a, const Operand& b, const std::string& what) {
  double scale = 1;
  for (float v : b.data) scale = std::max(scale, std::fabs(static_cast<double>(v)));
  for (size_t i = 0; i < a.data.size(); ++i)
    ASSERT_NEAR(a.data[i], b.data[i], 2e-5 * scale) << what << " at " << i;
}

std::vector<PostOp> random_post_ops(std::vector<Operand>& inputs, const Operand& out, int channel_axis) {
  std::vector<PostOp> ops;
  for (int n = pick(0, 3); n > 0; --n) {
    switch (pick(0, 8)) {
    case 0: ops.push_back({PostOp::relu}); break;
    case 1: ops.push_back({PostOp::gelu_erf}); break;
    case 2: ops.push_back({PostOp::silu, 1}); break;
    case 3: ops.push_back({PostOp::clip, -0.5f, 1.5f}); break;
    case 4: ops.push_back({PostOp::hard_swish}); break;
    case 5: ops.push_back({PostOp::linear, 0.7f, -0.2f}); break;
    case 6: ops.push_back({PostOp::leaky_relu, 0.1f}); break;
    default: {
      bool full = pick(0, 1);
      Operand other = full ? out : make({1});
      if (full) {
        for (float& v : other.data) v = static_cast<float>(pick(-8, 8)) / 4;
      } else {
        Dims sizes(out.sizes.size(), 1);
        sizes[channel_axis] = out.sizes[channel_axis];
        other = make(sizes);
      }
      ops.push_back({pick(0, 1) ? PostOp::add : PostOp::mul, 0, 0, static_cast<int>(inputs.size())});
      inputs.push_back(std::move(other));
    }
    }
  }
  return ops;
}

/// A first addition of a whole tensor as one to the old contents of the result.
void sometimes_in_place(std::vector<PostOp>& ops, const std::vector<Operand>& inputs, const Operand& out) {
  if (ops.empty() || ops[0].kind != PostOp::add || !pick(0, 1)) return;
  if (inputs[ops[0].operand].sizes == out.sizes) ops[0].kind = PostOp::sum;
}

TEST(ExternKernels, ConvolutionsAgreeWithPlainLoops) {
  int by_library = 0;
  for (int trial = 0; trial < 150; ++trial) {
    ConvProblem p;
    int rank = pick(1, 3);
    p.spatial_rank = rank;
    p.transposed = pick(0, 4) == 0;
    p.group = std::vector<int64_t>{1, 1, 2, 4}[pick(0, 3)];
    int64_t cg = pick(1, 5), mg = pick(1, 5), n = pick(1, 2);
    if (pick(0, 4) == 0) p.group = cg = 1;
    Dims x{n, cg * p.group}, w, y{n, mg * p.group};
    w = p.transposed ? Dims{cg * p.group, mg} : Dims{mg * p.group, cg};
    for (int k = 0; k < rank; ++k) {
      int64_t kernel = pick(1, 3), stride = pick(1, 2), dilation = pick(1, 2), size = pick(5, 9);
      int64_t extent = (kernel - 1) * dilation + 1;
      p.strides.push_back(stride);
      p.dilations.push_back(dilation);
      p.pads_begin.push_back(pick(0, static_cast<int>(kernel) - 1));
      p.pads_end.push_back(pick(0, static_cast<int>(kernel) - 1));
      x.push_back(size);
      w.push_back(kernel);
      y.push_back(p.transposed ? (size - 1) * stride + extent - p.pads_begin[k] - p.pads_end[k]
                               : (size + p.pads_begin[k] + p.pads_end[k] - extent) / stride + 1);
    }
    std::vector<Operand> in{make(x, channels_last(x.size())), make(w), {}};
    p.has_bias = pick(0, 1);
    if (p.has_bias) in[2] = make({y[1]});
    Operand got = make(y, channels_last(y.size())), want = got;
    p.post_ops = random_post_ops(in, got, 1);
    if (!p.transposed) sometimes_in_place(p.post_ops, in, got);
    std::vector<OperandInfo> infos;
    for (const Operand& t : in) infos.push_back(t.sizes.empty() ? OperandInfo{} : t.info());
    std::vector<OperandInfo> outs{got.info()};
    if (pick(0, 1)) {
      Tensor constant = Tensor::make(DType::f32, w);
      std::copy(in[1].data.begin(), in[1].data.end(), constant.as_mutable<float>().begin());
      infos[1].constant = std::make_shared<const Tensor>(std::move(constant));
    }
    Problem problem = p;
    Selection s = select(problem, infos, outs);
    by_library += s.chosen == "onednn_conv";
    run(*s.kernel, in, got, p.post_ops);
    run(*make_reference_conv(problem, infos, outs), in, want, p.post_ops);
    expect_close(got, want, to_string(problem));
  }
#if defined(TBX_WITH_ONEDNN)
  EXPECT_GT(by_library, 100);
#endif
}

TEST(ExternKernels, AdditionsToConvolutionsOfFewChannelsAgreeWithPlainLoops) {
  // Channels that no vector divides; the operand in the order of the result, and in another.
  for (int64_t channels : {8, 24})
    for (int64_t batch : {1, 3})
      for (bool last : {true, false}) {
        ConvProblem p;
        p.strides = p.dilations = p.pads_begin = p.pads_end = {1, 1};
        p.has_bias = true;
        const Dims x{batch, channels, 9, 7}, w{channels, channels, 3, 3};
        std::vector<Operand> in{make(x, channels_last(4)), make(w), make({channels}),
                                last ? make(x, channels_last(4)) : make(x)};
        Operand got = make(x, channels_last(4)), want = got;
        p.post_ops = {{PostOp::linear, 0.5f, 0.25f}, {PostOp::add, 0, 0, 3}, {PostOp::relu}};
        std::vector<OperandInfo> infos, outs{got.info()};
        for (const Operand& t : in) infos.push_back(t.info());
        Problem problem = p;
        run(*select(problem, infos, outs).kernel, in, got, p.post_ops);
        run(*make_reference_conv(problem, infos, outs), in, want, p.post_ops);
        expect_close(got, want, to_string(problem));
      }
}

TEST(ExternKernels, MatrixProductsAgreeWithPlainLoops) {
  for (int trial = 0; trial < 200; ++trial) {
    MatMulProblem p;
    int rank = pick(2, 4);
    int64_t m = pick(1, 40), k = pick(1, 40), n = pick(1, 40);
    Dims a, b, c;
    for (int d = 0; d < rank - 2; ++d) {
      int64_t size = pick(1, 3);
      c.push_back(size);
      a.push_back(pick(0, 3) ? size : 1);
      b.push_back(a.back() == 1 || pick(0, 3) ? size : 1);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    c.insert(c.end(), {m, n});
    auto order = [&](bool transposed) {
      std::vector<int> o;
      for (int d = 0; d < rank; ++d) o.push_back(d);
      if (transposed) std::swap(o[rank - 1], o[rank - 2]);
      return o;
    };
    std::vector<Operand> in{make(a, order(pick(0, 1))), make(b, order(pick(0, 1))), {}};
    Operand got = make(c), want = got;
    p.alpha = pick(0, 2) ? 1 : 0.5f;
    p.has_bias = pick(0, 1);
    if (p.has_bias) {
      Dims bias(rank, 1);
      bias[rank - 1] = n;
      if (pick(0, 2) == 0) bias[rank - 2] = m;
      in[2] = make(bias);
    }
    p.post_ops = random_post_ops(in, got, rank - 1);
    sometimes_in_place(p.post_ops, in, got);
    std::vector<OperandInfo> infos, outs{got.info()};
    for (const Operand& t : in) infos.push_back(t.sizes.empty() ? OperandInfo{} : t.info());
    Problem problem = p;
    Selection s = select(problem, infos, outs);
    run(*s.kernel, in, got, p.post_ops);
    run(*make_reference_matmul(problem, infos, outs), in, want, p.post_ops);
    expect_close(got, want, to_string(problem));
  }
}

TEST(ExternKernels, SingleRowsTimesConstantsAgreeWithPlainLoops) {
  for (int trial = 0; trial < 100; ++trial) {
    MatMulProblem p;
    int64_t k = pick(1, 300), n = pick(1, 400);
    int rank = pick(2, 3);
    auto shape = [&](int64_t rows, int64_t columns) {
      Dims d(rank - 2, 1);
      d.insert(d.end(), {rows, columns});
      return d;
    };
    std::vector<int> order{0, 1, 2};
    order.resize(rank);
    if (pick(0, 1)) std::swap(order[rank - 1], order[rank - 2]);
    std::vector<Operand> in{make(shape(1, k)), make(shape(k, n), order), {}};
    if (pick(0, 3) == 0) { // every third value of a longer row
      in[0] = make(shape(k, 3), {});
      in[0].sizes = shape(1, k);
      in[0].strides.back() = 3;
    }
    Operand got = make(shape(1, n)), want = got;
    p.alpha = pick(0, 2) ? 1 : 0.5f;
    p.has_bias = pick(0, 1);
    if (p.has_bias) {
      in[2] = make(shape(1, pick(0, 3) ? n : 1));
    }
    p.post_ops = random_post_ops(in, got, rank - 1);
    std::vector<OperandInfo> infos, outs{got.info()};
    for (const Operand& t : in) infos.push_back(t.sizes.empty() ? OperandInfo{} : t.info());
    Tensor constant = Tensor::make(DType::f32, in[1].sizes);
    std::copy(in[1].data.begin(), in[1].data.end(), constant.as_mutable<float>().begin());
    infos[1].constant = std::make_shared<const Tensor>(std::move(constant));
    Problem problem = p;
    Selection s = select(problem, infos, outs);
    EXPECT_EQ(s.chosen, "gemv");
    run(*s.kernel, in, got);
    run(*make_reference_matmul(problem, infos, outs), in, want);
    expect_close(got, want, to_string(problem));
  }
}

/// The bound that docs/precision.md states: each operand is rounded to 8 bits, sums are float32.
TEST(ExternKernels, Bfloat16ProductsKeepTheirErrorBound) {
  auto bound = [](double magnitude, int64_t terms) {
    const double u = 0x1p-8;
    return (2 * u + u * u + static_cast<double>(terms + 2) * 0x1p-24) * magnitude;
  };
  double worst = 0; // of the bound
  for (Precision precision : {Precision::bf16, Precision::any})
    for (int trial = 0; trial < 12; ++trial) {
      MatMulProblem p;
      p.precision = precision;
      int64_t m = pick(2, 70), k = pick(1, 400), n = pick(1, 90);
      std::vector<Operand> in{make({m, k}), make({k, n}), {}};
      Operand got = make({m, n});
      std::vector<OperandInfo> infos{in[0].info(), in[1].info(), {}}, outs{got.info()};
      Selection s = select(Problem(p), infos, outs);
      run(*s.kernel, in, got);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0, magnitude = 0;
          for (int64_t l = 0; l < k; ++l) {
            double term = static_cast<double>(in[0].data[i * k + l]) * in[1].data[l * n + j];
            exact += term;
            magnitude += std::fabs(term);
          }
          double error = std::fabs(got.data[i * n + j] - exact), allowed = bound(magnitude, k);
          ASSERT_LE(error, allowed) << to_string(Problem(p)) << " " << m << "x" << k << "x" << n;
          worst = std::max(worst, error / allowed);
        }
      ConvProblem c; // 1x1: the same product, as a convolution
      c.precision = precision;
      c.strides = c.dilations = {1, 1};
      c.pads_begin = c.pads_end = {0, 0};
      std::vector<Operand> image{make({1, k, 1, m}, channels_last(4)), make({n, k, 1, 1}), {}};
      Operand pixels = make({1, n, 1, m}, channels_last(4));
      std::vector<OperandInfo> image_infos{image[0].info(), image[1].info(), {}}, pixel_infos{pixels.info()};
      Selection conv = select(Problem(c), image_infos, pixel_infos);
      run(*conv.kernel, image, pixels);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0, magnitude = 0;
          for (int64_t l = 0; l < k; ++l) {
            double term = static_cast<double>(image[0].data[i * k + l]) * image[1].data[j * k + l];
            exact += term;
            magnitude += std::fabs(term);
          }
          ASSERT_LE(std::fabs(pixels.data[i * n + j] - exact), bound(magnitude, k)) << to_string(Problem(c));
        }
    }
  EXPECT_LT(worst, 1);
}

TEST(ExternKernels, IntegersGoToOwnKernels) {
  std::vector<int64_t> sizes{2, 2};
  OperandInfo i{DType::i32, sizes, {2, 1}, nullptr};
  std::vector<OperandInfo> in{i, i}, out{i};
  Selection s = select(MatMulProblem{}, in, out);
  EXPECT_EQ(s.chosen, "direct_matmul");
#if defined(TBX_WITH_ONEDNN)
  ASSERT_EQ(s.refusals.size(), 4u);
  EXPECT_EQ(s.refusals[0], "gemv: more than one row");
  EXPECT_EQ(s.refusals[1], "blocked_matmul: int32 operands");
  EXPECT_EQ(s.refusals[2], "onednn_matmul: int32 operands");
  EXPECT_EQ(s.refusals[3], "byte_matmul: operands that are no bytes");
#endif
}

} // namespace
} // namespace tbx::extern_kernels
