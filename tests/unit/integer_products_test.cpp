// Products of 8-bit integers by the library against plain loops: equal to the last bit, extreme values
// included.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "extern_kernels/catalogue.h"
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

namespace {

std::mt19937 rng(20261121);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

struct Operand {
  Dims strides;
  std::shared_ptr<Tensor> tensor;
  TensorRef ref() { return {tensor->mutable_data(), tensor->dtype, tensor->dims, strides}; }
  OperandInfo info(bool constant = false) const {
    return {tensor->dtype, tensor->dims, strides, constant ? tensor : nullptr};
  }
};

/// Dense over the dimensions in `order`, outermost first; a third of the bytes at the ends of their range.
Operand make(DType type, const Dims& sizes, std::vector<int> order = {}) {
  Operand t{dense_strides(sizes, std::move(order)), std::make_shared<Tensor>(Tensor::make(type, sizes))};
  for (int64_t i = 0; i < t.tensor->numel(); ++i) {
    int byte = pick(0, 2) ? pick(0, 255) : pick(0, 1) * 255;
    if (type == DType::u8) t.tensor->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(byte);
    if (type == DType::i8) t.tensor->as_mutable<int8_t>()[i] = static_cast<int8_t>(byte - 128);
    if (type == DType::i32) t.tensor->as_mutable<int32_t>()[i] = byte - 128;
    if (type == DType::f32) t.tensor->as_mutable<float>()[i] = static_cast<float>(byte) * 0.01f;
  }
  return t;
}

void run(const ExternKernel& kernel, std::vector<Operand>& in, Operand& out) {
  std::vector<TensorRef> inputs, outputs{out.ref()};
  for (Operand& t : in) inputs.push_back(t.tensor ? t.ref() : TensorRef{});
  run(kernel, inputs, outputs);
}

/// Scale, bias per channel (dimension `channel`), then maybe quantisation; the type of the result.
DType add_post_ops(std::vector<PostOp>& ops, std::vector<Operand>& in, const Dims& sizes, size_t channel) {
  int kind = pick(0, 3);
  if (kind == 0) return DType::i32;
  while (in.size() < 3) in.emplace_back();
  Dims row(sizes.size(), 1);
  row[channel] = sizes[channel];
  auto operand = [&](const Dims& s) {
    in.push_back(make(DType::f32, s));
    return static_cast<int>(in.size()) - 1;
  };
  ops.push_back({PostOp::mul, 0, 0, operand(pick(0, 1) ? row : Dims(sizes.size(), 1))});
  ops.push_back({PostOp::add, 0, 0, operand(row)});
  if (kind == 1) return DType::f32;
  in.push_back(make(DType::f32, Dims(sizes.size(), 1)));
  in.back().tensor->as_mutable<float>()[0] = 37.3f;
  ops.push_back({PostOp::div, 0, 0, static_cast<int>(in.size()) - 1});
  ops.push_back({PostOp::round});
  DType type = kind == 2 ? DType::u8 : DType::i8;
  float low = kind == 2 ? 0 : -128;
  if (pick(0, 1)) ops.push_back({PostOp::linear, 1, low + 3});
  ops.push_back({PostOp::clip, low, low + 255});
  return type;
}

void expect_equal(const Operand& got, const Operand& want, const std::string& what) {
  ASSERT_EQ(std::memcmp(got.tensor->data, want.tensor->data, static_cast<size_t>(got.tensor->bytes())), 0)
      << what;
}

Operand zero_point(DType of) {
  Operand z = make(DType::i32, {1});
  z.tensor->as_mutable<int32_t>()[0] = of == DType::u8 ? pick(0, 255) : pick(-128, 127);
  return z;
}

Operand same_again(const Operand& t) {
  return {t.strides, std::make_shared<Tensor>(Tensor::make(t.tensor->dtype, t.tensor->dims))};
}

TEST(IntegerProducts, MatrixProductsAreExact) {
  int by_library = 0;
  for (int trial = 0; trial < 150; ++trial) {
    MatMulProblem p;
    int64_t m = pick(1, 40), k = pick(1, 250), n = pick(1, 70), batch = pick(0, 3) ? 0 : pick(1, 3);
    DType a_type = pick(0, 1) ? DType::u8 : DType::i8;
    auto shape = [&](int64_t rows, int64_t columns) {
      return batch ? Dims{batch, rows, columns} : Dims{rows, columns};
    };
    std::vector<int> order = batch ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1}, swapped = order;
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    std::vector<Operand> in{make(a_type, shape(m, k), pick(0, 3) ? order : swapped),
                            make(DType::i8, shape(k, n), pick(0, 1) ? order : swapped),
                            {}};
    auto add_zero = [&](int& number, DType of) {
      if (pick(0, 1)) return;
      number = static_cast<int>(in.size());
      in.push_back(zero_point(of));
    };
    add_zero(p.a_zero, a_type);
    add_zero(p.b_zero, DType::i8);
    Dims y = shape(m, n);
    DType type = add_post_ops(p.post_ops, in, y, y.size() - 1);
    Operand got = make(type, y), want = same_again(got);
    std::vector<OperandInfo> infos, outs{got.info()};
    for (const Operand& t : in) infos.push_back(t.tensor ? t.info() : OperandInfo{});
    if (pick(0, 1)) infos[1] = in[1].info(true);
    Selection s = select(Problem(p), infos, outs);
    by_library += s.chosen == "onednn_matmul";
    run(*s.kernel, in, got);
    run(*make_reference_matmul(Problem(p), infos, outs), in, want);
    expect_equal(got, want, to_string(Problem(p)) + " by " + s.kernel->description());
  }
  EXPECT_EQ(by_library, least_byte_group() == 1 ? 150 : 0);
}

