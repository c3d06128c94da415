// Transposed convolutions whose packed weights are smaller and larger than a cache, against plain loops in
// double precision: the library implementations that the table of refusals names are wrong for the larger
// ones.
#if defined(TBX_WITH_ONEDNN)
#include <dnnl.hpp>
#endif
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "base/float_formats.h"
#include "extern_kernels/library_kernel.h"
#if defined(TBX_WITH_ONEDNN)
#include "extern_kernels/onednn/implementation.h"
#endif
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

#if defined(TBX_WITH_ONEDNN)
std::string supports_onednn_matmul(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                                   const Target&);
std::unique_ptr<ExternKernel> make_onednn_matmul(const Problem&, std::span<const OperandInfo>,
                                                 std::span<const OperandInfo>);
#endif

namespace {

struct Case {
  int rank;
  int64_t channels, outputs, kernel, stride, size, group = 1;
  bool has_bias = false;
  std::vector<PostOp::Kind> work;
  bool half = false;
};

struct Image {
  Dims sizes, strides;
  std::vector<float> data;
  TensorRef ref() { return {data.data(), DType::f32, sizes, strides}; }
  OperandInfo info() const { return {DType::f32, sizes, strides, nullptr}; }
};

std::mt19937 rng(20261122);

Image image(Dims sizes, float scale = 1) {
  Image t{
      sizes, dense_strides(sizes, sizes.size() > 1 ? channels_last(sizes.size()) : std::vector<int>{}), {}};
  t.data.resize(static_cast<size_t>(checked_numel(sizes)));
  std::normal_distribution<float> normal(0, scale);
  for (float& v : t.data) v = normal(rng);
  return t;
}

Dims with_space(int64_t n, int64_t c, int rank, int64_t size) {
  Dims d{n, c};
  d.insert(d.end(), rank, size);
  return d;
}

std::string run_case(const Case& c) {
  ConvProblem p;
  p.spatial_rank = c.rank;
  p.transposed = true;
  p.group = c.group;
  p.has_bias = c.has_bias;
  const int64_t pad = (c.kernel - c.stride) / 2, rest = c.kernel - c.stride - pad;
  p.strides.assign(c.rank, c.stride);
  p.dilations.assign(c.rank, 1);
  p.pads_begin.assign(c.rank, pad);
  p.pads_end.assign(c.rank, rest);
  const float scale = 1 / std::sqrt(static_cast<float>(c.channels));
  std::vector<Image> in{image(with_space(1, c.channels, c.rank, c.size)), {}, {}};
  Tensor weights = Tensor::make(c.half ? DType::f16 : DType::f32,
                                with_space(c.channels, c.outputs / c.group, c.rank, c.kernel));
  std::normal_distribution<float> normal(0, scale);
  in[1].sizes = weights.dims;
  in[1].strides = dense_strides(weights.dims, {});
  in[1].data.resize(static_cast<size_t>(weights.numel()));
  if (c.half) { // signs and mantissas at random, magnitudes of 2^-9 to 2^-5
    for (uint16_t& bits : weights.as_mutable<uint16_t>())
      bits = static_cast<uint16_t>((rng() & 0x83ff) | ((6 + rng() % 4) << 10));
    decode_halves(DType::f16, weights.as_mutable<uint16_t>().data(), weights.numel(), in[1].data.data());
  } else {
    for (float& v : in[1].data) v = normal(rng);
    std::copy(in[1].data.begin(), in[1].data.end(), weights.as_mutable<float>().begin());
  }
  if (c.has_bias) in[2] = image({c.outputs});
  Image got = image(with_space(1, c.outputs, c.rank, c.size * c.stride)), want = got;
  for (PostOp::Kind kind : c.work) {
    PostOp op{kind};
    if (kind == PostOp::add || kind == PostOp::mul) {
      op.operand = static_cast<int>(in.size());
      // A whole tensor to be added, a factor per channel.
      in.push_back(kind == PostOp::add ? image(got.sizes) : image(with_space(1, c.outputs, c.rank, 1)));
    }
    p.post_ops.push_back(op);
  }
  std::vector<OperandInfo> infos, outs{got.info()};
  for (const Image& t : in) infos.push_back(t.sizes.empty() ? OperandInfo{} : t.info());
  const Problem problem = p;
  auto refs = [&] {
    std::vector<TensorRef> list;
    for (Image& t : in) list.push_back(t.sizes.empty() ? TensorRef{} : t.ref());
    return list;
  };
  std::vector<TensorRef> to{want.ref()};
  run(*make_reference_conv(problem, infos, outs), refs(), to);
  infos[1].dtype = weights.dtype;
  infos[1].constant = std::make_shared<const Tensor>(std::move(weights));
  Selection s = select(problem, infos, outs);
  to = {got.ref()};
  run(*s.kernel, refs(), to);
  double scale_of = 1;
  for (float v : want.data) scale_of = std::max(scale_of, std::fabs(static_cast<double>(v)));
  const std::string name =
      to_string(problem) + " of " + std::to_string(c.channels) + " channels by " + std::to_string(c.kernel);
  for (size_t i = 0; i < got.data.size(); ++i)
    if (std::fabs(got.data[i] - want.data[i]) > 2e-5 * scale_of) {
      ADD_FAILURE() << name << ": element " << i << " is " << got.data[i] << ", not " << want.data[i];
      break;
    }
  const auto* library = dynamic_cast<const LibraryKernel*>(s.kernel.get());
  if (!library) return s.chosen;
  std::string text;
  for (const std::string& t : library->implementations()) text += t + "\n";
  EXPECT_EQ(text.substr(0, text.find("; in one call")).find("plain loop"), std::string::npos)
      << name << ": " << text;
  return text;
}

/// Sizes on both sides of the largest block of packed weights that caches of the second level hold.
std::vector<Case> sizes() {
  return {{2, 64, 16, 4, 2, 4},      {2, 1024, 16, 4, 2, 4}, {2, 2048, 17, 4, 2, 2}, {2, 32, 8, 8, 4, 3},
          {2, 512, 8, 8, 4, 3},      {2, 8, 8, 16, 8, 3},    {2, 128, 16, 16, 8, 2}, {2, 21, 5, 64, 32, 2},
          {2, 1, 1, 64, 32, 2},      {2, 512, 16, 6, 3, 2},  {2, 1024, 16, 3, 3, 2}, {1, 64, 16, 4, 2, 9},
          {1, 2048, 16, 16, 8, 5},   {3, 16, 16, 4, 2, 2},   {3, 256, 16, 4, 2, 2},  {2, 64, 32, 4, 2, 4, 2},
          {2, 2048, 32, 4, 2, 2, 2}, {2, 1024, 16, 4, 1, 4}, {2, 1024, 512, 2, 2, 1}};
}

TEST(LibraryRefusals, TransposedConvolutionsOfLargeKernelsAgreeWithPlainLoops) {
  using Op = PostOp;
  const std::vector<std::pair<bool, std::vector<Op::Kind>>> works{
      {true, {Op::relu}},           {false, {}},        {true, {}},
      {false, {Op::tanh, Op::mul}}, {false, {Op::add}}, {true, {Op::relu, Op::mul, Op::add}}};
  const std::vector<Case> all = sizes();
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t w = 0; w < works.size(); ++w) {
      if (w > 0 && i > 1 && w != 1 + i % (works.size() - 1)) continue; // two of them for most sizes
      Case c = all[i];
      c.has_bias = works[w].first;
      c.work = works[w].second;
      c.half = w == 0 && i % 2;
      run_case(c);
    }
}

