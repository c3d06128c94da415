// Our products of few rows in half types against plain loops in double: the text runs in the emulator always,
// and on a GPU, where clusters share the terms, if there is one that has them.
#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/few_rows_product.h"
#include "extern_kernels/cuda/loops.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;

class FewRowsProductTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, FewRowsProductTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

/// As a step of a session calls it: a, b, a bias or none, a residual or none.
class FewRows final : public extern_kernels::ExternKernel {
public:
  FewRows(device::Device& device, const Operand& b, const Gemm& gemm, float alpha, FewRowsProduct::Load load,
          int multiprocessors)
      : gemm_(gemm), alpha_(alpha), product_(device, info_of(b), std::move(load), multiprocessors) {}
  std::string description() const override { return "few rows"; }
  void run(const extern_kernels::RunArgs& args) const override {
    GemmAddresses at{args.inputs[0].data, args.inputs[1].data, args.inputs[2].data, args.inputs[3].data,
                     args.outputs[0].data};
    ASSERT_TRUE(product_.takes(gemm_, at));
    if (!product_.kept()) {
      ASSERT_TRUE(product_.keep(product_.packed(*args.stream, gemm_, at)));
    }
    EXPECT_GE(product_.bytes(), gemm_.n * gemm_.k * 2);
    product_.run(*args.stream, gemm_, at, alpha_, *product_.kept());
  }

private:
  Gemm gemm_;
  float alpha_;
  FewRowsProduct product_;
};

struct Case {
  int64_t m, n, k;
};

/// Parts of tiles in each dimension, more chunks than are on their way, warps without terms, clusters of each
/// size (by the numbers of tiles); matrices with dense rows and columns.
TEST_P(FewRowsProductTest, AllForms) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  if (!fake && architecture_number(device->properties()) < 80) GTEST_SKIP() << "no tensor cores";
  const auto emulated = [&](const std::string& text) {
    return load_text(*device, text, {"few_rows_product", "pack_few_rows", "lead_few_rows"});
  };
  // Of one multiprocessor small products have blocks of all shapes; emulated threads are slow.
  const int multiprocessors = fake ? 1 : 0;
  std::vector<Case> cases{{1, 8, 8},    {3, 72, 24},   {1, 8, 136},  {17, 40, 456},
                          {17, 8, 136}, {17, 40, 200}, {33, 104, 72}};
  if (!fake)
    cases.insert(cases.end(), {{65, 136, 328},
                               {17, 40, 1816},
                               {129, 1544, 136},
                               {64, 768, 3072},
                               {128, 768, 3072},
                               {197, 768, 3072},
                               {64, 768, 768},
                               {64, 2304, 768},
                               {63, 3072, 520},
                               {7, 64, 136},
                               {1, 768, 4096},
                               {256, 1024, 1000}});
  // Each case and form is a text of its own to compile: cases take turns in two forms of a type each.
  for (size_t i = 0; i < cases.size(); ++i)
    for (DType t : {DType::f16, DType::bf16})
      for (int form = 0; form < 5; ++form) {
        const Case& c = cases[i];
        if (form != static_cast<int>(i + (t == DType::f16 ? 0 : 1)) % 5 &&
            form != static_cast<int>(i + 3) % 5)
          continue;
        if (fake && t == DType::bf16 && i % 3 != 0) continue;
        MatMulProblem p;
        p.alpha = form == 3 ? 0.25f : 1;
        Gemm g;
        g.type = g.result = t == DType::f16 ? lt::kF16 : lt::kBf16;
        g.m = c.m, g.k = c.k, g.n = c.n, g.a_step = c.k, g.b_step = g.c_step = g.residual_step = c.n;
        const bool columns = form == 1; // are dense
        std::vector<Operand> in{
            random_operand(t, {c.m, c.k}),
            random_operand(t, {c.k, c.n}, columns ? std::vector{1, 0} : std::vector<int>{}),
            {},
            {}};
        in[1].constant = true;
        if (columns) g.b_columns = true, g.b_step = c.k;
        if (form != 0) {
          p.has_bias = g.bias = true;
          in[2] = random_operand(t, {1, c.n});
        }
        if (form >= 2) {
          g.residual = true;
          in[3] = random_operand(t, {c.m, c.n});
          p.post_ops.push_back({.kind = PostOp::add, .operand = 3});
        }
        if (form == 1) g.activation = Activation::gelu, p.post_ops.push_back({.kind = PostOp::gelu_tanh});
        if (form == 3) g.activation = Activation::relu, p.post_ops.push_back({.kind = PostOp::relu});
        if (form == 4) g.activation = Activation::gelu_erf, p.post_ops.push_back({.kind = PostOp::gelu_erf});
        const FewRows kernel(*device, in[1], g, p.alpha, fake ? FewRowsProduct::Load(emulated) : nullptr,
                             multiprocessors);
        SCOPED_TRACE(testing::Message() << c.m << " x " << c.k << " x " << c.n << ", form " << form);
        expect_right(*device, kernel, Problem(p), in, random_operand(t, {c.m, c.n}));
      }
}

