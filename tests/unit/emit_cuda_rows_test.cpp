// CUDA of long rows that begin anywhere: vectors inside of them, and what the shared memory of a block keeps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda_helper.h"

namespace tbx::test {
namespace {

using namespace ir;

struct Rows {
  DType in = DType::f32, out = DType::f32;
  int64_t count = 13, length = 2051;
  int64_t gap = 0;    ///< elements between two rows of the result
  bool keeps = false; ///< the schedule keeps what two phases need in a row of the block's own
};

std::string text_of(const char* what, const Rows& r) {
  return fmt::format("{} of {} rows of {} {} to {}, gap {}{}", what, r.count, r.length, name_of(r.in),
                     name_of(r.out), r.gap, r.keeps ? ", kept" : "");
}

double exactness(const Rows& r) { return r.in == DType::f32 && r.out == DType::f32 ? 1e-5 : 1e-2; }

std::shared_ptr<KernelCase> softmax_of(const Rows& rows) {
  auto k = std::make_shared<KernelCase>(text_of("softmax", rows));
  Context& c = k->c();
  const SymInt i = c.var(0), r = c.rvar(0), n = rows.length, step = rows.length + rows.gap;
  k->kernel.outer = {rows.count};
  int x = k->buffer(rows.in, rows.count * rows.length, Access::read);
  int out = k->buffer(rows.out, rows.count * (rows.length + rows.gap), Access::write);
  k->fill = [](int, int64_t at) { return static_cast<double>(at * 7919 % 1009) / 100; };
  Expr v = k->load(x, i * n + r);
  k->phase({n});
  Expr most = k->reduce(ReduceOp::max, v);
  k->phase({n});
  Expr e = unary(Op::exp, sub(v, most)), sum = k->reduce(ReduceOp::sum, e);
  if (rows.keeps) {
    int row = k->buffer(DType::f32, rows.length, Access::row_local);
    k->store(row, r, e);
    e = k->load(row, r);
  }
  k->phase({n});
  k->store(out, i * step + r, div(e, sum));
  k->relative = exactness(rows);
  k->absolute = 1e-7;
  return k;
}

/// (x + y - mean) * scale, where the scale belongs to all rows: its vectors are not where those of the rows
/// are.
std::shared_ptr<KernelCase> centred(const Rows& rows) {
  auto k = std::make_shared<KernelCase>(text_of("centred", rows));
  Context& c = k->c();
  const SymInt i = c.var(0), r = c.rvar(0), n = rows.length;
  k->kernel.outer = {rows.count};
  int x = k->buffer(rows.in, rows.count * rows.length, Access::read);
  int y = k->buffer(DType::f32, rows.count * rows.length, Access::read);
  int scale = k->buffer(DType::f32, rows.length, Access::read);
  int out = k->buffer(rows.out, rows.count * rows.length, Access::write);
  Expr v = add(k->load(x, i * n + r), k->load(y, i * n + r));
  k->phase({n});
  Expr sum = k->reduce(ReduceOp::sum, v);
  k->phase({n});
  k->store(
      out, i * n + r,
      mul(sub(v, div(sum, c.constant(DType::f32, static_cast<double>(rows.length)))), k->load(scale, r)));
  k->relative = exactness(rows);
  k->absolute = exactness(rows) / 10;
  return k;
}

TEST(EmitCudaRows, VectorsWhereRowsBeginAnywhere) {
  auto lanes = [](const std::shared_ptr<KernelCase>& k) {
    const std::string text = codegen::emit_cuda(k->kernel).text;
    const size_t at = text.find("LANES(");
    return at == std::string::npos ? 1 : text[at + 6] - '0';
  };
  EXPECT_EQ(lanes(softmax_of({})), 4);
  EXPECT_EQ(lanes(softmax_of({DType::f16, DType::f16})), 8);
  EXPECT_EQ(lanes(centred({DType::f16, DType::f32})), 8);
  EXPECT_EQ(lanes(softmax_of({DType::f32, DType::f32, 13, 2051, 4})), 4) << "the gap is a vector";
  EXPECT_EQ(lanes(softmax_of({DType::f32, DType::f32, 13, 2051, 1})), 1)
      << "vectors of x are none of the result";
  EXPECT_EQ(lanes(softmax_of({DType::f32, DType::f32, 13, 999})), 1) << "the ends of short rows cost more";
}

TEST(EmitCudaRows, SharedMemoryKeepsWhatSeveralPhasesLoad) {
  auto bytes = [](const std::shared_ptr<KernelCase>& k, int64_t most) {
    return codegen::emit_cuda(k->kernel, {.shared_bytes = most}).shared_bytes;
  };
  const Rows vocabulary{DType::f32, DType::f32, 2, 50257};
  EXPECT_EQ(bytes(softmax_of(vocabulary), 48 << 10), 0) << "no room";
  EXPECT_EQ(bytes(softmax_of(vocabulary), 227 << 10), (50260 + 8) * 4);
  EXPECT_EQ(bytes(softmax_of({DType::f16, DType::f16, 2, 50257}), 227 << 10), (50264 + 16) * 2);
  EXPECT_EQ(bytes(centred({DType::f32, DType::f32, 2, 4099}), 227 << 10), 2 * (4100 + 8) * 4)
      << "the scale is used once";
  EXPECT_EQ(bytes(centred({DType::f32, DType::f32, 2, 4099}), 24 << 10), (4100 + 8) * 4) << "room for one";
  auto threads = [](const Rows& r) {
    return codegen::emit_cuda(softmax_of(r)->kernel, {.shared_bytes = 227 << 10}).block_threads;
  };
  EXPECT_EQ(threads(vocabulary), 512) << "more wait for each other";
}

/// The row holds exp(exp(...)), which is not computed twice.
std::shared_ptr<KernelCase> dear_row(int64_t n) {
  auto k = std::make_shared<KernelCase>(fmt::format("dear rows of {}", n));
  Context& c = k->c();
  const SymInt i = c.var(0), r = c.rvar(0);
  k->kernel.outer = {5};
  int x = k->buffer(DType::f32, 5 * n, Access::read), row = k->buffer(DType::f32, n, Access::row_local);
  int out = k->buffer(DType::f32, 5 * n, Access::write);
  Expr v = k->load(x, i * n + r);
  for (int times = 0; times < 3; ++times) v = unary(Op::tanh, unary(Op::exp, v));
  k->phase({n});
  Expr sum = k->reduce(ReduceOp::sum, v);
  k->store(row, r, v);
  k->phase({n});
  k->store(out, i * n + r, div(k->load(row, r), sum));
  k->relative = 1e-5;
  return k;
}

TEST(EmitCudaRows, RowsAreComputedAgainWhereThatIsCheaperThanMemory) {
  auto scratch = [](const std::shared_ptr<KernelCase>& k) {
    return codegen::emit_cuda(k->kernel, {.shared_bytes = 227 << 10}).scratch_bytes.is(0) ? 0 : 1;
  };
  Rows rows{DType::f32, DType::f32, 2, 50257, 0, true};
  EXPECT_EQ(scratch(softmax_of(rows)), 0);
  EXPECT_EQ(codegen::emit_cuda(softmax_of(rows)->kernel, {.shared_bytes = 227 << 10}).shared_bytes,
            (50260 + 8) * 4);
  EXPECT_EQ(scratch(dear_row(50257)), 1);
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16})
    for (int64_t n : {2051, 4099, 40000, 50257}) cases.push_back(softmax_of({t, t, 3, n, 0, true}));
  cases.push_back(softmax_of({DType::f32, DType::f32, 1, 70001, 0, true}));
  cases.push_back(dear_row(2049));
  cases.push_back(dear_row(40003));
  run_cuda_cases(cases);
}

