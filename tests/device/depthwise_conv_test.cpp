// Our depthwise convolutions against plain loops in double: the text runs in the emulator always, on a GPU
// where there is one.
#include <gtest/gtest.h>

#include <atomic>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/depthwise_conv.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

class DepthwiseConv : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, DepthwiseConv, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

struct Case {
  Dims x;
  int64_t kernel, stride = 1, dilation = 1;
};

struct Layer {
  ConvProblem problem;
  std::vector<Operand> in;
  Operand out;
};

/// `form`: 0 channels innermost, 1 channels outermost, with a bias and Relu, 2 channels innermost, weights
/// that are no constants, a residual, SiLU and a factor for each channel, 3 as 0 with an addition in place,
/// clipped.
Layer layer(const Case& c, DType type, int form) {
  Layer l;
  ConvProblem& p = l.problem;
  const size_t space = c.x.size() - 2;
  p.spatial_rank = static_cast<int>(space);
  p.group = c.x[1];
  p.strides.assign(space, c.stride), p.dilations.assign(space, c.dilation);
  p.pads_begin.assign(space, c.kernel / 2), p.pads_end.assign(space, (c.kernel - 1) / 2);
  p.pads_end.back() += 1;
  Dims y = c.x, w{c.x[1], 1};
  for (size_t d = 0; d < space; ++d) {
    w.push_back(c.kernel);
    y[2 + d] =
        (c.x[2 + d] + p.pads_begin[d] + p.pads_end[d] - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
    if (y[2 + d] < 0) y[2 + d] = 0;
  }
  const std::vector<int> order = form == 1 ? std::vector<int>{} : channels_last(c.x.size());
  l.in = {random_operand(type, c.x, order), random_operand(type, w), {}};
  l.in[1].constant = form != 2;
  l.out = random_operand(type, y, order);
  if (form == 1) {
    p.has_bias = true;
    l.in[2] = random_operand(DType::f32, {c.x[1]});
    p.post_ops = {{.kind = PostOp::relu}};
  }
  if (form == 2) {
    l.in.push_back(l.out);
    Dims each(y.size(), 1);
    each[1] = y[1];
    l.in.push_back(random_operand(DType::f32, each));
    p.post_ops = {{.kind = PostOp::add, .operand = 3},
                  {.kind = PostOp::silu, .alpha = 1},
                  {.kind = PostOp::mul, .operand = 4}};
  }
  if (form == 3) {
    l.in.push_back(l.out);
    p.post_ops = {{.kind = PostOp::sum, .operand = 3},
                  {.kind = PostOp::clip, .alpha = -0.5f, .beta = std::numeric_limits<float>::infinity()}};
  }
  return l;
}

/// Windows of 1 to 7, at the edge and beyond it; channels that fill vectors and not; no image, no result,
/// strips and tiles that end early; one dimension and two; sizes of real layers on a GPU.
TEST_P(DepthwiseConv, AllForms) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  int texts_of_tiles = 0;
  const auto emulated = [&](const std::string& text) {
    const bool tiles = text.find("depthwise_tile(") != std::string::npos;
    texts_of_tiles += tiles;
    return load_text(*device, text, {tiles ? "depthwise_tile" : "depthwise_conv"});
  };
  std::vector<Case> cases{{{2, 16, 9, 11}, 3},      {{1, 5, 4, 3}, 5, 2}, {{1, 37, 3, 3}, 3},
                          {{1, 8, 13}, 4, 1, 2},    {{1, 72, 5, 37}, 3},  {{0, 8, 5, 5}, 3},
                          {{1, 8, 25, 27}, 3, 2, 2}};
  if (!fake)
    cases.insert(cases.end(), {{{1, 96, 56, 56}, 7},
                               {{1, 384, 14, 14}, 7},
                               {{1, 768, 7, 7}, 7},
                               {{3, 1152, 7, 7}, 5},
                               {{1, 64, 112, 112}, 3, 2},
                               {{32, 144, 28, 28}, 3},
                               {{1, 100, 33, 65}, 5, 2},
                               {{2, 24, 40, 41}, 3, 1, 3},
                               {{1, 256, 1000}, 9},
                               {{1, 2, 1, 1}, 1}});
  for (const Case& c : cases)
    for (int form = 0; form < 4; ++form)
      for (DType type : {DType::f32, DType::f16, DType::bf16}) {
        // Each is a text of its own to compile.
        if (fake && static_cast<int>(type == DType::f32   ? 0
                                     : type == DType::f16 ? 1
                                                          : 2) != (form + c.kernel) % 3)
          continue;
        const Layer l = layer(c, type, form);
        const auto infos = infos_of(l.in);
        SCOPED_TRACE(testing::Message() << name_of(type) << ", " << c.x.size() - 2 << " dimensions of "
                                        << c.x.back() << ", window " << c.kernel << ", form " << form);
        ASSERT_EQ(extern_kernels::supports_cuda_depthwise_conv(Problem(l.problem), infos, infos_of({l.out}),
                                                               device->properties()),
                  "");
        const auto kernel =
            fake ? extern_kernels::make_depthwise_conv(*device, Problem(l.problem), infos, emulated)
                 : extern_kernels::make_depthwise_conv(*device, Problem(l.problem), infos);
        expect_right(*device, *kernel, Problem(l.problem), l.in, l.out);
      }
  EXPECT_TRUE(!fake || texts_of_tiles >= 8) << "layers with channels innermost and constant weights";
}

