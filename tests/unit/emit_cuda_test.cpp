// CUDA source of all kinds of kernels, on the emulator of the fake device and on a GPU where there is one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda_helper.h"
#include "random_kernel_helper.h"

namespace tbx::test {
namespace {

using namespace ir;

/// Every operation on elements of type t, each with an output of its own.
std::shared_ptr<KernelCase> all_operations(DType t) {
  auto k = std::make_shared<KernelCase>(fmt::format("operations on {}", name_of(t)));
  Context& c = k->c();
  SymInt n = k->symbol("n", 60), i = c.var(0), j = c.var(1);
  k->kernel.outer = {n, 7};
  int x = k->buffer(t, n * 7, Access::read), y = k->buffer(t, n, Access::read);
  Expr a = k->load(x, i * 7 + j), b = k->load(y, i);
  const DType compute = a->dtype;
  k->phase();
  auto store = [&](Expr e, Expr mask = nullptr) {
    k->store(k->buffer(e->dtype == compute ? t : e->dtype, n * 7, Access::write), i * 7 + j, e, mask);
  };
  if (is_float(compute)) {
    for (int op = static_cast<int>(Op::neg); op <= static_cast<int>(Op::is_inf); ++op)
      store(unary(static_cast<Op>(op), a));
    for (Op op : {Op::div, Op::floor_mod, Op::fmod, Op::pow, Op::atan2}) store(binary(op, a, b));
    for (DType f : {DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz,
                    DType::f8e5m2fnuz, DType::f4e2m1, DType::f6e2m3, DType::f6e3m2})
      if (compute == DType::f32) store(c.round_to(a, f));
    // Math functions differ in the last bits, narrow floats may round them to neighbours.
    k->relative = t == DType::f64 ? 1e-13 : t == DType::f32 ? 2e-6 : t == DType::bf16 ? 1e-2 : 1e-3;
    k->absolute = t == DType::f64 ? 1e-13 : 1e-6;
  } else {
    for (Op op : {Op::neg, Op::abs, Op::sign, Op::bitwise_not, Op::popcount}) store(unary(op, a));
    for (Op op : {Op::div, Op::floor_mod, Op::fmod, Op::pow, Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor,
                  Op::shift_left, Op::shift_right})
      store(binary(op, a, b));
  }
  for (Op op : {Op::add, Op::sub, Op::mul, Op::min, Op::max}) store(binary(op, a, b));
  for (DType to : {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                   DType::u64, DType::f32, DType::f64, DType::boolean})
    store(c.cast(a, to));
  Expr less = binary(Op::logical_and, binary(Op::less, a, b), binary(Op::not_equal, a, b));
  store(where(less, a, b), binary(Op::less, c.index(j), c.constant_int(DType::i64, 5)));
  store(less);
  return k;
}

/// Reductions of all kinds and a chain over the same rows, which are gathered through a table.
std::shared_ptr<KernelCase> row_kernel(DType t, bool fails = false) {
  auto k = std::make_shared<KernelCase>(fmt::format("rows of {}", name_of(t)));
  Context& c = k->c();
  SymInt i = c.var(0), r = c.rvar(0), s = c.rvar(1), n = k->symbol("n", 9);
  k->kernel.outer = {n};
  int x = k->buffer(t, n * 60, Access::read), row = k->buffer(DType::f32, 60, Access::row_local);
  int index = k->buffer(DType::i64, n, Access::read), out = k->buffer(t, n * 60, Access::write);
  k->fill = [=](int b, int64_t at) {
    return b == index ? (fails && at == 5 ? 9.0 : at % 7) : at * 7 % 41 / 8.0 - 2;
  };
  k->fails = fails;
  SymInt at = c.indirect(k->load(index, i), n) * 60 + r * 6 + s;
  k->phase({10, 6});
  Expr v = k->load(x, at);
  std::vector<Expr> results;
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum, ReduceOp::argmax, ReduceOp::argmin_last})
    results.push_back(k->reduce(op, v));
  Expr any = k->reduce(ReduceOp::any, binary(Op::less, v, c.constant(DType::f32, -2)));
  Expr all = k->reduce(ReduceOp::all, binary(Op::less, v, c.constant(DType::f32, 9)));
  k->store(row, r * 6 + s, v);
  k->phase();
  for (Expr e : results) k->store(k->buffer(e->dtype == DType::i64 ? DType::i64 : t, n, Access::write), i, e);
  k->store(k->buffer(DType::boolean, n, Access::write), i, any);
  k->store(k->buffer(DType::boolean, n, Access::write), i, all);
  Expr scale = k->let(div(c.constant(DType::f32, 1), results[2]));
  k->phase({10, 6});
  k->store(out, i * 60 + r * 6 + s, mul(k->load(row, SymInt(59) - (r * 6 + s)), scale));
  k->relative = t == DType::bf16 ? 1e-2 : 1e-3;
  return k;
}

