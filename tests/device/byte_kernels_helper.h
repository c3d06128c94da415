// Our products of 8-bit integers on a device: "fake", where their texts run in the emulator, or "cuda".
#pragma once

#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/byte_product.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "library_kernels_helper.h"

namespace tbx::test {

class ByteKernels : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
    if (!is_fake() && !extern_kernels::has_tensor_cores(device_->properties()))
      GTEST_SKIP() << device_->properties().architecture;
  }
  bool is_fake() const { return device::is_fake(*device_); }
  /// Emulated as on a device of so many multiprocessors.
  std::unique_ptr<extern_kernels::ExternKernel> make(const Problem& p,
                                                     const std::vector<extern_kernels::OperandInfo>& in,
                                                     const std::vector<extern_kernels::OperandInfo>& out,
                                                     int multiprocessors) {
    EXPECT_EQ(extern_kernels::supports_cuda_byte_product(p, in, out, device_->properties()), "");
    if (!is_fake()) return extern_kernels::make_byte_product(*device_, p, in, out);
    const auto load = [this](const std::string& text) {
      if (text.starts_with("#define PART 0")) return load_text(*device_, text, {"byte_product"});
      if (text.starts_with("#define PART 1")) return load_text(*device_, text, {"join_bytes", "pack_bytes"});
      if (text.starts_with("#define PART 2")) return load_text(*device_, text, {"lay_bytes"});
      return load_text(*device_, text, {"byte_rows"});
    };
    return extern_kernels::make_byte_product(*device_, p, in, out, load, multiprocessors);
  }
  std::shared_ptr<device::Device> device_;
};

} // namespace tbx::test
