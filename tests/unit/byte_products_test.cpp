// Products of 8-bit integers by kernels of our own, on every CPU that has their instructions, against plain
// loops over the elements: at sizes 0, 1, odd and real, with every post-operation they take.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "base/caches.h"
#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

std::string supports_byte_matmul(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                                 const Target&);
std::unique_ptr<ExternKernel> make_byte_matmul(const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>);
std::string supports_byte_conv(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                               const Target&);
std::unique_ptr<ExternKernel> make_byte_conv(const Problem&, std::span<const OperandInfo>,
                                             std::span<const OperandInfo>);

namespace {

std::mt19937 rng(20261124);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

/// In every form that this CPU multiplies.
template <class F> void in_all_forms(F&& f) {
  const bool has_quads = bytes::best_form() == bytes::Form::quads;
  const std::mt19937 start = rng; // the same cases for all
  for (const bytes::Form form : {bytes::Form::pairs, bytes::Form::quads, bytes::Form::bounded_quads}) {
    if (form == bytes::Form::quads && !has_quads) continue;
    const bytes::PretendedForm pretended(form);
    SCOPED_TRACE(fmt::format("form {}", static_cast<int>(form)));
    rng = start;
    f();
    if (testing::Test::HasFatalFailure()) return;
  }
}

struct Operand : OwnedOperand {
  Operand() = default;
  Operand(DType type, Dims s, std::vector<int> order = {})
      : OwnedOperand(type, std::move(s), std::move(order)) {
    for (int64_t i = 0; i < tensor->numel(); ++i) set(i, pick(0, 3) ? pick(0, 255) : 255 * pick(0, 1));
  }
  void set(int64_t i, int byte) {
    if (dtype == DType::u8) tensor->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(byte);
    if (dtype == DType::i8) tensor->as_mutable<int8_t>()[i] = static_cast<int8_t>(byte - 128);
    if (dtype == DType::i32) tensor->as_mutable<int32_t>()[i] = byte - 100;
    if (dtype == DType::f32) tensor->as_mutable<float>()[i] = static_cast<float>(byte) * 0.007f - 0.4f;
  }
};

Operand zero_point(DType of) {
  Operand z(DType::i32, {1});
  z.tensor->as_mutable<int32_t>()[0] = of == DType::u8 ? pick(0, 255) : pick(-128, 127);
  return z;
}

/// Rows as they mostly are: few bytes are large, so that products of two fit into 16 bits.
void make_bytes_small(Operand& x) {
  for (int64_t i = 0; i < x.tensor->numel(); ++i) x.set(i, pick(0, 60) ? pick(0, 127) : pick(128, 255));
}

/// Weights of which few are large.
void make_mostly_small(Operand& w) {
  uint32_t state = 7;
  for (int64_t i = 0; i < w.tensor->numel(); ++i) {
    state = state * 1664525 + 1013904223;
    w.set(i,
          state >> 25 ? 64 + static_cast<int>(state >> 18 & 127) : static_cast<int>(state >> 16 & 1) * 255);
  }
}

/// Each kind of post-operation that is taken, in some order, the last of them for a result of bytes;
/// `columns` is the dimension of the columns.
DType add_post_ops(std::vector<PostOp>& ops, std::vector<Operand>& in, const Dims& sizes, size_t columns) {
  const int result = pick(0, 3); // i32, f32, u8, i8
  if (result == 0) return DType::i32;
  constexpr int kColumns = 1;
  auto operand = [&](DType type, bool is_divisor = false, int form = pick(0, 3)) {
    Dims s(sizes.size(), 1); // one number, one for each column, whole, one for each row
    if (form == kColumns) s[columns] = sizes[columns];
    if (form >= 2) s = sizes;
    if (form == 3) s[columns] = 1;
    Operand t(type, s, pick(0, 1) && s.size() > 2 ? channels_last(s.size()) : std::vector<int>{});
    if (is_divisor)
      for (int64_t i = 0; i < t.tensor->numel(); ++i)
        t.tensor->as_mutable<float>()[i] = 0.5f + 0.01f * pick(0, 99);
    in.push_back(std::move(t));
    return static_cast<int>(in.size()) - 1;
  };
  ops.push_back({PostOp::linear, 0.001f, 0.25f});
  static constexpr PostOp::Kind kKinds[] = {
      PostOp::relu,         PostOp::leaky_relu, PostOp::clip,    PostOp::linear,
      PostOp::hard_sigmoid, PostOp::hard_swish, PostOp::add,     PostOp::sub,
      PostOp::mul,          PostOp::div,        PostOp::round,   PostOp::gelu_erf,
      PostOp::gelu_tanh,    PostOp::silu,       PostOp::sigmoid, PostOp::tanh};
  for (int i = pick(0, 4); i > 0; --i) {
    PostOp op{kKinds[pick(0, static_cast<int>(std::size(kKinds)) - 1)], 0.5f, 0.75f};
    if (op.kind == PostOp::clip) op.alpha = -3;
    if (op.kind >= PostOp::add) {
      static constexpr DType kTypes[] = {DType::f32, DType::f32, DType::u8, DType::i8};
      op.operand = op.kind == PostOp::div ? operand(DType::f32, true) : operand(kTypes[pick(0, 3)]);
    }
    ops.push_back(op);
  }
  if (result == 1) return DType::f32;
  ops.push_back({PostOp::linear, 30, 0});
  ops.push_back({PostOp::round});
  const float low = result == 2 ? 0 : -128;
  if (pick(0, 1)) ops.push_back({PostOp::clip, low, low + 255});
  return result == 2 ? DType::u8 : DType::i8;
}

/// A sum as it is stored; `i` numbers the element of the result, row by row.
double finished(int64_t sum, int64_t i, const std::vector<PostOp>& ops, const std::vector<Operand>& in,
                const Operand& out) {
  if (out.dtype == DType::i32) return static_cast<int32_t>(static_cast<uint32_t>(sum));
  double v = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(sum)));
  for (const PostOp& op : ops) {
    double y = 0;
    if (op.operand >= 0) {
      const Operand& t = in[static_cast<size_t>(op.operand)];
      int64_t at = 0, rest = i;
      for (size_t d = out.sizes.size(); d-- > 0; rest /= out.sizes[d])
        if (t.sizes[d] != 1) at += rest % out.sizes[d] * t.strides[d];
      y = element_as_double(*t.tensor, at);
    }
    v = static_cast<float>(apply_post_op(op, v, y));
  }
  if (out.dtype == DType::u8) return std::clamp(std::nearbyint(v), 0.0, 255.0);
  if (out.dtype == DType::i8) return std::clamp(std::nearbyint(v), -128.0, 127.0);
  return v;
}

