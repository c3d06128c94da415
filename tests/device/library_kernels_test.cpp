// Kernels of libraries on devices against plain loops in double: on the fake device always, on a GPU where there is
// one.
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/cuda/nvrtc.h"
#include "device/library.h"
#include "extern_kernels/cuda/loops.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

class LibraryKernels : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
  }
  std::shared_ptr<device::Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, LibraryKernels, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LibraryKernels, ProductsOfFloats) {
  for (int64_t m : {0, 1, 7})
    for (int64_t k : {0, 1, 33})
      for (int64_t n : {0, 1, 5}) {
        MatMulProblem p;
        std::vector<Operand> in{random_operand(DType::f32, {m, k}), random_operand(DType::f32, {k, n}), {}};
        expect_right(*device_, p, in, random_operand(DType::f32, {m, n}));
      }
}

TEST(LoopKernels, TextCompilesForEveryType) {
  try {
    device::cuda_library("libnvrtc.so.13");
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  using extern_kernels::cuda::Loop;
  using extern_kernels::cuda::loops_text;
  for (Loop kernel : {Loop::product, Loop::convolution, Loop::attention})
    for (DType t : {DType::f16, DType::f64})
      EXPECT_NO_THROW(device::cuda::compile(loops_text(kernel, t, t, t, 2), "sm_75")) << name_of(t);
  for (Loop kernel : {Loop::product, Loop::convolution})
    EXPECT_NO_THROW(device::cuda::compile(loops_text(kernel, DType::u8, DType::i8, DType::i32), "sm_90"));
}

} // namespace
} // namespace tbx::test