/// Nothing is stored behind the last image, whatever the number of its pixels is. With a zero point the
/// library prefers tiles that stored more.
TEST(LibraryRefusals, ConvolutionsOfOnePixelStayInTheirResult) {
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = p.dilations = {1, 1};
  p.pads_begin = p.pads_end = {0, 0};
  p.x_zero = 3;
  for (const int64_t pixels : {17, 27, 32, 33, 36, 39, 42, 45, 48, 64, 80}) {
    OwnedOperand x(DType::u8, {2, 64, 1, pixels}, channels_last(4)), w(DType::i8, {32, 64, 1, 1}, {}),
        zero(DType::i32, {}, {});
    std::ranges::fill(x.tensor->as_mutable<uint8_t>(), uint8_t{5});
    std::ranges::fill(w.tensor->as_mutable<int8_t>(), int8_t{1});
    zero.tensor->as_mutable<int32_t>()[0] = 3;
    const Dims sizes{2, 32, 1, pixels}, strides = dense_strides(sizes, channels_last(4));
    const int64_t behind = checked_numel(sizes);
    constexpr int64_t kSpace = 32 * 64; // of two tiles
    std::vector<int32_t> got(static_cast<size_t>(behind + kSpace), 4711);
    const std::vector<OperandInfo> infos{x.info(), w.info(true), {}, zero.info()},
        outs{{DType::i32, sizes, strides, nullptr}};
    const std::vector<TensorRef> in{x.ref(), w.ref(), {}, zero.ref()},
        to{{got.data(), DType::i32, sizes, strides}};
    run(*select(p, infos, outs).kernel, in, to);
    EXPECT_EQ(std::count(got.begin(), got.begin() + behind, 2 * 64), behind) << pixels;
    EXPECT_EQ(std::count(got.begin() + behind, got.end(), 4711), kSpace) << pixels;
  }
}

