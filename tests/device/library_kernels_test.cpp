// Kernels of libraries on devices against plain loops in double: on the fake device always, on a GPU where
// there is one.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/cuda/nvrtc.h"
#include "device/fake/fake_device.h"
#include "device/library.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/select.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

struct ConvCase;

class LibraryKernels : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
  }
  void check_convs(std::span<const ConvCase> cases);
  static bool is_gpu() { return GetParam() == std::string("cuda"); }
  std::shared_ptr<device::Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, LibraryKernels, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

Operand absent() { return {}; }

/// The same memory with the last two dimensions exchanged.
Operand transposed(DType type, Dims sizes) {
  std::vector<int> order(sizes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
  std::swap(order.end()[-1], order.end()[-2]);
  return random_operand(type, std::move(sizes), order);
}

TEST_P(LibraryKernels, ProductsOfSmallAndOddSizes) {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64})
    for (int64_t m : {0, 1, 7})
      for (int64_t k : {0, 1, 33})
        for (int64_t n : {0, 1, 5, 64})
          expect_right(*device_, MatMulProblem{},
                       {random_operand(t, {m, k}), random_operand(t, {k, n}), absent()},
                       random_operand(t, {m, n}));
}

TEST_P(LibraryKernels, ProductsOfIntegers) {
  for (DType a : {DType::i8, DType::u8})
    for (int64_t n : {1, 5, 64}) {
      MatMulProblem p;
      expect_right(*device_, p, {random_operand(a, {9, 32}), transposed(DType::i8, {32, n}), absent()},
                   random_operand(DType::i32, {9, n}));
      p.a_zero = 3;
      expect_right(*device_, p,
                   {random_operand(a, {9, 32}), transposed(DType::i8, {32, n}), absent(),
                    random_operand(DType::i32, {1})},
                   random_operand(DType::i32, {9, n}));
    }
}

TEST_P(LibraryKernels, ProductsOfTransposedOperands) {
  for (DType t : kFloats)
    for (int form = 0; form < 4; ++form) {
      const Dims a{24, 40}, b{40, 56};
      expect_right(*device_, MatMulProblem{},
                   {form & 1 ? transposed(t, a) : random_operand(t, a),
                    form & 2 ? transposed(t, b) : random_operand(t, b), absent()},
                   random_operand(t, {24, 56}));
    }
}

TEST_P(LibraryKernels, ProductsOfBatches) {
  struct Case {
    Dims a, b;
  };
  for (DType t : kFloats)
    for (const Case& c : {Case{{3, 5, 8}, {3, 8, 16}}, Case{{3, 5, 8}, {1, 8, 16}},
                          Case{{1, 5, 8}, {3, 8, 16}}, Case{{2, 3, 4, 8}, {2, 1, 8, 16}},
                          Case{{2, 1, 4, 8}, {1, 3, 8, 16}}, Case{{2, 3, 1, 8}, {1, 1, 8, 7}}}) {
      Dims out = c.a;
      for (size_t d = 0; d < out.size(); ++d) out[d] = std::max(out[d], c.b[d]);
      out.end()[-1] = c.b.back(), out.end()[-2] = c.a.end()[-2];
      for (bool heads_apart :
           {false, true}) { // [batch, tokens, heads, depth] seen as [batch, heads, tokens, depth]
        if (heads_apart && c.a.size() < 4) continue;
        const std::vector<int> order = heads_apart ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{};
        MatMulProblem p;
        p.alpha = 0.125f;
        expect_right(*device_, p, {random_operand(t, c.a, order), random_operand(t, c.b, order), absent()},
                     random_operand(t, out, order));
      }
    }
}

