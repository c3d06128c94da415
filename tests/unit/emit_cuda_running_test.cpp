// CUDA of running values along axes that blocks share: rows and columns of any length, from either end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "codegen/plan_running.h"
#include "cuda_helper.h"

namespace tbx::test {
namespace {

using namespace ir;

/// A tensor [rows, length, columns], along its middle.
struct Running {
  DType type = DType::f32;
  int64_t rows = 1, length = 1, columns = 1;
  ReduceOp op = ReduceOp::sum;
  bool exclusive = false, reverse = false, symbolic = true;
  bool computed = false; ///< of what a mask and another row make of it
};

std::shared_ptr<KernelCase> kernel_of(const Running& what) {
  auto k = std::make_shared<KernelCase>(fmt::format(
      "{}running {} of {} x {} x {} {}{}{}{}", what.exclusive ? "exclusive " : "", name_of(what.op),
      what.rows, what.length, what.columns, name_of(what.type), what.reverse ? " from the end" : "",
      what.symbolic ? "" : " of known length", what.computed ? ", computed" : ""));
  Context& c = k->c();
  const SymInt n = what.symbolic ? k->symbol("n", what.length) : SymInt(what.length);
  const SymInt r = what.reverse ? n - SymInt(1) - c.rvar(0) : c.rvar(0);
  SymInt row = 0, column = 0;
  int outer = 0;
  if (what.rows > 1) row = c.var(outer++), k->kernel.outer.push_back(what.rows);
  if (what.columns > 1) column = c.var(outer), k->kernel.outer.push_back(what.columns);
  const SymInt numel = n * (what.rows * what.columns), at = (row * n + r) * what.columns + column;
  const int x = k->buffer(what.type, numel, Access::read);
  const int scale = what.computed ? k->buffer(what.type, n, Access::read) : -1;
  const int out = k->buffer(what.type, numel, Access::write);
  // Sums and products are exact in any order.
  k->fill = [=](int, int64_t i) {
    const int64_t mixed = i * 7919 % 1000003;
    if (what.op == ReduceOp::prod) return mixed % 97 == 0 ? -1.0 : 1.0;
    const bool halves = what.type == DType::f16 || what.type == DType::bf16;
    return what.op == ReduceOp::sum && halves ? static_cast<double>(mixed % 3 - 1)
                                              : static_cast<double>(mixed % 13 - 6);
  };
  Expr value = k->load(x, at);
  if (what.computed) {
    const Expr inside = binary(Op::less, c.index(r), c.index(n - SymInt(1)));
    value = where(inside, add(value, k->load(scale, r + SymInt(1), inside)), value);
  }
  k->phase({n});
  k->scan(what.op, out, at, value, what.exclusive);
  return k;
}

void run_all(const std::vector<Running>& all, const Gpu& gpu = {}) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (const Running& what : all) {
    cases.push_back(kernel_of(what));
    EXPECT_NE(codegen::emit_cuda(cases.back()->kernel, gpu).text.find("scan_tile"), std::string::npos)
        << cases.back()->name;
  }
  run_cuda_cases(cases, gpu);
}

/// Of the tile that blocks have of such an axis.
int64_t points_of_tile(const Running& what) {
  return codegen::plan_running(kernel_of(what)->kernel, {})->points();
}

TEST(EmitCudaRunning, RowsOfAnyLength) {
  std::vector<Running> all;
  int number = 0;
  for (const DType t : {DType::f32, DType::f16}) {
    const int64_t tile = points_of_tile({t, 3});
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, tile - 1, tile, tile + 1, 3 * tile + 5})
      for (const bool reverse : {false, true})
        all.push_back({.type = t,
                       .rows = 1 + 2 * (number++ % 2),
                       .length = n,
                       .exclusive = n % 2 == 1,
                       .reverse = reverse});
  }
  run_all(all);
}

TEST(EmitCudaRunning, ColumnsOfAnyNumber) {
  std::vector<Running> all;
  for (const auto& [t, numbers] : {std::pair{DType::f32, std::vector<int64_t>{2, 5, 33, 100}},
                                   std::pair{DType::f16, std::vector<int64_t>{4, 300}},
                                   std::pair{DType::f64, std::vector<int64_t>{129}}})
    for (const int64_t columns : numbers) {
      const int64_t tile = points_of_tile({.type = t, .columns = columns});
      const bool odd = columns % 2 == 1;
      all.push_back(
          {.type = t, .length = columns < 100 ? 2 * tile + 3 : 1, .columns = columns, .exclusive = odd});
      all.push_back(
          {.type = t, .rows = 2, .length = tile + 1, .columns = columns, .exclusive = !odd, .reverse = true});
    }
  all.push_back({.length = 0, .columns = 8});
  run_all(all);
}