/// Rows of several matrices take turns, as heads do in [batch, row, head, column], with fewer rows than heads
/// and with more. Operands may be rounded to bfloat16.
TEST(LibraryRefusals, ProductsOfMatricesWhoseRowsTakeTurns) {
  constexpr int64_t kHeads = 4;
  for (const auto& [rows, terms, columns] :
       {std::tuple{2, 40, 7}, {7, 40, 2}, {3, 64, 3}, {1, 33, 2}, {17, 8, 2}, {64, 64, 64}})
    for (int turns = 1; turns < 4; ++turns) {
      MatMulProblem p;
      p.precision = Precision::bf16;
      Image a = image({2, kHeads, rows, terms}), b = image({2, kHeads, terms, columns}),
            got = image({2, kHeads, rows, columns}), want = got;
      a.strides = dense_strides(a.sizes, turns & 1 ? std::vector{0, 2, 1, 3} : std::vector{0, 1, 2, 3});
      b.strides = dense_strides(b.sizes, turns & 2 ? std::vector{0, 3, 1, 2} : std::vector{0, 1, 3, 2});
      const std::vector<OperandInfo> infos{a.info(), b.info(), {}}, outs{got.info()};
      std::vector<TensorRef> in{a.ref(), b.ref(), {}}, to{want.ref()};
      run(*make_reference_matmul(p, infos, outs), in, to);
      to = {got.ref()};
      run(*select(p, infos, outs).kernel, in, to);
      for (size_t i = 0; i < got.data.size(); ++i) // sums of normal factors, rounded to 8 bits each
        ASSERT_NEAR(got.data[i], want.data[i], 6 * std::sqrt(static_cast<double>(terms)) / 256)
            << rows << " x " << terms << " x " << columns << ", turns of " << turns << ", element " << i;
    }
}

#if defined(TBX_WITH_ONEDNN)
TEST(LibraryRefusals, TilesAreRefusedWhereTheyAreWrong) {
  onednn::Use product{dnnl::primitive::kind::matmul, false, false, {}, {}};
  EXPECT_EQ(onednn::refusal("brg:avx512_core_amx", product), "");
  product.interleaved_batches = true;
  EXPECT_NE(onednn::refusal("brg:avx512_core_amx", product), "");
  EXPECT_EQ(onednn::refusal("brg:avx512_core", product), "");
  onednn::Use conv{dnnl::primitive::kind::convolution, false, false, {}, {}};
  conv.has_zero_point = true;
  EXPECT_EQ(onednn::refusal("jit:avx512_core_amx", conv), "");
  conv.pads_dilated = true;
  EXPECT_NE(onednn::refusal("jit:avx512_core_amx", conv), "");
  EXPECT_EQ(onednn::refusal("brgconv:avx512_core_amx", conv), "");
  EXPECT_EQ(onednn::refusal("jit:avx512_core_vnni", conv), "");
  // Sums that float32 may not hold, before zero points are added to them.
  for (onednn::Use use : {product, conv}) {
    use.interleaved_batches = use.pads_dilated = false;
    use.large_sums = true;
    const std::string name = use.kind == dnnl::primitive::kind::matmul ? "brg:" : "brgconv_1x1:";
    use.has_zero_point = false;
    EXPECT_EQ(onednn::refusal(name + "avx512_core_amx_int8", use), "");
    use.has_zero_point = true;
    EXPECT_NE(onednn::refusal(name + "avx512_core_amx_int8", use), "");
    EXPECT_EQ(onednn::refusal(name + "avx512_core_vnni", use), "");
  }
}

