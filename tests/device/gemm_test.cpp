// What a product of cuBLASLt is known by: no GPU and no library is needed.
#include "extern_kernels/cuda/gemm.h"

#include <gtest/gtest.h>

#include <set>

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;

/// Two products that differ in one field have answers of their own. A new field does not compile until it is
/// here.
TEST(GemmFields, TellProductsApart) {
  Gemm g;
  std::set<std::string> texts{text_of(g)};
  size_t changed = 0;
  const auto differs = [&](auto& field, auto value) {
    const auto before = field;
    field = value;
    EXPECT_NE(g, Gemm()) << "field " << changed;
    EXPECT_TRUE(g < Gemm() || Gemm() < g) << "field " << changed;
    texts.insert(text_of(g));
    field = before;
    ++changed;
  };
  auto& [type, result, tf32, a_columns, b_columns, bias, residual, activation, m, n, k, batch, a_step, b_step,
         c_step, residual_step, a_batch, b_batch, c_batch, residual_batch, align_a, align_b, align_c] = g;
  for (int* field : {&type, &result, &align_a, &align_b, &align_c}) differs(*field, 7);
  for (bool* field : {&tf32, &a_columns, &b_columns, &bias, &residual}) differs(*field, true);
  differs(activation, Activation::gelu);
  for (int64_t* field : {&m, &n, &k, &batch, &a_step, &b_step, &c_step, &residual_step, &a_batch, &b_batch,
                         &c_batch, &residual_batch})
    differs(*field, 7);
  EXPECT_EQ(g, Gemm());
  EXPECT_EQ(changed, std::tuple_size_v<decltype(g.fields())>);
  EXPECT_EQ(texts.size(), changed + 1);
}

} // namespace
} // namespace tbx::test
