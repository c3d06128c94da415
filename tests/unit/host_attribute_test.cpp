// Calls of host kernels whose attributes a damaged file has spoilt: an Error that says so.
#include "extern_kernels/host_attribute.h"

#include <gmock/gmock.h>

#include "extern_kernels/kernel.h"
#include "graph_helper.h"

namespace tbx::extern_kernels {
namespace {

using test::error_of;
using testing::HasSubstr;
using Reals = std::vector<double>;

TEST(HostAttribute, IsThereAndOfItsType) {
  const HostProblem p{"", "DFT", 17, {{"inverse", int64_t{1}}}, {}, {}};
  EXPECT_EQ(attribute<int64_t>(p, "inverse"), 1);
  EXPECT_THAT(error_of([&] { attribute<double>(p, "inverse"); }), HasSubstr("the package is damaged"));
  EXPECT_THAT(error_of([&] { attribute<int64_t>(p, "onesided"); }),
              HasSubstr("a call of DFT does not say its onesided"));
}

/// The sizes of its operands are in the file as well.
TEST(HostAttribute, TransformsReadNoMoreThanTheirInput) {
  const HostProblem p{"", "DFT", 17, {{"inverse", int64_t{0}}, {"onesided", int64_t{0}}}, {DType::f32}, {}};
  std::vector<float> x(8), y(16);
  int64_t length = 8;
  const std::vector<int64_t> xs{1, 8, 1}, x_steps{8, 1, 1}, ls{1}, l_steps{1};
  const OperandInfo info{DType::f32, {}, {}, nullptr}, number{DType::i64, {}, {}, nullptr};
  const Selection dft = select(p, std::vector{info, number}, std::vector{info});
  auto run = [&](std::vector<int64_t> ys) {
    const std::vector<int64_t> y_steps{ys[1] * ys[2], ys[2], 1};
    const TensorRef in[] = {{x.data(), DType::f32, xs, x_steps}, {&length, DType::i64, ls, l_steps}};
    const TensorRef out[] = {{y.data(), DType::f32, ys, y_steps}};
    RunArgs args;
    args.inputs = in;
    args.outputs = out;
    dft.kernel->run(args);
  };
  EXPECT_NO_THROW(run({1, 8, 2}));
  EXPECT_THAT(error_of([&] { run({2, 4, 2}); }), HasSubstr("the package is damaged"));
  EXPECT_THAT(error_of([&] { run({2, 8, 1}); }), HasSubstr("the package is damaged"));
  length = 16;
  EXPECT_THAT(error_of([&] { run({1, 8, 2}); }), HasSubstr("the package is damaged"));
}

/// TfIdfVectorizer of the pool {3, 5 | 7 9} whose grams count for the columns 0, 1 and 2.
HostProblem tf_idf(std::vector<int64_t> counts, std::vector<int64_t> columns, int64_t shortest = 1) {
  return {"",
          "TfIdfVectorizer",
          9,
          {{"mode", std::string("TFIDF")},
           {"weights", Reals{1, 2, 3}},
           {"pool_int64s", std::vector<int64_t>{3, 5, 7, 9}},
           {"ngram_counts", std::move(counts)},
           {"ngram_indexes", std::move(columns)},
           {"min_gram_length", shortest},
           {"max_gram_length", int64_t{2}},
           {"max_skip_count", int64_t{0}}},
          {DType::f32},
          {}};
}

TEST(HostAttribute, GramsLieInTheirPoolAndCountForColumnsThatThereAre) {
  const OperandInfo tokens{DType::i64, {}, {}, nullptr}, real{DType::f32, {}, {}, nullptr};
  auto counted = [&](const HostProblem& p, int64_t width) {
    const Selection s = select(p, std::vector{tokens}, std::vector{real});
    std::vector<int64_t> x{7, 9, 5, 5};
    std::vector<float> y(4, -1);
    const std::vector<int64_t> xs{4}, ys{width}, step{1};
    const TensorRef in[] = {{x.data(), DType::i64, xs, step}}, out[] = {{y.data(), DType::f32, ys, step}};
    RunArgs args;
    args.inputs = in;
    args.outputs = out;
    s.kernel->run(args);
    return y;
  };
  EXPECT_THAT(counted(tf_idf({0, 2}, {0, 1, 2}), 3), testing::ElementsAre(0, 4, 3, -1)); // 5 twice, 7 9 once
  const HostProblem damaged[] = {tf_idf({0, 5}, {0, 1, 2}),       tf_idf({-1, 2}, {0, 1, 2}),
                                 tf_idf({3, 2}, {0, 1, 2}),       tf_idf({0, 2}, {0, 1}),
                                 tf_idf({0, 2}, {0, 1, 1 << 30}), tf_idf({0, 2}, {0, -1, 2}),
                                 tf_idf({0, 2}, {0, 1, 2}, -5)};
  for (const HostProblem& p : damaged)
    EXPECT_THAT(error_of([&] { counted(p, 3); }), HasSubstr("the package is damaged"));
  EXPECT_THAT(error_of([&] { counted(tf_idf({0, 2}, {0, 1, 2}), 2); }), HasSubstr("the package is damaged"));
  EXPECT_THAT(error_of([&] { counted(tf_idf({0, 2}, {0, 1, 2}), 4); }), HasSubstr("the package is damaged"));
}

template <class T> std::shared_ptr<const Tensor> values(DType type, std::vector<T> v) {
  Tensor t = Tensor::make(type, {static_cast<int64_t>(v.size())});
  std::copy(v.begin(), v.end(), t.as_mutable<T>().begin());
  return std::make_shared<const Tensor>(std::move(t));
}
std::shared_ptr<const Tensor> ints(std::vector<int32_t> v) { return values(DType::i32, std::move(v)); }
std::shared_ptr<const Tensor> floats(std::vector<float> v) { return values(DType::f32, std::move(v)); }

std::string made_of(const HostProblem& p, const std::map<std::string, Attribute>& spoilt) {
  HostProblem copy = p;
  for (const auto& [name, value] : spoilt) copy.attributes[name] = value;
  const OperandInfo real{DType::f32, {-1, -1}, {}, nullptr};
  return error_of([&] { select(copy, std::vector{real}, std::vector{real}); });
}

/// One tree: 3 for a first feature of at most 0.5, else 7.
TEST(HostAttribute, TreesLeadToLeaves) {
  const HostProblem p{"ai.onnx.ml",
                      "TreeEnsembleRegressor",
                      3,
                      {{"feature", ints({0, 0, 0})},
                       {"mask", ints({3, 0, 0})},
                       {"yes", ints({1, 1, 2})},
                       {"no", ints({2, 1, 2})},
                       {"split", floats({0.5f, 0, 0})},
                       {"roots", ints({0})},
                       {"leaf_begin", ints({0, 0, 1, 2})},
                       {"leaf_target", ints({0, 0})},
                       {"leaf_weight", floats({3, 7})},
                       {"base", floats({})},
                       {"targets", int64_t{1}},
                       {"aggregate", int64_t{1}},
                       {"transform", int64_t{0}},
                       {"classes", int64_t{0}},
                       {"one_sided", int64_t{0}},
                       {"positive", int64_t{0}}},
                      {DType::f32},
                      {}};
  EXPECT_EQ(made_of(p, {}), "no error");
  const std::map<std::string, Attribute> spoilt[] = {{{"feature", ints({0, 0})}},
                                                     {{"feature", ints({-1, 0, 0})}},
                                                     {{"feature", ints({0, 0, 5})}},
                                                     {{"feature", floats({0, 0, 0})}},
                                                     {{"yes", ints({3, 1, 2})}},
                                                     {{"no", ints({-1, 1, 2})}},
                                                     {{"no", ints({2, 2, 2})}},
                                                     {{"roots", ints({3})}},
                                                     {{"leaf_begin", ints({0, 0, 1})}},
                                                     {{"leaf_begin", ints({0, 0, 1, 3})}},
                                                     {{"leaf_begin", ints({0, 2, 1, 2})}},
                                                     {{"leaf_target", ints({0})}},
                                                     {{"leaf_target", ints({0, 1})}},
                                                     {{"targets", int64_t{0}}},
                                                     {{"classes", int64_t{2}}},
                                                     {{"one_sided", int64_t{1}}},
                                                     {{"split", std::shared_ptr<const Tensor>()}}};
  for (size_t i = 0; i < std::size(spoilt); ++i)
    EXPECT_THAT(made_of(p, spoilt[i]), HasSubstr("the package is damaged")) << i;
  // Two inner nodes that lead to each other.
  EXPECT_THAT(made_of(p, {{"yes", ints({1, 0, 2})}, {"no", ints({2, 2, 2})}}), HasSubstr("a cycle"));
}

/// Two classes of one feature with a support vector each.
TEST(HostAttribute, MachinesHaveTheVectorsThatTheyName) {
  const HostProblem p{"ai.onnx.ml",
                      "SVMClassifier",
                      1,
                      {{"coefficients", floats({1, -1})},
                       {"support_vectors", floats({2, 3})},
                       {"rho", floats({0.5f})},
                       {"kernel_params", floats({})},
                       {"kernel", int64_t{0}},
                       {"vectors", int64_t{2}},
                       {"features", int64_t{1}},
                       {"transform", int64_t{0}},
                       {"prob_a", floats({})},
                       {"prob_b", floats({})},
                       {"vectors_per_class", std::vector<int64_t>{1, 1}},
                       {"classes", int64_t{2}}},
                      {DType::i64, DType::f32},
                      {}};
  EXPECT_EQ(made_of(p, {}), "no error");
  const std::map<std::string, Attribute> spoilt[] = {{{"coefficients", floats({1})}},
                                                     {{"support_vectors", floats({2})}},
                                                     {{"rho", floats({})}},
                                                     {{"vectors", int64_t{1} << 40}},
                                                     {{"features", int64_t{2}}},
                                                     {{"features", int64_t{-1}}},
                                                     {{"prob_a", floats({1})}},
                                                     {{"vectors_per_class", std::vector<int64_t>{1, 2}}},
                                                     {{"classes", int64_t{3}}},
                                                     {{"vectors_per_class", std::vector<int64_t>{-1, 1}}},
                                                     {{"rho", ints({1})}},
                                                     {{"vectors_per_class", std::vector<int64_t>{2}}},
                                                     {{"coefficients", std::shared_ptr<const Tensor>()}}};
  for (size_t i = 0; i < std::size(spoilt); ++i)
    EXPECT_THAT(made_of(p, spoilt[i]), HasSubstr("the package is damaged")) << i;
}

} // namespace
} // namespace tbx::extern_kernels