/// Conditions by version, whichever is linked.
TEST(LibraryRefusals, HoldForTheirVersions) {
  onednn::Use product{dnnl::primitive::kind::matmul, false, false, {}, {}};
  EXPECT_EQ(onednn::refusal("brg_matmul:avx512_core", product, 307), "");
  product.repeats_weights = true;
  for (const char* name : {"brg_matmul:avx512_core", "brg_matmul:avx512_core_bf16"}) {
    EXPECT_NE(onednn::refusal(name, product, 307), "") << name;
    EXPECT_NE(onednn::refusal(name, product, 311), "") << name;
    EXPECT_EQ(onednn::refusal(name, product, 302), "") << name;
  }
  EXPECT_EQ(onednn::refusal("brg_matmul:avx2", product, 307), "");
  EXPECT_EQ(onednn::refusal("gemm:jit:f32", product, 307), "");
  const std::vector<int64_t> kernel{4, 4}, strides{2, 2};
  const onednn::Use deconvolution{dnnl::primitive::kind::deconvolution, true, false, kernel, strides};
  const char* strided = "brg_conv:avx512_core+brgconv_strided:avx512_core";
  EXPECT_NE(onednn::refusal(strided, deconvolution, 302), "");
  EXPECT_EQ(onednn::refusal(strided, deconvolution, 303), "");
}

/// Copies of images that are larger than the memory for them.
TEST(LibraryRefusals, TilesWithStridesAboveTheKernel) {
  const std::vector<int64_t> kernel{1, 3, 1}, passing{1, 4, 2}, reading{1, 3, 2};
  onednn::Use use{dnnl::primitive::kind::convolution, false, false, kernel, passing};
  EXPECT_NE(onednn::refusal("brgconv:avx512_core_amx", use), "");
  EXPECT_EQ(onednn::refusal("brgconv_1x1:avx512_core_amx", use), "");
  EXPECT_EQ(onednn::refusal("brgconv:avx512_core_bf16", use), "");
  use.strides = reading; // the last dimension has room
  EXPECT_EQ(onednn::refusal("brgconv:avx512_core_amx", use), "");
}

/// Images of three tiles of results, of which the library stores four.
TEST(LibraryRefusals, TilesOfOnePixelBehindTheImage) {
  std::vector<int64_t> refused;
  for (int64_t pixels = 0; pixels < 200; ++pixels) {
    onednn::Use use{dnnl::primitive::kind::convolution, false, false, {}, {}};
    use.pixels = pixels;
    if (!onednn::refusal("jit_1x1:avx512_core_amx", use).empty()) refused.push_back(pixels);
    EXPECT_EQ(onednn::refusal("jit_1x1:avx512_core_vnni", use), "");
    EXPECT_EQ(onednn::refusal("brgconv_1x1:avx512_core_amx", use), "");
  }
  EXPECT_EQ(refused, (std::vector<int64_t>{27, 33, 36, 39, 42, 45, 48}));
}

/// Zero points of what is padded.
TEST(LibraryRefusals, TilesWithZeroPointsOfPaddedLines) {
  onednn::Use use{dnnl::primitive::kind::convolution, false, false, {}, {}};
  const auto refused = [&](bool zero, int64_t outer, bool last) {
    use.has_zero_point = zero;
    use.outer_pad = outer;
    use.pads_last = last;
    EXPECT_EQ(onednn::refusal("jit:avx512_core_vnni", use), "");
    return !onednn::refusal("jit:avx512_core_amx", use).empty();
  };
  EXPECT_TRUE(refused(true, 1, false));
  EXPECT_TRUE(refused(true, 4, true));
  EXPECT_FALSE(refused(true, 3, true));
  EXPECT_FALSE(refused(true, 0, true)); // one dimension, for one
  EXPECT_FALSE(refused(false, 4, false));
}

/// Padding before a line that is what is left over behind it.
TEST(LibraryRefusals, PaddingAsLeftOver) {
  onednn::Use use{dnnl::primitive::kind::convolution, false, false, {}, {}};
  EXPECT_EQ(onednn::refusal("brgconv:avx2", use), "");
  use.pads_as_left_over = true;
  for (const char* name : {"brgconv:avx2", "brgconv:avx512_core", "brgconv:avx512_core_bf16"})
    EXPECT_NE(onednn::refusal(name, use), "") << name;
  EXPECT_EQ(onednn::refusal("jit:avx2", use), "");
}