TEST_P(LibraryKernels, ProductsWithWorkBehind) {
  using Ops = std::vector<PostOp>;
  for (DType t : kFloats)
    for (bool batch : {false, true})
      for (int form = 0; form < 7; ++form) {
        const Dims a = batch ? Dims{2, 17, 64} : Dims{17, 64}, b = batch ? Dims{2, 64, 24} : Dims{64, 24},
                   out = batch ? Dims{2, 17, 24} : Dims{17, 24}, row = batch ? Dims{1, 1, 24} : Dims{1, 24};
        MatMulProblem p;
        p.has_bias = form != 0;
        std::vector<Operand> in{random_operand(t, a), random_operand(t, b),
                                p.has_bias ? random_operand(t, row) : absent(),
                                random_operand(t, form == 0 ? row : out)};
        in[1].constant = true;
        const Ops forms[] = {{{PostOp::add, 0, 0, 3}, {PostOp::relu}},
                             {{PostOp::add, 0, 0, 3}},
                             {{PostOp::sum, 0, 0, 3}},
                             {{PostOp::relu}},
                             {{PostOp::gelu_tanh}},
                             {{PostOp::add, 0, 0, 3}, {PostOp::gelu_tanh}},
                             {{PostOp::gelu_erf}, {PostOp::mul, 0, 0, 3}, {PostOp::clip, -0.5f, 0.5f}}};
        p.post_ops = forms[form];
        const Chosen chosen = expect_right(*device_, p, in, random_operand(t, out));
        EXPECT_EQ(chosen.candidate, form < 6 ? "cublas_matmul" : "cuda_matmul");
        if (!is_gpu() || form == 6) continue;
        EXPECT_TRUE(chosen.by_library()) << testing::PrintToString(chosen.notes);
      }
}

TEST_P(LibraryKernels, ProductsOfRealLayers) {
  const bool fake = GetParam() == std::string("fake");
  struct Layer {
    int64_t m, k, n;
  };
  for (const Layer& l :
       {Layer{128, 768, 2304}, Layer{128, 3072, 768}, Layer{1, 768, 1001}, Layer{197, 768, 3072}})
    for (DType t : kFloats) {
      const int64_t cut = fake ? 8 : 1; // plain loops
      MatMulProblem p;
      p.has_bias = true;
      p.post_ops = {{PostOp::add, 0, 0, 3}};
      const Dims out{l.m, l.n / cut};
      const Chosen chosen =
          expect_right(*device_, p,
                       {random_operand(t, {l.m, l.k / cut}), random_operand(t, {l.k / cut, l.n / cut}),
                        random_operand(t, {1, l.n / cut}), random_operand(t, out)},
                       random_operand(t, out));
      if (!is_gpu()) continue;
      EXPECT_TRUE(chosen.by_library()) << testing::PrintToString(chosen.notes);
    }
}

TEST_P(LibraryKernels, ProductsWithPaddedColumns) {
  for (DType t : {DType::f16, DType::bf16})
    for (bool columns : {false, true}) // of the weights are dense
      for (int64_t rows : {1, 9, 64}) {
        MatMulProblem p;
        p.alpha = 0.5f;
        std::vector<Operand> in{random_operand(t, {1, rows, 16}),
                                columns ? transposed(t, {1, 16, 1027}) : random_operand(t, {1, 16, 1027}),
                                absent()};
        in[1].constant = true;
        const Chosen chosen = expect_right(*device_, p, in, random_operand(t, {1, rows, 1027}));
        if (!is_gpu()) continue;
        EXPECT_EQ(chosen.notes.at(0).ends_with("padded columns"), rows > 1)
            << testing::PrintToString(chosen.notes);
      }
}

struct ConvCase {
  Dims x, w; // w: [out, in / group, kernel...], transposed: [in, out / group, kernel...]
  Dims strides, dilations, begin, end;
  int64_t group = 1;
  bool is_transposed = false;
};

