// Our products of one row against plain loops in double: the text runs in the emulator always, on a GPU where
// there is one.
#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/row_product.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;

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
  const auto emulated = [&](const std::string& text) { return load_text(*device, text, "row_product"); };
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