/// Of a constant float16 matrix [128, 64].
extern_kernels::OperandInfo constant_matrix() {
  Operand b = random_operand(DType::f16, {128, 64});
  b.constant = true;
  return info_of(b);
}

TEST(FewRowsProductTakes, WhatLiesInVectors) {
  const auto device = device::make_fake_device();
  const FewRowsProduct product(*device, constant_matrix(), [](const std::string&) { return nullptr; });
  alignas(16) char memory[32];
  GemmAddresses at{memory, memory, nullptr, nullptr, memory};
  Gemm g;
  g.type = g.result = lt::kF16;
  g.m = 64, g.n = g.b_step = g.c_step = 64, g.k = g.a_step = 128;
  EXPECT_TRUE(product.takes(g, at));
  EXPECT_FALSE(product.suits(g, at)) << "without clusters a library is faster";
  extern_kernels::OperandInfo computed = constant_matrix();
  computed.constant = nullptr;
  EXPECT_FALSE(FewRowsProduct(*device, computed, [](const std::string&) { return nullptr; }).takes(g, at));
  auto refused = [&](auto change) {
    Gemm other = g;
    GemmAddresses there = at;
    change(other, there);
    return !product.takes(other, there);
  };
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.type = o.result = lt::kF32; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.result = lt::kF32; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.batch = 2; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.a_columns = true; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.n = 56; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.k = 0; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.a_step = 132; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.m = int64_t{1} << 40; }));
  EXPECT_TRUE(refused([](Gemm& o, GemmAddresses&) { o.residual = true, o.residual_step = 65; }));
  EXPECT_TRUE(refused([&](Gemm& o, GemmAddresses& there) { o.bias = true, there.bias = memory + 8; }));
  EXPECT_TRUE(refused([&](Gemm&, GemmAddresses& there) { there.c = memory + 2; }));
}

/// Whatever the sizes: a result has a place in one tile, and a term in one warp.
TEST(FewRowsShapes, CoverTheProduct) {
  for (int64_t m : {1, 2, 16, 17, 64, 100, 197, 256})
    for (int64_t n : {8, 64, 768, 2304, 3072})
      for (int64_t k : {8, 64, 320, 768, 3072, 4096})
        for (bool clusters : {false, true}) {
          const FewRowsShape s = expect_few_rows(m, n, k, 132, clusters).shape;
          EXPECT_TRUE(clusters || s.blocks == 1);
          EXPECT_LE(s.blocks, kLargestCluster);
          EXPECT_EQ(s.tile_rows() % s.blocks, 0) << "rows that a block finishes";
          EXPECT_LE(s.warps * s.row_warps, 8) << "registers";
        }
}

} // namespace
} // namespace tbx::test