/// Returns what the library took; nothing where it was not asked.
std::vector<std::string> check_conv(device::Device& device, const ConvCase& c, DType t, bool last, int form,
                                    const char* wanted) {
  ConvProblem p;
  p.spatial_rank = static_cast<int>(c.x.size()) - 2;
  p.strides = c.strides, p.dilations = c.dilations, p.pads_begin = c.begin, p.pads_end = c.end;
  p.group = c.group;
  p.transposed = c.is_transposed;
  Dims y{c.x[0], c.is_transposed ? c.w[1] * c.group : c.w[0]};
  for (size_t d = 0; d < c.strides.size(); ++d) {
    const int64_t extent = (c.w[d + 2] - 1) * c.dilations[d] + 1, pads = c.begin[d] + c.end[d],
                  x = c.x[d + 2];
    y.push_back(c.is_transposed ? (x - 1) * c.strides[d] + extent - pads
                                : (x + pads - extent) / c.strides[d] + 1);
  }
  const std::vector<int> order = last ? channels_last(c.x.size()) : std::vector<int>{};
  std::vector<Operand> in{random_operand(t, c.x, order), random_operand(t, c.w), absent()};
  in[1].constant = form % 2 == 0;
  p.has_bias = form > 0 && form < 5;
  if (p.has_bias) in[2] = random_operand(t, {y[1]});
  in.push_back(random_operand(t, y, order));
  const std::vector<PostOp> forms[] = {{},
                                       {{PostOp::relu}},
                                       {{PostOp::add, 0, 0, 3}, {PostOp::relu}},
                                       {{PostOp::sum, 0, 0, 3}},
                                       {{PostOp::clip, 0, 0.4f}, {PostOp::mul, 0, 0, 3}},
                                       {{PostOp::relu}}, // without a bias
                                       {{PostOp::add, 0, 0, 3}, {PostOp::relu}}};
  p.post_ops = forms[form];
  const Chosen chosen = expect_right(device, p, in, random_operand(t, y, order));
  const bool is_product = t == DType::f32 && c.group == 1 && Dims(c.w.begin() + 2, c.w.end()) == Dims{1, 1} &&
                          (last || c.x == Dims{1, 1, 1, 1});
  const bool is_depthwise =
      !c.is_transposed && c.group > 1 && c.group == c.w[0] && c.w[1] == 1 && t != DType::f64;
  EXPECT_EQ(chosen.candidate, is_depthwise                                  ? "cuda_depthwise_conv"
                              : form == 4 || (c.is_transposed && form == 3) ? "cuda_conv"
                              : is_product                                  ? "cublas_conv"
                                                                            : wanted);
  return chosen.notes;
}

void LibraryKernels::check_convs(std::span<const ConvCase> cases) {
  for (const ConvCase& c : cases)
    for (DType t : kFloats)
      for (bool last : {false, true})
        for (int form = is_gpu() || t != DType::bf16 ? 0 : 4; form < 7; ++form)
          for (const std::string& note : check_conv(*device_, c, t, last, form, "cudnn_conv"))
            EXPECT_FALSE(note.starts_with("plain loops"))
                << note << " " << testing::PrintToString(c.x) << testing::PrintToString(c.w) << name_of(t)
                << last << form;
}

