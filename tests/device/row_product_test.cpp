// Our products of one row against plain loops in double: the text runs in the emulator always, on a GPU where
// there is one.
#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/row_call.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;
using extern_kernels::RowProductProblem;
using extern_kernels::RowWork;

class RowProductTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, RowProductTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

int library_type(DType t) { return t == DType::f32 ? lt::kF32 : t == DType::f16 ? lt::kF16 : lt::kBf16; }

/// As a step of a session calls it: a, b, a bias or none, a residual or none.
class OneRow final : public extern_kernels::ExternKernel {
public:
  OneRow(device::Device& device, const Gemm& gemm, float alpha, const std::vector<Operand>& in,
         RowProduct::Load load)
      : gemm_(gemm), alpha_(alpha), row_(device, infos_of(in)[0], infos_of(in)[1], std::move(load)) {}
  std::string description() const override { return "one row"; }
  void run(const extern_kernels::RunArgs& args) const override {
    GemmAddresses at{args.inputs[0].data, args.inputs[1].data, args.inputs[2].data, args.inputs[3].data,
                     args.outputs[0].data};
    ASSERT_TRUE(row_.suits(gemm_, at));
    row_.prepare(gemm_);
    row_.run(*args.stream, gemm_, at, alpha_);
  }

private:
  Gemm gemm_;
  float alpha_;
  RowProduct row_;
};

struct Case {
  int64_t k, n;
};

/// One column, columns that warps share, ends of what threads have on their way; matrices with dense rows and
/// columns.
TEST_P(RowProductTest, AllForms) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  const auto emulated = [&](const std::string& text) { return load_text(*device, text, {"row_product"}); };
  std::vector<Case> cases{{8, 1}, {24, 7}, {304, 136}, {1096, 17}, {9000, 3}};
  if (!fake) cases.insert(cases.end(), {{768, 768}, {3072, 768}, {768, 3072}, {2048, 2304}, {96, 50257}});
  for (const Case& c : cases)
    for (DType t : {DType::f32, DType::f16, DType::bf16})
      for (int form = 0; form < 4; ++form) {
        const DType result = form == 2 ? DType::f32 : t;
        MatMulProblem p;
        p.alpha = form == 3 ? 0.25f : 1;
        Gemm g;
        g.type = library_type(t), g.result = library_type(result);
        g.m = 1, g.k = c.k, g.n = c.n, g.a_step = c.k, g.b_step = g.c_step = g.residual_step = c.n;
        const bool columns = form == 1; // are dense
        std::vector<Operand> in{
            random_operand(t, {1, c.k}),
            random_operand(t, {c.k, c.n}, columns ? std::vector{1, 0} : std::vector<int>{}),
            {},
            {}};
        in[1].constant = true;
        if (columns) g.b_columns = true, g.b_step = c.k;
        if (form != 0) {
          p.has_bias = g.bias = true;
          in[2] = random_operand(result, {1, c.n});
        }
        if (form >= 2) {
          g.residual = true;
          in[3] = random_operand(result, {1, c.n});
          p.post_ops.push_back({.kind = PostOp::add, .operand = 3});
        }
        if (form == 1) g.activation = Activation::gelu, p.post_ops.push_back({.kind = PostOp::gelu_tanh});
        if (form == 3) g.activation = Activation::relu, p.post_ops.push_back({.kind = PostOp::relu});
        const OneRow kernel(*device, g, p.alpha, in, fake ? RowProduct::Load(emulated) : nullptr);
        expect_right(*device, kernel, Problem(p), in, random_operand(result, {1, c.n}));
      }
}

/// Norms before the product and gates behind it: rows of one vector, of an odd number of them, of which a
/// block has the last part only, of the longest; one result, odd numbers of results, columns that warps
/// share; matrices with dense rows and columns, rows in memory of other types, and at any address.
TEST_P(RowProductTest, NormsAndGates) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  const RowProduct::Load emulated = [&](const std::string& text) {
    return load_text(*device, text, {"row_product"});
  };
  std::vector<Case> cases{{8, 1}, {24, 7}, {304, 34}, {1096, 5}, {8192, 1}};
  if (!fake) cases.insert(cases.end(), {{768, 2304}, {768, 4096}, {2048, 5632}, {4096, 4096}, {8192, 1024}});
  int number = 0;
  for (const Case& c : cases)
    for (DType t : {DType::f32, DType::f16, DType::bf16})
      for (auto norm : {RowWork::as_it_is, RowWork::root_mean_square, RowWork::layer})
        for (auto gate : {RowWork::no_gate, RowWork::first, RowWork::second}) {
          SCOPED_TRACE(++number);
          if (fake && number % 3 != 1 && c.k > 24) continue; // a text for each is compiled
          RowProductProblem p;
          p.work = {norm, static_cast<RowWork::Activation>(number % 5), gate, 1e-3f, DType::undefined};
          const bool scaled = norm != RowWork::as_it_is && number % 4 != 0, columns = number % 2 == 0;
          const int64_t n = gate == RowWork::no_gate ? c.n : 2 * c.n;
          const DType x = number % 3 == 0 ? DType::f32 : t, result = number % 7 == 0 ? DType::f32 : t;
          std::vector<Operand> in(5);
          in[0] = random_operand(x, {1, c.k});
          in[1] = random_operand(t, {c.k, n}, columns ? std::vector{1, 0} : std::vector<int>{});
          if (number % 2 != 0) in[2] = random_operand(result, {1, n});
          if (scaled) in[3] = random_operand(number % 5 < 2 ? DType::f32 : t, {1, c.k});
          if (scaled && norm == RowWork::layer) in[4] = random_operand(t, {1, c.k});
          for (size_t i : {1, 3, 4}) in[i].constant = in[i].present();
          const Operand out = random_operand(result, {1, c.n});
          const auto infos = infos_of(in), outs = infos_of({out});
          ASSERT_EQ(extern_kernels::supports_cuda_row_product(Problem(p), infos, outs, device->properties()),
                    "");
          const auto kernel =
              extern_kernels::make_row_call(*device, Problem(p), infos, outs, fake ? emulated : nullptr);
          expect_right(*device, *kernel, Problem(p), in, out);
        }
}