double at_place(const Operand& t, const Dims& index) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * t.strides[d];
  return element_as_double(*t.tensor, at);
}

/// Bytes are equal but for ties that a rounding in float32 decides; floats within a few of those.
void expect_near(double got, double want, DType type, const std::string& what) {
  if (type == DType::i32)
    ASSERT_EQ(got, want) << what;
  else if (is_byte(type))
    ASSERT_NEAR(got, want, 1) << what;
  else
    ASSERT_NEAR(got, want, 1e-5 * (1 + std::fabs(want))) << what;
}

struct Call {
  std::vector<Operand> in;
  Operand out;
  std::vector<OperandInfo> infos() const {
    std::vector<OperandInfo> all;
    for (const Operand& t : in) all.push_back(t.tensor ? t.info() : OperandInfo{});
    return all;
  }
  void run(const ExternKernel& kernel) const {
    std::vector<TensorRef> inputs, outputs{out.ref()};
    for (const Operand& t : in) inputs.push_back(t.ref());
    extern_kernels::run(kernel, inputs, outputs);
  }
};

void check_matmul(int64_t batch, int64_t m, int64_t k, int64_t n) {
  MatMulProblem p;
  const DType left = pick(0, 1) ? DType::u8 : DType::i8, right = pick(0, 1) ? DType::u8 : DType::i8;
  const bool b_batched = batch > 0 && pick(0, 1), a_batched = !b_batched || pick(0, 1);
  auto shape = [&](bool batched, int64_t rows, int64_t columns) {
    return batch > 0 ? Dims{batched ? batch : 1, rows, columns} : Dims{rows, columns};
  };
  std::vector<int> turned = batch > 0 ? std::vector<int>{0, 2, 1} : std::vector<int>{1, 0};
  Call c;
  c.in = {Operand(left, shape(a_batched, m, k), pick(0, 2) ? std::vector<int>{} : turned),
          Operand(right, shape(b_batched, k, n), pick(0, 2) ? std::vector<int>{} : turned),
          {}};
  if (bytes::best_form() == bytes::Form::bounded_quads && k % 2 == 0) make_mostly_small(c.in[1]);
  if (pick(0, 1)) make_bytes_small(c.in[0]);
  auto add_zero = [&](int& number, DType of) {
    if (pick(0, 1)) return;
    number = static_cast<int>(c.in.size());
    c.in.push_back(zero_point(of));
  };
  add_zero(p.a_zero, left);
  add_zero(p.b_zero, right);
  const Dims sizes = shape(a_batched || b_batched, m, n);
  const DType type = add_post_ops(p.post_ops, c.in, sizes, sizes.size() - 1);
  c.out = Operand(type, sizes);
  std::vector<OperandInfo> infos = c.infos(), outs{c.out.info()};
  if (pick(0, 1)) infos[1] = c.in[1].info(true);
  const std::string what =
      to_string(Problem(p)) + " " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  ASSERT_EQ(supports_byte_matmul(p, infos, outs, host_target()), "") << what;
  c.run(*make_byte_matmul(p, infos, outs));
  auto zero = [&](int number) {
    return number < 0 ? 0 : c.in[static_cast<size_t>(number)].tensor->as<int32_t>()[0];
  };
  auto index = [&](const Operand& t, int64_t g, int64_t i, int64_t j) {
    return batch > 0 ? Dims{t.sizes[0] == 1 ? 0 : g, i, j} : Dims{i, j};
  };
  for (int64_t i = 0; i < c.out.tensor->numel(); ++i) {
    const int64_t column = i % n, row = i / n % m, g = i / n / m;
    int64_t sum = 0;
    for (int64_t l = 0; l < k; ++l)
      sum += (static_cast<int64_t>(at_place(c.in[0], index(c.in[0], g, row, l))) - zero(p.a_zero)) *
             (static_cast<int64_t>(at_place(c.in[1], index(c.in[1], g, l, column))) - zero(p.b_zero));
    expect_near(element_as_double(*c.out.tensor, i), finished(sum, i, p.post_ops, c.in, c.out), type, what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ByteProducts, MatrixProductsOfAllSizes) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  const int64_t sizes[] = {0, 1, 2, 5, 6, 7, 15, 16, 17, 33};
  in_all_forms([&] {
    for (int64_t m : sizes)
      for (int64_t n : sizes)
        for (int64_t k : {0, 1, 2, 3, 16, 31, 130}) check_matmul(pick(0, 2) ? 0 : pick(1, 3), m, k, n);
  });
}

TEST(ByteProducts, MatrixProductsOfLayers) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    check_matmul(0, 128, 768, 96);
    check_matmul(0, 49, 3072, 65);
    check_matmul(3, 64, 64, 64);
    check_matmul(0, 1, 4099, 257);
  });
}

