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
    return load_text(*device, text, {row ? "packed_row" : "packed_product"});
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
      ASSERT_EQ(extern_kernels::supports_cuda_packed_product(Problem(p), infos, outs, device->properties()),
                "");
      const auto kernel = device::is_fake(*device)
                              ? extern_kernels::make_packed_product(*device, Problem(p), infos, emulated)
                              : extern_kernels::make_packed_product(*device, Problem(p), infos);
      expect_right(*device, *kernel, Problem(p), in, out);
    }
}

/// Norms before the product, gates and sums behind it: rows of one group, of one element, of as many as a
/// thread keeps, with ends of groups; one result, more than all blocks have at a time.
TEST_P(PackedProduct, WorkAroundOneRow) {
  using extern_kernels::RowWork;
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  const auto emulated = [&](const std::string& text) { return load_text(*device, text, {"packed_row"}); };
  std::vector<Case> cases{{1, 1, 1, 32}, {1, 64, 9, 32}, {1, 1000, 3, 128}, {1, 96, 350, 32}};
  cases.push_back(fake ? Case{1, 4096, 1, 64} : Case{1, 6000, 5, 64}); // of floats in shared memory, or bytes
  if (!fake) cases.insert(cases.end(), {{1, 768, 2048, 32}, {1, 2048, 5632, 32}});
  int number = 0;
  for (const Case& c : cases)
    for (auto norm : {RowWork::as_it_is, RowWork::root_mean_square, RowWork::layer})
      for (auto gate : {RowWork::no_gate, RowWork::first, RowWork::second})
        for (int form = 0; form < 4; ++form) {
          SCOPED_TRACE(++number);
          if (fake && number % 7 > 1) continue; // a text for each is compiled
          const DType t = form == 1 ? DType::f16 : DType::f32;
          const int64_t n = gate == RowWork::no_gate ? c.n : 2 * c.n, blocks = (c.k + c.block - 1) / c.block;
          extern_kernels::PackedMatMulProblem p{c.k, n, c.block, 4, form == 3 || c.k > 1000};
          p.work = {norm, static_cast<RowWork::Activation>(number % 5), gate, 1e-2f, DType::undefined};
          std::vector<Operand> in{random_operand(t, {1, c.k}),
                                  bytes({n, blocks, c.block / 2}),
                                  random_operand(t, {n * blocks}),
                                  {},
                                  {},
                                  {},
                                  {},
                                  {}};
          if (form == 1) in[3] = bytes({n * ((blocks + 1) / 2)});
          if (form == 2) in[3] = random_operand(t, {n * blocks}), in[4] = random_operand(t, {n});
          if (norm != RowWork::as_it_is && form != 0) in[5] = random_operand(t, {1, c.k});
          if (norm == RowWork::layer && form != 1) in[6] = random_operand(DType::f16, {1, c.k});
          if (number % 2 == 0) in[7] = random_operand(t, {1, c.n});
          for (size_t i = 2; i < 7; ++i) in[i].constant = in[i].present();
          const Operand out = random_operand(t, {1, c.n});
          const auto infos = infos_of(in), outs = infos_of({out});
          ASSERT_EQ(
              extern_kernels::supports_cuda_packed_product(Problem(p), infos, outs, device->properties()),
              "");
          const auto kernel = fake ? extern_kernels::make_packed_product(*device, Problem(p), infos, emulated)
                                   : extern_kernels::make_packed_product(*device, Problem(p), infos);
          expect_right(*device, *kernel, Problem(p), in, out);
        }
}

TEST(PackedProductSuits, WorkAroundOneRowThatABlockKeeps) {
  using extern_kernels::RowWork;
  const auto refusal = [](int64_t rows, int64_t k, int64_t block, bool rounds) {
    extern_kernels::PackedMatMulProblem p{k, 4, block, 4, rounds};
    p.work.norm = RowWork::layer;
    std::vector<Operand> in{random_operand(DType::f32, {rows, k}),
                            bytes({4, (k + block - 1) / block, block / 2}),
                            random_operand(DType::f32, {4 * ((k + block - 1) / block)})};
    in[2].constant = true;
    return extern_kernels::supports_cuda_packed_product(
        Problem(p), infos_of(in), infos_of({random_operand(DType::f32, {rows, 4})}), {});
  };
  EXPECT_EQ(refusal(1, 4096, 32, true), "");
  EXPECT_NE(refusal(2, 4096, 32, true), "");
  EXPECT_NE(refusal(1, 9000, 32, true), "");
  EXPECT_NE(refusal(1, 9000, 32, false), "");
  EXPECT_NE(refusal(1, 4096, 512, true), "");
}

} // namespace
} // namespace tbx::test
