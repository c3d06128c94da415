// Many callers at once of one kernel and of one session, each with sizes of its own, results held against
// plain loops: our own kernels, which pack weights once and take memory for each call. The thread sanitizer
// watches these, too.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <tuple>

#include "base/isa.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"
#include "tests/unit/guarded_operand.h"

namespace tbx::extern_kernels {
std::unique_ptr<ExternKernel> make_byte_matmul(const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_byte_conv(const Problem&, std::span<const OperandInfo>,
                                             std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_blocked_conv(const Problem&, std::span<const OperandInfo>,
                                                std::span<const OperandInfo>);
} // namespace tbx::extern_kernels

namespace tbx::test {
namespace {

using namespace extern_kernels;

constexpr int kCallers = 8, kRounds = 40;

/// Calls `right(i)` for all i below `count`, from all callers at once, each in an order of its own; how often
/// it was false.
int wrong_calls(size_t count, const std::function<bool(size_t)>& right) {
  std::atomic<int> wrong{0};
  std::barrier together(kCallers);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c)
    callers.emplace_back([&, c] {
      std::vector<size_t> order(count);
      std::iota(order.begin(), order.end(), size_t{0});
      std::mt19937 random(static_cast<unsigned>(c));
      together.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        for (size_t i : order) wrong += !right(i);
      }
    });
  for (std::thread& t : callers) t.join();
  return wrong;
}

/// A dense tensor of integers.
struct Integers {
  Tensor values;
  Dims strides;

  Integers(DType type, Dims sizes, unsigned seed = 0)
      : values(Tensor::make(type, sizes)), strides(dense_strides(sizes, {})) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < values.bytes(); ++i)
      values.mutable_data()[i] = static_cast<std::byte>(seed == 0 ? 0 : random());
  }
  TensorRef ref() const { return {const_cast<std::byte*>(values.data), values.dtype, values.dims, strides}; }
  OperandInfo info(bool constant = false) const {
    return {values.dtype, values.dims, strides, constant ? std::make_shared<const Tensor>(values) : nullptr};
  }
  int64_t at(const Dims& index) const {
    int64_t place = 0;
    for (size_t d = 0; d < index.size(); ++d) place += index[d] * strides[d];
    return element_as_int(values, place);
  }
};

/// What a call is given, and what it must give.
struct IntegerCall {
  Integers x;
  Dims result;
  std::vector<int32_t> want;

  bool is_right(const ExternKernel& kernel, const Integers& weights, const Integers& zero) const {
    const Integers out(DType::i32, result);
    const std::vector<TensorRef> inputs{x.ref(), weights.ref(), {}, zero.ref()};
    const TensorRef ref = out.ref();
    run(kernel, inputs, {&ref, 1});
    const auto got = out.values.as<int32_t>();
    return std::equal(got.begin(), got.end(), want.begin(), want.end());
  }
};

Integers zero_point(int value) {
  Integers zero(DType::i32, {1});
  zero.values.as_mutable<int32_t>()[0] = value;
  return zero;
}

/// Of one kernel, made for the sizes of the last call.
template <class Make>
int wrong_calls(const std::vector<IntegerCall>& calls, Make make, const Problem& problem,
                const Integers& weights, const Integers& zero) {
  const std::vector<OperandInfo> infos{calls.back().x.info(), weights.info(true), {}, zero.info()};
  const OperandInfo out = Integers(DType::i32, calls.back().result).info();
  const std::unique_ptr<ExternKernel> kernel = make(problem, infos, {&out, 1});
  return wrong_calls(calls.size(), [&](size_t i) { return calls[i].is_right(*kernel, weights, zero); });
}

TEST(Callers, ShareAProductOfBytes) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  constexpr int64_t kTerms = 131, kColumns = 67, kZero = 117;
  const Integers weights(DType::i8, {kTerms, kColumns}, 1), zero = zero_point(kZero);
  std::vector<IntegerCall> calls;
  for (const int64_t rows : {0, 1, 2, 5, 6, 7, 16, 33, 64, 90}) {
    IntegerCall c{Integers(DType::u8, {rows, kTerms}, 2 + static_cast<unsigned>(rows)), {rows, kColumns}, {}};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < kTerms; ++k) sum += (c.x.at({i, k}) - kZero) * weights.at({k, j});
        c.want.push_back(static_cast<int32_t>(sum));
      }
    calls.push_back(std::move(c));
  }
  MatMulProblem p;
  p.a_zero = 3;
  EXPECT_EQ(wrong_calls(calls, make_byte_matmul, p, weights, zero), 0);
}