/// A model of halves rounds the row over its deviation to halves before it scales it.
TEST_P(RowProductTest, RoundsBeforeItScales) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  RowProductProblem p;
  p.work = {RowWork::root_mean_square, RowWork::none, RowWork::no_gate, 0, DType::f16};
  // Of numbers +-1 and one that is larger the row over its deviation is no half; scaled by 2048 the
  // difference is a whole number.
  std::vector<Operand> in(5);
  in[0] = random_operand(DType::f32, {1, 8}), in[1] = random_operand(DType::f32, {8, 1});
  in[3] = random_operand(DType::f32, {1, 8});
  std::vector<float> x{1, -1, 1, 1, -1, 1, 3, 1}, w{1, 0, 0, 0, 0, 0, 0, 0}, scale(8, 2048);
  auto give = [](Operand& to, const std::vector<float>& values) {
    std::copy_n(reinterpret_cast<const char*>(values.data()), to.bytes.size(), to.bytes.data());
  };
  give(in[0], x), give(in[1], w), give(in[3], scale);
  in[1].constant = in[3].constant = true;
  const Operand out = random_operand(DType::f32, {1, 1});
  const RowProduct::Load emulated = [&](const std::string& text) {
    return load_text(*device, text, {"row_product"});
  };
  const auto kernel = extern_kernels::make_row_call(*device, Problem(p), infos_of(in), infos_of({out}),
                                                    fake ? emulated : nullptr);
  expect_right(*device, *kernel, Problem(p), in, out); // 1/sqrt(2) is no half
}

TEST(RowCallSuits, WhatBlocksKeep) {
  const auto refusal = [](DType x, DType w, Dims sizes, RowWork::Gate gate = RowWork::no_gate,
                          bool constant = true, int64_t rows = 1) {
    RowProductProblem p;
    p.work.gate = gate;
    std::vector<Operand> in{random_operand(x, {rows, sizes[0]}), random_operand(w, sizes)};
    in[1].constant = constant;
    const Operand out = random_operand(DType::f32, {1, gate == RowWork::no_gate ? sizes[1] : sizes[1] / 2});
    return extern_kernels::supports_cuda_row_product(Problem(p), infos_of(in), infos_of({out}), {});
  };
  EXPECT_EQ(refusal(DType::f32, DType::f16, {64, 6}, RowWork::first), "");
  EXPECT_NE(refusal(DType::f32, DType::f16, {64, 5}, RowWork::first), "");
  EXPECT_NE(refusal(DType::f64, DType::f64, {64, 6}), "");
  EXPECT_NE(refusal(DType::f32, DType::f32, {63, 6}), "");
  EXPECT_NE(refusal(DType::f32, DType::f32, {8200, 6}), "");
  EXPECT_NE(refusal(DType::f32, DType::f32, {64, 6}, RowWork::no_gate, false), "");
  EXPECT_NE(refusal(DType::f32, DType::f32, {64, 6}, RowWork::no_gate, true, 2), "");
}

TEST(RowProductSuits, LeavesTheRestToTheLibrary) {
  const auto device = device::make_fake_device();
  alignas(16) char memory[32];
  struct Form {
    DType type = DType::f32;
    int64_t rows = 1, terms = 64, rows_of_run = 1;
    bool constant = true;
    int shift = 0;
  };
  auto suits = [&](const Form& form) {
    Operand a = random_operand(form.type, {form.rows, form.terms}),
            b = random_operand(form.type, {form.terms, 127});
    b.constant = form.constant;
    Gemm g;
    g.type = g.result = form.type == DType::f32 ? lt::kF32 : lt::kF64;
    g.m = form.rows_of_run, g.k = form.terms, g.n = g.b_step = 127;
    GemmAddresses at;
    at.a = memory + form.shift;
    const auto infos = infos_of({a, b});
    return RowProduct(*device, infos[0], infos[1], [](const std::string&) { return nullptr; }).suits(g, at);
  };
  EXPECT_TRUE(suits({}));
  EXPECT_FALSE(suits({.type = DType::f64}));
  EXPECT_FALSE(suits({.rows = 2}));
  EXPECT_FALSE(suits({.terms = 63}));
  EXPECT_FALSE(suits({.rows_of_run = 2}));
  EXPECT_FALSE(suits({.constant = false}));
  EXPECT_FALSE(suits({.shift = 4}));
}

} // namespace
} // namespace tbx::test
