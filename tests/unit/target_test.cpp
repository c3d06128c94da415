// What lowering and the schedule read of the target: another machine in it, and they decide otherwise.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/multiply_rates.h"
#include "codegen/emit.h"
#include "codegen/plan_running.h"
#include "driver/target.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/cuda/byte_product.h"
#include "schedule_helper.h"

namespace tbx::test {
namespace {

ir::Program lowered_for(const Target& target, const GraphHelper& h) {
  lowering::LowerOptions options;
  options.target = target;
  return lowering::lower_or_throw(h.graph, options);
}

std::vector<ir::KernelProgram> kernels_for(const Target& target, const GraphHelper& h) {
  std::vector<ir::KernelProgram> kernels;
  for (const fusion::Schedule s = fusion::schedule(lowered_for(target, h), target);
       const fusion::Group& g : s.groups)
    if (const auto* kernel = std::get_if<ir::KernelProgram>(&g.what)) kernels.push_back(*kernel);
  return kernels;
}

Target gpu() {
  Target target;
  target.cuda = true;
  return target;
}

int64_t most_tasks(const Target& target, const GraphHelper& h) {
  int64_t most = 0;
  for (const ir::KernelProgram& k : kernels_for(target, h))
    most = std::max(most, ir::product(k.outer).constant());
  return most;
}

GraphHelper sum(std::vector<int64_t> dims, int64_t axis) {
  GraphHelper h;
  h.output(h.node("ReduceSum",
                  {h.input("x", DType::f32, {dims.begin(), dims.end()}), h.constant(ints({1}, {axis}))}));
  return h;
}

/// A CPU without VNNI, or without AVX2, says nothing about the GPU beside it.
TEST(Target, BytesOfAGpuAreItsOwn) {
  CompileOptions options;
  options.device = "cuda";
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512})
    EXPECT_EQ(driver::target_of(options, isa).byte_group, extern_kernels::kFewestChannels);
}

/// A package for another instruction set runs on CPUs of which nothing else is known.
TEST(Target, AnotherInstructionSetHasNothingBesidesItself) {
  CompileOptions options;
  options.precision = "bf16";
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512}) {
    const Target target = driver::target_of(options, isa);
    const DType stored = driver::pass_context(options, isa).stored;
    CompileOptions chosen = options;
    chosen.isa = name_of(isa);
    if (isa <= host_isa()) {
      EXPECT_EQ(driver::target_of(chosen).wide_multipliers, isa == Isa::avx512 && has_wide_multipliers());
    }
    if (isa == host_isa()) {
      EXPECT_EQ(target.byte_group, extern_kernels::least_byte_group());
      EXPECT_EQ(stored == DType::bf16, extern_kernels::has_half_products(DType::bf16));
      continue;
    }
    EXPECT_EQ(target.byte_group, isa == Isa::sse ? 0 : 8) << name_of(isa);
    EXPECT_FALSE(target.bf16_products || target.f16_products || target.bf16_tiles) << name_of(isa);
    EXPECT_EQ(stored, DType::undefined) << name_of(isa);
    EXPECT_NE(driver::precision_note(options, isa), "") << name_of(isa);
  }
  if (host_isa() == Isa::sse) return;
  options.isa = "sse"; // of a session, which has the rest of this machine
  EXPECT_EQ(driver::target_of(options).byte_group, extern_kernels::least_byte_group());
}

TEST(Target, SumsAreCutForTheGpu) {
  const GraphHelper row = sum({2, 1 << 23}, 1), column = sum({1 << 12, 64}, 0);
  Target target = gpu();
  EXPECT_EQ(most_tasks(target, row), 512) << "2 rows of 256 parts fill it with blocks";
  target.gpu.threads /= 4;
  EXPECT_EQ(most_tasks(target, row), 128);
  target = gpu();
  target.gpu.part_of_row *= 8;
  EXPECT_EQ(most_tasks(target, row), 2 * 64);
  target = gpu();
  EXPECT_EQ(most_tasks(target, column), 64 * 16);
  target.gpu.part_of_column *= 4;
  EXPECT_EQ(most_tasks(target, column), 64 * 4);
  target = gpu();
  target.gpu.threads = 1 << 10;
  EXPECT_EQ(most_tasks(target, column), 64 * 8) << "512 results fill it";
}