TEST(Callers, ShareAConvolutionOfBytes) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  constexpr int64_t kChannels = 19, kResults = 35, kZero = 9, kStride = 2;
  const Integers weights(DType::i8, {kResults, kChannels, 3, 3}, 1), zero = zero_point(kZero);
  std::vector<IntegerCall> calls;
  for (const int64_t side : {1, 2, 5, 8, 14})
    for (const int64_t images : {1, 3}) {
      const int64_t half = (side - 1) / kStride + 1;
      IntegerCall c{Integers(DType::u8, {images, kChannels, side, side + 1}, static_cast<unsigned>(side)),
                    {images, kResults, half, side / kStride + 1},
                    {}};
      for (int64_t i = 0; i < element_count(c.result); ++i) {
        const Dims at = index_of(i, c.result);
        int64_t sum = 0;
        for (int64_t k = 0; k < kChannels; ++k)
          for (int64_t a = 0; a < 3; ++a)
            for (int64_t b = 0; b < 3; ++b) {
              const int64_t y = at[2] * kStride + a - 1, x = at[3] * kStride + b - 1;
              if (y >= 0 && y < side && x >= 0 && x <= side)
                sum += (c.x.at({at[0], k, y, x}) - kZero) * weights.at({at[1], k, a, b});
            }
        c.want.push_back(static_cast<int32_t>(sum));
      }
      calls.push_back(std::move(c));
    }
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = {kStride, kStride};
  p.dilations = p.pads_begin = p.pads_end = {1, 1};
  p.x_zero = 3;
  EXPECT_EQ(wrong_calls(calls, make_byte_conv, p, weights, zero), 0);
}

TEST(Callers, ShareABlockedConvolution) {
  constexpr int64_t kChannels = 75, kResults = 57;
  const Operand weights({kResults, kChannels, 1, 1}), bias({kResults});
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = {2, 1};
  p.dilations = {1, 1};
  p.pads_begin = p.pads_end = {0, 0};
  p.has_bias = true;
  p.post_ops = {{PostOp::hard_swish}};
  auto image = [](const Dims& sizes) { return Operand(sizes, dense_strides(sizes, channels_last(4))); };
  struct Call {
    Operand x;
    Dims result;
    std::vector<Expected> want; ///< in the result's own order
  };
  std::vector<Call> calls;
  for (const int64_t side : {1, 2, 5, 9, 13})
    for (const int64_t images : {0, 1, 2}) {
      Call c{
          image({images, kChannels, side, side + 2}), {images, kResults, (side - 1) / 2 + 1, side + 2}, {}};
      for (int64_t i = 0; i < element_count(c.result); ++i) {
        const Dims at = index_of(i, c.result);
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < kChannels; ++k) {
          const double term = c.x.at({at[0], k, at[2] * 2, at[3]}) * weights.at({at[1], k, 0, 0});
          sum += term;
          magnitude += std::fabs(term);
        }
        Expected expected(sum, magnitude, kChannels);
        expected.apply({PostOp::add}, bias.at({at[1]}));
        expected.apply(p.post_ops[0], 0);
        c.want.push_back(expected);
      }
      calls.push_back(std::move(c));
    }
  const OperandInfo out = image(calls.back().result).info();
  const auto kernel = make_blocked_conv(
      p, std::vector<OperandInfo>{calls.back().x.info(), weights.constant(), bias.info()}, {&out, 1});
  EXPECT_EQ(
      wrong_calls(calls.size(),
                  [&](size_t n) {
                    const Call& c = calls[n];
                    const Dims strides = dense_strides(c.result, channels_last(4));
                    std::vector<float> got(c.want.size(), NAN);
                    const TensorRef ref{got.data(), DType::f32, c.result, strides};
                    run(*kernel, std::vector<TensorRef>{c.x.ref(), weights.ref(), bias.ref()}, {&ref, 1});
                    for (size_t i = 0; i < got.size(); ++i) {
                      const Dims at = index_of(static_cast<int64_t>(i), c.result);
                      int64_t place = 0;
                      for (size_t d = 0; d < at.size(); ++d) place += at[d] * strides[d];
                      if (!(std::fabs(got[static_cast<size_t>(place)] - c.want[i].value) <= c.want[i].error))
                        return false;
                    }
                    return true;
                  }),
      0);
}

