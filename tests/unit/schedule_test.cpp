// The scheduler: what becomes one kernel, what does not, and that it stays linear in the size of the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "codegen/emit.h"
#include "extern_kernels/catalogue.h"
#include "lowering/ops/attention_core.h"
#include "schedule_helper.h"

namespace tbx::test {
namespace {

using fusion::Group;
using fusion::Schedule;

int kernels(const Schedule& s) {
  int n = 0;
  for (const Group& g : s.groups) n += std::holds_alternative<ir::KernelProgram>(g.what);
  return n;
}

int externs(const Schedule& s) { return static_cast<int>(s.groups.size()) - kernels(s); }

TEST(Schedule, SoftmaxIsOneKernelWithoutFullIntermediates) {
  GraphHelper h;
  h.output(h.node("Softmax", {h.input("x", DType::f32, {h.symbol("n"), 64})}, {{"axis", int64_t{-1}}}));
  Schedule s = schedule_of(h);
  ASSERT_EQ(s.groups.size(), 1u);
  const auto& kernel = std::get<ir::KernelProgram>(s.groups[0].what);
  EXPECT_EQ(kernel.outer.size(), 1u);
  int global = 0;
  for (const ir::KernelBuffer& b : kernel.buffers) global += b.access != ir::Access::row_local;
  EXPECT_EQ(global, 2); // the input and the output
}

TEST(Schedule, RowsOfOneKernelFitTheCacheOfTheTarget) {
  GraphHelper h;
  h.output(h.node("Softmax", {h.input("x", DType::f32, {64, 1 << 16})}, {{"axis", int64_t{-1}}}));
  Target target;
  target.l2_bytes = 4 << 16;
  EXPECT_EQ(kernels(schedule_of(h, {}, target)), 1);
  target.l2_bytes -= 1;
  EXPECT_GT(kernels(schedule_of(h, {}, target)), 1);
}

TEST(Schedule, LayerNormBetweenPointwiseIsOneKernel) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {8, 32}), y = h.input("y", DType::f32, {8, 32});
  ValueId sum = h.node("Add", {x, y});
  ValueId norm = h.node("LayerNormalization", {sum, h.constant(weights({32})), h.constant(weights({32}))});
  h.output(h.node("Mul", {h.node("Sigmoid", {norm}), sum}));
  Schedule s = schedule_of(h);
  EXPECT_EQ(s.groups.size(), 1u);
}

TEST(Schedule, WithoutFusionEveryOperationIsAKernel) {
  GraphHelper h;
  h.output(h.node("Softmax", {h.input("x", DType::f32, {4, 64})}));
  fusion::ScheduleOptions off;
  off.fuse = off.fuse_extern = false;
  EXPECT_GT(kernels(schedule_of(h, off)), 1);
}

TEST(Schedule, ConvolutionTakesBiasResidualAndActivation) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 8, 10, 10});
  ValueId a = h.node("Conv", {x, h.constant(weights({8, 8, 1, 1})), h.constant(weights({8}))});
  ValueId relu = h.node("Relu", {a});
  ValueId b = h.node("Conv", {relu, h.constant(weights({8, 8, 1, 1}))});
  h.output(h.node("Relu", {h.node("Add", {b, relu})}));
  Schedule s = schedule_of(h);
  EXPECT_EQ(externs(s), 2);
  std::vector<size_t> fused;
  for (const Group& g : s.groups)
    if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
      fused.push_back(std::get<extern_kernels::ConvProblem>(call->problem).post_ops.size());
  EXPECT_EQ(fused, (std::vector<size_t>{1, 2})); // relu; add and relu
}

