// Convolutions as products of gathered windows: what is gathered, in the emulator and on a GPU where there is
// one, and there the whole, against plain loops.
#include "extern_kernels/cuda/gathered_conv.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/fake/fake_device.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels;
using cuda::GatheredConv;

struct Case {
  Dims x, w, strides, dilations, pads;
};

const std::vector<Case> kCases{{{2, 8, 6, 7}, {16, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                               {{1, 5, 9, 8}, {3, 5, 3, 2}, {2, 3}, {2, 4}, {2, 1}},
                               {{1, 12, 1, 1}, {4, 12, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                               {{3, 4, 13}, {8, 4, 5}, {2}, {3}, {2}}};

ConvProblem problem_of(const Case& c) {
  ConvProblem p;
  p.spatial_rank = static_cast<int>(c.strides.size());
  p.strides = c.strides, p.dilations = c.dilations;
  p.pads_begin = p.pads_end = c.pads;
  return p;
}

Dims result_of(const Case& c) {
  Dims y{c.x[0], c.w[0]};
  for (size_t d = 0; d < c.strides.size(); ++d)
    y.push_back((c.x[2 + d] + 2 * c.pads[d] - (c.w[2 + d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
  return y;
}

TensorRef ref(const Operand& o, const void* data) {
  return {const_cast<void*>(data), o.dtype, o.sizes, o.strides};
}

class GatheredConvs : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
  }
  GatheredConv::Load load() {
    if (!device::is_fake(*device_)) return {};
    return [this](const std::string& text) { return load_text(*device_, text, {"gather_windows"}); };
  }
  std::shared_ptr<device::Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, GatheredConvs, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GatheredConvs, RowsHoldWhatWindowsCover) {
  for (const Case& c : kCases) {
    const Operand x = random_operand(DType::f32, c.x, channels_last(c.x.size())),
                  y = random_operand(DType::f32, result_of(c), channels_last(c.x.size()));
    int64_t taps = 1, places = 1;
    for (size_t d = 2; d < c.w.size(); ++d) taps *= c.w[d], places *= y.sizes[d];
    const int64_t channels = c.x[1], rows = c.x[0] * places;
    std::vector<float> got(static_cast<size_t>(rows * taps * channels), -7);
    const auto stream = device_->make_stream();
    const auto from = device_->allocate(x.bytes.size()), to = device_->allocate(got.size() * sizeof(float));
    stream->upload(from->data(), x.bytes.data(), x.bytes.size());
    const GatheredConv conv(*device_, problem_of(c), load());
    conv.gather(*stream, ref(x, from->data()), c.w, ref(y, nullptr), to->data());
    stream->download(got.data(), to->data(), got.size() * sizeof(float));
    stream->synchronize();
    const auto* values = reinterpret_cast<const float*>(x.bytes.data());
    size_t at = 0;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t tap = 0; tap < taps; ++tap) {
        // Innermost dimension last, of the place and of the tap.
        int64_t place = row % places, rest = tap, offset = row / places * x.strides[0];
        bool there = true;
        for (size_t d = c.x.size(); d-- > 2; place /= y.sizes[d], rest /= c.w[d]) {
          const int64_t i =
              place % y.sizes[d] * c.strides[d - 2] - c.pads[d - 2] + rest % c.w[d] * c.dilations[d - 2];
          there = there && i >= 0 && i < c.x[d];
          offset += i * x.strides[d];
        }
        for (int64_t k = 0; k < channels; ++k, ++at)
          ASSERT_EQ(got[at], there ? values[offset + k] : 0) << row << " " << tap << " " << k;
      }
  }
}

/// Gathers into its workspace and multiplies.
class Whole final : public ExternKernel {
public:
  Whole(device::Device& device, const ConvProblem& p)
      : context_(device::context_of(device)), conv_(device, p), problem_(p) {}
  std::string description() const override { return "gathered"; }
  int64_t workspace_bytes(std::span<const TensorRef> in, std::span<const TensorRef> out) const override {
    const auto call = call_of(in, out[0]);
    return call.row_bytes + static_cast<int64_t>(plan_of(context_, call.gemm)->workspace_bytes());
  }
  void run(const RunArgs& args) const override {
    const auto call = call_of(args.inputs, args.outputs[0]);
    conv_.gather(*args.stream, args.inputs[0], args.inputs[1].sizes, args.outputs[0], args.workspace);
    const cuda::GemmAddresses at{args.workspace, args.inputs[1].data, args.inputs[2].data,
                                 args.inputs[3].data, args.outputs[0].data};
    ASSERT_TRUE(plan_of(context_, call.gemm)
                    ->run(*args.stream, at, 1, static_cast<char*>(args.workspace) + call.row_bytes,
                          static_cast<size_t>(workspace_bytes(args.inputs, args.outputs) - call.row_bytes)));
  }

private:
  GatheredConv::Call call_of(std::span<const TensorRef> in, const TensorRef& y) const {
    cuda::Epilogue e;
    e.bias = 2, e.residual = 3, e.activation = cuda::Activation::relu;
    auto call = conv_.call(in[0], in[1].sizes, in[1].strides, y, e, &in[3]);
    TBX_INTERNAL(call.has_value());
    return *call;
  }
  std::shared_ptr<const device::cuda::ContextOwner> context_;
  GatheredConv conv_;
  ConvProblem problem_;
};

TEST_P(GatheredConvs, AreConvolutions) {
  if (device::is_fake(*device_)) GTEST_SKIP() << "cuBLASLt needs a GPU";
  std::vector<Case> cases = kCases;
  cases.push_back({{1, 384, 8, 8}, {384, 384, 3, 3}, {1, 1}, {1, 1}, {1, 1}});
  cases.push_back({{1, 256, 28, 28}, {512, 256, 3, 3}, {2, 2}, {1, 1}, {1, 1}});
  for (const Case& c : cases) {
    ConvProblem p = problem_of(c);
    p.has_bias = true;
    p.post_ops = {{.kind = PostOp::add, .operand = 3}, {.kind = PostOp::relu}};
    const std::vector<int> last = channels_last(c.x.size());
    const Operand y = random_operand(DType::f32, result_of(c), last);
    const std::vector<Operand> in{random_operand(DType::f32, c.x, last),
                                  random_operand(DType::f32, c.w, last), random_operand(DType::f32, {c.w[0]}),
                                  y};
    expect_right(*device_, Whole(*device_, p), Problem(p), in, y);
  }
}

TEST(GatheredConvTakes, StrictFloatsWithChannelsInnermost) {
  const auto device = device::make_fake_device();
  const Case& c = kCases[0];
  auto takes = [&](auto change) {
    ConvProblem p = problem_of(c);
    Operand x = random_operand(DType::f32, c.x, channels_last(4)),
            w = random_operand(DType::f32, c.w, channels_last(4)),
            y = random_operand(DType::f32, result_of(c), channels_last(4));
    change(p, x, w, y);
    return GatheredConv(*device, p, [](const std::string&) { return nullptr; })
        .call(ref(x, nullptr), w.sizes, w.strides, ref(y, nullptr), {}, nullptr)
        .has_value();
  };
  EXPECT_TRUE(takes([](auto&, auto&, auto&, auto&) {}));
  EXPECT_FALSE(takes([](auto& p, auto&, auto&, auto&) { p.precision = Precision::any; }));
  EXPECT_FALSE(takes([](auto& p, auto&, auto&, auto&) { p.group = 2; }));
  EXPECT_FALSE(takes([](auto&, auto& x, auto&, auto&) { x.dtype = DType::f16; }));
  EXPECT_FALSE(takes([&](auto&, auto& x, auto&, auto&) { x = random_operand(DType::f32, c.x); }));
  EXPECT_FALSE(takes([&](auto&, auto&, auto& w, auto&) { w = random_operand(DType::f32, c.w); }));
  EXPECT_FALSE(takes([&](auto&, auto&, auto&, auto& y) { y = random_operand(DType::f32, result_of(c)); }));
}

} // namespace
} // namespace tbx::test
