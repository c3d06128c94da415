// The evaluator on kernels: several phases, row memory, stores that collide.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "base/error.h"
#include "ir/evaluate.h"
#include "ir/lane_ops.h"

namespace tbx::ir {
namespace {

/// Softmax over the last dimension: maximum, exponentials kept in a row, sum, division.
KernelProgram softmax(const std::shared_ptr<Context>& context, SymInt rows, SymInt columns) {
  Context& c = *context;
  KernelProgram k;
  k.context = context;
  k.outer = {rows};
  k.num_accumulators = 2;
  k.num_locals = 1;
  k.buffers = {{0, DType::f32, Access::read, rows * columns},
               {1, DType::f32, Access::write, rows * columns},
               {-1, DType::f32, Access::row_local, columns}};
  SymInt at = c.var(0) * columns + c.rvar(0);
  Stmt top;
  top.kind = StmtKind::reduce;
  top.reduce = ReduceOp::max;
  top.value = c.load(0, DType::f32, {at});
  top.number = 0;
  Expr shifted = unary(Op::exp, sub(c.load(0, DType::f32, {at}), c.accumulator(0, DType::f32)));
  Stmt keep;
  keep.value = shifted;
  keep.buffer = 2;
  keep.address = c.rvar(0);
  Stmt sum = top;
  sum.reduce = ReduceOp::sum;
  sum.value = shifted;
  sum.number = 1;
  Stmt scale;
  scale.kind = StmtKind::let;
  scale.value = div(c.constant(DType::f32, 1), c.accumulator(1, DType::f32));
  scale.number = 0;
  Stmt out;
  out.value = mul(c.load(2, DType::f32, {c.rvar(0)}), c.local(0, DType::f32));
  out.buffer = 1;
  out.address = at;
  k.phases = {{{columns}, {top}}, {{columns}, {keep, sum}}, {{}, {scale}}, {{columns}, {out}}};
  return k;
}

TEST(EvaluateKernel, PhasesLocalsAndRowMemory) {
  std::mt19937 random{1};
  for (auto [rows, columns] : {std::pair{3, 500}, {500, 3}, {7, 1}, {1, 7}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << columns);
    auto context = std::make_shared<Context>();
    SymInt row_count = context->symbol("rows"), column_count = context->symbol("columns");
    KernelProgram k = softmax(context, row_count, column_count);
    verify(k);
    std::vector<float> x(static_cast<size_t>(rows * columns)), y(x.size(), -1);
    for (float& v : x) v = static_cast<float>(std::normal_distribution<>(0, 3)(random));
    void* data[] = {x.data(), y.data(), nullptr};
    std::vector<int64_t> sizes = {rows, columns};
    // In parts, side by side.
    std::thread other([&] { evaluate_kernel(k, data, sizes, rows / 2, rows); });
    evaluate_kernel(k, data, sizes, 0, rows / 2);
    other.join();
    for (int i = 0; i < rows; ++i) {
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int j = 0; j < columns; ++j) top = std::max<double>(top, x[i * columns + j]);
      for (int j = 0; j < columns; ++j) sum += std::exp(x[i * columns + j] - top);
      for (int j = 0; j < columns; ++j)
        ASSERT_NEAR(std::exp(x[i * columns + j] - top) / sum, y[i * columns + j], 1e-6);
    }
  }
}

TEST(EvaluateKernel, AddressesDoNotComeRound) {
  // The last address of a block is 2^64, which 64 bits call 0; those between are nobody's. Or begins there.
  for (const int64_t begin : {int64_t{0}, int64_t{1}, int64_t{4}}) {
    KernelProgram k;
    k.context = std::make_shared<Context>();
    k.outer = {9};
    k.buffers = {{0, DType::f32, Access::read, 8}, {1, DType::f32, Access::write, 16}};
    const SymInt far = k.context->var(0) * SymInt(int64_t{1} << 62);
    Stmt s;
    s.buffer = 1;
    s.address = k.context->var(0);
    s.value = k.context->load(0, DType::f32, {far});
    k.phases = {{{}, {s}}};
    float from[8] = {}, to[16] = {};
    void* buffers[] = {from, to};
    const KernelEvaluator evaluator(k);
    EXPECT_THROW(evaluator.run(buffers, {}, begin, begin + 5), Error);
  }
}

TEST(EvaluateKernel, CollidingStoresCombineInOrder) {
  auto context = std::make_shared<Context>();
  KernelProgram k;
  k.context = context;
  k.outer = {300};
  k.sequential = true;
  k.buffers = {{0, DType::i32, Access::read_write, 3}, {1, DType::f16, Access::read_write, 2}};
  Stmt s;
  s.value = context->constant_int(DType::i32, 2);
  s.buffer = 0;
  s.address = mod(context->var(0), 3);
  s.mode = StoreMode::add;
  s.mask = binary(Op::less, context->index(context->var(0)), context->constant_int(DType::i64, 299));
  Stmt last;
  last.value = context->cast(context->index(context->var(0)), DType::f32);
  last.buffer = 1;
  last.address = mod(context->var(0), 2);
  k.phases = {{{}, {s, last}}};
  int32_t sums[3] = {5, 0, 0};
  uint16_t lasts[2] = {0, 0};
  void* data[] = {sums, lasts};
  evaluate_kernel(k, data, {}, 0, 300);
  EXPECT_EQ(205, sums[0]);
  EXPECT_EQ(200, sums[1]);
  EXPECT_EQ(198, sums[2]);
  EXPECT_EQ(298, load_element(DType::f16, lasts, 0).f);
  EXPECT_EQ(299, load_element(DType::f16, lasts, 1).f);
}

} // namespace
} // namespace tbx::ir
