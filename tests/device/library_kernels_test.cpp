// Kernels of libraries on devices against plain loops in double: on the fake device always, on a GPU where there is
// one.
#include <gtest/gtest.h>

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

} // namespace
} // namespace tbx::test
