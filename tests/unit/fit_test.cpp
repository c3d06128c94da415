// Operands of library calls are held against each other, whoever made the call.
#include "extern_kernels/fit.h"

#include <gmock/gmock.h>

#include "graph_helper.h"

namespace tbx::extern_kernels {
namespace {

using test::error_of;
using testing::HasSubstr;
using Sizes = std::vector<int64_t>;

OperandInfo f32(Sizes sizes) { return {DType::f32, std::move(sizes), {}, nullptr}; }
OperandInfo of(DType type, Sizes sizes) { return {type, std::move(sizes), {}, nullptr}; }
const OperandInfo kAbsent;

using Operands = std::vector<OperandInfo>;
std::string misfit(const Problem& p, const Operands& in, const Operands& out, bool allocates = false) {
  return error_of([&] { check_fit(p, in, out, allocates); });
}

/// They fit, and do not with any size of an operand another one, or with another rank.
void expect_all_count(const Problem& p, const Operands& in, const Operands& out) {
  EXPECT_EQ(misfit(p, in, out), "no error") << to_string(p);
  for (int side : {0, 1})
    for (size_t i = 0; i < (side ? out : in).size(); ++i)
      for (size_t d = 0; d < (side ? out : in)[i].sizes.size(); ++d) {
        Operands a = in, b = out;
        int64_t& size = (side ? b : a)[i].sizes[d];
        size += 7;
        EXPECT_THAT(misfit(p, a, b), HasSubstr("do not fit each other"))
            << to_string(p) << ": size " << d << " of " << (side ? "output " : "input ") << i;
        size = -1; // not known yet
        EXPECT_EQ(misfit(p, a, b), "no error") << to_string(p);
      }
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].sizes == Sizes{1}) continue; // a number of any rank
    Operands a = in;
    a[i].sizes.push_back(1);
    EXPECT_THAT(misfit(p, a, out), HasSubstr("do not fit each other")) << to_string(p) << ": rank of " << i;
  }
}

TEST(Fit, MatrixProducts) {
  MatMulProblem p;
  p.has_bias = true;
  p.a_zero = 3;
  p.post_ops = {{PostOp::relu}, {PostOp::mul, 0, 0, 4}};
  const Operands in{f32({5, 2, 3}), f32({5, 3, 4}), f32({5, 2, 4}), of(DType::i32, {1}), f32({5, 2, 4})};
  expect_all_count(p, in, {f32({5, 2, 4})});
  const Operands repeated{f32({1, 2, 3}), f32({5, 3, 4}), f32({1, 1, 4}), of(DType::i32, {}), f32({1, 2, 1})};
  EXPECT_EQ(misfit(p, repeated, {f32({5, 2, 4})}), "no error");
  EXPECT_EQ(misfit(p, {f32({0, 2, 0}), f32({0, 0, 4}), f32({1, 1, 4}), of(DType::i32, {}), f32({0, 2, 4})},
                   {f32({0, 2, 4})}),
            "no error");
  Operands spoilt = in;
  spoilt[3].dtype = DType::f32;
  EXPECT_THAT(misfit(p, spoilt, {f32({5, 2, 4})}), HasSubstr("a zero point"));
  spoilt = in;
  spoilt[1] = kAbsent;
  EXPECT_THAT(misfit(p, spoilt, {f32({5, 2, 4})}), HasSubstr("input 1 is missing"));
  p.post_ops[0].kind = PostOp::add;
  EXPECT_THAT(misfit(p, in, {f32({5, 2, 4})}), HasSubstr("post-operation"));
  EXPECT_THAT(misfit(MatMulProblem(), {f32({3}), f32({3, 4})}, {f32({4})}), HasSubstr("do not fit"));
  EXPECT_THAT(misfit(MatMulProblem(), {f32({2, 3}), f32({3, 4})}, {f32({2, 4})}, true),
              HasSubstr("do not fit"));
}

ConvProblem conv(bool transposed) {
  ConvProblem p;
  p.transposed = transposed;
  p.has_bias = true;
  p.group = 2;
  p.strides = {2, 3};
  p.dilations = {1, 2};
  p.pads_begin = {1, 0};
  p.pads_end = {0, 2};
  return p;
}