TEST(DepthwiseConvTakes, OneKernelForEachChannel) {
  auto refusal = [](auto change) {
    Layer l = layer({{1, 8, 6, 6}, 3}, DType::f16, 1);
    auto in = infos_of(l.in), out = infos_of({l.out});
    change(l.problem, in, out[0]);
    return extern_kernels::supports_cuda_depthwise_conv(Problem(l.problem), in, out, {});
  };
  EXPECT_EQ(refusal([](auto&, auto&, auto&) {}), "");
  EXPECT_NE(refusal([](auto& p, auto&, auto&) { p.group = 4; }), "");
  EXPECT_NE(refusal([](auto& p, auto&, auto&) { p.transposed = true; }), "");
  EXPECT_NE(refusal([](auto&, auto& in, auto&) { in[1].sizes[3] = -1; }), "");
  EXPECT_NE(refusal([](auto&, auto& in, auto&) { in[1].sizes[3] = 200; }), "");
  EXPECT_NE(refusal([](auto&, auto&, auto& out) { out.dtype = DType::f32; }), "");
}

/// Rehearsed kernels have compiled what the run needs.
TEST(DepthwiseConvRehearsal, CompilesForTheRun) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test("fake", why);
  ASSERT_TRUE(device) << why;
  std::atomic<int> loads = 0;
  const auto load = [&](const std::string& text) {
    ++loads;
    return load_text(*device, text, {"depthwise_tile"});
  };
  std::vector<Layer> layers{layer({{1, 16, 9, 11}, 3}, DType::f32, 0),
                            layer({{1, 16, 9, 11}, 3, 2}, DType::f32, 0)};
  std::vector<std::unique_ptr<extern_kernels::ExternKernel>> kernels;
  for (const Layer& l : layers)
    kernels.push_back(extern_kernels::make_depthwise_conv(*device, Problem(l.problem), infos_of(l.in), load));
  EXPECT_EQ(loads, 0);
  // expect_right rehearses before it runs.
  expect_right(*device, *kernels[0], layers[0].problem, layers[0].in, layers[0].out);
  EXPECT_EQ(loads, 1);
  expect_right(*device, *kernels[1], layers[1].problem, layers[1].in, layers[1].out);
  EXPECT_EQ(loads, 2);
}

} // namespace
} // namespace tbx::test