/// Two residual blocks relu(conv(conv(x)) + x), where x is nobody else's, and where the model gives it out.
TEST(Schedule, AResidualThatDiesIsAddedInPlace) {
  for (bool given_out : {false, true}) {
    GraphHelper h;
    auto conv = [&](ValueId x) { return h.node("Conv", {x, h.constant(weights({8, 8, 1, 1}))}); };
    ValueId x = h.node("Relu", {conv(h.input("x", DType::f32, {h.symbol("n"), 8, 10, 10}))});
    ValueId first = x;
    for (int block = 0; block < 2; ++block) x = h.node("Relu", {h.node("Add", {conv(conv(x)), x})});
    h.output(conv(x));
    if (given_out) h.output(first);
    Schedule s = schedule_of(h);
    std::vector<std::string> post_ops;
    std::vector<bool> in_place;
    bool keeps_outputs = true;
    for (const Group& g : s.groups)
      if (const auto* call = std::get_if<ir::ExternCall>(&g.what)) {
        post_ops.push_back(extern_kernels::to_string(call->problem));
        const ir::BufferId old = s.program.at(call->outputs[0]).overwrites;
        in_place.push_back(old >= 0);
        for (const ir::ProgramOutput& out : s.program.outputs) keeps_outputs &= out.buffer != old;
      }
    // What the model gives out lies in another order: its copy is overwritten, not itself.
    ASSERT_EQ(in_place, (std::vector<bool>{false, false, true, false, true, false})) << to_string(s);
    EXPECT_TRUE(keeps_outputs) << to_string(s);
    for (int k : {2, 4}) EXPECT_NE(post_ops[k].find("+sum(#3) +relu"), std::string::npos) << post_ops[k];
  }
}

/// The library's exponentials cost more than a kernel, unless there are few.
TEST(Schedule, ExponentialsOfLargeConvolutionsAreKernels) {
  auto problem_of = [](int64_t side, const char* activation, bool gated = false) {
    GraphHelper h;
    ValueId x = h.input("x", DType::f32, {2, 8, side, side});
    ValueId y = h.node("Conv", {x, h.constant(weights({8, 8, 1, 1}))}), active = h.node(activation, {y});
    h.output(gated ? h.node("Mul", {y, active}) : active);
    std::string problem;
    for (const Schedule s = schedule_of(h); const Group& g : s.groups)
      if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
        problem += extern_kernels::to_string(call->problem);
    return problem;
  };
  for (const char* activation : {"Sigmoid", "Tanh"}) {
    EXPECT_NE(problem_of(20, activation).find("+"), std::string::npos) << activation;
    EXPECT_EQ(problem_of(30, activation).find("+"), std::string::npos) << activation;
  }
  EXPECT_NE(problem_of(20, "Sigmoid", true).find("+silu"), std::string::npos);
  EXPECT_EQ(problem_of(30, "Sigmoid", true).find("+"), std::string::npos);
  EXPECT_NE(problem_of(30, "Relu").find("+relu"), std::string::npos);
}

/// The points of the largest kernel of a global average.
ir::SymInts points_of_pool(int64_t images, int64_t channels, int64_t side) {
  GraphHelper h;
  h.output(h.node("GlobalAveragePool", {h.input("x", DType::f32, {images, channels, side, side})}));
  ir::SymInts most = {ir::SymInt(0)};
  for (const Schedule s = schedule_of(h); const Group& g : s.groups)
    if (const auto* kernel = std::get_if<ir::KernelProgram>(&g.what))
      if (ir::product(kernel->outer).constant() > ir::product(most).constant()) most = kernel->outer;
  return most;
}

/// Convolutions share one image among threads by its rows, and so does what reduces it.
TEST(Schedule, PoolsOfOneImageAreReducedByItsRows) {
  EXPECT_EQ(points_of_pool(1, 640, 112), (ir::SymInts{112, 640}));
  EXPECT_EQ(points_of_pool(1, 640, 7), (ir::SymInts{7, 640}));
  EXPECT_EQ(points_of_pool(1, 32, 14), ir::SymInts{32});     // too little work
  EXPECT_EQ(points_of_pool(2, 640, 112), ir::SymInts{1280}); // threads share the images
}

