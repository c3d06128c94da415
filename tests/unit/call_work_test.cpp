// How many operations library calls are counted as, at constant and at symbolic sizes.
#include "driver/call_work.h"

#include <gtest/gtest.h>

#include "driver/make_plan.h"
#include "runtime/step_info.h"

namespace tbx::test {
namespace {

using namespace extern_kernels;
using ir::SymInt;
using ir::SymInts;

/// A call with operands of these sizes in a program of one symbol "n".
class CallWorkOf : public testing::Test {
protected:
  /// The operations of a run where n is `n`.
  double flops(Problem problem, std::vector<SymInts> inputs, SymInts output, int64_t n = 0) {
    ir::ExternCall call{
        std::move(problem), {}, {program.new_buffer("y", DType::f32, std::move(output))}, {}, {}};
    for (SymInts& sizes : inputs) call.inputs.push_back({0, std::move(sizes), {}, {}});
    runtime::StepInfo info;
    for (const driver::CallWork& nest : driver::work_of(program, call)) {
      runtime::NestWork work{nest.each, {}};
      for (SymInt size : nest.sizes) work.sizes.push_back(driver::size_expr(size));
      info.work.push_back(std::move(work));
    }
    return runtime::flops_of(info, std::vector<int64_t>{n});
  }

  ir::Program program;
  SymInt n = (program.context = std::make_shared<ir::Context>())->symbol("n");
};

TEST_F(CallWorkOf, Attention) {
  const SymInts q = {2, 6, 10, 64}, k = {2, 3, 20, 64}, v = {2, 3, 20, 32}, y = {2, 6, 10, 32};
  AttentionProblem p;
  EXPECT_EQ(flops(p, {q, k, v}, y), 2.0 * 2 * 6 * 10 * 20 * (64 + 32));
  EXPECT_EQ(flops(p, {{2, 6, n, 64}, {2, 3, n + 3, 64}, {2, 3, n + 3, 32}}, {2, 6, n, 32}, 7),
            2.0 * 2 * 6 * 7 * 10 * (64 + 32));
  p.causal = true; // of other lengths: nothing is known of what is hidden
  EXPECT_EQ(flops(p, {q, k, v}, y), 2.0 * 2 * 6 * 10 * 20 * (64 + 32));
  const std::vector<SymInts> square = {{1, 4, n, 8}, {1, 4, n, 8}, {1, 4, n, 8}};
  EXPECT_EQ(flops(p, square, square[0], 9), 4 * 9 * 9 * (8 + 8));
  p.has_starts = true;
  EXPECT_EQ(flops(p, square, square[0], 9), 2 * 4 * 9 * 9 * (8 + 8));
  p.has_starts = false;
  p.window = 5;
  EXPECT_EQ(flops(p, square, square[0], 9), 2 * 4 * 9 * 5 * (8 + 8));
  EXPECT_EQ(flops(p, square, square[0], 3), 2 * 4 * 3 * 3 * (8 + 8));
}

TEST_F(CallWorkOf, RecurrentLayers) {
  RecurrentProblem p;
  p.gives_y = true;
  for (auto [cell, gates] :
       {std::pair{RecurrentProblem::lstm, 4}, {RecurrentProblem::gru, 3}, {RecurrentProblem::rnn, 1}})
    for (const int directions : {1, 2}) {
      p.cell = cell;
      p.direction = directions == 2 ? RecurrentProblem::bidirectional : RecurrentProblem::forward;
      const SymInts r = {directions, gates * 16, 16};
      EXPECT_EQ(flops(p, {{5, 3, directions * gates * 16}, r}, {5, directions, 3, 16}),
                2.0 * 5 * 3 * directions * gates * 16 * 16);
      p.batch_first = true;
      EXPECT_EQ(flops(p, {{3, n, directions * gates * 16}, r}, {3, n, directions, 16}, 11),
                2.0 * 11 * 3 * directions * gates * 16 * 16);
      p.batch_first = false;
    }
}

TEST_F(CallWorkOf, PackedProductsAndExperts) {
  const PackedMatMulProblem packed{96, 40, 32, 4};
  EXPECT_EQ(flops(packed, {{7, 96}, {40, 3, 16}, {120}}, {7, 40}), 2.0 * 7 * 96 * 40);
  EXPECT_EQ(flops(packed, {{n, 96}, {40, 3, 16}, {120}}, {n, 40}, 5), 2.0 * 5 * 96 * 40);
  EXPECT_EQ(flops(RowProductProblem{}, {{1, 96}, {96, 40}}, {1, 20}), 2.0 * 96 * 40);
  EXPECT_EQ(flops(ExpertsProblem{}, {{n, 24}, {n, 2}, {8, 50, 24}}, {n, 2, 50}, 5), 2.0 * 5 * 2 * 50 * 24);
  EXPECT_EQ(flops(ExpertsProblem{4}, {{3, 24}, {3, 2}, {8, 50, 12}}, {3, 2, 50}), 2.0 * 3 * 2 * 50 * 24);
}

TEST_F(CallWorkOf, ProductsConvolutionsAndOthers) {
  EXPECT_EQ(flops(MatMulProblem{}, {{2, n, 8}, {2, 8, 5}}, {2, n, 5}, 3), 2.0 * 2 * 3 * 5 * 8);
  ConvProblem conv;
  conv.group = 2;
  EXPECT_EQ(flops(conv, {{1, 8, 10, 10}, {6, 4, 3, 3}}, {1, 6, 8, 8}), 2.0 * 6 * 8 * 8 * 4 * 3 * 3);
  conv.transposed = true;
  EXPECT_EQ(flops(conv, {{1, 8, 10, 10}, {8, 3, 3, 3}}, {1, 6, 12, 12}), 2.0 * 8 * 10 * 10 * 3 * 3 * 3);
  EXPECT_EQ(flops(HostProblem{}, {{n}}, {n}, 3), 0);
}

} // namespace
} // namespace tbx::test