TEST_P(LibraryKernels, Convolutions) {
  const ConvCase cases[] = {
      {{1, 16, 9, 7}, {24, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 3, 11, 13}, {8, 3, 5, 3}, {2, 2}, {1, 1}, {2, 0}, {1, 1}},     // padded unevenly
      {{1, 5, 9, 9}, {7, 5, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},       // odd channels
      {{1, 8, 10, 10}, {8, 8, 3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},     // dilated
      {{2, 16, 8, 8}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 16}, // depthwise
      {{1, 32, 6, 6}, {16, 8, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 4},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {{0, 8, 4, 4}, {8, 8, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {{2, 8, 31}, {16, 8, 5}, {2}, {1}, {2}, {1}},
      {{1, 8, 5, 6, 7}, {8, 8, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{1, 64, 14, 14}, {256, 64, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
  };
  check_convs(cases);
}

TEST_P(LibraryKernels, TransposedConvolutions) {
  const ConvCase cases[] = {
      {{1, 16, 5, 5}, {16, 8, 2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 1, true},
      {{2, 8, 6, 4}, {8, 4, 3, 3}, {2, 1}, {1, 2}, {1, 0}, {0, 1}, 2, true},
      {{1, 8, 9}, {8, 8, 4}, {3}, {1}, {1}, {1}, 1, true},
  };
  check_convs(cases);
}

TEST_P(LibraryKernels, ConvolutionsOfOtherTypes) {
  const ConvCase c{{1, 4, 6, 6}, {8, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  check_conv(*device_, c, DType::f64, false, 2, "cuda_conv");
  ConvProblem p;
  p.strides = p.dilations = p.pads_begin = p.pads_end = {1, 1};
  p.x_zero = 3;
  Operand zero = random_operand(DType::i32, {1});
  zero.bytes = {7, 0, 0, 0}; // of a byte
  expect_right(
      *device_, p,
      {random_operand(DType::u8, {1, 4, 6, 6}), random_operand(DType::i8, {8, 4, 3, 3}), absent(), zero},
      random_operand(DType::i32, {1, 8, 6, 6}));
}

struct AttentionCase {
  int64_t batch, heads, kv_heads, queries, keys, depth, width;
};

TEST_P(LibraryKernels, Attention) {
  for (const AttentionCase& c :
       {AttentionCase{1, 2, 2, 16, 16, 64, 64}, AttentionCase{2, 4, 2, 7, 33, 16, 24},
        AttentionCase{1, 2, 1, 1, 70, 64, 64}, AttentionCase{1, 1, 1, 1, 1, 1, 1},
        AttentionCase{2, 3, 3, 40, 40, 33, 65}, AttentionCase{1, 2, 2, 0, 5, 8, 8},
        AttentionCase{1, 4, 1, 9, 4100, 16, 24}, AttentionCase{1, 2, 1, 3, 0, 8, 8}})
    for (DType t : kFloats)
      for (int form = 0; form < 9; ++form) {
        AttentionProblem p;
        p.scale = 0.3f;
        p.has_mask = form == 1 || form == 5;
        p.causal = form == 2 || form == 3 || form == 4 || form >= 7;
        p.from_end = form == 3;
        p.has_starts = form == 4 || form == 8; // 8: queries behind the last key, too
        p.has_sinks = form == 5;
        p.softcap = form == 6 ? 0.5f : 0;
        p.window = form >= 7 ? 3 : 0;
        p.zero_hidden_rows = form == 8;
        p.tokens_first = form == 1;
        p.zero_undefined_rows = form == 3 || form == 4;
        const std::vector<int> joined{0, 2, 1, 3}; // heads beside each other in a row of tokens
        std::vector<Operand> in{random_operand(t, {c.batch, c.heads, c.queries, c.depth}, joined),
                                random_operand(t, {c.batch, c.kv_heads, c.keys, c.depth}, joined),
                                random_operand(t, {c.batch, c.kv_heads, c.keys, c.width}),
                                absent(),
                                absent(),
                                absent()};
        if (p.has_mask)
          in[3] = random_operand(t, form == 1 ? Dims{c.batch, 1, 1, c.keys}
                                              : Dims{1, c.heads, c.queries, c.keys});
        if (p.has_starts) {
          in[4] = random_operand(DType::i32, {c.batch});
          for (int64_t b = 0; b < c.batch; ++b)
            reinterpret_cast<int32_t*>(in[4].bytes.data())[b] =
                static_cast<int32_t>(form == 8 ? c.keys - 2 + b : b);
        }
        if (p.has_sinks) in[5] = random_operand(t, {c.heads});
        const Dims out = p.tokens_first ? Dims{c.batch, c.queries, c.heads, c.width}
                                        : Dims{c.batch, c.heads, c.queries, c.width};
        const Chosen chosen = expect_right(*device_, p, in, random_operand(t, out));
        const bool library = is_half(t) && (form < 4) &&
                             !(form == 3 && c.queries != c.keys && c.queries != 1) && c.heads == c.kv_heads &&
                             c.depth % 8 == 0 && c.width % 8 == 0 && c.queries > 0;
        EXPECT_EQ(chosen.candidate, is_half(t) && form < 4 ? "cudnn_attention" : "cuda_attention");
        if (!is_gpu()) continue;
        EXPECT_EQ(chosen.by_library(), library) << testing::PrintToString(chosen.notes);
      }
}

TEST(SelectOn, RefusesWhatOnlyTheHostDoes) {
  extern_kernels::HostProblem p;
  p.op = "NonZero";
  const extern_kernels::OperandInfo x{DType::f32, {2, 2}, {2, 1}, nullptr};
  const auto device = device::make_fake_device();
  try {
    extern_kernels::select_on(*device, Problem(p), {&x, 1}, {&x, 1});
    ADD_FAILURE() << "chosen";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_NE(e.message().find("NonZero"), std::string::npos) << e.message();
  }
}

/// What a GPU has decides, and nothing is made for the answer: instructions, and the memory of a block.
TEST(SelectOn, AsksWhatTheDeviceHas) {
  using extern_kernels::OperandInfo;
  const auto chosen = [](const Problem& p, const std::vector<OperandInfo>& in, const OperandInfo& out,
                         const char* architecture, int64_t shared_bytes) -> std::string {
    device::Properties properties;
    properties.name = "a GPU", properties.architecture = architecture;
    properties.shared_bytes_block = shared_bytes;
    try {
      return extern_kernels::choose_on_gpu(p, in, {&out, 1}, properties).candidate->name;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::unsupported);
      return e.message();
    }
  };
  const auto heads = [](DType q, DType kv, int64_t width) {
    auto of = [width](DType t) { return OperandInfo{t, {1, 2, 9, width}, {}, nullptr}; };
    return std::vector<OperandInfo>{of(q), of(kv), of(kv)};
  };
  const auto attention = [&](DType q, DType kv, int64_t width, const char* architecture, int64_t bytes) {
    const auto in = heads(q, kv, width);
    return chosen(Problem(AttentionProblem()), in, in[0], architecture, bytes);
  };
  constexpr int64_t kSm75 = 64 << 10, kSm86 = 99 << 10, kSm90 = 227 << 10;
  EXPECT_EQ(attention(DType::f32, DType::f32, 512, "sm_90", kSm90), "cuda_attention");
  EXPECT_NE(attention(DType::f32, DType::f32, 512, "sm_86", kSm86).find("bytes of shared memory"),
            std::string::npos);
  EXPECT_NE(attention(DType::f32, DType::f32, 1000, "sm_90", kSm90).find("bytes of shared memory"),
            std::string::npos);
  EXPECT_EQ(attention(DType::f32, DType::f32, 128, "sm_75", kSm75), "cuda_attention");
  EXPECT_EQ(attention(DType::f64, DType::f64, 64, "sm_75", kSm75), "cuda_attention");
  EXPECT_NE(attention(DType::f64, DType::f64, 200, "sm_75", kSm75).find("bytes of shared memory"),
            std::string::npos);
  EXPECT_EQ(attention(DType::f16, DType::f32, 64, "sm_80", kSm86), "cuda_attention");
  EXPECT_NE(attention(DType::f16, DType::f32, 64, "sm_75", kSm75).find("need an sm_80"), std::string::npos);
  const OperandInfo a{DType::u8, {5, 64}, {}, nullptr}, b{DType::i8, {64, 7}, {}, nullptr},
      c{DType::i32, {5, 7}, {}, nullptr};
  EXPECT_EQ(chosen(Problem(MatMulProblem()), {a, b, {}}, c, "sm_80", kSm86), "cuda_byte_product");
  EXPECT_EQ(chosen(Problem(MatMulProblem()), {a, b, {}}, c, "sm_75", kSm75), "cuda_matmul");
}

TEST(SelectOn, SaysWhichWorkALibraryDoes) {
  const extern_kernels::OperandInfo a{DType::f16, {4, 8}, {8, 1}, nullptr},
      b{DType::f16, {8, 16}, {16, 1}, nullptr}, c{DType::f16, {4, 16}, {16, 1}, nullptr};
  const extern_kernels::OperandInfo in[] = {a, b, {}};
  MatMulProblem p;
  EXPECT_EQ(extern_kernels::accepts_on_gpu(Problem(p), in, {&c, 1}), "");
  p.post_ops = {{PostOp::gelu_tanh}};
  EXPECT_EQ(extern_kernels::accepts_on_gpu(Problem(p), in, {&c, 1}), "");
  p.post_ops = {{PostOp::gelu_erf}};
  EXPECT_EQ(extern_kernels::accepts_on_gpu(Problem(p), in, {&c, 1}), "");
  p.post_ops = {{PostOp::tanh}};
  EXPECT_EQ(extern_kernels::accepts_on_gpu(Problem(p), in, {&c, 1}),
            "cublas_matmul: an activation other than Relu and GELU; cuda_byte_product: float16 times "
            "float16; cuda_matmul: plain loops");
}

TEST(LoopKernels, TextCompiles) {
  try {
    device::cuda_library("libnvrtc.so.13");
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  using extern_kernels::cuda::Loop;
  using extern_kernels::cuda::loops_text;
  for (Loop kernel : {Loop::convolution, Loop::finishing, Loop::rows})
    EXPECT_NO_THROW(device::cuda::compile(loops_text(kernel, DType::f16, DType::f16, DType::f16), "sm_75"));
  EXPECT_NO_THROW(
      device::cuda::compile(loops_text(Loop::product, DType::u8, DType::i8, DType::i32), "sm_90"));
  EXPECT_NO_THROW(
      device::cuda::compile(loops_text(Loop::attention, DType::f64, DType::f64, DType::f64, 2), "sm_90"));
}

} // namespace
} // namespace tbx::test
