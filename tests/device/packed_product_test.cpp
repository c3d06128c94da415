// Our products with packed integers against plain loops in double: the text runs in the emulator always, on a
// GPU where there is one.
#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/packed_product.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

class PackedProduct : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, PackedProduct, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

struct Case {
  int64_t rows, k, n, block;
};

Operand bytes(Dims sizes) {
  Operand t = random_operand(DType::u8, std::move(sizes));
  for (size_t i = 0; i < t.bytes.size(); ++i) t.bytes[i] = static_cast<char>(i * 151 % 253);
  t.constant = true;
  return t;
}

/// One row, also of more columns than all blocks have at a time, and longer than a block has threads for;
/// more rows than a block has at a time, none; ends of blocks and of what shared memory holds.
TEST_P(PackedProduct, AllForms) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const auto emulated = [&](const std::string& text) {
    const bool row = text.find("packed_row(") != std::string::npos;
    return load_text(*device, text, row ? "packed_row" : "packed_product");
  };
  for (const Case& c : {Case{1, 64, 9, 32}, Case{5, 100, 17, 32}, Case{1, 2080, 8, 64}, Case{0, 32, 3, 32},
                        Case{2, 1, 1, 128}, Case{1, 1, 1, 32}, Case{1, 4200, 33, 128}, Case{1, 96, 700, 32},
                        Case{1, 9000, 3, 32}, Case{1, 600, 5, 64}})
    for (int form = 0; form < 4; ++form) {
      const DType t = form == 1 ? DType::f16 : DType::f32;
      const extern_kernels::PackedMatMulProblem p{c.k, c.n, c.block, 4, form == 3};
      const int64_t blocks = (c.k + c.block - 1) / c.block;
      std::vector<Operand> in{random_operand(t, {c.rows, c.k}),
                              bytes({c.n, blocks, c.block / 2}),
                              random_operand(t, {c.n * blocks}),
                              {},
                              {}};
      if (form == 1) in[3] = bytes({c.n * ((blocks + 1) / 2)});
      if (form == 2) in[3] = random_operand(t, {c.n * blocks}), in[4] = random_operand(t, {c.n});
      for (size_t i : {2, 3, 4}) in[i].constant = in[i].present();
      const Operand out = random_operand(t, {c.rows, c.n});
      const auto infos = infos_of(in), outs = infos_of({out});
      ASSERT_EQ(extern_kernels::supports_cuda_packed_product(Problem(p), infos, outs), "");
      const auto kernel = device::is_fake(*device)
                              ? extern_kernels::make_packed_product(*device, Problem(p), infos, emulated)
                              : extern_kernels::make_packed_product(*device, Problem(p), infos);
      expect_right(*device, *kernel, Problem(p), in, out);
    }
}

} // namespace
} // namespace tbx::test
