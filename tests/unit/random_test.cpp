// Random operators: distributions by their moments and by the largest distance of their distribution
// function, seeds.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "graph_helper.h"
#include "lowering/extern_run.h"
#include "lowering/reference_run.h"

namespace tbx {
namespace {

using test::run_node;
using test::tensor;
using test::values_of;

constexpr int64_t kCount = 100000;

/// Kolmogorov's distance to a distribution function; above 1.95 / sqrt(n) with probability 0.001.
double distance(std::vector<double> v, const std::function<double(double)>& cdf) {
  std::sort(v.begin(), v.end());
  double most = 0, n = static_cast<double>(v.size());
  for (size_t i = 0; i < v.size(); ++i)
    most = std::max({most, std::abs(cdf(v[i]) - static_cast<double>(i) / n),
                     std::abs(cdf(v[i]) - static_cast<double>(i + 1) / n)});
  return most;
}

std::pair<double, double> moments(const std::vector<double>& v) {
  double mean = 0, square = 0;
  for (double x : v) mean += x;
  mean /= static_cast<double>(v.size());
  for (double x : v) square += (x - mean) * (x - mean);
  return {mean, square / static_cast<double>(v.size())};
}

std::map<std::string, Attribute> shaped(float seed, std::map<std::string, Attribute> more = {}) {
  more["shape"] = std::vector<int64_t>{kCount};
  more["seed"] = seed;
  return more;
}

const double kLimit = 1.95 / std::sqrt(static_cast<double>(kCount));

TEST(Random, UniformNumbersAreUniform) {
  for (float seed : {1.f, 2.f, 77.f}) {
    auto v = values_of(run_node("RandomUniform", {}, shaped(seed, {{"low", -1.f}, {"high", 3.f}})));
    EXPECT_GE(*std::min_element(v.begin(), v.end()), -1);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 3);
    EXPECT_LT(distance(v, [](double x) { return (x + 1) / 4; }), kLimit);
    auto [mean, variance] = moments(v);
    EXPECT_NEAR(mean, 1, 0.015);
    EXPECT_NEAR(variance, 16.0 / 12, 0.02);
  }
}

TEST(Random, NormalNumbersAreNormal) {
  for (float seed : {1.f, 2.f, 77.f}) {
    auto v = values_of(run_node("RandomNormal", {}, shaped(seed, {{"mean", 2.f}, {"scale", 0.5f}})));
    EXPECT_LT(distance(v, [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::sqrt(2.0)); }), kLimit);
    auto [mean, variance] = moments(v);
    EXPECT_NEAR(mean, 2, 0.006);
    EXPECT_NEAR(variance, 0.25, 0.005);
    // Neighbours do not depend on each other.
    double together = 0;
    for (size_t i = 1; i < v.size(); ++i) together += (v[i] - mean) * (v[i - 1] - mean);
    EXPECT_NEAR(together / static_cast<double>(v.size()) / variance, 0, 0.012);
  }
}

TEST(Random, SeedsRepeatAndDiffer) {
  for (const char* op : {"RandomUniform", "RandomNormal"}) {
    auto one = values_of(run_node(op, {}, shaped(1))), again = values_of(run_node(op, {}, shaped(1))),
         two = values_of(run_node(op, {}, shaped(2)));
    EXPECT_EQ(one, again);
    EXPECT_NE(one, two);
  }
}

TEST(Random, BernoulliFollowsItsProbabilities) {
  Tensor p = Tensor::make(DType::f32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) p.as_mutable<float>()[i] = i % 2 ? 0.2f : 0.9f;
  auto v = values_of(run_node("Bernoulli", {p}, {{"seed", 3.f}}));
  double odd = 0, even = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(v[i] == 0 || v[i] == 1);
    (i % 2 ? odd : even) += v[i];
  }
  EXPECT_NEAR(odd / (kCount / 2), 0.2, 0.008);
  EXPECT_NEAR(even / (kCount / 2), 0.9, 0.006);
  EXPECT_EQ(v, values_of(run_node("Bernoulli", {p}, {{"seed", 3.f}})));
  EXPECT_NE(v, values_of(run_node("Bernoulli", {p}, {{"seed", 4.f}})));
}

TEST(Random, DropoutKeepsTheMean) {
  test::GraphHelper h;
  Tensor x = Tensor::make(DType::f32, {kCount});
  std::fill(x.as_mutable<float>().begin(), x.as_mutable<float>().end(), 2.f);
  ValueId in = h.input("x", DType::f32, {kCount});
  Tensor yes = test::booleans({}, {1});
  h.output(
      h.node("Dropout", {in, h.constant(tensor({}, {0.3f})), h.constant(yes)}, {{"seed", int64_t{5}}}, 13));
  auto v = values_of(lowering::run_program(lowering::lower_or_throw(h.graph), {x}, lowering::run_host).at(0));
  int64_t kept = std::count_if(v.begin(), v.end(), [](double e) { return e != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.7, 0.007);
  EXPECT_NEAR(moments(v).first, 2, 0.02);
  for (double e : v) ASSERT_TRUE(e == 0 || std::abs(e - 2 / 0.7) < 1e-5);
}

TEST(Random, MultinomialFollowsItsLogits) {
  Tensor logits = tensor({1, 4}, {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)});
  auto v = values_of(run_node("Multinomial", {logits}, {{"sample_size", kCount}, {"seed", 9.f}}));
  std::vector<double> share(4, 0);
  for (double e : v) share.at(static_cast<size_t>(e)) += 1.0 / kCount;
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(share[k], 0.1 * (k + 1), 0.007);
}

} // namespace
} // namespace tbx
