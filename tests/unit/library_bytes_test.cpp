// Products and convolutions of 8-bit integers whose sizes, memory orders and threads only a run tells: what
// the library was asked before may have had another answer. None of its plain loops runs, and elements are
// those of ours.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <array>
#include <cmath>
#include <random>

#include "extern_kernels/library_kernel.h"
#if defined(TBX_WITH_ONEDNN)
#include "extern_kernels/onednn/scaled_sums.h"
#endif
#include "extern_kernels/reference/dense.h"
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {
namespace {

std::mt19937 rng(20261126);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

struct Operand : OwnedOperand {
  Operand() = default;
  Operand(DType type, Dims s, std::vector<int> order = {})
      : OwnedOperand(type, std::move(s), std::move(order)) {
    for (int64_t i = 0; i < tensor->numel(); ++i) {
      if (dtype == DType::u8) tensor->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(pick(0, 255));
      if (dtype == DType::i8) tensor->as_mutable<int8_t>()[i] = static_cast<int8_t>(pick(-128, 127));
      if (dtype == DType::f32) tensor->as_mutable<float>()[i] = static_cast<float>(pick(-100, 100)) * 0.01f;
    }
  }
};

/// A zero point of bytes of this type, or none.
int add_zero_point(std::vector<Operand>& in, DType of) {
  if (pick(0, 1)) return -1;
  in.emplace_back(DType::i32, Dims{1});
  in.back().tensor->as_mutable<int32_t>()[0] = of == DType::u8 ? pick(0, 255) : pick(-128, 127);
  return static_cast<int>(in.size()) - 1;
}

/// A type of results, and what makes it of the sums: of scale and bias every form. `columns`: the dimension
/// of those.
DType add_post_ops(std::vector<PostOp>& ops, std::vector<Operand>& in, const Dims& sizes, size_t columns,
                   const std::vector<int>& order) {
  const DType result = std::array{DType::f32, DType::u8, DType::i8, DType::i32}[pick(0, 3)];
  if (result == DType::i32) return result;
  auto operand = [&](bool is_of_columns, float factor) {
    Dims each(sizes.size(), 1);
    if (is_of_columns) each[columns] = sizes[columns];
    in.emplace_back(DType::f32, each);
    for (float& v : in.back().tensor->as_mutable<float>()) v *= factor;
    return static_cast<int>(in.size()) - 1;
  };
  if (const int scale = pick(0, 3); scale < 2)
    ops.push_back({PostOp::mul, 0, 0, operand(scale == 0, 0.001f)});
  else
    ops.push_back({PostOp::linear, 0.0005f, scale == 2 ? 0 : 0.25f});
  if (const int bias = pick(0, 3); bias < 2) ops.push_back({PostOp::add, 0, 0, operand(bias == 0, 2)});
  if (pick(0, 1)) {
    ops.push_back({PostOp::add, 0, 0, static_cast<int>(in.size())});
    in.emplace_back(DType::f32, sizes, order);
  }
  if (pick(0, 1)) ops.push_back({PostOp::relu});
  if (result != DType::f32) {
    ops.push_back({PostOp::linear, 30, 0});
    ops.push_back({PostOp::round});
    if (pick(0, 1)) ops.push_back({PostOp::linear, 1, 3});
  }
  return result;
}

/// Sizes of the operand from dimension `first` on become known in a run only.
void forget(OperandInfo& info, size_t first) {
  std::fill(info.sizes.begin() + static_cast<std::ptrdiff_t>(first), info.sizes.end(), -1);
  info.strides.clear();
}

/// What runs the problem in the end, asked with `infos` for `asked` threads.
void check(const Problem& problem, const std::vector<Operand>& in, const Operand& out,
           const std::vector<OperandInfo>& infos, const std::vector<OperandInfo>& outs, int asked,
           int working) {
  std::vector<TensorRef> refs;
  for (const Operand& t : in) refs.push_back(t.ref());
  Operand want = out;
  want.tensor = std::make_shared<Tensor>(Tensor::make(out.dtype, out.sizes));
  const std::vector<TensorRef> to{out.ref()}, to_want{want.ref()};
  run(*select(problem, infos, outs, Kernels::plain).kernel, refs, to_want);
  Selection s;
  tbb::task_arena(asked).execute([&] { s = select(problem, infos, outs); });
  tbb::task_arena(working).execute([&] { run(*s.kernel, refs, to); });
  std::string what = to_string(problem) + " of";
  for (int64_t n : in[0].sizes) what += " " + std::to_string(n);
  what += " with";
  for (int64_t n : in[1].sizes) what += " " + std::to_string(n);
  what += " by " + s.chosen;
  if (const auto* library = dynamic_cast<const LibraryKernel*>(s.kernel.get()))
    for (const std::string& text : library->implementations()) {
      what += " " + text;
      EXPECT_EQ(text.substr(0, text.find("; in one call")).find("plain loop"), std::string::npos) << what;
    }
  for (int64_t i = 0; i < out.tensor->numel(); ++i) {
    const double a = element_as_double(*out.tensor, i), b = element_as_double(*want.tensor, i);
    // Floats of a rounded sum, bytes but for ties that its rounding decides.
    ASSERT_LE(std::fabs(a - b), out.dtype == DType::i32 ? 0
                                : is_byte(out.dtype)    ? 1
                                                        : 1e-5 * (1 + std::fabs(b)))
        << what << ", element " << i;
  }
}

void check_conv() {
  ConvProblem p;
  p.spatial_rank = pick(0, 3) ? 2 : pick(1, 3);
  p.group = pick(0, 3) ? 1 : pick(2, 5);
  auto channels = [] { return pick(0, 1) ? pick(1, 40) : pick(1, 3); };
  const int64_t depth = channels(), columns = channels();
  Dims x{pick(1, 2), depth * p.group}, w{columns * p.group, depth}, y{x[0], columns * p.group};
  for (int d = 0; d < p.spatial_rank; ++d) {
    const int64_t kernel = pick(1, 5), dilation = pick(1, 3), extent = (kernel - 1) * dilation + 1;
    p.strides.push_back(pick(0, 1) ? 1 : pick(1, 4));
    p.dilations.push_back(dilation);
    for (auto* pads : {&p.pads_begin, &p.pads_end})
      pads->push_back(pick(0, 1) ? 0 : pick(0, static_cast<int>(extent)));
    const int64_t pads = p.pads_begin.back() + p.pads_end.back();
    x.push_back(std::max<int64_t>(pick(0, 2) ? pick(1, 25) : pick(1, 3), extent - pads));
    w.push_back(kernel);
    y.push_back((x.back() + pads - extent) / p.strides.back() + 1);
  }
  // Channels last is what the schedule gives; without its pass images lie as they come.
  const std::vector<int> order = pick(0, 2) ? channels_last(x.size()) : std::vector<int>{};
  std::vector<Operand> in{Operand(pick(0, 1) ? DType::u8 : DType::i8, x, order), Operand(DType::i8, w), {}};
  p.x_zero = add_zero_point(in, in[0].dtype);
  const Operand out(add_post_ops(p.post_ops, in, y, 1, order), y, order);
  std::vector<OperandInfo> infos, outs{out.info()};
  for (const Operand& t : in) infos.push_back(t.info());
  infos[1].constant = in[1].tensor;
  if (pick(0, 3)) {
    for (size_t k = 0; k < infos.size(); ++k)
      if (k == 0 || (k > 2 && in[k].sizes == y)) forget(infos[k], 2);
    forget(outs[0], 2);
  }
  check(p, in, out, infos, outs, 1 << pick(0, 2), 1 << pick(0, 2));
}

void check_matmul() {
  MatMulProblem p;
  const int64_t batch = pick(0, 2) ? 0 : pick(1, 3);
  auto size = [] { return pick(0, 1) ? pick(1, 80) : pick(1, 3); };
  const int64_t m = size(), k = size(), n = size();
  const bool is_constant = pick(0, 2);
  auto shape = [&](bool is_batched, int64_t rows, int64_t columns) {
    return batch > 0 ? Dims{is_batched ? batch : 1, rows, columns} : Dims{rows, columns};
  };
  auto order = [&]() -> std::vector<int> {
    if (pick(0, 2)) return {};
    if (batch == 0) return {1, 0};
    return pick(0, 1) ? std::vector<int>{0, 2, 1} : std::vector<int>{1, 0, 2};
  };
  std::vector<Operand> in{Operand(pick(0, 1) ? DType::u8 : DType::i8, shape(true, m, k), order()),
                          Operand(DType::i8, shape(!is_constant && pick(0, 1), k, n), order()),
                          {}};
  p.a_zero = add_zero_point(in, in[0].dtype);
  p.b_zero = add_zero_point(in, DType::i8);
  const Dims sizes = shape(true, m, n);
  const Operand out(add_post_ops(p.post_ops, in, sizes, sizes.size() - 1, {}), sizes);
  std::vector<OperandInfo> infos, outs{out.info()};
  for (const Operand& t : in) infos.push_back(t.info());
  if (is_constant) infos[1].constant = in[1].tensor;
  if (pick(0, 2)) {
    infos[0].sizes.end()[-2] = outs[0].sizes.end()[-2] = -1;
    for (size_t i = 3; i < infos.size(); ++i)
      if (in[i].sizes == sizes && m > 1) infos[i].sizes.end()[-2] = -1;
    infos[0].strides.clear();
  }
  check(p, in, out, infos, outs, 1 << pick(0, 2), 1 << pick(0, 2));
}

#if defined(TBX_WITH_ONEDNN)
TEST(LibraryBytes, ScaleAndBiasAreOfTheSums) {
  using onednn::scaled_sums, onednn::ScaledSums;
  const Dims sizes{2, 24, 7, 7};
  const Operand out(DType::f32, sizes), row(DType::f32, {1, 24, 1, 1}), one(DType::f32, {1, 1, 1, 1}),
      bytes(DType::u8, {1, 24, 1, 1});
  const Dims with_channels_last = dense_strides(sizes, channels_last(4)), of_every_second{48, 2, 2, 2};
  TensorRef whole = out.ref(), apart = row.ref();
  whole.strides = with_channels_last, apart.strides = of_every_second;
  const std::vector<TensorRef> in{{}, {}, {}, row.ref(), one.ref(), out.ref(), bytes.ref(), whole, apart};
  auto taken = [&](const std::vector<PostOp>& ops) { return scaled_sums(ops, in, out.ref(), 1); };
  const PostOp times_row{PostOp::mul, 0, 0, 3}, times_one{PostOp::mul, 0, 0, 4},
      plus_row{PostOp::add, 0, 0, 3};

  const ScaledSums both = taken({times_row, plus_row, {PostOp::relu}});
  EXPECT_TRUE(both.is_of_columns && both.scale == 3 && both.bias == 3 && both.post_ops == 2);
  const ScaledSums single = taken({times_one, {PostOp::add, 0, 0, 4}});
  EXPECT_TRUE(!single.is_of_columns && single.scale == 4 && single.bias == -1 && single.post_ops == 1);
  const std::vector<PostOp> factor{{PostOp::linear, 0.5f, 0}, plus_row};
  EXPECT_EQ(taken(factor).factor, &factor[0].alpha);
  EXPECT_EQ(taken(factor).post_ops, 2U);
  const ScaledSums bias = taken({plus_row});
  EXPECT_TRUE(!bias.has_scale() && bias.bias == 3 && bias.post_ops == 1);
  // A factor after a bias, a second one, a whole tensor (whose channels may lie side by side), bytes, columns
  // that do not lie side by side, a shift: post-operations.
  EXPECT_EQ(taken({plus_row, times_row}).post_ops, 1U);
  EXPECT_EQ(taken({times_row, times_one}).post_ops, 1U);
  for (const PostOp& op :
       {PostOp{PostOp::mul, 0, 0, 5}, PostOp{PostOp::add, 0, 0, 5}, PostOp{PostOp::mul, 0, 0, 6},
        PostOp{PostOp::mul, 0, 0, 7}, PostOp{PostOp::add, 0, 0, 7}, PostOp{PostOp::mul, 0, 0, 8},
        PostOp{PostOp::add, 0, 0, 8}, PostOp{PostOp::linear, 0.5f, 1}, PostOp{PostOp::sum, 0, 0, 5}})
    EXPECT_EQ(taken({op}).post_ops, 0U);
  EXPECT_EQ(taken({}).post_ops, 0U);
}
#endif

TEST(LibraryBytes, ConvolutionsRunNoPlainLoop) {
  for (int trial = 0; trial < 400 && !HasFatalFailure(); ++trial) check_conv();
}

TEST(LibraryBytes, MatrixProductsRunNoPlainLoop) {
  for (int trial = 0; trial < 400 && !HasFatalFailure(); ++trial) check_matmul();
}

} // namespace
} // namespace tbx::extern_kernels