TEST(IntegerProducts, ConvolutionsAreExact) {
  int by_library = 0;
  for (int trial = 0; trial < 150; ++trial) {
    ConvProblem p;
    int rank = pick(0, 3) ? 2 : pick(1, 3);
    p.spatial_rank = rank;
    p.group = std::vector<int64_t>{1, 1, 2, 4}[pick(0, 3)];
    int64_t cg = pick(1, 40), mg = pick(1, 20), n = pick(1, 2);
    if (pick(0, 4) == 0) {
      p.group = pick(2, 40);
      cg = mg = 1;
    }
    Dims x{n, cg * p.group}, w{mg * p.group, cg}, y{n, mg * p.group};
    for (int d = 0; d < rank; ++d) {
      int64_t kernel = pick(1, 3), stride = pick(1, 2), dilation = pick(1, 2), size = pick(5, 9);
      int64_t extent = (kernel - 1) * dilation + 1;
      p.strides.push_back(stride);
      p.dilations.push_back(dilation);
      p.pads_begin.push_back(pick(0, static_cast<int>(kernel) - 1));
      p.pads_end.push_back(pick(0, static_cast<int>(kernel) - 1));
      x.push_back(size);
      w.push_back(kernel);
      y.push_back((size + p.pads_begin[d] + p.pads_end[d] - extent) / stride + 1);
    }
    DType x_type = pick(0, 1) ? DType::u8 : DType::i8;
    std::vector<Operand> in{make(x_type, x, channels_last(x.size())), make(DType::i8, w), {}};
    if (pick(0, 2)) {
      p.x_zero = static_cast<int>(in.size());
      in.push_back(zero_point(x_type));
    }
    DType type = add_post_ops(p.post_ops, in, y, 1);
    Operand got = make(type, y, channels_last(y.size())), want = same_again(got);
    std::vector<OperandInfo> infos, outs{got.info()};
    for (const Operand& t : in) infos.push_back(t.tensor ? t.info() : OperandInfo{});
    infos[1] = in[1].info(true);
    Selection s = select(Problem(p), infos, outs);
    by_library += s.chosen == "onednn_conv";
    run(*s.kernel, in, got);
    run(*make_reference_conv(Problem(p), infos, outs), in, want);
    expect_equal(got, want, to_string(Problem(p)) + " by " + s.kernel->description());
  }
  EXPECT_GE(by_library, least_byte_group() == 1 ? 140 : 0); // not where sums may be large
}

/// Bytes at the upper ends of their ranges: sums beyond what float32 holds exactly, by whatever computes
/// them.
Operand large(DType type, const Dims& sizes) {
  Operand t = make(type, sizes);
  for (int64_t i = 0; i < t.tensor->numel(); ++i) {
    const int byte = pick(180, 255);
    if (type == DType::u8) t.tensor->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(byte);
    if (type == DType::i8) t.tensor->as_mutable<int8_t>()[i] = static_cast<int8_t>(byte - 128);
  }
  return t;
}

int64_t element(const Operand& t, int64_t i) {
  if (t.tensor->dtype == DType::u8) return t.tensor->as_mutable<uint8_t>()[i];
  if (t.tensor->dtype == DType::i8) return t.tensor->as_mutable<int8_t>()[i];
  return t.tensor->as_mutable<int32_t>()[i];
}