/// Softmax over rows of length m.
std::shared_ptr<KernelCase> softmax(int64_t m) {
  auto k = std::make_shared<KernelCase>(fmt::format("softmax of {}", m));
  Context& c = k->c();
  SymInt i = c.var(0), r = c.rvar(0), n = k->symbol("m", m);
  k->kernel.outer = {11};
  int x = k->buffer(DType::f32, n * 11, Access::read), out = k->buffer(DType::f32, n * 11, Access::write);
  k->fill = [](int, int64_t at) { return static_cast<double>(at * 7919 % 1009) / 100; };
  Expr v = k->load(x, i * n + r);
  k->phase({n});
  Expr most = k->reduce(ReduceOp::max, v);
  k->phase({n});
  Expr e = unary(Op::exp, sub(v, most)), sum = k->reduce(ReduceOp::sum, e);
  k->phase({n});
  k->store(out, i * n + r, div(e, sum));
  k->relative = 1e-5;
  return k;
}

/// Sums across, running sums and stores that meet: what threads of a block cannot share out.
std::vector<std::shared_ptr<KernelCase>> serial_kernels() {
  auto across = std::make_shared<KernelCase>("sum across");
  {
    SymInt i = across->c().var(0), r = across->c().rvar(0);
    across->kernel.outer = {70};
    int x = across->buffer(DType::f32, 70 * 900, Access::read),
        out = across->buffer(DType::f32, 70, Access::write);
    across->fill = [](int, int64_t at) { return static_cast<double>(at % 17); };
    across->phase({900});
    Expr sum = across->reduce(ReduceOp::sum, across->load(x, r * 70 + i));
    across->phase();
    across->store(out, i, sum);
  }
  auto scan = std::make_shared<KernelCase>("running sums");
  {
    SymInt i = scan->c().var(0), r = scan->c().rvar(0);
    scan->kernel.outer = {13};
    int x = scan->buffer(DType::i32, 13 * 40, Access::read),
        out = scan->buffer(DType::i32, 13 * 40, Access::write);
    scan->phase({40});
    scan->scan(ReduceOp::sum, out, i * 40 + r, scan->load(x, i * 40 + r), true);
  }
  auto scatter = std::make_shared<KernelCase>("scatter");
  {
    Context& c = scatter->c();
    SymInt i = c.var(0);
    scatter->kernel.outer = {50};
    scatter->kernel.sequential = true;
    int at = scatter->buffer(DType::i64, 50, Access::read), x = scatter->buffer(DType::i32, 50, Access::read);
    int out = scatter->buffer(DType::i32, 8, Access::read_write);
    scatter->fill = [](int, int64_t k) { return static_cast<double>(k * 5 % 8); };
    scatter->phase();
    scatter->store(out, c.indirect(scatter->load(at, i), 8), scatter->load(x, i), nullptr, StoreMode::add);
  }
  return {across, scan, scatter};
}

TEST(EmitCuda, IsDeterministic) {
  std::string text = codegen::emit_cuda(row_kernel(DType::f16)->kernel).text;
  EXPECT_EQ(codegen::emit_cuda(row_kernel(DType::f16)->kernel).text, text);
}