std::vector<float> normal(int64_t n, double deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> v(static_cast<size_t>(n));
  for (float& e : v) e = normal(random);
  return v;
}

struct Feed {
  std::vector<int64_t> dims;
  std::vector<float> x;
  std::vector<double> want;
};

bool close(const Session& session, const Feed& feed, double error) {
  std::vector<float> x = feed.x;
  const auto out = session.run({{"x", TensorView::of(x, feed.dims)}}).value();
  const auto got = out[0].values<float>();
  return std::equal(got.begin(), got.end(), feed.want.begin(), feed.want.end(),
                    [&](float a, double b) { return std::fabs(a - b) <= error; });
}

Session session_of(const std::string& bytes, const CompileOptions& options) {
  return Session::compile(std::as_bytes(std::span(bytes)), options).value();
}

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

/// Cells of 40 states over 24 inputs, in one direction.
struct Layer {
  static constexpr int64_t kWidth = 24, kHidden = 40;
  const char* op;
  int64_t gates;
  std::vector<float> w, r, b;

  Layer(const char* name, int64_t n, std::mt19937& random)
      : op(name), gates(n), w(normal(n * kHidden * kWidth, 0.2, random)),
        r(normal(n * kHidden * kHidden, 0.15, random)), b(normal(2 * n * kHidden, 0.3, random)) {}

  std::string bytes() const {
    return to_bytes(parse_graph(fmt::format(
        R"(layer (float[steps, batch, {1}] x) => (float[steps, 1, batch, {2}] y)
        <float[1, {3}, {1}] w = {{{5}}}, float[1, {3}, {2}] r = {{{6}}}, float[1, {4}] b = {{{7}}}> {{
          y = {0} <hidden_size = {2}{8}> (x, w, r, b)
        }})",
        op, kWidth, kHidden, gates * kHidden, 2 * gates * kHidden, fmt::join(w, ", "), fmt::join(r, ", "),
        fmt::join(b, ", "), gates == 3 ? ", linear_before_reset = 1" : "")));
  }

  Feed feed(int64_t steps, int64_t batch, std::mt19937& random) const {
    Feed f{{steps, batch, kWidth}, normal(steps * batch * kWidth, 1, random), {}};
    std::vector<double> h(static_cast<size_t>(batch * kHidden), 0), c = h;
    for (int64_t t = 0; t < steps; ++t) {
      const std::vector<double> before = h;
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t k = 0; k < kHidden; ++k) {
          double own[4] = {}, kept[4] = {};
          for (int64_t g = 0; g < gates; ++g) {
            const int64_t row = g * kHidden + k;
            own[g] = b[row];
            kept[g] = b[gates * kHidden + row];
            for (int64_t i = 0; i < kWidth; ++i)
              own[g] += double{f.x[(t * batch + n) * kWidth + i]} * w[row * kWidth + i];
            for (int64_t i = 0; i < kHidden; ++i) kept[g] += before[n * kHidden + i] * r[row * kHidden + i];
          }
          const int64_t at = n * kHidden + k;
          h[at] = cell(own, kept, before[at], c[at]);
        }
      f.want.insert(f.want.end(), h.begin(), h.end());
    }
    return f;
  }

private:
  /// The next state, by sums over the input and over the states before; GRU with linear_before_reset.
  double cell(const double* own, const double* kept, double before, double& c) const {
    auto both = [&](int g) { return own[g] + kept[g]; };
    if (gates == 1) return std::tanh(both(0));
    if (gates == 3) {
      const double z = sigmoid(both(0));
      return (1 - z) * std::tanh(own[2] + sigmoid(both(1)) * kept[2]) + z * before;
    }
    c = sigmoid(both(2)) * c + sigmoid(both(0)) * std::tanh(both(3));
    return sigmoid(both(1)) * std::tanh(c);
  }
};

class LayerCallers : public testing::TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(LayerCallers, ShareASession) {
  const auto& [op, precision, threads] = GetParam();
  std::mt19937 random(7);
  const Layer layer(op, op == std::string("LSTM") ? 4 : op == std::string("GRU") ? 3 : 1, random);
  CompileOptions options;
  options.compile = false;
  options.threads = threads;
  options.precision = precision;
  const Session session = session_of(layer.bytes(), options);
  std::vector<Feed> feeds;
  for (const int64_t steps : {0, 1, 4, 9})
    for (const int64_t batch : {1, 2, 7, 19}) feeds.push_back(layer.feed(steps, batch, random));
  // Rounded operands: each product is off by 2^-8 of its magnitude, most of which cancels.
  const double error = precision == std::string("bf16") ? 2e-2 : 1e-5;
  EXPECT_EQ(wrong_calls(feeds.size(), [&](size_t i) { return close(session, feeds[i], error); }), 0);
}