/// What is large, and how long a vector is, the target says, in lowering as in the schedule.
TEST(Schedule, LimitsAreThoseOfTheTarget) {
  auto made_for = [](const Target& target, const GraphHelper& h) {
    lowering::LowerOptions options;
    options.target = target;
    return fusion::schedule(lowering::lower_or_throw(h.graph, options), target);
  };
  GraphHelper sigmoid;
  ValueId x = sigmoid.input("x", DType::f32, {2, 8, 20, 20}); // 25.6 KB
  sigmoid.output(
      sigmoid.node("Sigmoid", {sigmoid.node("Conv", {x, sigmoid.constant(weights({8, 8, 1, 1}))})}));
  auto is_inside = [&](const Target& target) {
    bool inside = false;
    for (const Schedule s = made_for(target, sigmoid); const Group& g : s.groups)
      if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
        inside |= extern_kernels::to_string(call->problem).find("+sigmoid") != std::string::npos;
    return inside;
  };
  Target target;
  EXPECT_TRUE(is_inside(target));
  target.l1_bytes = 24 << 10;
  EXPECT_FALSE(is_inside(target));

  auto parts = [&](int64_t length, const Target& target) {
    GraphHelper h;
    h.output(h.node("ReduceSum", {h.input("x", DType::f32, {1, length}), h.constant(ints({1}, {1}))}));
    int64_t most = 0;
    for (const Schedule s = made_for(target, h); const Group& g : s.groups)
      if (const auto* kernel = std::get_if<ir::KernelProgram>(&g.what))
        most = std::max(most, ir::product(kernel->outer).constant());
    return most;
  };
  target = {};
  EXPECT_EQ(parts(1 << 16, target), 1);
  target.l2_bytes = 1 << 18;
  EXPECT_GE(parts(1 << 16, target), 8);
  EXPECT_EQ(parts((1 << 16) - 64, target), 1);
  const int64_t length = (1 << 13) * 33; // 256 parts of 1056 elements, or 192 of 1408
  for (auto [isa, count] : {std::pair{Isa::sse, 256}, {Isa::avx2, 256}, {Isa::avx512, 192}}) {
    target.isa = isa;
    EXPECT_EQ(parts(length, target), count) << name_of(isa);
  }

  target = {};
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 256, 512), true);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 255, 512), false);
  const ir::SymInt unknown = GraphHelper().symbol("n");
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, unknown, unknown), std::nullopt);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, unknown, 512), std::nullopt);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, unknown, 77), false);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 1, 77), true);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::bf16, 128, 128), false);
  target.wide_multipliers = true;
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 128, 128), true);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 49, 49), false);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 4096, 77), false);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, unknown, 77), false);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, unknown, 128), std::nullopt);
  target.wide_multipliers = false;
  target.bf16_tiles = true;
  EXPECT_EQ(lowering::is_fast_fused(target, DType::bf16, 128, 128), true);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::bf16, unknown, unknown), true);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 128, 128), false);
  EXPECT_EQ(lowering::is_fast_fused(target, DType::undefined, 128, 128), false);
  target.l2_bytes *= 2;
  EXPECT_EQ(lowering::is_fast_fused(target, DType::f32, 256, 512), false);

  // Columns side by side keep what their rows hold in that cache, too.
  GraphHelper columns;
  columns.output(
      columns.node("Softmax", {columns.input("x", DType::f32, {64, 1024})}, {{"axis", int64_t{0}}}));
  const Schedule s = made_for({}, columns);
  target.l2_bytes = 1 << 10;
  for (const Group& g : s.groups)
    if (const auto* kernel = std::get_if<ir::KernelProgram>(&g.what)) {
      EXPECT_NE(codegen::emit_cpp(*kernel, target).text, codegen::emit_cpp(*kernel).text);
    }
}

/// Where channels come last, those of an image are few tasks: its pixels are shared among threads, too.
TEST(Schedule, PoolsOfFewChannelsAreReducedInParts) {
  auto most_points = [](int64_t channels, int64_t side) {
    return ir::product(points_of_pool(2, channels, side)).constant();
  };
  EXPECT_GE(most_points(16, 112), 32 * 8);
  EXPECT_EQ(most_points(16, 14), 32);    // too little work
  EXPECT_EQ(most_points(320, 112), 640); // enough channels
}

/// Integers times a scale plus a bias, as bytes.
ValueId quantised_conv(GraphHelper& h, ValueId bytes, int64_t channels, int64_t zero) {
  ValueId sum =
      h.node("ConvInteger", {bytes, h.constant(Tensor::make(DType::i8, {channels, channels, 1, 1}))});
  ValueId real = h.node("Cast", {sum}, {{"to", static_cast<int64_t>(DType::f32)}});
  ValueId scaled = h.node("Mul", {real, h.constant(weights({channels, 1, 1}))});
  ValueId y = h.node("Add", {scaled, h.constant(weights({channels, 1, 1}))});
  Tensor z = Tensor::make(DType::u8, {});
  z.as_mutable<uint8_t>()[0] = static_cast<uint8_t>(zero);
  return h.node("QuantizeLinear", {y, h.constant(tensor({}, {0.3f})), h.constant(std::move(z))});
}