/// Pixels of channels that do not fill a row of a tile.
TEST(LibraryRefusals, TilesOfSeveralPixels) {
  const auto refused = [](int64_t bytes, int64_t kernel, int64_t stride) {
    const std::vector<int64_t> kernels{kernel}, strides{stride};
    onednn::Use use{dnnl::primitive::kind::convolution, false, false, kernels, strides};
    use.pixel_bytes = bytes;
    EXPECT_EQ(onednn::refusal("brgconv:avx512_core_vnni", use), "");
    EXPECT_EQ(onednn::refusal("jit:avx512_core_amx", use), "");
    return !onednn::refusal("brgconv:avx512_core_amx", use).empty();
  };
  EXPECT_TRUE(refused(16, 8, 8));
  EXPECT_TRUE(refused(32, 12, 6));
  EXPECT_TRUE(refused(96, 2, 4));
  EXPECT_FALSE(refused(32, 2, 2)); // one row
  EXPECT_FALSE(refused(32, 8, 2));
  EXPECT_FALSE(refused(64, 8, 8));
  EXPECT_FALSE(refused(33, 8, 8));
}

/// Windows without an element of the image.
TEST(LibraryRefusals, WindowsOfPaddingAlone) {
  onednn::Use use{dnnl::primitive::kind::convolution, false, false, {}, {}};
  EXPECT_EQ(onednn::refusal("brgconv:avx512_core_amx", use), "");
  use.has_empty_window = true;
  EXPECT_NE(onednn::refusal("brgconv:avx512_core_amx", use), "");
  EXPECT_NE(onednn::refusal("brgconv:avx512_core_bf16", use), "");
  EXPECT_NE(onednn::refusal("brgconv:avx512_core_fp16", use), "");
  EXPECT_EQ(onednn::refusal("brgconv:avx512_core", use), "");
  use.kind = dnnl::primitive::kind::deconvolution;
  EXPECT_NE(onednn::refusal("brg_conv:avx512_core_amx+brgconv:avx512_core_amx", use), "");
  EXPECT_EQ(onednn::refusal("brg_conv:avx512_core+brgconv:avx512_core", use), "");
}

/// Additions of what lies in memory, by instructions that want it aligned.
TEST(LibraryRefusals, AdditionsOfUnalignedMemory) {
  onednn::Use use{dnnl::primitive::kind::convolution, false, true, {}, {}};
  EXPECT_EQ(onednn::refusal("jit_dw:sse41", use), "");
  EXPECT_EQ(onednn::refusal("jit:sse41", use), "");
  EXPECT_NE(onednn::refusal("jit_1x1:sse41", use), ""); // adds to its own partial sums there
  use.has_sum = true;
  EXPECT_NE(onednn::refusal("jit_dw:sse41", use), "");
  EXPECT_EQ(onednn::refusal("jit:sse41", use), "");
  use.has_bias = true;
  EXPECT_NE(onednn::refusal("jit:sse41", use), "");
  for (const char* name : {"jit_dw:avx2", "jit:avx2", "jit_1x1:avx2", "x64:gemm:jit"})
    EXPECT_EQ(onednn::refusal(name, use), "") << name;
}

/// An operand in which neither rows nor columns lie packed, which no product of ours hands to the library: it
/// has plain loops for it alone.
TEST(LibraryRefusals, ExplainMarksPlainLoops) {
  Image a = image({5, 7}), b = image({7, 6}), got = image({5, 6}), want = got;
  a.strides = {14, 2};
  a.data.resize(5 * 14, 1);
  const std::vector<OperandInfo> infos{a.info(), b.info(), {}}, outs{got.info()};
  std::vector<TensorRef> in{a.ref(), b.ref(), {}}, to{want.ref()};
  run(*make_reference_matmul(MatMulProblem(), infos, outs), in, to);
  to = {got.ref()};
  const auto kernel = make_onednn_matmul(MatMulProblem(), infos, outs);
  run(*kernel, in, to);
  for (size_t i = 0; i < got.data.size(); ++i) EXPECT_NEAR(got.data[i], want.data[i], 1e-5);
  const auto* library = dynamic_cast<const LibraryKernel*>(kernel.get());
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(library->implementations(),
            std::vector<std::string>{"ref:any (a plain loop of the library: slow)"});
  EXPECT_NE(supports_onednn_matmul(MatMulProblem(), infos, outs, host_target()), "");
}