TEST(EmitCudaRows, RunAsTheEvaluatorDoes) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16, DType::bf16})
    for (int64_t n : {2048, 2049, 2051, 4095}) cases.push_back(softmax_of({t, t, 13, n}));
  cases.push_back(softmax_of({DType::f16, DType::f32, 7, 2053}));
  cases.push_back(softmax_of({DType::f32, DType::f16, 7, 2053}));
  cases.push_back(softmax_of({DType::f32, DType::f32, 7, 2051, 4}));
  cases.push_back(softmax_of({DType::f32, DType::f32, 1, 2051}));
  for (DType t : {DType::f32, DType::f16}) {
    cases.push_back(centred({t, t, 9, 2055}));
    cases.push_back(centred({t, t, 2, 40001})); // longer than registers hold
    cases.push_back(softmax_of({t, t, 2, 50257}));
  }
  cases.push_back(centred({DType::f32, DType::f32, 2, 70001})); // longer than shared memory holds
  run_cuda_cases(cases);
}

/// out[i, j] = x[j, i] * 2 + y[i, j] + z[j]: rows of x have `a` elements, those of the result `b`.
std::shared_ptr<KernelCase> turned_rows(DType t, int64_t a, int64_t b, int64_t offset = 0) {
  auto k = std::make_shared<KernelCase>(fmt::format("turned {} x {} of {} at {}", b, a, name_of(t), offset));
  Context& c = k->c();
  const SymInt i = c.var(0), j = c.var(1);
  k->kernel.outer = {a, b};
  int x = k->buffer(t, a * b + offset, Access::read), y = k->buffer(t, a * b, Access::read);
  int z = k->buffer(DType::f32, b, Access::read), out = k->buffer(t, a * b, Access::write);
  k->phase();
  Expr v = k->load(x, j * a + i + offset);
  v = add(mul(v, c.constant(v->dtype, 2)), k->load(y, i * b + j));
  k->store(out, i * b + j, add(v, c.cast(k->load(z, j), v->dtype)));
  k->relative = t == DType::f32 ? 1e-6 : 1e-2;
  k->absolute = 1e-6;
  return k;
}

TEST(EmitCudaRows, TilesOfOddSizes) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType t : {DType::f32, DType::f16, DType::u8})
    for (auto [a, b] : {std::pair{65, 67}, {64, 129}, {129, 64}, {127, 191}, {200, 77}})
      cases.push_back(turned_rows(t, a, b));
  cases.push_back(turned_rows(DType::f32, 129, 131, 3));
  cases.push_back(turned_rows(DType::f16, 130, 65, 1));
  run_cuda_cases(cases);
}

} // namespace
} // namespace tbx::test