struct Layer {
  int rank;
  int64_t images, group, depth, columns, kernel, stride, dilation, pad, size;
};

void check_conv(const Layer& l) {
  ConvProblem p;
  p.spatial_rank = l.rank;
  p.group = l.group;
  Dims x{l.images, l.depth * l.group}, w{l.columns * l.group, l.depth}, y{l.images, l.columns * l.group};
  for (int d = 0; d < l.rank; ++d) {
    // Dimensions differ: the last one is a little longer, and its begin has less padding than its end.
    const int64_t size = l.size + d, extent = (l.kernel - 1) * l.dilation + 1;
    p.strides.push_back(l.stride);
    p.dilations.push_back(l.dilation);
    p.pads_begin.push_back(std::max<int64_t>(0, l.pad - d));
    p.pads_end.push_back(l.pad);
    x.push_back(size);
    w.push_back(l.kernel);
    y.push_back((size + p.pads_begin.back() + l.pad - extent) / l.stride + 1);
  }
  const DType left = pick(0, 1) ? DType::u8 : DType::i8, right = pick(0, 1) ? DType::u8 : DType::i8;
  const std::vector<int> last = channels_last(x.size());
  Call c;
  c.in = {Operand(left, x, pick(0, 2) ? last : std::vector<int>{}),
          Operand(right, w, pick(0, 2) ? std::vector<int>{} : last),
          {}};
  if (bytes::best_form() == bytes::Form::bounded_quads && l.depth % 2 == 0) make_mostly_small(c.in[1]);
  if (pick(0, 1)) make_bytes_small(c.in[0]);
  if (pick(0, 2)) {
    p.x_zero = static_cast<int>(c.in.size());
    c.in.push_back(zero_point(left));
  }
  const DType type = add_post_ops(p.post_ops, c.in, y, 1);
  c.out = Operand(type, y, pick(0, 2) ? last : std::vector<int>{});
  std::vector<OperandInfo> infos = c.infos(), outs{c.out.info()};
  if (pick(0, 3)) infos[1] = c.in[1].info(true);
  const std::string what = to_string(Problem(p));
  const std::string refusal = supports_byte_conv(p, infos, outs, host_target());
  if (p.post_ops.empty() && refusal == "few results: taps first, sums after") return; // direct_conv's
  ASSERT_EQ(refusal, "") << what;
  c.run(*make_byte_conv(p, infos, outs));
  const int64_t zero = p.x_zero < 0 ? 0 : c.in[static_cast<size_t>(p.x_zero)].tensor->as<int32_t>()[0];
  int64_t taps = 1, numel = 1;
  for (int d = 0; d < l.rank; ++d) taps *= l.kernel;
  for (int64_t s : y) numel *= s;
  for (int64_t i = 0; i < numel; ++i) {
    Dims place(y.size());
    for (int64_t d = static_cast<int64_t>(y.size()) - 1, rest = i; d >= 0; --d) {
      place[static_cast<size_t>(d)] = rest % y[static_cast<size_t>(d)];
      rest /= y[static_cast<size_t>(d)];
    }
    int64_t sum = 0;
    for (int64_t t = 0; t < taps; ++t) {
      Dims from{place[0], 0}, of{place[1], 0};
      bool inside = true;
      for (int64_t d = 0, rest = t * l.kernel; d < l.rank; ++d) {
        int64_t tap = rest / l.kernel;
        for (int64_t e = d + 1; e < l.rank; ++e) tap /= l.kernel;
        tap %= l.kernel;
        const int64_t at = place[static_cast<size_t>(d + 2)] * l.stride + tap * l.dilation -
                           p.pads_begin[static_cast<size_t>(d)];
        inside &= at >= 0 && at < x[static_cast<size_t>(d + 2)];
        from.push_back(at);
        of.push_back(tap);
      }
      for (int64_t k = 0; inside && k < l.depth; ++k) {
        from[1] = place[1] / l.columns * l.depth + k;
        of[1] = k;
        sum += (static_cast<int64_t>(at_place(c.in[0], from)) - zero) *
               static_cast<int64_t>(at_place(c.in[1], of));
      }
    }
    expect_near(at_place(c.out, place), finished(sum, i, p.post_ops, c.in, c.out), type, what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ByteProducts, ConvolutionsOfAllForms) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    for (int trial = 0; trial < 300; ++trial) {
      Layer l{};
      l.rank = pick(0, 3) ? 2 : pick(1, 3);
      l.images = pick(0, 2);
      l.group = pick(0, 2) ? 1 : pick(2, 3);
      l.depth = pick(1, 9);
      l.columns = l.group > 1 ? pick(8, 20) : pick(1, 35);
      l.kernel = pick(1, 4);
      l.stride = pick(1, 3);
      l.dilation = pick(1, 2);
      l.pad = pick(0, static_cast<int>(l.kernel) - 1);
      l.size = pick(7, 10);
      check_conv(l);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(ByteProducts, ConvolutionsOfPlanesWithManyChannels) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    for (int trial = 0; trial < 60; ++trial) {
      Layer l{};
      l.rank = pick(1, 3);
      l.images = pick(1, 2);
      l.group = 1;
      l.depth = pick(15, 70);
      l.columns = pick(16, 24);
      l.kernel = pick(1, 2);
      l.stride = 1;
      l.dilation = 1;
      l.pad = pick(0, 1) * (l.kernel - 1);
      l.size = l.rank == 1 ? pick(2, 80) : pick(2, 9);
      check_conv(l);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(ByteProducts, ConvolutionsOfLayers) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    check_conv({.rank = 2,
                .images = 1,
                .group = 1,
                .depth = 3,
                .columns = 24,
                .kernel = 7,
                .stride = 2,
                .dilation = 1,
                .pad = 3,
                .size = 45});
    check_conv({.rank = 2,
                .images = 1,
                .group = 1,
                .depth = 64,
                .columns = 64,
                .kernel = 3,
                .stride = 1,
                .dilation = 1,
                .pad = 1,
                .size = 14});
    check_conv({.rank = 2,
                .images = 2,
                .group = 1,
                .depth = 256,
                .columns = 40,
                .kernel = 1,
                .stride = 2,
                .dilation = 1,
                .pad = 0,
                .size = 14});
    check_conv({.rank = 2,
                .images = 1,
                .group = 4,
                .depth = 32,
                .columns = 32,
                .kernel = 3,
                .stride = 1,
                .dilation = 2,
                .pad = 2,
                .size = 9});
  });
}

/// Blocks of rows have less than their usual number where the cache does not hold as many.
TEST(ByteProducts, RowsOfSmallCaches) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  for (const int64_t l2_bytes : {int64_t{1} << 10, int64_t{64} << 10, int64_t{8} << 20}) {
    const PretendedCaches small({.l1_bytes = 512, .l2_bytes = l2_bytes, .share_bytes = l2_bytes});
    in_all_forms([] {
      for (const int64_t rows : {1, 5, 48, 49, 200}) check_matmul(0, rows, 1025, 33);
      check_conv({.rank = 2,
                  .images = 2,
                  .group = 1,
                  .depth = 515,
                  .columns = 24,
                  .kernel = 1,
                  .stride = 1,
                  .dilation = 1,
                  .pad = 0,
                  .size = 9});
    });
  }
}

