// Convolutions of one pixel as blocked products against plain loops in double.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <bit>

#include "base/caches.h"
#include "base/isa.h"
#include "base/multiply_rates.h"
#include "guarded_operand.h"

namespace tbx::extern_kernels {

std::string supports_blocked_conv(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                                  const Target&);
std::unique_ptr<ExternKernel> make_blocked_conv(const Problem&, std::span<const OperandInfo>,
                                                std::span<const OperandInfo>);

namespace {

ConvProblem one_pixel(Dims strides) {
  ConvProblem p;
  p.spatial_rank = static_cast<int>(strides.size());
  p.dilations = Dims(strides.size(), 1);
  p.pads_begin = p.pads_end = Dims(strides.size(), 0);
  p.strides = std::move(strides);
  return p;
}

/// Operands are x, w, bias, others; an absent bias has no sizes.
struct ConvCase {
  ConvProblem p;
  std::vector<Operand> in;
  Operand out;

  void run_on(const ExternKernel& kernel) {
    std::vector<TensorRef> inputs;
    for (const Operand& o : in) inputs.push_back(o.sizes.empty() ? TensorRef{} : o.ref());
    for (const PostOp& op : p.post_ops)
      if (op.kind == PostOp::sum) inputs[op.operand] = out.ref();
    const TensorRef ref = out.ref();
    run(kernel, inputs, {&ref, 1});
  }
  std::vector<OperandInfo> infos() const {
    std::vector<OperandInfo> all;
    for (size_t i = 0; i < in.size(); ++i)
      all.push_back(i == 1 ? in[i].constant() : in[i].sizes.empty() ? OperandInfo{} : in[i].info());
    return all;
  }
  std::unique_ptr<ExternKernel> make() const {
    const OperandInfo result = out.info();
    return make_blocked_conv(p, infos(), {&result, 1});
  }

  void check() {
    std::vector<double> before;
    for (int64_t i = 0; i < element_count(out.sizes); ++i) before.push_back(out.at(index_of(i, out.sizes)));
    run_on(*make());
    const int64_t channels = in[0].sizes[1];
    for (int64_t i = 0; i < element_count(out.sizes); ++i) {
      const Dims index = index_of(i, out.sizes);
      Dims from = index, weight(index.size(), 0);
      weight[0] = index[1];
      for (size_t d = 2; d < from.size(); ++d) from[d] *= p.strides[d - 2];
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < channels; ++c) {
        from[1] = weight[1] = c;
        const double term = in[0].at(from) * in[1].at(weight);
        sum += term;
        magnitude += std::fabs(term);
      }
      Expected expected(sum, magnitude, channels);
      if (p.has_bias) expected.apply({PostOp::add}, in[2].at({index[1]}));
      for (const PostOp& op : p.post_ops)
        expected.apply(op, op.kind == PostOp::sum ? before[i]
                           : op.operand >= 0      ? in[op.operand].at(index)
                                                  : 0);
      ASSERT_NEAR(out.at(index), expected.value, expected.error)
          << to_string(Problem(p)) << " of " << channels << " channels, element " << i;
    }
  }
};

Operand image(Dims sizes, bool channels_first = false, bool at_end = true) {
  Dims strides = dense_strides(sizes, channels_first ? std::vector<int>() : channels_last(sizes.size()));
  return {std::move(sizes), std::move(strides), at_end};
}

ConvCase conv(int64_t images, int64_t channels, int64_t results, Dims spatial, Dims strides) {
  ConvCase c;
  c.p = one_pixel(strides);
  Dims x{images, channels}, w{results, channels}, y{images, results};
  for (size_t d = 0; d < spatial.size(); ++d) {
    x.push_back(spatial[d]);
    w.push_back(1);
    y.push_back((spatial[d] + strides[d] - 1) / strides[d]);
  }
  c.p.has_bias = true;
  c.in = {image(x), Operand(w), Operand({results})};
  c.out = image(y);
  return c;
}

TEST(BlockedConv, AllSizesAreRight) {
  for (const int64_t images : {0, 1, 3})
    for (const int64_t channels : {1, 3, 16, 40, 300})
      for (const int64_t results : {1, 8, 16, 24, 29, 40, 100})
        for (const Dims& spatial : {Dims{1, 1}, Dims{5, 7}, Dims{14, 14}})
          for (const int64_t stride : {1, 2}) {
            conv(images, channels, results, spatial, {stride, stride}).check();
            if (HasFatalFailure()) return;
          }
}

TEST(BlockedConv, LayersOfModelsAreRight) {
  for (const auto& [channels, results, side, stride] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {512, 512, 7, 1}, {256, 512, 28, 2}, {1152, 192, 7, 1}}) {
    ConvCase c = conv(1, channels, results, {side, side}, {stride, stride});
    c.p.post_ops = {{PostOp::sum, 0, 0, 3}, {PostOp::relu}};
    c.in.push_back(c.out);
    c.check();
    if (HasFatalFailure()) return;
  }
}