TEST(Schedule, BytesOfAProductAreStoredByTheLibrary) {
  if (extern_kernels::least_byte_group() == 0) GTEST_SKIP() << "no AVX2";
  for (int64_t zero : {0, 119}) { // bytes from 0 on are clamped as relu begins
    GraphHelper h;
    h.output(quantised_conv(h, h.input("x", DType::u8, {1, 8, 6, 6}), 8, zero));
    std::string problem;
    for (const Schedule s = schedule_of(h); const Group& g : s.groups)
      if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
        problem += extern_kernels::to_string(call->problem);
    EXPECT_TRUE(problem.ends_with("clip(0, 255)")) << problem;
  }
}

/// Depthwise convolutions whose image has a zero point have one kernel in the library, which does not say
/// that it knows them.
TEST(Schedule, DepthwiseConvolutionsOfBytesAreRequantisedByTheLibrary) {
  if (extern_kernels::least_byte_group() != 1) GTEST_SKIP() << "no AVX512-VNNI";
  GraphHelper h;
  Tensor zero = Tensor::make(DType::u8, {}), w = Tensor::make(DType::i8, {32, 1, 3, 3});
  zero.as_mutable<uint8_t>()[0] = 3;
  const ValueId z = h.constant(zero);
  ValueId sum = h.node("ConvInteger", {h.input("x", DType::u8, {1, 32, 28, 28}), h.constant(std::move(w)), z},
                       {{"group", int64_t{32}}});
  ValueId real = h.node("Cast", {sum}, {{"to", static_cast<int64_t>(DType::f32)}});
  h.output(h.node("QuantizeLinear",
                  {h.node("Mul", {real, h.constant(tensor({}, {0.2f}))}), h.constant(tensor({}, {1})), z}));
  std::string problem;
  for (const Schedule s = schedule_of(h); const Group& g : s.groups)
    if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
      problem += extern_kernels::to_string(call->problem);
  EXPECT_NE(problem.find("+round"), std::string::npos) << problem;
}

/// bytes = Q(a + b), whose users are a convolution and, behind it, the sum with what it is a residual of.
TEST(Schedule, BytesWithSeveralUsersAreComputedOnceAndAddedByTheLibrary) {
  if (extern_kernels::least_byte_group() == 0) GTEST_SKIP() << "no AVX2";
  GraphHelper h;
  const ir::SymInts sizes{1, 8, 6, 6};
  auto number = [&](float v) { return h.constant(tensor({}, {v})); };
  ValueId zero = h.constant(Tensor::make(DType::u8, {}));
  ValueId a = h.input("a", DType::f32, sizes);
  ValueId q =
      h.node("QuantizeLinear", {h.node("Add", {a, h.input("b", DType::f32, sizes)}), number(0.1f), zero});
  ValueId residual = h.node("DequantizeLinear", {q, number(0.1f), zero});
  ValueId branch = h.node("DequantizeLinear", {quantised_conv(h, q, 8, 3), number(0.3f), zero});
  h.output(h.node("QuantizeLinear", {h.node("Add", {residual, branch}), number(0.2f), zero}));
  Schedule s = schedule_of(h);
  int readers = 0;
  for (const Group& g : s.groups)
    readers += std::count(g.reads.begin(), g.reads.end(), s.program.inputs[0].buffer);
  EXPECT_EQ(readers, 1);
  EXPECT_EQ(kernels(s), 2); // the bytes, and the order of the output's dimensions
  std::string problem;
  for (const Group& g : s.groups)
    if (const auto* call = std::get_if<ir::ExternCall>(&g.what))
      problem += extern_kernels::to_string(call->problem);
  // What is stored in between is rounded and saturates; the residual is added in units of its scale.
  EXPECT_TRUE(
      problem.ends_with("+round +clip(-3, 252) +linear(3, 9) +add(#3) +linear(0.5, 0) +round +clip(0, 255)"))
      << problem;
}

