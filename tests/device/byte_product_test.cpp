// Our products and convolutions of 8-bit integers against plain loops: the text runs in the emulator always,
// on a GPU where there is one. Sums are exact, so results must be equal.
#include <gtest/gtest.h>

#include "byte_kernels_helper.h"
#include "extern_kernels/cuda/select.h"

namespace tbx::test {
namespace {

class ByteProduct : public ByteKernels {
protected:
  void check(const Problem& p, const std::vector<Operand>& in, const Operand& out) {
    constexpr int kMultiprocessors = 2; // so that few tiles are shared by few blocks
    expect_right(*device_, *make(p, infos_of(in), infos_of({out}), kMultiprocessors), p, in, out);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ByteProduct, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

struct Sizes {
  Dims a, b;
};

/// Rows that fill no tile, terms that are no multiple of 16, many terms, none, batches on either side.
TEST_P(ByteProduct, Products) {
  const Sizes cases[] = {{{5, 64}, {64, 9}},       {{70, 33}, {33, 66}},
                         {{1, 1}, {1, 1}},         {{3, 1024}, {1024, 20}},
                         {{2, 3, 17}, {2, 17, 5}}, {{2, 3, 4, 48}, {1, 1, 48, 5}},
                         {{3, 2, 32}, {1, 32, 7}}, {{2, 2, 3, 20}, {2, 1, 20, 5}},
                         {{3, 0}, {0, 4}},         {{0, 16}, {16, 4}}};
  int form = 0;
  for (const Sizes& c : cases)
    for (int i = 0; i < 4; ++i) {
      if (is_fake() && (form++ / 4 + i) % 2 != 0)
        continue; // emulated threads are slow: each form with some sizes
      const DType left = i % 2 == 0 ? DType::u8 : DType::i8, right = i < 2 ? DType::i8 : DType::u8;
      MatMulProblem p;
      std::vector<Operand> in{bytes_operand(left, c.a), bytes_operand(right, c.b), {}};
      if (i == 1) { // columns beside each other
        std::vector<int> order(c.b.size());
        for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
        std::swap(order[order.size() - 1], order[order.size() - 2]);
        in[1] = bytes_operand(right, c.b, order);
      }
      in[1].constant = i != 3;
      if (i != 1)
        p.a_zero = static_cast<int>(in.size()), in.push_back(zero_point(left == DType::u8 ? 131 : -7));
      if (i > 1)
        p.b_zero = static_cast<int>(in.size()), in.push_back(zero_point(right == DType::u8 ? 128 : 3));
      Dims sizes = c.a;
      for (size_t d = 0; d + 2 < sizes.size(); ++d) sizes[d] = std::max(c.a[d], c.b[d]);
      sizes.back() = c.b.back();
      Dims row(sizes.size(), 1);
      row.back() = sizes.back();
      DType result = DType::i32;
      if (i == 2) { // dequantised, a residual, Relu
        result = DType::f32;
        in.push_back(random_operand(DType::f32, row));
        p.post_ops.push_back({PostOp::mul, 0, 0, static_cast<int>(in.size()) - 1});
        in.push_back(random_operand(DType::f32, sizes));
        p.post_ops.push_back({PostOp::add, 0, 0, static_cast<int>(in.size()) - 1});
        p.post_ops.push_back({form % 8 < 4 ? PostOp::relu : PostOp::gelu_erf});
      }
      if (i == 3) { // quantised
        result = right;
        p.post_ops = {{PostOp::linear, 1.0f / 512, 3}, {PostOp::round}};
      }
      check(p, in, random_operand(result, sizes));
    }
}

/// Images of few and of many channels, windows that reach out of them, groups, channels first and last.
TEST_P(ByteProduct, Convolutions) {
  struct Case {
    Dims x, w;
    int64_t group, stride, dilation, pad;
    bool last;
  };
  const Case cases[] = {{{1, 3, 9, 9}, {20, 3, 7, 7}, 1, 2, 1, 3, true},
                        {{2, 16, 5, 5}, {5, 16, 3, 3}, 1, 1, 1, 1, true},
                        {{1, 64, 7, 3}, {70, 64, 1, 1}, 1, 1, 1, 0, true},
                        {{1, 32, 6, 6}, {8, 16, 3, 3}, 2, 1, 2, 2, true},
                        {{1, 20, 6}, {9, 20, 3}, 1, 2, 1, 0, false},
                        {{1, 6, 4, 3, 3}, {2, 6, 2, 2, 2}, 1, 1, 1, 1, false},
                        {{1, 32, 5, 5}, {4, 32, 1, 1}, 1, 2, 1, 0, true},
                        {{1, 48, 4, 4}, {4, 48, 3, 3}, 1, 1, 1, 1, false},
                        {{0, 16, 4, 4}, {4, 16, 3, 3}, 1, 1, 1, 1, true}};
  int form = 0;
  for (const Case& c : cases) {
    const int i = form++ % 3;
    const size_t space = c.x.size() - 2;
    ConvProblem p;
    p.spatial_rank = static_cast<int>(space);
    p.group = c.group;
    p.strides.assign(space, c.stride), p.dilations.assign(space, c.dilation);
    p.pads_begin.assign(space, c.pad), p.pads_end.assign(space, c.pad);
    const auto order = c.last ? channels_last(c.x.size()) : std::vector<int>();
    std::vector<Operand> in{
        bytes_operand(i == 1 ? DType::i8 : DType::u8, c.x, order), bytes_operand(DType::i8, c.w), {}};
    in[1].constant = i != 2;
    Dims sizes{c.x[0], c.w[0]};
    for (size_t d = 0; d < space; ++d)
      sizes.push_back((c.x[2 + d] + 2 * c.pad - (c.w[2 + d] - 1) * c.dilation - 1) / c.stride + 1);
    if (i == 0) p.x_zero = 3, in.push_back(zero_point(121));
    DType result = DType::i32;
    if (i == 1) {
      p.has_bias = true;
      in[2] = random_operand(DType::i32, {c.w[0]});
      in.push_back(random_operand(DType::f32, [&] {
        Dims channel(sizes.size(), 1);
        channel[1] = sizes[1];
        return channel;
      }()));
      in.push_back(bytes_operand(DType::u8, sizes, order));
      p.post_ops = {{PostOp::mul, 0, 0, 3},
                    {PostOp::linear, 1.0f / 128, 0},
                    {PostOp::add, 0, 0, 4},
                    {PostOp::round},
                    {PostOp::clip, 0, 200}};
      result = DType::u8;
    }
    check(p, in, random_operand(result, sizes, order));
  }
}

TEST_P(ByteProduct, IsChosen) {
  MatMulProblem p;
  p.a_zero = 3;
  std::vector<Operand> in{
      bytes_operand(DType::u8, {3, 32}), bytes_operand(DType::i8, {32, 16}), {}, zero_point(3)};
  in[1].constant = true;
  EXPECT_EQ(expect_right(*device_, p, in, random_operand(DType::i32, {3, 16})).candidate,
            "cuda_byte_product");
  ConvProblem conv;
  conv.strides = conv.dilations = {1, 1}, conv.pads_begin = conv.pads_end = {0, 0};
  conv.group = 4;
  const std::vector<Operand> few{
      bytes_operand(DType::u8, {1, 8, 3, 3}), bytes_operand(DType::i8, {8, 2, 1, 1}), {}};
  EXPECT_EQ(expect_right(*device_, conv, few, random_operand(DType::i32, {1, 8, 3, 3})).candidate,
            "cuda_conv");
}

} // namespace
} // namespace tbx::test