/// Of one, two and three dimensions, channels first and last, what is added in the result's order or another.
TEST(BlockedConv, AnyOrderIsRight) {
  for (int trial = 0; trial < 200; ++trial) {
    Dims spatial, strides;
    for (int64_t d = pick_between(1, 3); d > 0; --d) {
      spatial.push_back(pick_between(1, 9));
      strides.push_back(pick_between(1, 3));
    }
    ConvCase c = conv(pick_between(1, 3), pick_between(1, 90), pick_between(1, 70), spatial, strides);
    const Dims y = c.out.sizes;
    c.in[0] = image(c.in[0].sizes, pick_between(0, 1), pick_between(0, 1));
    c.out = image(y, pick_between(0, 1), pick_between(0, 1));
    c.in.push_back(image(y, pick_between(0, 1)));
    Dims each(y.size(), 1);
    each[1] = y[1];
    c.in.emplace_back(each);
    c.p.has_bias = pick_between(0, 1);
    if (!c.p.has_bias) c.in[2] = {};
    const PostOp::Kind kinds[] = {PostOp::add, PostOp::sum, PostOp::mul, PostOp::sub};
    if (pick_between(0, 2)) c.p.post_ops.push_back({kinds[pick_between(0, 3)], 0, 0, 3});
    if (pick_between(0, 1)) c.p.post_ops.push_back({PostOp::add, 0, 0, 4});
    const PostOp last[] = {
        {PostOp::relu}, {PostOp::clip, -0.5f, 0.7f}, {PostOp::hard_swish}, {PostOp::silu, 1}};
    if (pick_between(0, 1)) c.p.post_ops.push_back(last[pick_between(0, 3)]);
    c.check();
    if (HasFatalFailure()) return;
  }
}

/// Neither threads nor caches change a bit.
TEST(BlockedConv, ThreadsAndCachesChangeNothing) {
  for (const auto& [channels, results, side, stride] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {600, 200, 7, 1}, {30, 72, 40, 1}, {300, 60, 19, 2}}) {
    ConvCase c = conv(2, channels, results, {side, side}, {stride, stride});
    c.p.post_ops = {{PostOp::hard_swish}};
    std::vector<uint32_t> first;
    for (const Caches& caches :
         {Caches{}, Caches{8 << 10, 64 << 10, 64 << 10}, Caches{48 << 10, 2 << 20, 8 << 20}})
      for (const int threads : {1, 2, 8}) {
        const PretendedCaches pretended(caches);
        tbb::task_arena arena(threads);
        arena.execute([&] { c.run_on(*c.make()); });
        std::vector<uint32_t> bits;
        for (size_t i = 0; i < c.out.count; ++i)
          bits.push_back(std::bit_cast<uint32_t>(c.out.memory.data()[i]));
        if (first.empty()) first = bits;
        ASSERT_EQ(first, bits) << threads << " threads, caches of " << caches.l1_bytes;
      }
  }
}

TEST(BlockedConv, IsChosenWhereWeightsComeFromMemory) {
  const PretendedCaches pretended({32 << 10, 512 << 10, 4 << 20});
  auto chosen = [](const ConvCase& c) {
    const OperandInfo result = c.out.info();
    return select(c.p, c.infos(), {&result, 1}).chosen;
  };
  ConvCase large = conv(1, 512, 256, {7, 7}, {1, 1});
  EXPECT_EQ(chosen(large) == "blocked_conv",
            host_isa() == Isa::avx2 || (host_isa() == Isa::avx512 && has_wide_multipliers()));
  EXPECT_NE(chosen(conv(1, 512, 255, {7, 7}, {1, 1})), "blocked_conv");
  large.p.post_ops = {{PostOp::silu, 1}};
  EXPECT_NE(chosen(large), "blocked_conv");
  ConvCase wide = conv(1, 512, 256, {7, 7}, {1, 1});
  wide.p.pads_begin = {1, 1};
  const OperandInfo result = wide.out.info();
  EXPECT_EQ(supports_blocked_conv(wide.p, wide.infos(), {&result, 1}, host_target()),
            "more than one pixel for each result");
}

} // namespace
} // namespace tbx::extern_kernels