/// Softmax over rows of a fixed length, in elements of type t. One row has no outer dimension.
std::shared_ptr<KernelCase> fixed_softmax(DType t, int64_t rows, int64_t n) {
  auto k = std::make_shared<KernelCase>(fmt::format("softmax of {} rows of {} {}", rows, n, name_of(t)));
  Context& c = k->c();
  SymInt i = rows > 1 ? c.var(0) : SymInt(0), r = c.rvar(0);
  if (rows > 1) k->kernel.outer = {rows};
  int x = k->buffer(t, rows * n, Access::read), out = k->buffer(t, rows * n, Access::write);
  int place = k->buffer(DType::i64, rows, Access::write);
  k->fill = [](int, int64_t at) { return static_cast<double>(at * 7919 % 1009) / 100; };
  Expr v = k->load(x, i * n + r);
  k->phase({n});
  Expr most = k->reduce(ReduceOp::max, v), where_most = k->reduce(ReduceOp::argmax_last, v);
  k->phase({n});
  Expr e = unary(Op::exp, sub(v, most)), sum = k->reduce(ReduceOp::sum, e);
  k->phase();
  k->store(place, i, where_most);
  k->phase({n});
  k->store(out, i * n + r, div(e, sum));
  k->relative = t == DType::f32 ? 1e-5 : 1e-2;
  return k;
}

/// out[i, j, k] = x[k, j, i] + y[i, j, k] * z[j, k]: one load to be turned.
std::shared_ptr<KernelCase> turned(DType t, int64_t a, int64_t b, int64_t n) {
  auto k = std::make_shared<KernelCase>(fmt::format("turned {} x {} x {} of {}", a, b, n, name_of(t)));
  Context& c = k->c();
  SymInt i = c.var(0), j = c.var(1), m = c.var(2);
  k->kernel.outer = {a, b, n};
  int x = k->buffer(t, a * b * n, Access::read), y = k->buffer(t, a * b * n, Access::read);
  int z = k->buffer(DType::f32, b * n, Access::read), out = k->buffer(t, a * b * n, Access::write);
  k->phase();
  Expr v = k->load(x, m * (a * b) + j * a + i);
  v = add(v, mul(k->load(y, (i * b + j) * n + m), c.cast(k->load(z, j * n + m), v->dtype)));
  k->store(out, (i * b + j) * n + m, v);
  k->relative = t == DType::f32 ? 1e-6 : 1e-2;
  k->absolute = 1e-6;
  return k;
}

TEST(EmitCuda, TeamsSuitTheWork) {
  auto team = [](const std::shared_ptr<KernelCase>& k) { return codegen::emit_cuda(k->kernel).team; };
  EXPECT_EQ(team(all_operations(DType::f32)), codegen::Team::thread);
  EXPECT_EQ(team(row_kernel(DType::f32)), codegen::Team::block);
  EXPECT_EQ(team(softmax(300)), codegen::Team::block) << "few rows, of unknown length";
  EXPECT_EQ(team(fixed_softmax(DType::f32, 4096, 768)), codegen::Team::warp);
  EXPECT_EQ(team(fixed_softmax(DType::f32, 4096, 4096)), codegen::Team::block);
  EXPECT_NE(codegen::emit_cuda(turned(DType::f32, 64, 3, 64)->kernel).text.find("__shared__"),
            std::string::npos);
}