/// Channels side by side of results of one pixel are read where they are, and rows of matrices: nothing is
/// copied but a block at a time.
TEST(ByteProducts, WhatLiesRowByRowIsNotCopied) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = {2, 2};
  p.dilations = {1, 1};
  p.pads_begin = p.pads_end = {0, 0};
  const Operand w(DType::i8, {16, 32, 1, 1}), y(DType::i32, {1, 16, 4, 4}, {0, 2, 3, 1});
  auto workspace = [&](const ConvProblem& problem, const Operand& x, const Operand& weights) {
    const std::vector<OperandInfo> infos{x.info(), weights.info(true)}, outs{y.info()};
    const std::vector<TensorRef> in{x.ref(), weights.ref()}, out{y.ref()};
    return make_byte_conv(problem, infos, outs)->workspace_bytes(in, out);
  };
  const Operand pixels(DType::u8, {1, 32, 8, 8}, {0, 2, 3, 1}), planes(DType::u8, {1, 32, 8, 8});
  EXPECT_EQ(workspace(p, pixels, w), 0);
  EXPECT_GT(workspace(p, planes, w), 0);
  p.strides = {1, 1};
  p.pads_begin = p.pads_end = {1, 1};
  EXPECT_GT(workspace(p, Operand(DType::u8, {1, 32, 4, 4}, {0, 2, 3, 1}), Operand(DType::i8, {16, 32, 3, 3})),
            0);

  const Operand b(DType::i8, {32, 16}), c(DType::i32, {8, 16});
  for (const bool turned : {false, true}) {
    const Operand a(DType::u8, {8, 32}, turned ? std::vector<int>{1, 0} : std::vector<int>{});
    const std::vector<OperandInfo> infos{a.info(), b.info(true)}, outs{c.info()};
    const std::vector<TensorRef> in{a.ref(), b.ref()}, out{c.ref()};
    EXPECT_EQ(make_byte_matmul(MatMulProblem(), infos, outs)->workspace_bytes(in, out) > 0, turned);
  }
}

