// Calls of library kernels before a session's first run: where their operands lie, and what runs when.
#include "runtime/rehearsal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "device/fake/fake_device.h"

namespace tbx::test {
namespace {

using extern_kernels::RunArgs;
using extern_kernels::TensorRef;

/// Writes all of its operands and its workspace, where its stream works.
class Filler final : public extern_kernels::ExternKernel {
public:
  static constexpr int64_t kWorkspace = 1000;
  std::string description() const override { return "filler"; }
  int64_t workspace_bytes(std::span<const TensorRef>, std::span<const TensorRef>) const override {
    return kWorkspace;
  }
  void run(const RunArgs& args) const override {
    ++runs;
    places.clear();
    for (const auto* operands : {&args.inputs, &args.outputs})
      for (const TensorRef& t : *operands) {
        places.push_back(reinterpret_cast<uintptr_t>(t.data));
        if (!t.data) continue;
        int64_t last = 0;
        for (size_t d = 0; d < t.sizes.size(); ++d) last += (t.sizes[d] - 1) * t.strides[d];
        args.stream->fill(t.data, 1, static_cast<size_t>((last + 1) * size_of(t.dtype)));
      }
    places.push_back(reinterpret_cast<uintptr_t>(args.workspace));
    args.stream->fill(args.workspace, 2, kWorkspace);
    if (fails) throw std::runtime_error("it does not work");
  }
  bool fails = false;
  mutable std::atomic<int> runs{0};
  mutable std::vector<uintptr_t> places;
};

/// An input of 7 rows of 3 that lie 5 apart, one that is absent, and a result of 40 bytes.
runtime::EarlyCall call_of(const Filler& kernel, int64_t row_stride = 5) {
  runtime::EarlyCall call;
  call.kernel = &kernel;
  call.inputs = 2;
  call.operands = {{DType::f32, {7, 3}, {row_stride, 1}, nullptr},
                   {DType::undefined, {}, {}, nullptr},
                   {DType::f16, {20}, {1}, nullptr}};
  call.offsets = {256 + 12, 0, 64};
  return call;
}

void expect_places(const Filler& kernel) {
  ASSERT_EQ(kernel.places.size(), 4u);
  const uintptr_t x = kernel.places[0], y = kernel.places[2], work = kernel.places[3];
  EXPECT_EQ(x % 256, 12u);
  EXPECT_EQ(kernel.places[1], 0u);
  EXPECT_EQ(y % 256, 64u);
  EXPECT_EQ(work % 256, 0u);
  EXPECT_GE(y, x + (6 * 5 + 3) * 4);
  EXPECT_GE(work, y + 40);
}

TEST(Rehearsal, EarlyCallsHaveOperandsBesideEachOther) {
  const Filler kernel;
  runtime::rehearse_early(call_of(kernel));
  EXPECT_EQ(kernel.runs, 1);
  expect_places(kernel);
  Filler failing;
  failing.fails = true;
  runtime::rehearse_early(call_of(failing)); // the run is to say so
  EXPECT_EQ(failing.runs, 1);
  const Filler backwards;
  runtime::rehearse_early(call_of(backwards, -5));
  EXPECT_EQ(backwards.runs, 0);
}

TEST(Rehearsal, EarlyMeasurementsRunInMemoryOfTheirOwn) {
  const auto device = device::make_fake_device(0);
  const Filler first, second, backwards, large;
  Filler failing;
  failing.fails = true;
  {
    runtime::EarlyMeasurements measurements(*device, size_t{1} << 20); // its end waits
    measurements.add(call_of(first));
    measurements.add(call_of(failing));
    measurements.add(call_of(backwards, -5));
    measurements.add(call_of(large, int64_t{1} << 20)); // more memory than a measurement takes
    measurements.add(call_of(second));
  }
  for (const Filler* kernel : {&first, &second}) {
    EXPECT_EQ(kernel->runs, 1);
    expect_places(*kernel);
  }
  EXPECT_EQ(failing.runs, 1);
  EXPECT_EQ(backwards.runs, 0);
  EXPECT_EQ(large.runs, 0);
}

} // namespace
} // namespace tbx::test