INSTANTIATE_TEST_SUITE_P(Callers, LayerCallers,
                         testing::Combine(testing::Values("RNN", "GRU", "LSTM"),
                                          testing::Values("strict", "bf16"), testing::Values(1, 2)),
                         [](const auto& p) {
                           return fmt::format("{}_{}_{}", std::get<0>(p.param), std::get<1>(p.param),
                                              std::get<2>(p.param));
                         });

/// Full trees: node i of a tree has the children 2i + 1 and 2i + 2.
struct Trees {
  static constexpr int64_t kTrees = 21, kLevels = 5, kFeatures = 6, kInner = (1 << kLevels) - 1,
                           kNodes = 2 * kInner + 1;
  std::vector<int64_t> features; ///< of all nodes
  std::vector<float> splits, leaves;

  explicit Trees(std::mt19937& random)
      : splits(normal(kTrees * kNodes, 1, random)), leaves(normal(kTrees * kNodes, 1, random)) {
    for (int64_t i = 0; i < kTrees * kNodes; ++i)
      features.push_back(static_cast<int64_t>(random() % kFeatures));
  }

  std::string bytes() const {
    onnx::ModelProto model = parse_text(fmt::format(
        R"(<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 3]>
        trees (float[rows, {}] x) => (float[rows, 1] y) {{
          y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1> (x)
        }})",
        kFeatures));
    onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
    auto add = [&](const char* name, onnx::AttributeProto::AttributeType type) -> onnx::AttributeProto& {
      onnx::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(name);
      attribute.set_type(type);
      return attribute;
    };
    constexpr auto kInts = onnx::AttributeProto::INTS, kFloats = onnx::AttributeProto::FLOATS;
    auto &trees = add("nodes_treeids", kInts), &ids = add("nodes_nodeids", kInts),
         &of = add("nodes_featureids", kInts), &yes = add("nodes_truenodeids", kInts),
         &no = add("nodes_falsenodeids", kInts), &modes = add("nodes_modes", onnx::AttributeProto::STRINGS),
         &values = add("nodes_values", kFloats), &leaf_trees = add("target_treeids", kInts),
         &leaf_ids = add("target_nodeids", kInts), &targets = add("target_ids", kInts),
         &weights = add("target_weights", kFloats);
    for (int64_t tree = 0; tree < kTrees; ++tree)
      for (int64_t i = 0; i < kNodes; ++i) {
        const int64_t at = tree * kNodes + i;
        const bool leaf = i >= kInner;
        trees.add_ints(tree), ids.add_ints(i), of.add_ints(features[at]), values.add_floats(splits[at]);
        yes.add_ints(leaf ? 0 : 2 * i + 1), no.add_ints(leaf ? 0 : 2 * i + 2);
        modes.add_strings(leaf ? "LEAF" : "BRANCH_LEQ");
        if (!leaf) continue;
        leaf_trees.add_ints(tree), leaf_ids.add_ints(i), targets.add_ints(0), weights.add_floats(leaves[at]);
      }
    return to_bytes(model);
  }

  Feed feed(int64_t rows, std::mt19937& random) const {
    Feed f{{rows, kFeatures}, normal(rows * kFeatures, 1, random), {}};
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t tree = 0; tree < kTrees; ++tree) {
        int64_t i = 0;
        while (i < kInner)
          i = 2 * i +
              (f.x[row * kFeatures + features[tree * kNodes + i]] <= splits[tree * kNodes + i] ? 1 : 2);
        sum += leaves[tree * kNodes + i];
      }
      f.want.push_back(sum);
    }
    return f;
  }
};

TEST(Callers, ShareASessionOfTrees) {
  std::mt19937 random(11);
  const Trees trees(random);
  std::vector<Feed> feeds;
  for (const int64_t rows : {0, 1, 2, 7, 16, 33, 250, 1100}) feeds.push_back(trees.feed(rows, random));
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.compile = false;
    options.threads = threads;
    const Session session = session_of(trees.bytes(), options);
    EXPECT_EQ(wrong_calls(feeds.size(), [&](size_t i) { return close(session, feeds[i], 1e-5); }), 0);
  }
}

} // namespace
} // namespace tbx::test