TEST(ByteProducts, BoundsOfBytesWhoseProductsFit) {
  for (int one = -128; one < 128; ++one)
    for (int other = -128; other < 128; ++other) {
      auto fit = [&](int most) { // of any two bytes up to this
        bool all = true;
        for (int x : {0, most})
          for (int y : {0, most}) all &= x * one + y * other <= 32767 && x * one + y * other >= -32768;
        return all;
      };
      const int bound = bytes::bound_of(one, other);
      ASSERT_TRUE(fit(bound) && (bound == 255 || !fit(bound + 1))) << one << " " << other;
    }
}

/// Rows with bytes around the bounds of their groups, which differ from group to group.
TEST(ByteProducts, BytesAroundTheirBounds) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    for (const int64_t k : {32, 33, 128, 129, 261}) {
      const int64_t m = 29, n = 37;
      Call c;
      c.in = {Operand(DType::u8, {m, k}), Operand(DType::i8, {k, n}), {}};
      for (int64_t i = 0; i < k * n; ++i) { // in one group of five two large weights of the same sign
        const int large = pick(64, 127), sign = i / n / 2 % 3 - 1;
        c.in[1].set(i, 128 + (i / n / 4 % 5 > 0 || sign == 0 ? pick(-64, 63) : sign * large));
      }
      for (int64_t i = 0; i < m * k; ++i) c.in[0].set(i, i / k % 3 ? pick(0, 140) : pick(125, 255));
      c.out = Operand(DType::i32, {m, n});
      std::vector<OperandInfo> infos = c.infos();
      infos[1] = c.in[1].info(true);
      c.run(*make_byte_matmul(MatMulProblem(), infos, std::vector{c.out.info()}));
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += element_as_double(*c.in[0].tensor, i / n * k + l) *
                 element_as_double(*c.in[1].tensor, l * n + i % n);
        ASSERT_EQ(element_as_double(*c.out.tensor, i), sum) << k << " " << i;
      }
    }
  });
}

