// Our attention on tensor cores, and that of few rows, against plain loops in double: their text runs in the
// emulator always, on a GPU where there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/side_by_side.h"
#include "device/cuda/nvrtc.h"
#include "device/fake/fake_device.h"
#include "device/library.h"
#include "extern_kernels/cuda/row_attention.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, depth, width;
};

class TensorAttention : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
    if (!device::is_fake(*device_) && !extern_kernels::has_tensor_cores(device_->properties()))
      GTEST_SKIP() << device_->properties().architecture;
  }
  /// The kernels of a GPU are compiled side by side, when all of a test's are known.
  void TearDown() override {
    rethrow_first(side_by_side(later_.size(), [&](size_t i) { later_[i].kernel = kernel_of(later_[i]); }));
    for (const Call& call : later_) expect_right(*device_, *call.kernel, call.problem, call.in, call.out);
  }
  void check(const AttentionProblem& p, const std::vector<Operand>& in, const Operand& out) {
    check(p, in, out, is_half(in[0].dtype));
  }
  /// `half`: on tensor cores, not as few rows.
  void check(const AttentionProblem& p, const std::vector<Operand>& in, const Operand& out, bool half) {
    const std::vector<extern_kernels::OperandInfo> infos = infos_of(in), outs = infos_of({out});
    ASSERT_EQ(half ? extern_kernels::refuses_tensor_attention(infos, outs)
                   : extern_kernels::refuses_row_attention(infos, outs),
              "");
    const Call call{p, in, out, half, nullptr};
    if (device::is_fake(*device_))
      expect_right(*device_, *kernel_of(call), p, in, out);
    else
      later_.push_back(call);
  }
  struct Call {
    AttentionProblem problem;
    std::vector<Operand> in;
    Operand out;
    bool half;
    std::shared_ptr<extern_kernels::ExternKernel> kernel;
  };
  std::shared_ptr<extern_kernels::ExternKernel> kernel_of(const Call& c) {
    const auto make = c.half ? extern_kernels::make_tensor_attention : extern_kernels::make_row_attention;
    return make(*device_, c.problem, infos_of(c.in), infos_of({c.out}),
                device::is_fake(*device_) ? load_ : nullptr);
  }
  std::vector<Call> later_;
  std::shared_ptr<device::Device> device_;
  int plain_ = 0; ///< texts of plain heads that were loaded
  std::function<std::shared_ptr<device::Module>(const std::string&)> load_ = [this](const std::string& text) {
    if (text.find("few_rows") != std::string::npos)
      return load_text(*device_, text, {"few_rows", "join_rows"});
    if (text.find("plain_heads(") != std::string::npos) {
      ++plain_;
      return load_text(*device_, text, {"plain_heads"});
    }
    return load_text(*device_, text, {"heads", "join_heads"});
  };
};

