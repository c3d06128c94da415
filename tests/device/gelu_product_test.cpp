// The exact GELU of products in half types: the whole problem beside the plain loops of the CPU, on a GPU by
// its libraries, and our kernel that changes rows in place beside std::erf, which runs in the emulator
// always.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/float_formats.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/gelu_product.h"
#include "extern_kernels/cuda/select.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;

class GeluProductTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, GeluProductTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

/// Layers of networks, odd sizes, sizes that no vector of eight divides, a batch of one matrix; weights with
/// dense rows and dense columns; with a bias and without, and a factor, which one of the ways does not take.
TEST_P(GeluProductTest, ProblemsAreRight) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  struct Case {
    Dims a;
    int64_t n;
  };
  std::vector<Case> cases{{{2, 8}, 8}, {{17, 64}, 24}, {{3, 7}, 5}, {{1, 65, 72}, 136}, {{4, 16, 40}, 48}};
  if (!fake)
    cases.insert(cases.end(),
                 {{{1, 128, 768}, 3072}, {{1, 197, 768}, 3072}, {{64, 1024}, 4096}, {{511, 256}, 1000}});
  for (const Case& c : cases)
    for (DType t : {DType::f16, DType::bf16})
      for (int form = 0; form < 4; ++form) {
        const int64_t k = c.a.back();
        Dims b(c.a.size(), 1), row(c.a.size(), 1), out = c.a;
        b.end()[-2] = k, b.back() = row.back() = out.back() = c.n;
        std::vector<int> turned;
        if (form % 2 == 1) {
          for (size_t d = 0; d < b.size(); ++d) turned.push_back(static_cast<int>(d));
          std::swap(turned.end()[-1], turned.end()[-2]);
        }
        MatMulProblem p;
        p.has_bias = form < 2;
        p.alpha = form == 3 ? 0.5f : 1;
        p.post_ops = {{PostOp::gelu_erf}};
        std::vector<Operand> in{random_operand(t, c.a), random_operand(t, b, turned),
                                p.has_bias ? random_operand(t, row) : Operand{}};
        in[1].constant = true;
        SCOPED_TRACE(testing::Message() << testing::PrintToString(c.a) << " x " << c.n << ", form " << form);
        const Chosen chosen = expect_right(*device, p, in, random_operand(t, out));
        EXPECT_EQ(chosen.candidate, "cublas_matmul");
        EXPECT_TRUE(fake || chosen.by_library()) << testing::PrintToString(chosen.notes);
        if (!fake && form == 0 && c.n >= 3072)
          for (const std::string& note : chosen.notes) std::printf("%s\n", note.c_str());
      }
}

/// All values that 16 bits have, in rows with a gap between them that must stay.
TEST_P(GeluProductTest, PassOverRows) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  GeluPass::Load emulated;
  if (device::is_fake(*device))
    emulated = [&](const std::string& text) { return load_text(*device, text, {"gelu_rows"}); };
  for (DType t : {DType::f16, DType::bf16})
    for (const auto& [rows, columns, step] : {std::tuple<int64_t, int64_t, int64_t>{256, 256, 264},
                                              {257, 255, 256},
                                              {1, 1, 1},
                                              {65536, 1, 1},
                                              {0, 8, 8}}) {
      SCOPED_TRACE(testing::Message() << name_of(t) << " " << rows << " x " << columns << ", step " << step);
      const int64_t all = rows * step;
      std::vector<uint16_t> before(static_cast<size_t>(all), 0x1234), after(before);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) before[r * step + c] = static_cast<uint16_t>(r * columns + c);
      const auto memory = device->allocate(std::max<size_t>(2 * before.size(), 16));
      const auto stream = device->make_stream();
      stream->upload(memory->data(), before.data(), 2 * before.size());
      const GeluPass pass(*device, device::is_fake(*device) ? emulated : GeluPass::Load());
      if (rows > 0) pass.run(*stream, t, memory->data(), rows, columns, step);
      stream->download(after.data(), memory->data(), 2 * after.size());
      stream->synchronize();
      for (int64_t i = 0; i < all; ++i) {
        if (i % step >= columns) {
          ASSERT_EQ(after[i], before[i]) << "the gap at " << i;
          continue;
        }
        const double x = decode_float(t, before[i]), y = decode_float(t, after[i]),
                     right = 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
        if (std::isnan(right)) {
          ASSERT_TRUE(std::isnan(y)) << x;
        } else if (std::isinf(right)) {
          ASSERT_EQ(y, right) << x;
        } else { // one rounding, and float32's difference 1 - erf where x is far below 0
          const double unit = t == DType::f16 ? 1.0 / 2048 : 1.0 / 256;
          ASSERT_NEAR(y, right, unit * std::abs(right) + 1.2e-7 * std::abs(x) + 6e-8) << x;
        }
      }
    }
}

/// Vectors where rows are made of them and begin at them.
TEST(GeluPassTakes, VectorsThatLieInMemory) {
  const auto device = device::make_fake_device();
  const auto memory = device->allocate(1024);
  const auto stream = device->make_stream();
  auto takes = [&](int64_t columns, int64_t step, int64_t begin) {
    bool vectors = false;
    const GeluPass pass(*device, [&](const std::string& text) {
      vectors = text.starts_with("#define HALF 10\n#define EACH 8\n");
      return load_text(*device, text, {"gelu_rows"});
    });
    pass.run(*stream, DType::f16, static_cast<uint16_t*>(memory->data()) + begin, 2, columns, step);
    stream->synchronize();
    return vectors;
  };
  EXPECT_TRUE(takes(16, 24, 0));
  EXPECT_TRUE(takes(16, 24, 8));
  EXPECT_FALSE(takes(16, 24, 1));
  EXPECT_FALSE(takes(16, 24, 4));
  EXPECT_FALSE(takes(16, 20, 0));
  EXPECT_FALSE(takes(12, 24, 0));
}

TEST(GeluProduct, TakesFewKnownRows) {
  auto reason = [](Dims a, Dims b, DType type = DType::f16, bool residual = false) {
    using extern_kernels::OperandInfo;
    Dims out = a;
    out.back() = b.back();
    Epilogue e;
    if (residual) e.residual = 2;
    const OperandInfo in[] = {{type, a, {}, nullptr}, {type, b, {}, nullptr}};
    return refuse_gelu(in, {type, out, {}, nullptr}, e);
  };
  EXPECT_EQ(reason({128, 768}, {768, 3072}), "");
  EXPECT_EQ(reason({1, 197, 768}, {768, 3072}), "");
  EXPECT_EQ(reason({4, 128, 768}, {1, 768, 3072}), "");
  for (const Dims& a : {Dims{1, 768},
                        {0, 768},
                        {513, 768},
                        {32, 128, 768},
                        {-1, 128, 768},
                        {int64_t{1} << 62, int64_t{1} << 62, 768}})
    EXPECT_NE(reason(a, {768, 3072}).find("one row, of many"), std::string::npos)
        << testing::PrintToString(a);
  EXPECT_NE(reason({2, 8, 768}, {2, 768, 8}).find("many products"), std::string::npos);
  EXPECT_NE(reason({2, 2, 8, 768}, {768, 8}).find("several dimensions"), std::string::npos);
  EXPECT_NE(reason({8, 768}, {768, 8}, DType::f32).find("half types"), std::string::npos);
  EXPECT_NE(reason({8, 768}, {768, 8}, DType::f16, true).find("addition"), std::string::npos);
}

} // namespace
} // namespace tbx::test