/// The kernel that makes the rows looks for their extremes; those of all rows and what follows from them are
/// one small kernel, and the bytes one more.
TEST(Schedule, DynamicQuantisationIsTwoKernelsBehindItsProducer) {
  for (bool dynamic : {false, true}) {
    GraphHelper h;
    const ir::SymInts sizes{dynamic ? h.symbol("batch") : ir::SymInt(2),
                            dynamic ? h.symbol("seq") : ir::SymInt(40), 256};
    ValueId x = h.node("LayerNormalization", {h.input("x", DType::f32, sizes), h.constant(weights({256})),
                                              h.constant(weights({256}))});
    const ValueId y = h.node("DynamicQuantizeLinear", {x}, {}, 20, 3);
    for (int k = 0; k < 3; ++k) h.output(y + k);
    Schedule s = schedule_of(h);
    EXPECT_EQ(kernels(s), 3) << to_string(s);
  }
}

TEST(Schedule, FewChannelsAreWrittenInTheOrderOfReads) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2, 3, 30, 40});
  ValueId mean = h.constant(weights({3, 1, 1}));
  h.output(h.node("Transpose", {h.node("Exp", {h.node("Sub", {x, mean})})},
                  {{"perm", std::vector<int64_t>{0, 2, 3, 1}}}));
  Schedule s = schedule_of(h);
  ASSERT_EQ(s.groups.size(), 1u);
  const auto& outer = std::get<ir::KernelProgram>(s.groups[0].what).outer;
  EXPECT_EQ(outer, (ir::SymInts{2, 3, 1200}));
}

TEST(Schedule, AResultWithAnotherReaderIsNotSwallowed) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {4, 8});
  ValueId product = h.node("MatMul", {x, h.constant(weights({8, 8}))});
  h.output(product);
  h.output(h.node("Relu", {product}));
  Schedule s = schedule_of(h);
  EXPECT_EQ(externs(s), 1);
  EXPECT_EQ(kernels(s), 1);
}

TEST(Schedule, DynamicShapesLeaveNoShapeTensorBehind) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), h.symbol("seq"), 12});
  ValueId shape = h.node("Shape", {x});
  ValueId batch = h.node("Gather", {shape, h.constant(ints({1}, {0}))});
  ValueId seq = h.node("Gather", {shape, h.constant(ints({1}, {1}))});
  ValueId target = h.node("Concat", {batch, seq, h.constant(ints({2}, {3, 4}))}, {{"axis", int64_t{0}}});
  h.output(h.node("Relu", {h.node("Reshape", {x, target})}));
  Schedule s = schedule_of(h);
  ASSERT_EQ(s.groups.size(), 1u);
  EXPECT_EQ(std::get<ir::KernelProgram>(s.groups[0].what).outer.size(), 1u)
      << to_string(s); // merged into one loop
}

TEST(Schedule, SizesThatMeetInAnOperatorAreOneLoopUnderAllNames) {
  // The dimensions of both operands have names of their own; a check says that they are equal.
  GraphHelper h;
  auto sizes = [&](const std::string& name) {
    return std::vector<ir::SymInt>{h.symbol(name + "0"), h.symbol(name + "1"), h.symbol(name + "2")};
  };
  const auto a = sizes("a"), b = sizes("b");
  ValueId x = h.input("x", DType::f32, {a[0], a[1], a[2], 512});
  ValueId y = h.input("y", DType::f32, {b[0], 512, b[1], b[2]});
  ValueId moved = h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
  h.output(h.node("Add", {moved, y}));
  auto loops_of = [&](bool assume) {
    Schedule s = fusion::schedule(lowering::lower_or_throw(h.graph, {.assume_broadcast = assume}), {}, {});
    EXPECT_EQ(s.groups.size(), 1u);
    return std::get<ir::KernelProgram>(s.groups[0].what).outer.size();
  };
  EXPECT_EQ(loops_of(true), 3u);  // batch, channels, points of an image
  EXPECT_EQ(loops_of(false), 4u); // each dimension may be 1 on one side
}

TEST(Schedule, EveryDecisionIsRecorded) {
  GraphHelper h;
  h.output(h.node("Softmax", {h.input("x", DType::f32, {4, 64})}));
  for (const Group& g : schedule_of(h).groups) EXPECT_FALSE(g.decisions.empty());
}