TEST(EmitCudaRunning, TypesAndOperations) {
  std::vector<Running> all;
  int number = 0;
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16,
                        DType::i32, DType::u32, DType::i64, DType::u64}) {
    ++number; // other operations for each type
    for (const int64_t columns : {1, 24}) {
      const auto op = std::array{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}[number++ % 4];
      const int64_t n = points_of_tile({.type = t, .columns = columns}) + 77;
      const bool odd = number % 2 == 1;
      all.push_back(
          {.type = t, .length = n, .columns = columns, .op = op, .exclusive = odd, .reverse = !odd});
    }
  }
  run_all(all);
}

/// Tiles, groups of them, and groups of those.
TEST(EmitCudaRunning, ManyTiles) {
  std::vector<Running> all;
  for (const int64_t columns : {1, 128}) {
    const Running what{.type = DType::f64, .length = 1, .columns = columns};
    const auto plan = codegen::plan_running(kernel_of(what)->kernel, {});
    const int64_t fan = plan->fan, tiles = columns > 1 ? 2 * fan + 3 : 2 * fan * fan + fan + 3;
    all.push_back({.type = columns == 1 ? DType::i64 : DType::f64,
                   .length = tiles * plan->points() - 1,
                   .columns = columns});
  }
  run_all(all);
}

TEST(EmitCudaRunning, WhatIsComputedOnTheWay) {
  std::vector<Running> all;
  for (const DType t : {DType::f32, DType::f16})
    for (const int64_t columns : {1, 3, 64})
      all.push_back({.type = t,
                     .rows = 2,
                     .length = 2 * points_of_tile({t, 1, 1, columns}) + 9,
                     .columns = columns,
                     .reverse = (columns == 3) != (t == DType::f16),
                     .computed = true});
  run_all(all);
}

TEST(EmitCudaRunning, KnownLengths) {
  Gpu gpu;
  gpu.long_scan_of_row = gpu.long_scan_of_column = 0;
  std::vector<Running> all;
  for (const int64_t n : {10007, 16384})
    for (const int64_t columns : {1, 12})
      all.push_back({.rows = columns == 1 ? 5 : 1,
                     .length = n,
                     .columns = columns,
                     .reverse = n % 2 == 1,
                     .symbolic = false});
  run_all(all, gpu);
}

TEST(EmitCudaRunning, WhoSharesAnAxis) {
  auto shares = [](const Running& what, const Gpu& gpu = {}) {
    return codegen::plan_running(kernel_of(what)->kernel, gpu).has_value();
  };
  EXPECT_TRUE(shares({.rows = 4, .length = 1 << 20, .symbolic = false}));
  EXPECT_FALSE(shares({.rows = 4, .length = 4096, .symbolic = false})) << "a block has it";
  EXPECT_FALSE(shares({.rows = 513, .length = 1 << 20, .symbolic = false})) << "a row for each block";
  EXPECT_TRUE(shares({.length = 128, .columns = 8192, .symbolic = false}));
  EXPECT_FALSE(shares({.length = 127, .columns = 8192, .symbolic = false}));
  EXPECT_FALSE(shares({.length = 128, .columns = 1 << 17, .symbolic = false})) << "columns for all threads";

  auto gathered = kernel_of({.length = 1 << 20, .symbolic = false});
  Context& c = gathered->c();
  const int index = gathered->buffer(DType::i64, 1 << 20, Access::read);
  Stmt& s = gathered->kernel.phases[0].stmts[0];
  s.value = gathered->load(0, c.indirect(gathered->load(index, c.rvar(0)), 1 << 20));
  EXPECT_FALSE(codegen::plan_running(gathered->kernel, {}).has_value())
      << "a thread whose index is wrong ends, and others would wait for it";
}

/// One tile needs no memory beside its own, and nothing is cleared for it.
TEST(EmitCudaRunning, StateIsThatOfTheTiles) {
  const auto k = kernel_of({.rows = 3, .length = 1});
  const codegen::EmittedKernel e = codegen::emit_cuda(k->kernel);
  const int64_t tile = points_of_tile({.rows = 3});
  auto bytes = [&](int64_t n) { return *evaluate(e.state_bytes, std::vector<int64_t>{n}); };
  EXPECT_EQ(bytes(0), 0);
  EXPECT_EQ(bytes(tile - 8), 0);
  EXPECT_EQ(bytes(tile + 1), (2 + 3 * (2 + 1 + 1)) * 8);
  EXPECT_TRUE(e.scratch_bytes.is(0));
}

} // namespace
} // namespace tbx::test
