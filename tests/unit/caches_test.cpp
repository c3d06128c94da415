// Sizes of caches, and what library kernels make of them.
#include "base/caches.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/tensor.h"
#include "driver/target.h"
#include "extern_kernels/winograd/cut.h"
#include "extern_kernels_helper.h"

namespace tbx::test {
namespace {

TEST(Caches, ListsOfCpus) {
  EXPECT_EQ(cpus_of_list("0"), 1);
  EXPECT_EQ(cpus_of_list("0-7"), 8);
  EXPECT_EQ(cpus_of_list("0-3,8-11,16"), 9);
  for (const char* none : {"", "x", "0-", "3-1", "0;1"}) EXPECT_EQ(cpus_of_list(none), 0) << none;
}

TEST(Caches, AreThoseOfTheSystem) {
  const Caches c = host_caches();
  EXPECT_GE(c.l1_bytes, 8 << 10);
  EXPECT_GE(c.l2_bytes, c.l1_bytes);
  EXPECT_GT(c.share_bytes, 0);
  EXPECT_LE(c.share_bytes, 4 << 20);
  std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index2/size");
  if (int64_t kilobytes = 0; in >> kilobytes) {
    EXPECT_EQ(c.l2_bytes, kilobytes << 10);
  }
}

TEST(Caches, TheTargetHasThem) {
  const Caches before = host_caches();
  {
    const PretendedCaches other({16 << 10, 300 << 10, 1 << 20});
    EXPECT_EQ(driver::target_of({}).l1_bytes, 16 << 10);
    EXPECT_EQ(driver::target_of({}).l2_bytes, 300 << 10);
  }
  EXPECT_EQ(driver::target_of({}).l2_bytes, before.l2_bytes);
}

TEST(Caches, BlocksOfWinogradsTilesStayInThem) {
  using extern_kernels::winograd::Cut, extern_kernels::winograd::cut_tasks;
  const int64_t of_tile = 16 << 10; // bytes
  auto block = [&](const Caches& caches, int64_t of_weights) {
    return cut_tasks(10000, 8, of_tile, of_weights, 2, caches).block;
  };
  const int64_t usual = block({}, 1 << 20);
  EXPECT_LE(usual * of_tile, 512 << 10);
  EXPECT_GT(usual * of_tile, 400 << 10);
  EXPECT_GT(block({.l2_bytes = 2 << 20}, 1 << 20), usual);
  EXPECT_LT(block({.l2_bytes = 512 << 10}, 1 << 20), usual);
  EXPECT_GT(block({.share_bytes = 1 << 19}, 1 << 20), usual) << "weights are waited for";
  // Few tiles of large weights: tasks share the panels.
  EXPECT_EQ(cut_tasks(49, 8, of_tile, 8 << 20, 4, {}).blocks(), 1);
  EXPECT_EQ(cut_tasks(49, 8, of_tile, 8 << 20, 4, {}).parts, 8);
  EXPECT_GT(cut_tasks(49, 8, of_tile, 8 << 20, 4, {.share_bytes = 16 << 20}).blocks(), 1);
}

TEST(Caches, ResultsOfWinogradDoNotDependOnThem) {
  using namespace extern_kernels;
  const int64_t channels = 96, side = 41;
  auto filled = [](std::vector<int64_t> dims) {
    Tensor t = Tensor::make(DType::f32, std::move(dims));
    for (int64_t i = 0; i < t.numel(); ++i)
      t.as_mutable<float>()[i] = static_cast<float>(i * 7919 % 2003) / 1001.0f - 1;
    return t;
  };
  Tensor x = filled({1, channels, side, side});
  auto w = std::make_shared<Tensor>(filled({channels, channels, 3, 3}));
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = p.dilations = p.pads_begin = p.pads_end = {1, 1};
  const std::vector<OperandInfo> in{{DType::f32, x.dims, dense_strides(x.dims, {}), nullptr},
                                    {DType::f32, w->dims, dense_strides(w->dims, {}), w}},
      out{{DType::f32, x.dims, dense_strides(x.dims, {}), nullptr}};
  auto results = [&](const Caches& caches) {
    const PretendedCaches pretended(caches);
    const Selection selection = select(p, in, out);
    EXPECT_EQ(selection.chosen, "winograd_conv");
    Tensor y = Tensor::make(DType::f32, x.dims);
    const TensorRef ins[] = {{x.mutable_data(), DType::f32, x.dims, in[0].strides},
                             {w->mutable_data(), DType::f32, w->dims, in[1].strides}},
                    outs[] = {{y.mutable_data(), DType::f32, y.dims, out[0].strides}};
    run(*selection.kernel, ins, outs);
    const auto values = y.as<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> usual = results({});
  EXPECT_EQ(results({.l2_bytes = 64 << 10, .share_bytes = 1 << 10}), usual);
  EXPECT_EQ(results({.l2_bytes = 64 << 20}), usual);
}

} // namespace
} // namespace tbx::test