INSTANTIATE_TEST_SUITE_P(Devices, TensorAttention, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

const std::vector<int> kTokens{0, 2, 1, 3}; ///< heads beside each other in a row of tokens

std::vector<Operand> operands(const Case& c, DType half, DType kv) {
  return {random_operand(half, {c.batch, c.heads, c.queries, c.depth}, kTokens),
          random_operand(kv, {c.batch, c.kv_heads, c.keys, c.depth}, kTokens),
          random_operand(kv, {c.batch, c.kv_heads, c.keys, c.width}),
          {},
          {},
          {}};
}

Operand result(const Case& c, const AttentionProblem& p, DType t) {
  return random_operand(t, p.tokens_first ? Dims{c.batch, c.queries, c.heads, c.width}
                                          : Dims{c.batch, c.heads, c.queries, c.width});
}

/// Few rows and many keys; more keys than a block takes; shared heads; rows and columns that fill no tile.
constexpr Case kCases[] = {{1, 2, 2, 17, 40, 64, 64}, {2, 4, 2, 7, 33, 16, 24}, {1, 6, 2, 1, 70, 64, 64},
                           {1, 1, 1, 1, 1, 1, 1},     {1, 2, 2, 5, 20, 33, 65}, {1, 2, 2, 0, 5, 8, 8},
                           {1, 1, 1, 1, 1100, 8, 8},  {1, 1, 1, 1, 2100, 8, 8}, {1, 3, 3, 36, 70, 96, 128},
                           {1, 2, 2, 3, 0, 8, 8},     {1, 2, 1, 20, 0, 64, 64}};

TEST_P(TensorAttention, AllForms) {
  int turn = 0;
  for (const Case& c : kCases)
    for (int i = 0; i < 16; ++i) {
      if (device::is_fake(*device_) && ++turn % 3 != 0)
        continue; // emulated threads are slow: each form with some sizes
      const int form = i % 8;
      const DType t = i >= 8 ? DType::f32 : form % 2 == 0 ? DType::f16 : DType::bf16;
      if (c.keys > 1000 && is_half(t) != (c.keys < 2000)) continue; // parts for several blocks
      AttentionProblem p;
      p.scale = 0.3f;
      p.has_mask = form == 1 || form == 5;
      p.causal = form == 2 || form == 3 || form == 4 || form == 7;
      p.from_end = form == 3;
      p.has_starts = form == 4;
      p.has_sinks = form == 5;
      p.softcap = form == 6 ? 0.5f : 0;
      p.window = form == 7 ? 3 : 0;
      p.tokens_first = form == 1;
      p.zero_undefined_rows = form == 3 || form == 4;
      std::vector<Operand> in = operands(c, t, t);
      if (p.has_mask)
        in[3] =
            random_operand(t, form == 1 ? Dims{c.batch, 1, 1, c.keys} : Dims{1, c.heads, c.queries, c.keys});
      if (p.has_starts) {
        in[4] = random_operand(DType::i32, {c.batch});
        for (int64_t b = 0; b < c.batch; ++b)
          reinterpret_cast<int32_t*>(in[4].bytes.data())[b] = static_cast<int32_t>(b);
      }
      if (p.has_sinks) in[5] = random_operand(t, {c.heads});
      check(p, in, result(c, p, t));
    }
}

TEST_P(TensorAttention, KeysAndValuesOfFloat32) {
  for (const Case& c : {Case{1, 6, 2, 1, 70, 64, 64}, Case{2, 2, 2, 5, 20, 33, 17}}) {
    AttentionProblem p;
    p.has_mask = true;
    std::vector<Operand> in = operands(c, DType::f16, DType::f32);
    in[3] = random_operand(DType::f32, {1, 1, c.queries, c.keys});
    check(p, in, result(c, p, DType::f16));
  }
}

/// Heads in the form for which there is a kernel of its own, by one warp for a tile and by four: rows,
/// columns and keys that fill no tile, one key, more keys than the warps take at once, shared heads, many
/// batch entries.
TEST_P(TensorAttention, PlainHeads) {
  const int64_t many = 2 * device_->properties().multiprocessors + 1; // enough tiles for one warp each
  const Case plain[] = {{1, 2, 2, 17, 40, 64, 64}, {1, 3, 3, 64, 64, 64, 64},  {2, 4, 2, 33, 33, 32, 64},
                        {1, 2, 2, 5, 1, 64, 32},   {1, 1, 1, 16, 300, 64, 64}, {1, 2, 1, 20, 70, 96, 128},
                        {3, 6, 2, 49, 49, 32, 32}, {1, 2, 2, 40, 17, 64, 64},  {many, 1, 1, 17, 9, 32, 32}};
  int turn = 0;
  for (const Case& c : plain)
    for (int form = 0; form < 10; ++form) {
      if (device::is_fake(*device_) && c.batch != many && ++turn % 7 != 0)
        continue; // emulated threads are slow
      if (c.batch == many && form > 1) continue;
      const DType t = form % 2 == 0 ? DType::f16 : DType::bf16;
      AttentionProblem p;
      p.scale = 0.2f;
      p.has_mask = form == 2 || form == 3 || form == 8;
      p.causal = form >= 4 && form <= 8;
      p.from_end = form == 6 || form == 7;
      p.tokens_first = form == 1 || form == 5;
      p.zero_undefined_rows = form == 7, p.zero_hidden_rows = form == 6;
      std::vector<Operand> in = operands(c, t, t);
      if (p.has_mask)
        in[3] = random_operand(form == 8 ? DType::f32 : t,
                               form == 3 ? Dims{1, c.heads, c.queries, c.keys} : Dims{c.batch, 1, 1, c.keys});
      const int before = plain_;
      check(p, in, result(c, p, t));
      if (device::is_fake(*device_)) {
        EXPECT_EQ(plain_, before + 1) << form;
      }
    }
}

TEST(TensorAttentionText, DividesByMultiplying) {
  for (int64_t d : {1, 2, 3, 5, 7, 12, 16, 197, 641, 65535, 65536, 65537, 1000003, 0x7fffffff}) {
    const extern_kernels::cuda::Divisor by = extern_kernels::cuda::divisor_of(d);
    for (uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t(d - 1), uint64_t(d), uint64_t(2 * d - 1),
                       uint64_t(3 * d), uint64_t{12345678}, uint64_t{0x7ffffffe}, uint64_t{0x7fffffff}}) {
      if (n > 0x7fffffff) continue;
      EXPECT_EQ(((n * by.factor >> 32) + n) >> by.shift, n / static_cast<uint64_t>(d)) << n << " / " << d;
      EXPECT_LE((n * by.factor >> 32) + n, 0xffffffffu) << n << " / " << d;
    }
  }
}