TEST(Fit, Convolutions) {
  ConvProblem p = conv(false);
  // 8 + 1 rows in windows of 3, each second; 9 + 2 columns in windows of 5, each third.
  const Operands in{f32({5, 4, 8, 9}), f32({6, 2, 3, 3}), f32({6})};
  const Operands out{f32({5, 6, 4, 3})};
  EXPECT_EQ(misfit(p, in, out), "no error");
  auto spoilt = [&](size_t i, size_t d, int64_t size) {
    Operands a = in;
    a[i].sizes[d] = size;
    return misfit(p, a, out);
  };
  for (auto [i, d] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}})
    EXPECT_THAT(spoilt(i, d, 8), HasSubstr("do not fit each other")) << i << " " << d;
  EXPECT_THAT(spoilt(0, 2, 7), HasSubstr("4 elements of 7"));
  EXPECT_THAT(spoilt(0, 3, 8), HasSubstr("3 elements of 8"));
  EXPECT_THAT(spoilt(1, 2, 4), HasSubstr("4 elements of 8"));
  EXPECT_THAT(spoilt(1, 3, int64_t{1} << 62), HasSubstr("3 elements of 9"));
  EXPECT_EQ(spoilt(0, 0, -1), "no error");
  EXPECT_EQ(misfit(p, {f32({0, 4, 0, 0}), in[1], in[2]}, {f32({0, 6, 0, 0})}), "no error");
  p.strides[1] = 0;
  EXPECT_THAT(misfit(p, in, out), HasSubstr("do not fit"));
  p.strides[1] = 3;
  p.group = 3;
  EXPECT_THAT(misfit(p, in, out), HasSubstr("in 3 groups"));
}

TEST(Fit, TransposedConvolutions) {
  const ConvProblem p = conv(true);
  const Operands in{f32({5, 6, 4, 3}), f32({6, 2, 3, 3}), f32({4})};
  EXPECT_EQ(misfit(p, in, {f32({5, 4, 8, 9})}), "no error");
  EXPECT_EQ(misfit(p, in, {f32({5, 4, 9, 9})}), "no error"); // output_padding
  EXPECT_THAT(misfit(p, in, {f32({5, 4, 7, 9})}), HasSubstr("7 elements of 4"));
  EXPECT_THAT(misfit(p, in, {f32({5, 6, 8, 9})}), HasSubstr("do not fit"));
  EXPECT_THAT(misfit(p, {in[0], f32({4, 2, 3, 3}), in[2]}, {f32({5, 4, 8, 9})}), HasSubstr("do not fit"));
}

TEST(Fit, Attention) {
  AttentionProblem p;
  p.has_mask = p.has_starts = p.has_sinks = true;
  const Operands in{f32({2, 6, 5, 8}), f32({2, 3, 7, 8}),   f32({2, 3, 7, 4}),
                    f32({2, 6, 5, 7}), of(DType::i32, {2}), f32({6})};
  expect_all_count(p, in, {f32({2, 6, 5, 4})});
  p.tokens_first = true;
  expect_all_count(p, in, {f32({2, 5, 6, 4})});
  Operands repeated = in;
  repeated[3] = f32({1, 1, 1, 7});
  EXPECT_EQ(misfit(p, repeated, {f32({2, 5, 6, 4})}), "no error");
  repeated[4] = kAbsent;
  EXPECT_THAT(misfit(p, repeated, {f32({2, 5, 6, 4})}), HasSubstr("input 4 is missing"));
}

TEST(Fit, AttentionThatCarriesCaches) {
  AttentionProblem p;
  p.carries = true;
  const Operands in{f32({2, 6, 5, 8}), f32({2, 3, 7, 8}), f32({2, 3, 7, 4}), kAbsent,
                    kAbsent,           kAbsent,           f32({2, 3, 2, 8}), f32({2, 3, 2, 4})};
  const Operands out{f32({2, 6, 5, 4}), f32({2, 3, 2, 8}), f32({2, 3, 2, 4})};
  EXPECT_EQ(misfit(p, in, out), "no error");
  EXPECT_THAT(misfit(p, in, {out[0]}), HasSubstr("another number of results"));
  EXPECT_THAT(misfit(p, {in.begin(), in.begin() + 6}, out), HasSubstr("input 6 is missing"));
  EXPECT_THAT(misfit(p, in, {out[0], f32({2, 3, 1, 8}), out[2]}), HasSubstr("output 1 is"));
  EXPECT_THAT(misfit(p, in, {out[0], of(DType::f16, {2, 3, 2, 8}), out[2]}), HasSubstr("another type"));
  Operands longer = in, results = out;
  longer[6] = results[1] = f32({2, 3, 8, 8});
  longer[7] = results[2] = f32({2, 3, 8, 4});
  EXPECT_THAT(misfit(p, longer, results), HasSubstr("8 of 7 tokens"));
}