/// A kernel that starts before the one before it ends waits before it reads, and nothing tells the compiler
/// that what it reads stays as it is.
TEST(EmitCuda, FewBlocksStartBesideTheKernelBefore) {
  for (const int64_t rows : {8, 4096}) {
    const auto k = fixed_softmax(DType::f32, rows, 4096);
    const codegen::EmittedKernel emitted = codegen::emit_cuda(k->kernel);
    const bool few = rows == 8;
    EXPECT_EQ(emitted.overlaps, few);
    EXPECT_EQ(emitted.text.find("{\nBESIDE\n") != std::string::npos, few) << emitted.text;
    EXPECT_EQ(emitted.text.find("__restrict") == std::string::npos, few) << emitted.text;
  }
  // How many blocks there are comes with the run.
  const codegen::EmittedKernel unknown = codegen::emit_cuda(row_kernel(DType::f32)->kernel);
  EXPECT_TRUE(unknown.overlaps);
  EXPECT_NE(unknown.text.find("{\nBEHIND\n"), std::string::npos) << unknown.text;
  EXPECT_EQ(unknown.text.find("__restrict"), std::string::npos) << unknown.text;
}

TEST(EmitCuda, Tiles) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16})
    for (int64_t n : {16, 31, 32, 33, 100}) cases.push_back(turned(t, 48, 3, n));
  for (DType t : {DType::f32, DType::f16, DType::u8, DType::f64}) // larger tiles, whole and parts
    for (int64_t n : {65, 72}) cases.push_back(turned(t, n == 65 ? 67 : 72, 2, n));
  // Lines that begin anywhere, read, written or both: vectors inside of them.
  for (DType t : {DType::f32, DType::bf16, DType::u8, DType::f64})
    for (auto [a, n] : {std::pair{64, 129}, std::pair{131, 64}, std::pair{193, 130}})
      cases.push_back(turned(t, a, 3, n));
  for (const int64_t a : {64, 65})
    EXPECT_NE(codegen::emit_cuda(turned(DType::f32, a, 1, 129)->kernel).text.find("LANES(4)"),
              std::string::npos);
  cases.push_back(turned(DType::f32, 1, 3, 40));
  cases.push_back(turned(DType::f32, 40, 3, 1));
  run_cuda_cases(cases);
}

/// Softmax down columns with the place of the largest element.
std::shared_ptr<KernelCase> columns(DType t, int64_t rows, int64_t n) {
  auto k = std::make_shared<KernelCase>(fmt::format("columns of {} x {} {}", rows, n, name_of(t)));
  Context& c = k->c();
  SymInt j = c.var(0), r = c.rvar(0);
  k->kernel.outer = {n};
  int x = k->buffer(t, rows * n, Access::read), out = k->buffer(t, rows * n, Access::write);
  int place = k->buffer(DType::i64, n, Access::write), positive = k->buffer(DType::boolean, n, Access::write);
  k->fill = [](int, int64_t at) { return static_cast<double>(at * 7919 % 1009) / 100 - 1; };
  Expr v = k->load(x, r * n + j);
  k->phase({rows});
  Expr most = k->reduce(ReduceOp::max, v), where_most = k->reduce(ReduceOp::argmax, v);
  Expr all = k->reduce(ReduceOp::all, binary(Op::less, c.constant(DType::f32, -0.99), v));
  k->phase({rows});
  Expr e = unary(Op::exp, sub(v, most)), sum = k->reduce(ReduceOp::sum, e);
  k->phase();
  k->store(place, j, where_most);
  k->store(positive, j, all);
  k->phase({rows});
  k->store(out, r * n + j, div(e, sum));
  k->relative = t == DType::f32 ? 1e-5 : 1e-2;
  return k;
}

TEST(EmitCuda, Columns) {
  EXPECT_NE(codegen::emit_cuda(columns(DType::f32, 1000, 40)->kernel).text.find("column_team"),
            std::string::npos);
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::bf16})
    for (int64_t n : {1, 31, 32, 100}) cases.push_back(columns(t, 300, n));
  run_cuda_cases(cases);
}

TEST(EmitCuda, RowsOfWarps) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (int64_t n : {24, 33, 768}) cases.push_back(fixed_softmax(DType::f32, 2049, n));
  run_cuda_cases(cases);
}

