// Products with exact GELU behind them against plain loops in double: the text of our kernel runs in the emulator
// always, in all its forms, on a GPU where there is one.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "codegen/device_binary.h"
#include "device/cuda/nvrtc.h"
#include "device/fake/fake_device.h"
#include "device/library.h"
#include "extern_kernels/cuda/fused_product.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "extern_kernels/library_kernel.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

constexpr size_t kMeasured = extern_kernels::kFusedWays; ///< no way is given

class FusedProduct : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
    if (!is_fake() && !extern_kernels::has_tensor_cores(device_->properties()))
      GTEST_SKIP() << device_->properties().architecture;
  }
  bool is_fake() const { return device::is_fake(*device_); }
  /// The same text is compiled once.
  std::shared_ptr<device::Module> emulated(const std::string& text) {
    static std::map<std::string, std::string> binaries;
    std::string& binary = binaries[text];
    if (binary.empty()) {
      std::vector<codegen::EmittedKernel> kernels(1);
      kernels[0].function = "activate", kernels[0].text = text;
      const std::string start = "TBX_FUSED_PRODUCT(fused";
      for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
        const size_t name = text.find("fused", at);
        kernels.emplace_back().function = text.substr(name, text.find(',', name) - name);
      }
      binary = codegen::device_binary(kernels, device_->properties());
    }
    return device_->load(binary);
  }
  std::vector<std::string> check(const MatMulProblem& p, const std::vector<Operand>& in, const Operand& out,
                                 size_t way) {
    const auto infos = infos_of(in), outs = infos_of({out});
    EXPECT_EQ(extern_kernels::supports_cuda_fused_product(p, infos, outs), "");
    std::function<std::shared_ptr<device::Module>(const std::string&)> load;
    if (is_fake()) load = [this](const std::string& text) { return emulated(text); };
    const auto kernel = extern_kernels::make_fused_product(
        *device_, p, infos, outs, load, way == kMeasured ? std::nullopt : std::optional<size_t>(way));
    expect_right(*device_, *kernel, p, in, out);
    return dynamic_cast<const extern_kernels::LibraryKernel&>(*kernel).implementations();
  }
  std::shared_ptr<device::Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, FusedProduct, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

struct Sizes {
  int64_t m, k, n;
};

struct Form {
  DType half = DType::f16;
  bool columns = false; ///< of b are dense
  bool bias = false, residual = false;
  float alpha = 1;
};

struct Made {
  MatMulProblem p;
  std::vector<Operand> in;
  Operand out;
};

Made made(const Sizes& s, const Form& f) {
  Made m;
  m.p.alpha = f.alpha;
  m.p.has_bias = f.bias;
  m.in = {random_operand(f.half, {s.m, s.k}),
          random_operand(f.half, {s.k, s.n}, f.columns ? std::vector<int>{1, 0} : std::vector<int>{}),
          f.bias ? random_operand(f.half, {1, s.n}) : Operand{}};
  if (f.residual) {
    m.in.push_back(random_operand(f.half, {s.m, s.n}));
    m.p.post_ops.push_back({PostOp::add, 0, 0, 3});
  }
  m.p.post_ops.push_back({PostOp::gelu_erf});
  m.out = random_operand(f.half, {s.m, s.n});
  return m;
}

constexpr Form kForms[] = {{},
                           {DType::bf16, true, true, false},
                           {DType::f16, true, true, true, 0.5f},
                           {DType::bf16, false, true, true, 2}};

/// One row; rows and columns that fill no tile, or several; terms that fill none, one, and more than are on
/// their way at a time.
TEST_P(FusedProduct, AllTiles) {
  size_t turn = 0;
  for (size_t way = 0; way < extern_kernels::kFusedWays; ++way)
    for (const Sizes& s : {Sizes{1, 8, 8}, Sizes{70, 64, 40}, Sizes{19, 456, 72}, Sizes{130, 88, 136}})
      for (const Form& f : kForms) {
        if (is_fake() && ++turn % 3 != 0) continue; // emulated threads are slow: each form with some sizes
        const Made m = made(s, f);
        const auto notes = check(m.p, m.in, m.out, way);
        ASSERT_FALSE(notes.empty());
        EXPECT_EQ(notes[0].find("our own kernel") != std::string::npos, way > 0) << notes[0];
      }
}

/// What the tiles do not take: rows that begin anywhere, batches, an odd result, nothing at all.
TEST_P(FusedProduct, LibraryAndAPass) {
  for (const Sizes& s : {Sizes{5, 7, 8}, Sizes{5, 8, 7}, Sizes{3, 1, 1}, Sizes{0, 8, 8}, Sizes{8, 8, 0}}) {
    if (is_fake() && s.n % 8 != 0) continue; // loops over the elements are not emulated
    const Made m = made(s, {DType::f16, false, true, false});
    for (const std::string& note : check(m.p, m.in, m.out, 4))
      EXPECT_EQ(note.find("our own"), std::string::npos) << note;
  }
  MatMulProblem p;
  p.post_ops = {{PostOp::gelu_erf}};
  for (const std::vector<int>& order : {std::vector<int>{}, {1, 0, 2}}) {
    if (is_fake() && !order.empty()) continue;
    const auto notes = check(
        p, {random_operand(DType::f16, {2, 3, 16}, order), random_operand(DType::f16, {2, 16, 24}), Operand{}},
        random_operand(DType::f16, {2, 3, 24}, order), 4);
    ASSERT_FALSE(notes.empty());
    EXPECT_NE(notes[0].find("batches"), std::string::npos) << notes[0];
  }
}

/// A batch of which b knows nothing is more rows.
TEST_P(FusedProduct, BatchesOfRows) {
  MatMulProblem p;
  p.post_ops = {{PostOp::gelu_erf}};
  const auto notes = check(
      p, {random_operand(DType::f16, {2, 9, 16}), random_operand(DType::f16, {1, 16, 24}), Operand{}},
      random_operand(DType::f16, {2, 9, 24}), 1);
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes[0].find("[1 x 18 x 16 x 24]: our own kernel"), std::string::npos) << notes[0];
}

/// Sizes of transformers, in the way that is measured to be the fastest.
TEST_P(FusedProduct, RealLayers) {
  if (is_fake()) GTEST_SKIP() << "emulated threads are slow, and nothing is measured";
  for (int64_t m : {1, 33, 64, 128, 197})
    for (const Sizes& s : {Sizes{m, 768, 3072}, Sizes{m, 3072, 768}, Sizes{m, 1000, 1024}, Sizes{m, 770, 3070}})
      for (const Form& f : {Form{DType::f16, true, true, false}, Form{DType::bf16, false, true, true}}) {
        const Made all = made(s, f);
        for (const std::string& note : check(all.p, all.in, all.out, kMeasured))
          if (note.find("algorithm") == std::string::npos) std::printf("  %s\n", note.c_str());
      }
}

TEST(FusedProductText, Compiles) {
  try {
    device::cuda_library("libnvrtc.so.13");
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  for (DType half : {DType::f16, DType::bf16})
    for (bool columns : {false, true})
      EXPECT_NO_THROW(device::cuda::compile(extern_kernels::fused_product_text(half, columns), "sm_80"));
}

TEST_P(FusedProduct, IsChosen) {
  const Made m = made({17, 64, 24}, kForms[1]);
  EXPECT_EQ(expect_right(*device_, m.p, m.in, m.out).candidate, "cuda_fused_product");
  Made wide = made({17, 64, 24}, {DType::f32});
  EXPECT_EQ(expect_right(*device_, wide.p, wide.in, wide.out).candidate, "cuda_matmul");
}

} // namespace
} // namespace tbx::test