// The C++ compiler takes time with the square of a loop's body, and explanations have to stay readable.
TEST(Schedule, TwentyThousandNodesMakeKernelsOfBoundedSize) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {16}), v = x;
  for (int i = 0; i < 20000; ++i)
    v = h.node(i % 7 == 0 ? "Exp" : "Add", i % 7 == 0 ? std::vector{v} : std::vector{v, x});
  h.output(v);
  Schedule s = schedule_of(h);
  EXPECT_GT(s.groups.size(), 20u);
  size_t origins = 0;
  for (const Group& g : s.groups) {
    int ops = 0;
    for (const ir::Phase& phase : std::get<ir::KernelProgram>(g.what).phases)
      for (const ir::Stmt& stmt : phase.stmts) ops += ir::count({&stmt.value, 1}).ops;
    EXPECT_LE(ops, 1000);
    origins += g.origins.size();
  }
  EXPECT_GE(origins, 20000u);
  EXPECT_LT(origins, 21000u); // a node at a border may belong to two kernels
}

// What is realised inside a node ends the list of the nodes that a value comes from.
TEST(Schedule, OriginsDoNotPileUp) {
  GraphHelper h;
  ValueId v = h.input("x", DType::f32, {4, 64});
  for (int i = 0; i < 200; ++i) v = h.node("Softmax", {h.node("Neg", {v})}, {{"axis", int64_t{-1}}});
  h.output(v);
  size_t origins = 0;
  for (const Group& g : schedule_of(h).groups) origins += g.origins.size();
  EXPECT_LT(origins, 3 * 400u);
}

// Channels that are last in memory and first in a row: the row is read as it lies, by no remainders of a size
// that only a run knows.
TEST(Schedule, RowsOfAReshapedImageAreReadInTheOrderOfMemory) {
  GraphHelper h;
  const ir::SymInt t = h.symbol("t");
  const ValueId x = h.input("x", DType::f32, {3 * t + 3, 128});
  const ValueId image = h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId rows = h.node("Reshape", {image, h.constant(ints({2}, {16, -1}))});
  h.output(h.node("ReduceSumSquare", {rows, h.constant(ints({1}, {1}))}));
  const Schedule s = schedule_of(h);
  ASSERT_EQ(s.groups.size(), 1u);
  const std::string text = ir::to_string(std::get<ir::KernelProgram>(s.groups[0].what));
  EXPECT_EQ(text.find("r0%"), std::string::npos) << text;
  EXPECT_NE(text.find("phase [3*t + 3, 8]"), std::string::npos) << text;
}

// What writes along one axis and gathers along another goes along what it writes, however much it gathers:
// the last step of a segmentation, which enlarges an image whose channels come last in memory.
TEST(Schedule, ResultsAreWrittenAlongMemoryWhereReadsAreGathered) {
  GraphHelper h;
  const ValueId x = h.input("x", DType::f32, {64, 24});
  const ValueId i = h.input("i", DType::i64, {256}), j = h.input("j", DType::i64, {256});
  const ValueId sum = h.node("Add", {h.node("Gather", {x, i}), h.node("Gather", {x, j})});
  h.output(h.node("Transpose", {sum}, {{"perm", std::vector<int64_t>{1, 0}}}));
  const Schedule s = schedule_of(h);
  ASSERT_EQ(s.groups.size(), 1u);
  const auto& kernel = std::get<ir::KernelProgram>(s.groups[0].what);
  EXPECT_EQ(ir::to_string(kernel.outer), "[24, 256]") << ir::to_string(kernel);
}

/// Axes of the loops of the last group.
std::string last_axes(const GraphHelper& h) {
  return ir::to_string(std::get<ir::KernelProgram>(schedule_of(h).groups.back().what).outer);
}

// The places and factors of what is gathered lie along another axis than the elements that are: a vector
// reads the elements of a place at once, for all of which these are the same.
TEST(Schedule, PlacesDoNotSpeakAgainstTheAxisOfWhatIsGathered) {
  GraphHelper h;
  const ValueId x = h.input("x", DType::f32, {1, 24, 40, 40}),
                grid = h.input("g", DType::f32, {1, 300, 4, 2});
  h.output(h.node("GridSample", {x, grid}));
  const Schedule s = schedule_of(h);
  int gathered = 0;
  for (const Group& g : s.groups) {
    const auto& kernel = std::get<ir::KernelProgram>(g.what);
    if (kernel.outer.size() != 3) continue;
    EXPECT_EQ(ir::to_string(kernel.outer), "[300, 4, 24]");
    ++gathered;
  }
  EXPECT_EQ(gathered, 1) << to_string(s);
}