TEST(LibraryRefusals, PlainLoopsAreKnownByName) {
  const onednn::Use alone{dnnl::primitive::kind::convolution, false, false, {}, {}};
  const onednn::Use with_bias{dnnl::primitive::kind::convolution, true, false, {}, {}};
  for (const char* name : {"ref:any", "ref_int8:any", "conv:any+ref:any"})
    EXPECT_TRUE(onednn::is_reference(name, alone)) << name;
  for (const char* name : {"brg:avx512_core", "jit:avx2", "gemm:ref", "brgconv:avx512_core"})
    EXPECT_FALSE(onednn::is_reference(name, with_bias)) << name;
  EXPECT_FALSE(onednn::is_reference("conv:any+brgconv:avx2", alone));
  EXPECT_TRUE(onednn::is_reference("conv:any+brgconv:avx2", with_bias));
  EXPECT_EQ((onednn::Implementation{"ref:any", true, {"brg:avx2: wrong"}}).text(),
            "ref:any (a plain loop of the library: slow); refused brg:avx2: wrong");
}

TEST(LibraryRefusals, ExplainNamesWhatIsRefused) {
  const std::string text = run_case({2, 1024, 16, 4, 2, 4, 1, true, {PostOp::relu}});
  // The product, what follows beside it, and why it is not one call.
  EXPECT_NE(text.find(", then jit:uni; in one call: "), std::string::npos) << text;
  EXPECT_NE(text.find("+brgconv_strided:"), std::string::npos) << text;
  const bool has_defect = dnnl_version()->major == 3 && dnnl_version()->minor < 3;
  if (has_defect && dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core) {
    EXPECT_NE(text.find("; refused brg_conv:avx512_core+brgconv_strided:avx512_core: bias"),
              std::string::npos)
        << text;
  }
}

/// Memory for a call comes with the call: arenas of one thread that several callers are in have a second one
/// at times, and who made the workspace may have counted another number than who uses it.
TEST(LibraryRefusals, CallersThatShareAnArenaOfOneThread) {
  MatMulProblem p;
  std::vector<std::vector<float>> a, want;
  std::vector<OperandInfo> infos{
      {DType::f32, {3, -1, 64}, {}, nullptr}, {DType::f32, {3, 64, -1}, {}, nullptr}, {}},
      outs{{DType::f32, {3, -1, -1}, {}, nullptr}};
  Selection s = select(p, infos, outs);
  auto compute = [&](const ExternKernel& kernel, int64_t n, std::vector<float>& x) {
    std::vector<float> y(static_cast<size_t>(3 * n * n));
    const Dims left{3, n, 64}, right{3, 64, n}, out{3, n, n};
    const Dims ls{n * 64, 64, 1}, rs{n * 64, 1, 64}, os{n * n, n, 1};
    std::vector<TensorRef> in{{x.data(), DType::f32, left, ls}, {x.data(), DType::f32, right, rs}, {}},
        to{{y.data(), DType::f32, out, os}};
    run(kernel, in, to);
    return y;
  };
  constexpr int64_t kFirst = 30, kLast = 100;
  auto reference = make_reference_matmul(p, infos, outs);
  for (int64_t n = kFirst; n < kLast; ++n) {
    a.push_back(image({3 * n * 64}).data);
    want.push_back(compute(*reference, n, a.back()));
  }
  std::atomic<int> wrong{0};
  tbb::task_arena arena(1);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&, t] {
      for (int64_t i = 0; i < 3 * (kLast - kFirst); ++i) {
        const int64_t k = (i + t * 17) % (kLast - kFirst);
        std::vector<float> y;
        arena.execute([&] { y = compute(*s.kernel, kFirst + k, a[k]); });
        for (size_t e = 0; e < y.size(); ++e)
          if (std::fabs(y[e] - want[k][e]) > 1e-3) {
            ++wrong;
            break;
          }
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
}

/// Its cache hands out descriptors whose attributes may be gone, from 1,024 primitives on.
TEST(LibraryRefusals, TheLibraryKeepsNoPrimitives) {
  const Dims left{4, 64}, right{64, 48}, out{4, 48};
  std::vector<OperandInfo> infos{{DType::f32, left, {}, nullptr}, {DType::f32, right, {}, nullptr}, {}},
      outs{{DType::f32, out, {}, nullptr}};
  const Selection s = select(MatMulProblem{}, infos, outs);
  ASSERT_NE(s.kernel, nullptr);
  std::vector<float> a(4 * 64, 1), b(64 * 48, 1), y(4 * 48);
  const Dims ls{64, 1}, rs{48, 1}, os{48, 1};
  std::vector<TensorRef> in{{a.data(), DType::f32, left, ls}, {b.data(), DType::f32, right, rs}, {}},
      to{{y.data(), DType::f32, out, os}};
  run(*s.kernel, in, to);
  EXPECT_EQ(y.back(), 64);
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 0);
}
#endif

} // namespace
} // namespace tbx::extern_kernels