/// Steps of decoders: caches, scores and results of types of their own, as many keys as several blocks share.
TEST_P(TensorAttention, FewRowsOfAllTypes) {
  constexpr DType kTypes[][4] = {{DType::f32, DType::f32, DType::f16, DType::f32},
                                 {DType::f16, DType::f32, DType::f16, DType::f32},
                                 {DType::f16, DType::f16, DType::f16, DType::f16},
                                 {DType::bf16, DType::bf16, DType::bf16, DType::f32},
                                 {DType::f32, DType::f16, DType::f32, DType::bf16}};
  for (const Case& c : {Case{1, 6, 2, 1, 70, 64, 64}, Case{2, 2, 2, 1, 33, 33, 65},
                        Case{1, 12, 12, 1, 513, 64, 64}, Case{1, 6, 1, 1, 2049, 64, 128}}) {
    if (device::is_fake(*device_) && c.keys > 500) continue; // emulated threads are slow
    for (const auto& [query, kv, out, mask] : kTypes) {
      AttentionProblem p;
      p.scale = 0.3f, p.has_mask = p.has_sinks = true;
      std::vector<Operand> in = operands(c, kv, kv);
      in[0] = random_operand(query, {c.batch, c.heads, c.queries, c.depth}, kTokens);
      in[3] = random_operand(mask, {1, 1, 1, c.keys});
      in[5] = random_operand(mask, {c.heads});
      check(p, in, result(c, p, out), false);
    }
  }
}

/// The lowest float32 is a number: a row that is masked with it alone has equal shares. One that is masked
/// by infinity has none: 0 or NaN, as the model says.
TEST_P(TensorAttention, RowsThatSeeNothing) {
  const Case c{1, 2, 1, 20, 70, 64, 64};
  for (bool zero : {true, false})
    for (DType t : {DType::f16, DType::f32})
      for (float low : {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::lowest()}) {
        AttentionProblem p;
        p.has_mask = true;
        p.zero_undefined_rows = zero;
        std::vector<Operand> in = operands(c, t, t);
        in[3] = random_operand(DType::f32, {1, 1, c.queries, c.keys});
        auto* mask = reinterpret_cast<float*>(in[3].bytes.data());
        for (int64_t i : {0, 9, 19})
          for (int64_t k = 0; k < c.keys; ++k) mask[i * c.keys + k] = low;
        mask[1 * c.keys + 3] = std::numeric_limits<float>::quiet_NaN();
        check(p, in, result(c, p, t));
      }
}

/// Nothing is known of what lies behind the keys that somebody sees.
TEST_P(TensorAttention, KeysThatNobodySeesAreNotRead) {
  const Case c{1, 2, 2, 3, 50, 32, 32};
  AttentionProblem p;
  p.causal = true;
  std::vector<Operand> in = operands(c, DType::f16, DType::f16);
  auto* values = reinterpret_cast<uint16_t*>(in[2].bytes.data());
  for (int64_t h = 0; h < c.heads; ++h)
    for (int64_t k = c.queries; k < c.keys; ++k)
      for (int64_t d = 0; d < c.width; ++d) values[(h * c.keys + k) * c.width + d] = 0x7e00; // NaN
  check(p, in, result(c, p, DType::f16));
}

TEST(TensorAttentionText, RefusesMoreTilesThanItCounts) {
  extern_kernels::cuda::HeadsForm form;
  form.depth = form.width = 8;
  extern_kernels::cuda::HeadsArguments a;
  a.problem.heads = a.problem.kv_heads = a.problem.queries = a.problem.keys = 1;
  extern_kernels::cuda::spread_heads(a, form, int64_t{1} << 30, 132);
  EXPECT_EQ(a.tiles, int64_t{1} << 30);
  EXPECT_THROW(extern_kernels::cuda::spread_heads(a, form, int64_t{1} << 32, 132), Error);
}

TEST(TensorAttentionText, Compiles) {
  try {
    device::cuda_library("libnvrtc.so.13");
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  extern_kernels::cuda::HeadsForm form;
  form.depth = 128, form.width = 100;
  form.mask = DType::f32;
  for (bool vector : {false, true}) {
    form.vector = vector;
    EXPECT_NO_THROW(device::cuda::compile(form.text(), "sm_80"));
  }
  for (int shares : {1, 4})
    for (bool causal : {false, true}) {
      form.width = 64, form.shares = shares, form.causal = causal;
      EXPECT_NO_THROW(device::cuda::compile(form.text(), "sm_80"));
    }
  form.shares = 0;
  form.half = DType::bf16, form.kv = DType::f32, form.softcap = true;
  EXPECT_NO_THROW(device::cuda::compile(form.text(), "sm_90"));
}

} // namespace
} // namespace tbx::test
