// Convolutions of one pixel between bytes in tile registers, with all that may come behind their sums, beside
// the plain loops.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <cstring>
#include <random>

#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/bytes/tile_product.h"
#include "extern_kernels/library_kernel.h"
#include "extern_kernels/reference/dense.h"
#include "guarded_operand.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_byte_conv(const Problem&, std::span<const OperandInfo>,
                                             std::span<const OperandInfo>);

namespace {

using bytes::TileWork;

std::mt19937 rng(20261128);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

OwnedOperand bytes_of(DType type, Dims sizes, std::vector<int> order = {}) {
  OwnedOperand o(type, std::move(sizes), std::move(order));
  for (int64_t i = 0; i < o.tensor->numel(); ++i) {
    if (type == DType::u8) o.tensor->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(pick(0, 255));
    if (type == DType::i8) o.tensor->as_mutable<int8_t>()[i] = static_cast<int8_t>(pick(-128, 127));
  }
  return o;
}

OwnedOperand floats_of(Dims sizes, float least, float most) {
  OwnedOperand o(DType::f32, std::move(sizes), {});
  for (float& v : o.tensor->as_mutable<float>()) v = std::uniform_real_distribution<float>(least, most)(rng);
  return o;
}

struct Case {
  ConvProblem problem;
  std::vector<OwnedOperand> in;
  OwnedOperand out;
};

/// Channels of whole tiles, pixels of any number, one of the forms that scale, bias and operand may have.
Case make_case() {
  Case c;
  ConvProblem& p = c.problem;
  p.strides = {pick(1, 2), pick(1, 2)};
  if (pick(0, 1)) p.strides = {1, 1};
  p.dilations = {1, 1};
  p.pads_begin = p.pads_end = {0, 0};
  const std::vector<int> order = channels_last(4);
  const Dims x{pick(1, 3), 64 * pick(1, 4), pick(7, 15), pick(7, 15)}, w{32 * pick(1, 9), x[1], 1, 1},
      y{x[0], w[0], (x[2] - 1) / p.strides[0] + 1, (x[3] - 1) / p.strides[1] + 1};
  c.in = {bytes_of(DType::u8, x, order), bytes_of(DType::i8, w), {}};
  auto add = [&](OwnedOperand o) {
    c.in.push_back(std::move(o));
    return static_cast<int>(c.in.size()) - 1;
  };
  const Dims one{1, 1, 1, 1}, each{1, w[0], 1, 1};
  const float scale = 0.5f / std::sqrt(static_cast<float>(x[1])) / 64;
  if (pick(0, 2) == 0)
    p.post_ops.push_back({PostOp::linear, scale, 0});
  else
    p.post_ops.push_back({PostOp::mul, 0, 0, add(floats_of(pick(0, 1) ? one : each, scale / 2, scale))});
  if (pick(0, 2)) p.post_ops.push_back({PostOp::add, 0, 0, add(floats_of(each, 20, 200))});
  if (pick(0, 2)) {
    p.post_ops.push_back({PostOp::round});
    if (pick(0, 1)) {
      p.post_ops.push_back({PostOp::linear, 1, static_cast<float>(pick(0, 255))});
    } else {
      const auto low = static_cast<float>(-pick(0, 255));
      p.post_ops.push_back({PostOp::clip, low, low + 255});
      p.post_ops.push_back({PostOp::linear, 1.2586719f, 0});
      p.post_ops.push_back({PostOp::add, 0, 0, add(bytes_of(DType::u8, y, order))});
      p.post_ops.push_back({PostOp::linear, 0.69263625f, static_cast<float>(pick(-146, 20)) * 0.3f});
    }
  }
  p.post_ops.push_back({PostOp::round});
  p.post_ops.push_back({PostOp::clip, 0, 255});
  c.out = OwnedOperand(DType::u8, y, order);
  return c;
}

/// A copy whose last byte lies before a page that nobody may touch; all sizes here are multiples of four.
TensorRef before_a_border(const OwnedOperand& t, std::vector<Guarded>& kept) {
  TensorRef ref = t.ref();
  if (!t.tensor) return ref;
  const auto bytes = static_cast<size_t>(t.tensor->bytes());
  ref.data = kept.emplace_back(bytes / sizeof(float), true).data();
  std::memcpy(ref.data, t.tensor->data, bytes);
  return ref;
}

void check(const Case& c, int threads) {
  std::vector<Guarded> kept;
  std::vector<TensorRef> in;
  std::vector<OperandInfo> infos;
  for (const OwnedOperand& t : c.in) {
    in.push_back(before_a_border(t, kept));
    infos.push_back(t.info(infos.size() == 1));
  }
  OwnedOperand want = c.out;
  want.tensor = std::make_shared<Tensor>(Tensor::make(want.dtype, want.sizes));
  const std::vector<TensorRef> to{before_a_border(c.out, kept)}, to_want{want.ref()};
  const std::vector<OperandInfo> outs{c.out.info()};
  run(*select(c.problem, infos, outs, Kernels::plain).kernel, in, to_want);
  std::string how;
  tbb::task_arena(threads).execute([&] {
    const Selection s = select(c.problem, infos, outs);
    run(*s.kernel, in, to);
    for (const std::string& text : dynamic_cast<const LibraryKernel&>(*s.kernel).implementations())
      how += text;
  });
  const std::string what = to_string(Problem(c.problem)) + " of " + std::to_string(c.in[0].sizes[1]);
  EXPECT_EQ(how, "own tiles of bytes") << what;
  const auto expected = want.tensor->as<uint8_t>();
  const auto* got = static_cast<const uint8_t*>(to[0].data);
  size_t others = 0; // where another rounding decides a tie
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - expected[i]), 1) << what << ", element " << i;
    others += got[i] != expected[i] ? 1 : 0;
  }
  EXPECT_LE(others, expected.size() / 1000) << what;
}