TEST(Fit, AttentionThatAppends) {
  AttentionProblem p;
  p.appends = true;
  const Operands in{f32({2, 6, 1, 8}),
                    of(DType::f16, {2, 3, 7, 8}),
                    of(DType::f16, {2, 3, 7, 4}),
                    kAbsent,
                    kAbsent,
                    kAbsent,
                    f32({2, 3, 1, 8}),
                    f32({2, 3, 1, 4})};
  const Operands out{f32({2, 6, 1, 4}), of(DType::f16, {2, 3, 1, 8}), of(DType::f16, {2, 3, 1, 4})};
  EXPECT_EQ(misfit(p, in, out), "no error");
  EXPECT_THAT(misfit(p, in, {out[0]}), HasSubstr("another number of results"));
  EXPECT_THAT(misfit(p, {in.begin(), in.begin() + 7}, out), HasSubstr("input 7 is missing"));
  EXPECT_THAT(misfit(p, in, {out[0], f32({2, 3, 1, 8}), out[2]}), HasSubstr("another type"));
  Operands integers = in;
  integers[6] = of(DType::i32, {2, 3, 1, 8});
  EXPECT_THAT(misfit(p, integers, out), HasSubstr("another type"));
  EXPECT_THAT(misfit(p, in, {out[0], of(DType::f16, {2, 3, 2, 8}), out[2]}), HasSubstr("output 1 is"));
}

TEST(Fit, AttentionThatRotates) {
  AttentionProblem p;
  p.appends = true;
  p.rotation.width = 6;
  const Operands in{f32({2, 6, 1, 8}), f32({2, 3, 7, 8}), f32({2, 3, 7, 4}), kAbsent,     kAbsent,
                    kAbsent,           f32({2, 3, 1, 8}), f32({2, 3, 1, 4}), f32({1, 3}), f32({2, 3})};
  const Operands out{f32({2, 6, 1, 4}), f32({2, 3, 1, 8}), f32({2, 3, 1, 4})};
  EXPECT_EQ(misfit(p, in, out), "no error");
  Operands others = in;
  others[8] = others[9] = f32({1, 6});
  EXPECT_EQ(misfit(p, others, out), "no error");
  others[9] = f32({1, 3});
  EXPECT_THAT(misfit(p, others, out), HasSubstr("input 9 is"));
  others[8] = f32({3, 3});
  EXPECT_THAT(misfit(p, others, out), HasSubstr("input 8 is"));
  EXPECT_THAT(misfit(p, {in.begin(), in.begin() + 9}, out), HasSubstr("input 9 is missing"));
  for (const int64_t width : {5, 10, 4}) { // odd, more than a head has, another number of cosines
    p.rotation.width = width;
    EXPECT_THAT(misfit(p, in, out), HasSubstr("3 cosines for")) << width;
  }
}

HostProblem host(const char* domain, const char* op, std::map<std::string, Attribute> attributes = {}) {
  return {domain, op, 1, std::move(attributes), {}, nullptr};
}

TEST(Fit, RecurrentLayers) {
  RecurrentProblem p;
  p.direction = RecurrentProblem::bidirectional;
  p.gives_y = p.gives_c = true;
  p.activations.resize(6);
  const Operands in{f32({7, 5, 24}), f32({2, 12, 3}), of(DType::i32, {5}),
                    f32({2, 5, 3}),  f32({2, 5, 3}),  f32({2, 9})};
  const Operands out{f32({7, 2, 5, 3}), f32({2, 5, 3})};
  expect_all_count(p, in, out);
  EXPECT_THAT(misfit(p, in, {f32({7, 2, 5, 3})}), HasSubstr("do not fit"));
  EXPECT_THAT(misfit(p, in, {out[0], out[1], out[1]}), HasSubstr("3 results of 2"));
  EXPECT_THAT(misfit(p, in, {f32({7, 2, 5, 3}), of(DType::i8, {2, 5, 3})}), HasSubstr("no floats"));
  Operands longs = in;
  longs[2] = of(DType::u8, {5});
  EXPECT_THAT(misfit(p, longs, out), HasSubstr("input 2 is of type uint8"));
  EXPECT_THAT(misfit(p, in, out, true), HasSubstr("of known sizes"));
  p.batch_first = true;
  expect_all_count(p, {f32({5, 7, 24}), in[1], in[2], f32({5, 2, 3})}, {f32({5, 7, 2, 3}), f32({5, 2, 3})});
}