/// Extreme bytes and weights, of which none of two products fit, all do, or some do; in every form.
TEST(ByteProducts, ExtremesOfEveryForm) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    for (const int share : {0, 1, 20, 100}) { // of extreme weights, in percent
      const int64_t m = 13, k = 203, n = 37;
      Call c;
      c.in = {Operand(DType::u8, {m, k}), Operand(DType::i8, {k, n}), {}};
      for (int64_t i = 0; i < m * k; ++i) c.in[0].set(i, 255);
      for (int64_t i = 0; i < k * n; ++i)
        c.in[1].set(i, pick(1, 100) <= share ? i % 3 == 0 ? 0 : 255 : 128 + pick(-64, 63));
      c.out = Operand(DType::i32, {m, n});
      std::vector<OperandInfo> infos = c.infos();
      infos[1] = c.in[1].info(true);
      c.run(*make_byte_matmul(MatMulProblem(), infos, std::vector{c.out.info()}));
      for (int64_t i = 0; i < m * n; ++i) {
        int64_t sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += 255 * static_cast<int64_t>(element_as_double(*c.in[1].tensor, l * n + i % n));
        ASSERT_EQ(element_as_double(*c.out.tensor, i), static_cast<double>(sum)) << share << " " << i;
      }
    }
  });
}

/// As layers begin that are quantised by column: each of the two operations is rounded.
TEST(ByteProducts, ScaleAndBiasOfColumns) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  in_all_forms([] {
    const int64_t m = 13, k = 203, n = 37;
    Call c;
    c.in = {Operand(DType::u8, {m, k}),
            Operand(DType::i8, {k, n}),
            {},
            Operand(DType::f32, {1, n}),
            Operand(DType::f32, {1, n})};
    c.out = Operand(DType::f32, {m, n});
    MatMulProblem p;
    p.post_ops = {{PostOp::mul, 0, 0, 3}, {PostOp::add, 0, 0, 4}};
    c.run(*make_byte_matmul(p, c.infos(), std::vector{c.out.info()}));
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += element_as_double(*c.in[0].tensor, i / n * k + l) *
               element_as_double(*c.in[1].tensor, l * n + i % n);
      const auto scaled = static_cast<float>(sum * element_as_double(*c.in[3].tensor, i % n));
      const auto want = static_cast<float>(scaled + element_as_double(*c.in[4].tensor, i % n));
      ASSERT_EQ(element_as_double(*c.out.tensor, i), want) << i;
    }
  });
}

TEST(ByteProducts, WhatIsNotTakenSaysWhy) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  const OperandInfo byte{DType::u8, {4, 4}, {4, 1}, nullptr}, real{DType::f32, {4, 4}, {4, 1}, nullptr};
  MatMulProblem p;
  EXPECT_EQ(supports_byte_matmul(p, std::vector{real, byte}, std::vector{real}, host_target()),
            "operands that are no bytes");
  p.alpha = 2;
  EXPECT_EQ(supports_byte_matmul(p, std::vector{byte, byte}, std::vector{real}, host_target()),
            "a bias or a factor of an integer product");
  ConvProblem c;
  c.strides = c.dilations = {1, 1};
  c.pads_begin = c.pads_end = {0, 0};
  c.group = 4;
  const OperandInfo image{DType::u8, {1, 4, 9, 9}, {}, nullptr}, taps{DType::i8, {4, 1, 3, 3}, {}, nullptr},
      result{DType::i32, {1, 4, 7, 7}, {}, nullptr};
  EXPECT_EQ(supports_byte_conv(c, std::vector{image, taps}, std::vector{result}, host_target()),
            "groups of few results, which leave most of a vector empty");
  c.group = 1;
  c.pads_begin = {1, int64_t{1} << 40};
  EXPECT_EQ(supports_byte_conv(c, std::vector{image, taps}, std::vector{result}, host_target()),
            "padding beyond the kernel");
}

} // namespace
} // namespace tbx::extern_kernels