TEST(Target, RunningSumsAreCutForTheGpu) {
  auto of = [](std::vector<int64_t> dims, int64_t axis) {
    GraphHelper h;
    h.output(h.node("CumSum",
                    {h.input("x", DType::f32, {dims.begin(), dims.end()}), h.constant(ints({}, {axis}))}));
    return h;
  };
  auto shared = [](const Target& target, const GraphHelper& model) {
    const auto kernels = kernels_for(target, model);
    EXPECT_EQ(kernels.size(), 1u);
    return codegen::plan_running(kernels[0], target.gpu).has_value();
  };
  Target target = gpu();
  EXPECT_TRUE(shared(target, of({512, 1 << 13}, 1)));
  EXPECT_FALSE(shared(target, of({513, 1 << 13}, 1))) << "a row for each block";
  EXPECT_TRUE(shared(target, of({1 << 13, 1 << 16}, 0)));
  target.gpu.threads /= 2;
  EXPECT_FALSE(shared(target, of({512, 1 << 13}, 1)));
  EXPECT_FALSE(shared(target, of({1 << 13, 1 << 16}, 0))) << "columns for all threads";
  target = gpu();
  target.gpu.long_scan_of_row *= 2;
  EXPECT_FALSE(shared(target, of({512, 1 << 13}, 1)));
}

TEST(Target, PatchesAreProductsWhereTheGpuHasNoConvolution) {
  GraphHelper h;
  h.output(h.node("Conv", {h.input("x", DType::f32, {1, 3, 8, 8}), h.constant(weights({4, 3, 2, 2}))},
                  {{"strides", std::vector<int64_t>{2, 2}}}));
  auto is_product = [&](const Target& target) {
    for (const ir::Operation& op : lowered_for(target, h).operations)
      if (const auto* call = std::get_if<ir::ExternCall>(&op.what))
        return std::holds_alternative<extern_kernels::MatMulProblem>(call->problem);
    return false;
  };
  Target target = gpu();
  EXPECT_TRUE(is_product(target));
  target.gpu.channels = 3;
  EXPECT_FALSE(is_product(target));
}

/// Rows of kShortRow elements fill the lanes of a vector, shorter ones do not.
TEST(Target, RowsThatFillVectors) {
  // Channels are read side by side.
  auto operations = [](int64_t channels) {
    GraphHelper h;
    h.output(h.node("GridSample", {h.input("x", DType::f32, {1, channels, 9, 9}),
                                   h.input("grid", DType::f32, {1, 20, 20, 2})}));
    return lowered_for({}, h).operations.size();
  };
  EXPECT_GT(operations(Target::kShortRow), operations(Target::kShortRow - 1));

  // A remainder of the innermost index becomes a loop.
  auto most_loops = [](int64_t period) {
    GraphHelper h;
    h.output(h.node("Tile",
                    {h.node("Sigmoid", {h.input("x", DType::f32, {period})}), h.constant(ints({1}, {64}))}));
    size_t most = 0;
    for (const ir::KernelProgram& k : kernels_for({}, h)) most = std::max(most, k.outer.size());
    return most;
  };
  EXPECT_EQ(most_loops(Target::kShortRow), 2u);
  EXPECT_EQ(most_loops(Target::kShortRow - 1), 1u);

  // Gathered rows are not turned in the kernel that gathers them.
  auto kernels = [](int64_t row) {
    GraphHelper h;
    const ValueId rows =
        h.node("Gather", {h.input("t", DType::f32, {100, row}), h.input("i", DType::i64, {24})});
    h.output(rows);
    h.output(h.node("Transpose", {h.node("Sigmoid", {rows})}, {{"perm", std::vector<int64_t>{1, 0}}}));
    return kernels_for({}, h).size();
  };
  EXPECT_GT(kernels(Target::kShortRow), kernels(Target::kShortRow - 1));

  // A roll along two rows' worth of elements is a view of them: no loop decides which part it reads.
  auto is_view = [](int64_t row) {
    GraphHelper h;
    const ValueId x = h.input("x", DType::f32, {4, 6, row});
    auto part = [&](int64_t from, int64_t to) {
      return h.node("Slice", {x, h.constant(ints({1}, {from})), h.constant(ints({1}, {to})),
                              h.constant(ints({1}, {1}))});
    };
    h.output(h.node("Concat", {part(2, 6), part(0, 2)}, {{"axis", int64_t{1}}}));
    return ir::to_string(lowered_for({}, h)).find("where") == std::string::npos;
  };
  EXPECT_TRUE(is_view(2 * Target::kShortRow));
  EXPECT_FALSE(is_view(2 * Target::kShortRow - 1));
}