// Many reads along one axis against one result along another: it counts whether the results that a vector
// scatters stay in a cache.
TEST(Schedule, ResultsAreScatteredInACacheWhereManyReadsAreGathered) {
  auto turned = [](int64_t rows) {
    GraphHelper h;
    const ValueId x = h.input("x", DType::f32, {64, 24});
    ValueId sum = -1;
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      const ValueId read = h.node("Gather", {x, h.input(name, DType::i64, {rows})});
      sum = sum < 0 ? read : h.node("Add", {sum, read});
    }
    h.output(h.node("Transpose", {sum}, {{"perm", std::vector<int64_t>{1, 0}}}));
    return last_axes(h);
  };
  EXPECT_EQ(turned(256), "[256, 24]");
  EXPECT_EQ(turned(65536), "[24, 65536]");
}

// What is in the cache whatever the order does not decide it.
TEST(Schedule, AScaleOfEachChannelLeavesTheRowsOfAnImageTogether) {
  GraphHelper h;
  const ValueId x = h.input("x", DType::f32, {1, 64, 32, 40}), s = h.input("s", DType::f32, {64, 1, 1});
  h.output(h.node("Mul", {x, s}));
  EXPECT_EQ(last_axes(h), "[64, 1280]");
  GraphHelper turned; // as much is read as is written, which lies otherwise
  const ValueId y = turned.input("y", DType::f32, {64, 1280}), z = turned.input("z", DType::f32, {1280, 64});
  turned.output(
      turned.node("Add", {y, turned.node("Transpose", {z}, {{"perm", std::vector<int64_t>{1, 0}}})}));
  EXPECT_EQ(last_axes(turned), "[64, 1280]");
}

TEST(Schedule, BinsOfARegionAreWrittenChannelByChannel) {
  GraphHelper h;
  const ValueId x = h.input("x", DType::f32, {1, 64, 20, 20}), rois = h.input("r", DType::f32, {50, 4}),
                batch = h.input("b", DType::i64, {50});
  constexpr int64_t bins = 7;
  h.output(h.node("RoiAlign", {x, rois, batch},
                  {{"output_height", bins}, {"output_width", bins}, {"sampling_ratio", int64_t{2}}}));
  EXPECT_EQ(last_axes(h), "[50, 7, 7, 64]");
}

// Slices of one tensor differ in where they begin: one function serves all.
TEST(Schedule, SlicesThatDifferInTheirBeginningShareOneFunction) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {100, 64});
  for (int64_t i = 0; i < 100; ++i)
    h.output(
        h.node("Exp", {h.node("Slice", {x, h.constant(ints({1}, {i})), h.constant(ints({1}, {i + 1}))})}));
  std::set<std::string> functions;
  std::set<int64_t> offsets;
  Target sse;
  sse.isa = Isa::sse;
  for (const Group& g : schedule_of(h).groups) {
    const auto& kernel = std::get<ir::KernelProgram>(g.what);
    functions.insert(codegen::emit_cpp(kernel, sse).function);
    for (const ir::KernelBuffer& b : kernel.buffers) offsets.insert(b.offset);
  }
  EXPECT_EQ(functions.size(), 1u);
  EXPECT_EQ(offsets.size(), 100u);
}

// The beginning stays where addresses count downwards from it, or where a mask lets them begin before it.
TEST(Schedule, AddressesThatCountDownKeepTheirBeginning) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {64});
  h.output(h.node("Exp", {h.node("Slice", {x, h.constant(ints({1}, {-1})), h.constant(ints({1}, {-65})),
                                           h.constant(ints({1}, {0})), h.constant(ints({1}, {-1}))})}));
  for (const Group& g : schedule_of(h).groups)
    for (const ir::KernelBuffer& b : std::get<ir::KernelProgram>(g.what).buffers) EXPECT_EQ(b.offset, 0);
}

} // namespace
} // namespace tbx::test