/// y = x * s + b along rows, in elements of type t; a symbolic last dimension where `rows` is 0.
std::shared_ptr<KernelCase> affine_rows(DType t, int64_t rows, int64_t columns) {
  auto k = std::make_shared<KernelCase>(fmt::format("{} x {} of {}", rows, columns, name_of(t)));
  Context& c = k->c();
  const SymInt n = rows > 0 ? SymInt(columns) : k->symbol("n", columns), j = c.var(rows > 0 ? 1 : 0);
  if (rows > 0) k->kernel.outer.push_back(rows);
  k->kernel.outer.push_back(n);
  const SymInt size = rows > 0 ? SymInt(rows) * n : n, at = rows > 0 ? c.var(0) * n + j : j;
  int x = k->buffer(t, size, Access::read), s = k->buffer(DType::f32, n, Access::read);
  int one = k->buffer(DType::f32, 1, Access::read), out = k->buffer(t, size, Access::write);
  k->phase();
  Expr v = k->load(x, at);
  k->store(out, at, unary(Op::tanh, add(mul(v, k->load(s, j)), k->load(one, 0))));
  k->relative = t == DType::f32 ? 2e-6 : 1e-2;
  k->absolute = 1e-6;
  return k;
}

TEST(EmitCuda, VectorsWhereAddressesAllow) {
  auto lanes = [](const std::shared_ptr<KernelCase>& k) {
    const std::string text = codegen::emit_cuda(k->kernel).text;
    const size_t at = text.find("LANES(");
    return at == std::string::npos ? 1 : text[at + 6] - '0';
  };
  EXPECT_EQ(lanes(affine_rows(DType::f32, 0, 100)), 4);
  EXPECT_EQ(lanes(affine_rows(DType::f16, 0, 100)), 8);
  EXPECT_EQ(lanes(affine_rows(DType::f16, 3, 64)), 8);
  EXPECT_EQ(lanes(affine_rows(DType::f16, 3, 60)), 1) << "rows that begin at no multiple of 16 bytes";
  EXPECT_EQ(lanes(serial_kernels()[0]), 1) << "900 rows of 70";
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16, DType::bf16})
    for (int64_t n : {0, 1, 3, 4, 7, 8, 9, 33, 1000, 1001}) cases.push_back(affine_rows(t, 0, n));
  for (int64_t columns : {1, 8, 60, 64}) cases.push_back(affine_rows(DType::f16, 5, columns));
  run_cuda_cases(cases);
}

TEST(EmitCuda, RowsOfVectors) {
  EXPECT_NE(codegen::emit_cuda(fixed_softmax(DType::f16, 3, 1024)->kernel).text.find("LANES(8)"),
            std::string::npos);
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16})
    for (int64_t n : {24, 1024, 4104}) cases.push_back(fixed_softmax(t, 3, n));
  for (int64_t n : {17, 1001, 4099}) { // with a rest
    cases.push_back(fixed_softmax(DType::f32, 1, n));
    EXPECT_NE(codegen::emit_cuda(cases.back()->kernel).text.find("LANES(4)"), std::string::npos);
  }
  run_cuda_cases(cases);
}

/// Running values along rows.
std::shared_ptr<KernelCase> running(ReduceOp op, DType t, int64_t rows, int64_t n, bool exclusive) {
  auto k = std::make_shared<KernelCase>(fmt::format("running values of {} x {} {}", rows, n, name_of(t)));
  Context& c = k->c();
  SymInt i = c.var(0), r = c.rvar(0);
  k->kernel.outer = {rows};
  int x = k->buffer(t, rows * n, Access::read), out = k->buffer(t, rows * n, Access::write);
  k->fill = [](int, int64_t at) { return static_cast<double>(at * 7919 % 13) / 8 - 0.75; }; // sums are exact
  k->phase({n});
  k->scan(op, out, i * n + r, k->load(x, i * n + r), exclusive);
  return k;
}

TEST(EmitCuda, RunningValues) {
  EXPECT_EQ(codegen::emit_cuda(running(ReduceOp::sum, DType::f32, 3, 4096, false)->kernel).team,
            codegen::Team::block);
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (int64_t n : {17, 1001, 4096})
    for (bool exclusive : {false, true}) {
      cases.push_back(running(ReduceOp::sum, DType::f32, 3, n, exclusive));
      cases.push_back(running(ReduceOp::sum, DType::i64, 2, n, exclusive));
      cases.push_back(running(ReduceOp::max, DType::f16, 3, n, exclusive));
    }
  run_cuda_cases(cases);
}