/// The more threads, the more parts of a row there are.
TEST(Target, LongRowsAreCutForTheThreads) {
  Target target;
  EXPECT_EQ(most_tasks(target, sum({1, 1 << 23}, 1)), 256);
  target.threads = 16;
  EXPECT_EQ(most_tasks(target, sum({1, 1 << 23}, 1)), 256 * 8);
}

/// Which library kernels there will be is asked of the target, not of the CPU that compiles.
TEST(Target, LibraryKernelsAreThoseOfItsCpu) {
  using namespace extern_kernels;
  const OperandInfo byte{DType::u8, {4, 64}, {64, 1}, nullptr},
      weights{DType::i8, {64, 64}, {64, 1}, nullptr}, sums{DType::i32, {4, 64}, {64, 1}, nullptr};
  auto refusal = [&](Isa isa) {
    Target target;
    target.library_isa = isa;
    for (const Candidate& c : candidates(MatMulProblem()))
      if (std::string_view(c.name) == "byte_matmul")
        return c.supports(MatMulProblem(), std::vector{byte, weights}, {&sums, 1}, target);
    return std::string("not there");
  };
  EXPECT_EQ(refusal(Isa::sse), "a CPU without AVX2");
  EXPECT_EQ(refusal(Isa::avx2), "");

  // Results of all groups, 48 bytes, fill a vector of AVX2, not one of AVX-512.
  ConvProblem depthwise;
  depthwise.spatial_rank = 2;
  depthwise.strides = depthwise.dilations = {1, 1};
  depthwise.pads_begin = depthwise.pads_end = {0, 0};
  depthwise.group = 6;
  const std::vector inputs{OperandInfo{DType::f64, {1, 6, 20, 20}, {}, nullptr},
                           OperandInfo{DType::f64, {6, 1, 5, 5}, {25, 25, 5, 1}, nullptr}};
  const OperandInfo result{DType::f64, {1, 6, 16, 16}, {}, nullptr};
  Target target;
  target.library_isa = Isa::avx2;
  EXPECT_FALSE(takes_planes(depthwise, inputs, {&result, 1}, target));
  target.library_isa = Isa::avx512;
  EXPECT_TRUE(takes_planes(depthwise, inputs, {&result, 1}, target));
}

TEST(Target, ImagesOfBytesHaveChannelsLast) {
  // Of floats, so few results are computed tap by tap, from planes; of bytes by the library or by ours, with
  // what makes floats of the sums.
  using namespace extern_kernels;
  ConvProblem p;
  p.spatial_rank = 2;
  p.strides = p.dilations = p.pads_begin = p.pads_end = {1, 1};
  const OperandInfo result{DType::f32, {1, 1, 40, 40}, {}, nullptr};
  auto inputs = [](DType type, DType weights) {
    return std::vector{OperandInfo{type, {1, 64, 40, 40}, {}, nullptr},
                       OperandInfo{weights, {1, 64, 3, 3}, {576, 9, 3, 1}, nullptr}};
  };
  EXPECT_TRUE(takes_planes(p, inputs(DType::f32, DType::f32), {&result, 1}, host_target()));
  p.post_ops = {{PostOp::linear, 0.5f, 0}};
  EXPECT_FALSE(takes_planes(p, inputs(DType::u8, DType::i8), {&result, 1}, host_target()));
}