/// A file may say any number of them: the steps read as many as there are gates.
TEST(Fit, LayersHaveAsManyActivationsAsGates) {
  using P = RecurrentProblem;
  const std::pair<P::Cell, int> cells[] = {{P::lstm, 4}, {P::gru, 3}, {P::gru_linear, 3}, {P::rnn, 1}};
  for (auto [cell, gates] : cells)
    for (P::Direction direction : {P::forward, P::reverse, P::bidirectional}) {
      P p;
      p.cell = cell, p.direction = direction, p.gives_h = true;
      const int64_t d = p.directions();
      const size_t right = p.activations_of_direction() * static_cast<size_t>(d);
      for (size_t n = 0; n <= right + 1; ++n) {
        p.activations.resize(n);
        const std::string error =
            misfit(p, {f32({7, 5, d * gates * 3}), f32({d, gates * 3, 3})}, {f32({d, 5, 3})});
        EXPECT_THAT(error, HasSubstr(n == right ? "no error" : "activations")) << to_string(p);
      }
    }
}

TEST(Fit, PackedProducts) {
  const PackedMatMulProblem product{32, 5, 16, 4, false};
  const Operands in{f32({3, 32}), of(DType::u8, {5, 2, 8}), f32({10}), kAbsent, f32({5})};
  EXPECT_EQ(misfit(product, in, {f32({3, 5})}), "no error");
  EXPECT_THAT(misfit(product, in, {f32({3, 6})}), HasSubstr("do not fit"));
  EXPECT_THAT(misfit(product, {f32({3, 31}), in[1], in[2]}, {f32({3, 5})}), HasSubstr("do not fit"));
  EXPECT_THAT(misfit(product, {in[0], in[1], in[2], in[3], of(DType::f16, {5})}, {f32({3, 5})}),
              HasSubstr("input 4 is of type float16")); // kernels read float32
  EXPECT_THAT(misfit(PackedMatMulProblem{32, 5, 16, 3, false}, in, {f32({3, 5})}), HasSubstr("of 3 bits"));
  EXPECT_THAT(misfit(PackedMatMulProblem{32, 5, 0, 4, true}, in, {f32({3, 5})}), HasSubstr("blocks of 0"));
}

TEST(Fit, Experts) {
  const Operands in{f32({3, 32}), of(DType::i64, {3, 2}), of(DType::u8, {4, 5, 16}),
                    f32({4, 5}),  f32({4, 5, 2}),         of(DType::u8, {4, 5, 1})};
  const Operands out{f32({3, 2, 5})};
  expect_all_count(ExpertsProblem{4, 16, false}, in, out);
  expect_all_count(ExpertsProblem{}, {in[0], in[1], f32({4, 5, 32}), in[3]}, out);
  expect_all_count(ExpertsProblem{4, 0, false},
                   {in[0], in[1], in[2], in[3], f32({4, 5}), of(DType::u8, {4, 3})}, out);
  EXPECT_THAT(misfit(ExpertsProblem{4, 0, true}, in, out), HasSubstr("rounded by no blocks"));
  EXPECT_THAT(misfit(ExpertsProblem{0, 0, false}, in, out), HasSubstr("uint8 of 0 bits"));
  Operands narrow = in;
  narrow[3] = of(DType::bf16, {4, 5});
  EXPECT_THAT(misfit(ExpertsProblem{4, 16, false}, narrow, out), HasSubstr("input 3 is of type bfloat16"));
}

TEST(Fit, ProductsOfOneRow) {
  RowProductProblem product;
  std::vector<OperandInfo> in = {f32({1, 32}), f32({32, 6}), f32({1, 6}), f32({1, 32}), {}};
  EXPECT_EQ(misfit(product, in, {f32({1, 6})}), "no error");
  EXPECT_THAT(misfit(product, in, {f32({1, 3})}), HasSubstr("6 columns for 3 results"));
  product.work.gate = RowWork::second;
  EXPECT_EQ(misfit(product, in, {f32({1, 3})}), "no error");
  EXPECT_THAT(misfit(product, in, {f32({1, 6})}), HasSubstr("6 columns for 6 results"));
  in[3] = f32({1, 31});
  EXPECT_THAT(misfit(product, in, {f32({1, 3})}), HasSubstr("input 3"));
  in[3] = {};
  in[0] = f32({2, 32});
  EXPECT_THAT(misfit(product, in, {f32({1, 3})}), HasSubstr("input 0"));
  in[0] = f32({1, 32});
  product.work.rounded = DType::i8;
  EXPECT_THAT(misfit(product, in, {f32({1, 3})}), HasSubstr("rounded to int8"));

  PackedMatMulProblem packed{32, 6, 16, 4, false};
  in = {f32({1, 32}), of(DType::u8, {6, 2, 8}), f32({12}), {}, {}, f32({1, 32}), f32({1, 32}), f32({1, 3})};
  packed.work = {RowWork::layer, RowWork::silu, RowWork::first};
  EXPECT_EQ(misfit(packed, in, {f32({1, 3})}), "no error");
  EXPECT_THAT(misfit(packed, in, {f32({1, 6})}), HasSubstr("6 columns for 6 results"));
  in[0] = f32({2, 32});
  EXPECT_THAT(misfit(packed, in, {f32({1, 3})}), HasSubstr("2 for 1"));
  in[0] = f32({1, 32}), in[6] = f32({1, 16});
  EXPECT_THAT(misfit(packed, in, {f32({1, 3})}), HasSubstr("input 6"));
}