TEST(IntegerProducts, SumsAbove24BitsAreExact) {
  for (int64_t k : {256, 257, 515, 1024, 3072})
    for (DType type : {DType::u8, DType::i8})
      for (int zeros = 0; zeros < 3; ++zeros)
        for (bool constant : {false, true}) {
          const int64_t m = zeros == 1 ? 1 : 3, n = 17;
          MatMulProblem p;
          std::vector<Operand> in{large(type, {m, k}), large(DType::i8, {k, n}), {}};
          auto zero = [&](int value) {
            in.push_back(make(DType::i32, {1}));
            in.back().tensor->as_mutable<int32_t>()[0] = value;
            return static_cast<int>(in.size()) - 1;
          };
          if (zeros > 0) p.a_zero = zero(3);
          if (zeros > 1) p.b_zero = zero(-5);
          Operand got = make(DType::i32, {m, n});
          std::vector<OperandInfo> infos, outs{got.info()};
          for (const Operand& t : in) infos.push_back(t.tensor ? t.info() : OperandInfo{});
          infos[1] = in[1].info(constant);
          Selection s = select(Problem(p), infos, outs);
          run(*s.kernel, in, got);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              int64_t want = 0;
              for (int64_t l = 0; l < k; ++l)
                want += (element(in[0], i * k + l) - (zeros > 0 ? 3 : 0)) *
                        (element(in[1], l * n + j) + (zeros > 1 ? 5 : 0));
              ASSERT_EQ(element(got, i * n + j), want) << s.chosen << ", " << k << " terms";
            }
        }
}

TEST(IntegerProducts, ConvolutionsOfSumsAbove24BitsAreExact) {
  for (int64_t channels : {64, 512, 2048})
    for (DType type : {DType::u8, DType::i8})
      for (bool has_zero : {false, true}) {
        const int64_t size = 3, outputs = 5, taps = channels == 512 ? 3 : 1;
        ConvProblem p;
        p.strides = p.dilations = {1, 1};
        p.pads_begin = p.pads_end = {0, 0};
        std::vector<Operand> in{
            large(type, {1, channels, size, size}), large(DType::i8, {outputs, channels, taps, taps}), {}};
        if (has_zero) {
          p.x_zero = 3;
          in.push_back(make(DType::i32, {1}));
          in.back().tensor->as_mutable<int32_t>()[0] = 7;
        }
        const int64_t left = size - taps + 1;
        Operand got = make(DType::i32, {1, outputs, left, left});
        std::vector<OperandInfo> infos, outs{got.info()};
        for (const Operand& t : in) infos.push_back(t.tensor ? t.info() : OperandInfo{});
        infos[1] = in[1].info(true);
        Selection s = select(Problem(p), infos, outs);
        run(*s.kernel, in, got);
        for (int64_t o = 0; o < outputs; ++o)
          for (int64_t y = 0; y < left; ++y)
            for (int64_t x = 0; x < left; ++x) {
              int64_t want = 0;
              for (int64_t c = 0; c < channels; ++c)
                for (int64_t t = 0; t < taps * taps; ++t)
                  want +=
                      (element(in[0], (c * size + y + t / taps) * size + x + t % taps) - (has_zero ? 7 : 0)) *
                      element(in[1], (o * channels + c) * taps * taps + t);
              ASSERT_EQ(element(got, (o * left + y) * left + x), want) << s.chosen << ", " << channels;
            }
      }
}

TEST(IntegerProducts, WithoutExactInstructionsTheReasonIsRecorded) {
  OperandInfo a{DType::u8, {2, 2}, {2, 1}, nullptr}, b{DType::i8, {2, 2}, {2, 1}, nullptr},
      c{DType::i32, {2, 2}, {2, 1}, nullptr};
  Selection s = select(MatMulProblem{}, std::vector{a, b}, std::vector{c});
  if (least_byte_group() == 1) {
    EXPECT_EQ(s.chosen, "onednn_matmul");
    return;
  }
  EXPECT_EQ(s.chosen, least_byte_group() > 0 ? "byte_matmul" : "direct_matmul");
  bool told = false;
  for (const std::string& r : s.refusals) told |= r.find("16 bits") != std::string::npos;
  EXPECT_TRUE(told || s.refusals.size() < 2);
}

} // namespace
} // namespace tbx::extern_kernels
