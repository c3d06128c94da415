// Indices in data that are out of range: the error names the node whose index it is, also where many nodes
// are one kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/onnx_text.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// One kernel: both Gathers, and what comes before and after.
const char* kTwoGathers = R"(g (float[8,n] x, int64[4] i, int64[3] j) => (float[4,3] y) {
  [before] a = Neg(x)
  [rows] b = Gather<axis=0>(a, i)
  [columns] c = Gather<axis=1>(b, j)
  [after] y = Exp(c)
})";

struct Case {
  std::vector<int64_t> rows, columns;
  const char *named, *other, *cause; ///< cause: of the evaluator, which knows the index
};

class IndexError : public ::testing::TestWithParam<bool> {};

TEST_P(IndexError, NamesTheNodeWhoseIndexIsOutOfRange) {
  CompileOptions options;
  options.compile = GetParam();
  std::string bytes = to_bytes(parse_graph(kTwoGathers));
  Session session = Session::compile(std::as_bytes(std::span(bytes)), options).value();
  std::vector<float> x(8 * 5, 1.0f);
  auto run = [&](std::vector<int64_t> i, std::vector<int64_t> j) {
    return session.run(
        {{"x", TensorView::of(x, {8, 5})}, {"i", TensorView::of(i, {4})}, {"j", TensorView::of(j, {3})}});
  };
  EXPECT_TRUE(run({0, 7, -8, -1}, {4, 0, -5}).ok());
  for (const Case& c :
       {Case{{0, 1, 8, 3}, {0, 1, 2}, "'rows' (Gather", "'columns'", "index 8 is outside an axis of size 8"},
        Case{
            {0, 1, 2, -9}, {0, 1, 2}, "'rows' (Gather", "'columns'", "index -9 is outside an axis of size 8"},
        Case{{0, 1, 2, 3},
             {0, 5, 2},
             "'columns' (Gather",
             "'rows'",
             "index 5 is outside an axis of size 5"}}) {
    auto result = run(c.rows, c.columns);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, Failure::model_error);
    EXPECT_THAT(result.error().message, AllOf(HasSubstr(c.named), Not(HasSubstr(c.other)),
                                              Not(HasSubstr("'before'")), Not(HasSubstr("'after'"))));
    EXPECT_THAT(result.error().message, HasSubstr(c.cause));
  }
  EXPECT_TRUE(run({0, 7, -8, -1}, {4, 0, -5}).ok()); // the session stays usable
}

INSTANTIATE_TEST_SUITE_P(CompiledAndEvaluated, IndexError, ::testing::Bool());

} // namespace
} // namespace tbx::test
