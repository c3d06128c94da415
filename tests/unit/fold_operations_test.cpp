// What a program computes from constants alone is computed once, and nothing else.
#include "fusion/fold_operations.h"

#include <gtest/gtest.h>

#include "graph_helper.h"
#include "lowering/extern_run.h"
#include "lowering/reference_run.h"

namespace tbx::test {
namespace {

size_t operations(const ir::Program& p) { return p.operations.size(); }

/// The outputs before and after folding are equal, bit for bit; gives the folded program.
ir::Program folded(const GraphHelper& h, std::vector<Tensor> inputs, int expected) {
  ir::Program before = lowering::lower_or_throw(h.graph), after = before;
  EXPECT_EQ(fusion::fold_operations(after), expected);
  EXPECT_EQ(operations(after) + static_cast<size_t>(expected), operations(before));
  ir::verify(after);
  auto a = lowering::run_program(before, inputs, lowering::run_extern);
  auto b = lowering::run_program(after, inputs, lowering::run_extern);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(values_of(a[i]), values_of(b[i]));
  return after;
}

TEST(FoldOperations, TablesOfAResizeAreConstants) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 1, 4, 3});
  h.output(
      h.node("Resize", {x, -1, -1, h.constant(ints({4}, {1, 1, 9, 7}))}, {{"mode", std::string("linear")}}));
  std::vector<float> values(12);
  for (size_t i = 0; i < 12; ++i) values[i] = 0.3f * static_cast<float>(i * i);
  folded(h, {tensor({1, 1, 4, 3}, values)}, 4); // where each row and column reads, and with what weight
}

TEST(FoldOperations, StoresThatOverwriteOneAnotherFoldTogether) {
  const std::vector<float> zeros(8, 0.0f);
  ir::Program program;
  program.context = std::make_shared<ir::Context>();
  ir::Context& c = *program.context;
  // t = 0..7; t[2] = 5; t[2] += 1; y = x + t
  ir::BufferId in = program.new_buffer("x", DType::f32, {8});
  program.at(in).kind = ir::BufferKind::input;
  program.inputs.push_back({"x", in});
  ir::BufferId t = program.new_buffer("t", DType::f32, {8});
  ir::Loops fill;
  fill.ranges = {8};
  fill.dtype = DType::f32;
  fill.body = c.cast(c.index(c.var(0)), DType::f32);
  program.operations.push_back({ir::Compute{fill, t}, {}, ""});
  ir::BufferId last = t;
  for (auto [value, mode] : {std::pair(5.0, ir::StoreMode::set), std::pair(1.0, ir::StoreMode::add)}) {
    ir::BufferId next = program.new_buffer("", DType::f32, {8});
    program.at(next).overwrites = last;
    ir::Scatter s;
    s.ranges = {1};
    s.indices = {ir::SymInt(2)};
    s.value = c.constant(DType::f32, value);
    s.mode = mode;
    s.target = next;
    program.operations.push_back({s, {}, ""});
    last = next;
  }
  ir::BufferId y = program.new_buffer("y", DType::f32, {8});
  ir::Loops add;
  add.ranges = {8};
  add.dtype = DType::f32;
  add.body = ir::add(c.load(in, DType::f32, {c.var(0)}), c.load(last, DType::f32, {c.var(0)}));
  program.operations.push_back({ir::Compute{add, y}, {}, ""});
  program.outputs.push_back({"y", y});
  EXPECT_EQ(fusion::fold_operations(program), 3);
  ASSERT_EQ(operations(program), 1u);
  ir::verify(program);
  auto got = lowering::run_program(program, {tensor({8}, zeros)});
  EXPECT_EQ(values_of(got[0]), (std::vector<double>{0, 1, 6, 3, 4, 5, 6, 7}));
}

TEST(FoldOperations, WhatARunDecidesStays) {
  // A concatenation of a constant and an input, sizes of a run, and an output.
  GraphHelper h;
  Tensor large = Tensor::make(DType::f32, {400});
  for (int i = 0; i < 400; ++i) large.as_mutable<float>()[i] = static_cast<float>(i);
  ValueId x = h.input("x", DType::f32, {300});
  h.output(h.node("Concat", {h.constant(large), x}, {{"axis", int64_t{0}}}));
  h.output(h.node("Neg", {h.constant(large)}));
  Tensor in = Tensor::make(DType::f32, {300});
  for (int i = 0; i < 300; ++i) in.as_mutable<float>()[i] = 1;
  folded(h, {in}, 0);
}

TEST(FoldOperations, ResultsAreBounded) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 8192});
  // 8192 x 8192 numbers of a constant row: 256 MB
  Tensor row = Tensor::make(DType::f32, {8192});
  ValueId wide = h.node("Expand", {h.constant(row), h.constant(ints({2}, {8192, 8192}))});
  h.output(h.node("MatMul", {x, h.node("Sin", {wide})}));
  ir::Program p = lowering::lower_or_throw(h.graph);
  const size_t before = operations(p);
  fusion::fold_operations(p);
  for (const ir::Buffer& b : p.buffers)
    if (b.constant) {
      EXPECT_LE(b.constant->bytes(), int64_t{64} << 20);
    }
  EXPECT_GE(operations(p), before - 1);
}

} // namespace
} // namespace tbx::test