/// The same by the kernel for CPUs without these, in every form that this one multiplies.
TEST(TileConv, BytesOfOtherCpusAreFinishedAlike) {
  if (host_isa() < Isa::avx2) GTEST_SKIP() << "no AVX2";
  const bool has_quads = bytes::best_form() == bytes::Form::quads;
  for (int trial = 0; trial < 90 && !HasFailure(); ++trial) {
    const auto form = static_cast<bytes::Form>(trial % 3);
    if (form == bytes::Form::quads && !has_quads) continue;
    const bytes::PretendedForm pretended(form);
    const Case c = make_case();
    std::vector<TensorRef> in;
    std::vector<OperandInfo> infos;
    for (const OwnedOperand& t : c.in) {
      in.push_back(t.ref());
      infos.push_back(t.info(infos.size() == 1));
    }
    const std::vector<OperandInfo> outs{c.out.info()};
    const std::vector<TensorRef> out{c.out.ref()};
    run(*select(c.problem, infos, outs, Kernels::plain).kernel, in, out);
    const std::vector<uint8_t> want(c.out.tensor->as<uint8_t>().begin(), c.out.tensor->as<uint8_t>().end());
    run(*make_byte_conv(c.problem, infos, outs), in, out);
    size_t others = 0; // where another rounding decides a tie
    for (size_t i = 0; i < want.size(); ++i) {
      const int got = c.out.tensor->as<uint8_t>()[i];
      ASSERT_LE(std::abs(got - want[i]), 1) << to_string(Problem(c.problem)) << ", element " << i;
      others += got != want[i] ? 1 : 0;
    }
    EXPECT_LE(others, want.size() / 1000) << to_string(Problem(c.problem));
  }
}

#if defined(TBX_WITH_ONEDNN)
TEST(TileConv, GivesWhatPlainLoopsGive) {
  if (!bytes::has_byte_tiles()) GTEST_SKIP() << "a CPU without tiles of bytes";
  for (int trial = 0; trial < 60 && !HasFailure(); ++trial) check(make_case(), pick(1, 4));
}
#endif

TEST(TileConv, LeavesOtherWorkToTheLibrary) {
  const PostOp round{PostOp::round}, twice{PostOp::linear, 2, 0}, add{PostOp::add, 0, 0, 3};
  EXPECT_FALSE(TileWork::of(std::vector{twice}));
  EXPECT_FALSE(TileWork::of(std::vector{round, PostOp{PostOp::relu}}));
  EXPECT_FALSE(
      TileWork::of(std::vector{round, PostOp{PostOp::clip, 0, 9}, PostOp{PostOp::linear, 2, 1}, add}));
  // What is added to something without a bound may be no integer that saturates.
  EXPECT_FALSE(TileWork::of(std::vector{round, add}));
  const auto all =
      TileWork::of(std::vector{round, PostOp{PostOp::clip, -9, 9}, twice, add, PostOp{PostOp::linear, 3, 4}});
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->is_more && all->low == -9 && all->high == 9 && all->alpha == 2 && all->operand == 3 &&
              all->gamma == 3 && all->delta == 4);
}

} // namespace
} // namespace tbx::extern_kernels