/// What explain shows, and names in traces.
TEST(Problem, SaysWhatItIs) {
  RecurrentProblem layer;
  layer.direction = RecurrentProblem::bidirectional;
  layer.clip = 3, layer.gives_y = true, layer.batch_first = true;
  layer.activations = {{GateActivation::sigmoid}, {GateActivation::elu, 0.5}, {GateActivation::affine, 2, 1}};
  EXPECT_EQ(to_string(layer), "LSTM bidirectional sigmoid elu(0.5) affine(2, 1) clip 3 batch first +Y");
  layer = {};
  layer.cell = RecurrentProblem::gru_linear, layer.gives_h = true;
  EXPECT_EQ(to_string(layer), "GRU linear before reset +Y_h");
  EXPECT_EQ(to_string(PackedMatMulProblem{64, 5, 32, 4, true}),
            "MatMulNBits 64 x 5 of 4 bits in blocks of 32, activations rounded to 8 bits");
  RowProductProblem row;
  EXPECT_EQ(to_string(row), "RowMatMul");
  row.work = {RowWork::layer, RowWork::silu, RowWork::first};
  EXPECT_EQ(to_string(row), "RowMatMul of a normalised row +silu *second half");
  EXPECT_EQ(to_string(ExpertsProblem{}), "MoE");
  EXPECT_EQ(to_string(ExpertsProblem{8, 0, false}), "QMoE of 8 bits");
}

TEST(Fit, HostOperators) {
  const HostProblem top = host("", "TopK", {{"axis", int64_t{1}}});
  EXPECT_EQ(misfit(top, {f32({2, 9, 3})}, {f32({2, 4, 3}), of(DType::i64, {2, 4, 3})}), "no error");
  EXPECT_THAT(misfit(top, {f32({2, 9, 3})}, {f32({2, 4, 4}), of(DType::i64, {2, 4, 4})}),
              HasSubstr("axis 1"));
  EXPECT_THAT(misfit(top, {f32({2, 9, 3})}, {f32({2, 4, 3}), of(DType::i64, {2, 4, 2})}),
              HasSubstr("axis 1"));
  EXPECT_THAT(misfit(top, {f32({2, 9, 3})}, {f32({2, 4, 3}), of(DType::i32, {2, 4, 3})}),
              HasSubstr("of type int32"));
  EXPECT_THAT(misfit(top, {f32({2, 9, 3})}, {of(DType::f64, {2, 4, 3}), of(DType::i64, {2, 4, 3})}),
              HasSubstr("of type float64"));
  EXPECT_THAT(misfit(host("", "Det"), {f32({2, 3, 3})}, {f32({4})}), HasSubstr("a result for each matrix"));
  HostProblem positions = host("", "NonZero");
  positions.output_types = {DType::i64};
  EXPECT_EQ(misfit(positions, {f32({2, 3})}, {of(DType::i64, {-1, -1})}, true), "no error");
  EXPECT_EQ(misfit(positions, {f32({2, 3})}, {}, true), "no error"); // in a run
  EXPECT_THAT(misfit(positions, {f32({2, 3})}, {}), HasSubstr("output 0 is missing"));
  EXPECT_THAT(misfit(positions, {f32({2, 3})}, {of(DType::i64, {2, 6})}), HasSubstr("known, or not"));
  positions.output_types.clear();
  EXPECT_THAT(misfit(positions, {f32({2, 3})}, {of(DType::i64, {-1, -1})}, true),
              HasSubstr("output 0 is of type"));
}

/// A kernel without a line in the table would be run with anything.
TEST(Fit, EveryHostKernelSaysWhatItTakes) {
  const HostProblem all[] = {
#define TBX_HOST(domain, op, function) host(domain, op),
#define TBX_HOST_MADE TBX_HOST
#include "extern_kernels/host/host_kernels.inc"
#undef TBX_HOST
#undef TBX_HOST_MADE
  };
  for (const HostProblem& p : all) EXPECT_THAT(misfit(p, {}, {}), HasSubstr("is missing")) << p.op;
}

} // namespace
} // namespace tbx::extern_kernels
