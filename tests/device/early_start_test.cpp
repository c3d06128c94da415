// Generated kernels that may start before the one before them ends. The fake device looks whether all of
// their threads wait for it; here is which ones are asked for so.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "device/device.h"
#include "device/fake/fake_device.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

class EarlyStart : public testing::Test {
protected:
  void SetUp() override { setenv("TBX_FAKE_CUDA", "1", 1); }
  void TearDown() override { unsetenv("TBX_FAKE_CUDA"); }

  struct Starts {
    size_t all, early;
  };
  /// Of one run of a softmax of rows of 700 elements, whose results are right.
  static Starts starts(const std::string& rows, int64_t count) {
    CompileOptions options;
    options.device = "cuda";
    const std::string bytes = to_bytes(
        parse_graph("g (float[" + rows + ", 700] x) => (float[" + rows + ", 700] y) { y = Softmax (x) }"));
    const Session s = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    std::vector<float> x(static_cast<size_t>(count) * 700);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.3f * static_cast<float>(i));
    const auto device = device::open("cuda");
    const device::FakeCounts before = device::counts_of(*device);
    const auto outputs = s.run({{"x", TensorView::of(x, {count, 700})}}).value();
    const device::FakeCounts after = device::counts_of(*device);
    const auto y = outputs[0].values<float>();
    for (int64_t r = 0; r < count; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < 700; ++i) sum += std::exp(static_cast<double>(x[r * 700 + i]));
      for (int64_t i = 0; i < 700; ++i)
        EXPECT_NEAR(y[r * 700 + i], std::exp(static_cast<double>(x[r * 700 + i])) / sum, 1e-7)
            << r << " " << i;
    }
    return {after.launches - before.launches, after.early - before.early};
  }
};

TEST_F(EarlyStart, OfFewBlocks) {
  const Starts few = starts("3", 3);
  EXPECT_GE(few.all, 1u);
  EXPECT_EQ(few.early, few.all);
}

TEST_F(EarlyStart, NotOfManyBlocks) { EXPECT_EQ(starts("4000", 4000).early, 0u); }

TEST_F(EarlyStart, AsTheRunTells) {
  const Starts few = starts("n", 3);
  EXPECT_GE(few.all, 1u);
  EXPECT_EQ(few.early, few.all);
  EXPECT_EQ(starts("n", 4000).early, 0u);
}

} // namespace
} // namespace tbx::test