TEST(EmitCuda, LimitsAreThoseOfTheGpu) {
  using codegen::Team;
  auto team = [](const std::shared_ptr<KernelCase>& k, const Gpu& gpu) {
    return codegen::emit_cuda(k->kernel, gpu).team;
  };
  auto differs = [](const std::shared_ptr<KernelCase>& k, const Gpu& gpu) {
    return codegen::emit_cuda(k->kernel, gpu).text != codegen::emit_cuda(k->kernel).text;
  };
  auto is_column = [](const std::shared_ptr<KernelCase>& k, const Gpu& gpu) {
    return codegen::emit_cuda(k->kernel, gpu).text.find("column_team") != std::string::npos;
  };
  const auto rows = fixed_softmax(DType::f32, 4096, 768);
  EXPECT_EQ(team(rows, {}), Team::warp);
  EXPECT_EQ(team(rows, {.threads = 1 << 20}), Team::block) << "a warp for each does not fill it";
  EXPECT_EQ(team(rows, {.registers = 1 << 15}), Team::block) << "a warp cannot hold a row";
  EXPECT_EQ(team(rows, {.warp_instructions = 64}), Team::block);
  EXPECT_TRUE(differs(fixed_softmax(DType::f32, 3, 1024), {.instructions = 1})) << "rows are not held";
  EXPECT_EQ(codegen::emit_cuda(fixed_softmax(DType::f32, 3, 4096)->kernel).block_threads, 1024);
  EXPECT_EQ(
      codegen::emit_cuda(fixed_softmax(DType::f32, 3, 4096)->kernel, {.block_threads = 512}).block_threads,
      512);
  EXPECT_TRUE(is_column(columns(DType::f32, 1000, 40), {}));
  EXPECT_FALSE(is_column(columns(DType::f32, 1000, 40), {.threads = 32})) << "a thread for each fills it";
  EXPECT_TRUE(differs(turned(DType::f32, 128, 3, 128), {.crowded_bytes = 16 << 10})) << "smaller tiles";
  auto sums = std::make_shared<KernelCase>("sums of columns");
  Context& c = sums->c();
  sums->kernel.outer = {40};
  const int x = sums->buffer(DType::f32, 40000, Access::read),
            y = sums->buffer(DType::f32, 40, Access::write);
  sums->phase({1000});
  Expr sum = sums->reduce(ReduceOp::sum, sums->load(x, c.rvar(0) * 40 + c.var(0)));
  sums->phase();
  sums->store(y, c.var(0), sum);
  EXPECT_FALSE(is_column(sums, {})) << "a cache holds them";
  EXPECT_TRUE(is_column(sums, {.l2_bytes = 100 << 10}));
}

TEST(EmitCuda, Operations) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u16, DType::i32,
                  DType::u64, DType::i64})
    cases.push_back(all_operations(t));
  run_cuda_cases(cases);
}

TEST(EmitCuda, Rows) {
  std::vector<std::shared_ptr<KernelCase>> cases = serial_kernels();
  for (DType t : {DType::f32, DType::f16, DType::bf16}) cases.push_back(row_kernel(t));
  cases.push_back(row_kernel(DType::f32, true));
  for (int64_t m : {1, 31, 300, 70000}) cases.push_back(softmax(m));
  run_cuda_cases(cases);
}

TEST(EmitCuda, RandomKernels) {
  // TBX_ROUNDS=n runs n times as many kernels.
  const char* rounds = std::getenv("TBX_ROUNDS");
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (uint32_t seed = 1; seed <= 40u * (rounds ? std::atoi(rounds) : 1); ++seed)
    cases.push_back(random_kernel(seed));
  run_cuda_cases(cases);
}

} // namespace
} // namespace tbx::test