TEST(Target, FewResultsOfTransposedConvolutionsAreMadeTapByTap) {
  // From planes. What was slow in a sweep: large kernels of small images, strides above the kernel, groups.
  using namespace extern_kernels;
  struct Case {
    std::vector<int64_t> image, weights, result, strides;
    int64_t group;
    bool by_taps;
  };
  const Case cases[] = {
      {{4, 65, 7, 5}, {65, 7, 11, 11}, {4, 7, 29, 15}, {3, 1}, 1, true},
      {{8, 1, 8, 128}, {1, 1, 3, 3}, {8, 1, 38, 638}, {5, 5}, 1, true},
      {{1, 1024, 7, 5}, {1024, 1, 16, 16}, {1, 2, 28, 24}, {2, 2}, 2, true},
      {{-1, 64, -1, -1}, {64, 1, 3, 3}, {-1, 4, -1, -1}, {5, 3}, 4, true},
      {{1, 1, 112, 112}, {1, 8, 7, 11}, {1, 8, 118, 344}, {1, 3}, 1, false},    // sums are memory
      {{1, 64, 28, 28}, {64, 16, 4, 4}, {1, 16, 58, 58}, {2, 2}, 1, false},     // they fill a vector
      {{1, 256, 28, 28}, {256, 1, 4, 4}, {1, 128, 58, 58}, {2, 2}, 128, false}, // so do those of all groups
  };
  for (const Case& c : cases) {
    ConvProblem p;
    p.spatial_rank = 2;
    p.transposed = true;
    p.strides = c.strides;
    p.dilations = {1, 1};
    p.pads_begin = p.pads_end = {0, 0};
    p.group = c.group;
    const auto& w = c.weights;
    const std::vector inputs{OperandInfo{DType::f32, c.image, {}, nullptr},
                             OperandInfo{DType::f32, w, {w[1] * w[2] * w[3], w[2] * w[3], w[3], 1}, nullptr}};
    const OperandInfo result{DType::f32, c.result, {}, nullptr};
    EXPECT_EQ(takes_planes(p, inputs, {&result, 1}, host_target()), c.by_taps)
        << testing::PrintToString(c.image);
  }
}

TEST(Target, BlocksAreThoseOfTheGpu) {
  GraphHelper h;
  h.output(h.node("Exp", {h.input("x", DType::f32, {64, 64})}));
  Target target = gpu();
  const std::vector<ir::KernelProgram> kernels = kernels_for(target, h);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(codegen::emit_cuda(kernels[0], target.gpu).block_threads, 128);
  target.gpu.usual_threads = 64;
  EXPECT_EQ(codegen::emit_cuda(kernels[0], target.gpu).block_threads, 64);

  GraphHelper turned; // through tiles
  turned.output(turned.node("Transpose", {turned.input("x", DType::f32, {512, 512})},
                            {{"perm", std::vector<int64_t>{1, 0}}}));
  target = gpu();
  const std::vector<ir::KernelProgram> tiles = kernels_for(target, turned);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_EQ(codegen::emit_cuda(tiles[0], target.gpu).block_threads, 128);
  target.gpu.tile_threads = 64;
  EXPECT_EQ(codegen::emit_cuda(tiles[0], target.gpu).block_threads, 64);
}

/// The caches and the instruction set of this machine, and what its library has.
TEST(Target, OfThisMachine) {
  const Target host = host_target(), target = driver::target_of({});
  EXPECT_EQ(host.isa, host_isa());
  EXPECT_EQ(host.library_isa, host_isa());
  EXPECT_EQ(target.isa, host.isa);
  EXPECT_EQ(target.l2_bytes, host.l2_bytes);
  if (host_isa() == Isa::sse) return;
  CompileOptions options;
  options.isa = "sse"; // generated kernels alone
  EXPECT_EQ(driver::target_of(options).isa, Isa::sse);
  EXPECT_EQ(driver::target_of(options).library_isa, host_isa());
  EXPECT_EQ(driver::target_of({}, Isa::sse).library_isa, Isa::sse) << "of a package, all kernels";
}

} // namespace
} // namespace tbx::test
