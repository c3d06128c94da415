// Chains of 8 bits as tables: which are found, what the tables hold, and kernels that look up.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/byte_tables.h"
#include "kernel_helper.h"

namespace tbx::test {
namespace {

using namespace ir;

const DType kBytes[] = {DType::i8, DType::u8};

Expr dequantized(Expr byte, double scale, int64_t zero_point) {
  Context& c = *byte->context;
  Expr centred = sub(c.cast(byte, DType::i32), c.constant_int(DType::i32, zero_point));
  return mul(c.cast(centred, DType::f32), c.constant(DType::f32, scale));
}

Expr quantized(Expr x, double scale, int64_t zero_point, DType t) {
  Context& c = *x->context;
  const double low = t == DType::i8 ? -128 : 0;
  Expr places =
      add(unary(Op::round_even, div(x, c.constant(DType::f32, scale))), c.constant(DType::f32, zero_point));
  places = binary(Op::max, places, c.constant(DType::f32, low));
  return c.cast(binary(Op::min, places, c.constant(DType::f32, low + 255)), t);
}

/// Dequantise, SiLU with its gate rounded to 8 bits on the way, quantise.
Expr silu(Expr byte, DType result) {
  Expr x = dequantized(byte, 0.0625, 7);
  Expr gate = quantized(unary(Op::sigmoid, x), 0.00390625, 0, DType::u8);
  return quantized(mul(x, dequantized(gate, 0.00390625, 0)), 0.03125, 5, result);
}

double silu_of(int byte, DType result) {
  const float x = static_cast<float>(byte - 7) * 0.0625f;
  const float gate = std::fmin(std::nearbyint(256 * (1 / (1 + std::exp(-x)))), 255.0f) * 0.00390625f;
  const double low = result == DType::i8 ? -128 : 0;
  return std::fmin(std::fmax(std::nearbyint(x * gate / 0.03125f) + 5, low), low + 255);
}

TEST(ByteTables, HoldWhatTheChainGives) {
  for (DType from : kBytes)
    for (DType to : kBytes) {
      KernelCase k("chain");
      int x = k.buffer(from, 16, Access::read);
      Expr byte = k.load(x, k.c().var(0));
      auto table = codegen::byte_table(silu(byte, to));
      ASSERT_TRUE(table) << name_of(from);
      EXPECT_EQ(table->source, byte);
      for (int bits = 0; bits < 256; ++bits) {
        const int value = from == DType::i8 ? static_cast<int8_t>(bits) : bits;
        const int got = to == DType::i8 ? static_cast<int8_t>(table->values[bits]) : table->values[bits];
        EXPECT_EQ(got, silu_of(value, to)) << name_of(from) << " " << value;
      }
    }
}

TEST(ByteTables, AreFoundWhereTheyPay) {
  KernelCase k("chains");
  Context& c = k.c();
  int x = k.buffer(DType::u8, 16, Access::read), y = k.buffer(DType::u8, 16, Access::read);
  int wide = k.buffer(DType::f32, 16, Access::read);
  Expr a = k.load(x, c.var(0)), b = k.load(y, c.var(0)), f = k.load(wide, c.var(0));
  EXPECT_FALSE(codegen::byte_table(a));
  EXPECT_FALSE(codegen::byte_table(c.cast(a, DType::i8))) << "one instruction";
  EXPECT_FALSE(codegen::byte_table(quantized(unary(Op::exp, f), 0.5, 0, DType::u8))) << "no source of 8 bits";
  Expr sum = quantized(add(dequantized(a, 0.5, 1), dequantized(b, 0.25, 2)), 0.75, 3, DType::u8);
  EXPECT_FALSE(codegen::byte_table(sum)) << "two sources";
  Expr scaled =
      quantized(mul(dequantized(a, 0.5, 1), c.cast(c.index(c.var(0)), DType::f32)), 0.5, 0, DType::u8);
  EXPECT_FALSE(codegen::byte_table(scaled)) << "depends on the place";
  auto after = codegen::byte_table(silu(sum, DType::i8));
  ASSERT_TRUE(after) << "of the sum of two";
  EXPECT_EQ(after->source, sum);
}

TEST(ByteTables, AreLookedUpInKernels) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType from : kBytes)
    for (int64_t n : {0, 1, 7, 16, 33, 300}) {
      auto k = std::make_shared<KernelCase>(fmt::format("tables {} {}", name_of(from), n));
      Context& c = k->c();
      SymInt i = c.var(0);
      int x = k->buffer(from, n, Access::read), y = k->buffer(from, n, Access::read);
      int one = k->buffer(DType::u8, n, Access::write), two = k->buffer(DType::i8, n, Access::write);
      int half = k->buffer(DType::f32, n, Access::write);
      k->kernel.outer = {n};
      k->phase();
      Expr a = k->load(x, i), b = k->load(y, i);
      k->store(one, i, silu(a, DType::u8));
      Expr sum = quantized(add(dequantized(a, 0.5, 1), dequantized(b, 0.25, 2)), 0.75, 3, DType::u8);
      k->store(two, i, silu(sum, DType::i8));
      k->store(half, i, mul(c.cast(silu(b, DType::u8), DType::f32), dequantized(b, 0.5, 0)));
      k->fill = [](int b, int64_t i) { return static_cast<double>((i * 37 + b * 11) % 128); };
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(ByteTables, ServeOneElementAtATimeAndReductions) {
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (int64_t n : {1, 5, 64}) {
    auto k = std::make_shared<KernelCase>(fmt::format("rows of {}", n));
    Context& c = k->c();
    int x = k->buffer(DType::i8, 3 * n, Access::read), scale = k->buffer(DType::u8, 3, Access::read);
    int sums = k->buffer(DType::i32, 3, Access::write);
    k->kernel.outer = {3};
    k->phase({SymInt(n)});
    Expr first = c.cast(silu(k->load(scale, c.var(0)), DType::u8), DType::i32); // uniform over the row
    Expr value = c.cast(silu(k->load(x, c.var(0) * n + c.rvar(0)), DType::i8), DType::i32);
    Expr total = k->reduce(ReduceOp::sum, mul(first, value));
    k->phase();
    k->store(sums, c.var(0), total);
    k->fill = [](int b, int64_t i) { return static_cast<double>((i * 53 + b * 17) % 128); };
    cases.push_back(k);
  }
  run_cases(cases);
}

} // namespace
} // namespace tbx::test
