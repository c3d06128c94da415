// What other tests of kernels compare with: operands and references.
#include "plain_reference_helper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tbx::test {
namespace {

using namespace extern_kernels;

/// What was drawn by other cases, and by other tests, changes nothing.
TEST(RandomOperands, AreThoseOfTheirCase) {
  const Operand first = random_operand(DType::f32, {3, 50}), second = random_operand(DType::f32, {3, 50});
  EXPECT_NE(first.bytes, second.bytes);
  end_case();
  random_operand(DType::i8, {7});
  end_case();
  EXPECT_EQ(random_operand(DType::f32, {3, 50}).bytes, first.bytes);
  EXPECT_EQ(random_operand(DType::f32, {3, 50}).bytes, second.bytes);
}

TEST(RandomOperands, AreNearOneAndSmallIntegers) {
  for (DType t :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::i64}) {
    const std::vector<double> values = values_of(random_operand(t, {100, 400})); // more than one thread's
    double low = 0, high = 0, sum = 0;
    for (double v : values) low = std::min(low, v), high = std::max(high, v), sum += v;
    const double most = is_float(t) ? 1 : 9, least = t == DType::u8 ? 0 : -most;
    EXPECT_NEAR(low, least, 0.01) << name_of(t);
    EXPECT_NEAR(high, most, 0.01) << name_of(t);
    EXPECT_NEAR(sum / 40000, (most + least) / 2, 0.1) << name_of(t);
  }
}

Operand holding(Dims sizes, const std::vector<double>& values) {
  Operand t = random_operand(DType::f64, std::move(sizes));
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

/// A result of large terms that cancel has the roundings of those.
TEST(PlainReference, SizeIsThatOfTerms) {
  const Operand x = holding({1, 3}, {3, -3, 1}), w = holding({3, 1}, {5, 5, 0.5}), y = holding({1, 1}, {0}),
                bias = holding({1, 1}, {-0.5});
  MatMulProblem product;
  product.alpha = 2, product.has_bias = true;
  Reference r = reference_of(Problem(product), {x, w, bias}, y);
  EXPECT_EQ(r.values, std::vector<double>{0.5});
  EXPECT_DOUBLE_EQ(r.size, std::sqrt(4 * (2 * 225 + 0.25) + 0.25));
  product.post_ops = {{PostOp::relu}, {PostOp::mul, 0, 0, 3}, {PostOp::sub, 0, 0, 4}};
  r = reference_of(Problem(product), {x, w, bias, holding({1, 1}, {3}), holding({1, 1}, {1})}, y);
  EXPECT_EQ(r.values, std::vector<double>{0.5});
  EXPECT_DOUBLE_EQ(r.size, std::sqrt(9 * (4 * (2 * 225 + 0.25) + 0.25) + 1));
  product.post_ops = {{PostOp::sigmoid}};
  r = reference_of(Problem(product), {x, w, bias}, y);
  EXPECT_EQ(r.size, r.values[0]) << "bounded by the function";

  RowProductProblem row;
  r = reference_of(Problem(row), {x, w, bias}, y);
  EXPECT_EQ(r.values, std::vector<double>{0});
  EXPECT_DOUBLE_EQ(r.size, std::sqrt(2 * 225 + 0.25 + 0.25));
  row.work.gate = RowWork::first;
  r = reference_of(Problem(row), {x, holding({3, 2}, {5, 1, 5, 1, 0, 2})}, y);
  EXPECT_EQ(r.values, std::vector<double>{0});
  EXPECT_DOUBLE_EQ(r.size, std::sqrt(2 * 225) * 2) << "the other factor is 2";

  PackedMatMulProblem packed{3, 1, 32, 4, false};
  Operand nibbles = random_operand(DType::u8, {1, 1, 16});
  nibbles.bytes[0] = static_cast<char>(0xcc), nibbles.bytes[1] = 9; // 4, 4 and 1 above the middle
  r = reference_of(Problem(packed), {x, nibbles, holding({1}, {0.5}), {}, {}}, y);
  EXPECT_EQ(r.values, std::vector<double>{0.5});
  EXPECT_DOUBLE_EQ(r.size, std::sqrt(2 * 36 + 0.25));
}

} // namespace
} // namespace tbx::test
