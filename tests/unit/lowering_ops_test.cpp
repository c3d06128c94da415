// Operators at their edges: values that a plain formula gets wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "graph_helper.h"

namespace tbx {
namespace {

using test::ints;
using test::run_node;
using test::tensor;
using test::values_of;
using testing::DoubleNear;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor of_type(DType type, std::vector<double> values) {
  Tensor t = Tensor::make(type, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) switch (type) {
    case DType::i8: t.as_mutable<int8_t>()[i] = static_cast<int8_t>(values[i]); break;
    case DType::u8: t.as_mutable<uint8_t>()[i] = static_cast<uint8_t>(values[i]); break;
    case DType::i32: t.as_mutable<int32_t>()[i] = static_cast<int32_t>(values[i]); break;
    default: ADD_FAILURE();
    }
  return t;
}

TEST(Ops, ModFollowsTheDivisorFmodTheDividend) {
  Tensor a = ints({6}, {-4, 7, 5, 4, -7, 8}), b = ints({6}, {2, -3, 8, -2, 3, 5});
  EXPECT_THAT(values_of(run_node("Mod", {a, b})), ElementsAre(0, -2, 5, 0, 2, 3));
  EXPECT_THAT(values_of(run_node("Mod", {a, b}, {{"fmod", int64_t{1}}})), ElementsAre(0, 1, 5, 0, -1, 3));
  Tensor x = tensor({5}, {-4.5f, 4.5f, 3, -3, 1}), y = tensor({5}, {2, -2, kInf, kInf, 0});
  auto r = values_of(run_node("Mod", {x, y}, {}, 28));
  EXPECT_THAT(std::vector(r.begin(), r.end() - 1), ElementsAre(1.5, -1.5, 3, kInf));
  EXPECT_TRUE(std::isnan(r.back()));
}

TEST(Ops, IntegerDivisionNeverTraps) {
  Tensor a = ints({4}, {7, -7, 5, INT64_MIN}), b = ints({4}, {2, 2, 0, -1});
  EXPECT_THAT(values_of(run_node("Div", {a, b})), ElementsAre(3, -3, 0, static_cast<double>(INT64_MIN)));
}

TEST(Ops, PowHasTheTypeOfTheBase) {
  Tensor out = run_node("Pow", {of_type(DType::i32, {2, 3, 4}), tensor({3}, {3, 2, 0.5f})});
  EXPECT_EQ(out.dtype, DType::i32);
  EXPECT_THAT(values_of(out), ElementsAre(8, 9, 2));
}

TEST(Ops, MaxPropagatesNan) {
  auto v = values_of(run_node("Max", {tensor({2}, {kNan, 1}), tensor({2}, {1, 2})}));
  EXPECT_TRUE(std::isnan(v[0]));
  EXPECT_EQ(v[1], 2);
}

TEST(Ops, SoftplusDoesNotOverflow) {
  EXPECT_THAT(values_of(run_node("Softplus", {tensor({2}, {200, -200})})),
              ElementsAre(200, DoubleNear(0, 1e-30)));
}

TEST(Ops, ClipWithCrossedBoundsGivesTheUpper) {
  EXPECT_THAT(values_of(run_node("Clip", {tensor({2}, {-9, 9}), tensor({}, {3}), tensor({}, {1})})),
              ElementsAre(1, 1));
}

TEST(Ops, CastSaturatesFloatsAndWrapsIntegers) {
  Tensor x = tensor({4}, {300, -300, kNan, 1.9f});
  EXPECT_THAT(values_of(run_node("Cast", {x}, {{"to", int64_t{3}}})), ElementsAre(127, -128, 0, 1));
  EXPECT_THAT(values_of(run_node("Cast", {ints({2}, {200, -200})}, {{"to", int64_t{3}}})),
              ElementsAre(-56, 56));
  EXPECT_THAT(values_of(run_node("Cast", {x}, {{"to", int64_t{9}}})), ElementsAre(1, 1, 1, 1));
}

TEST(Ops, QuantizeDividesAndRoundsToEven) {
  Tensor out = run_node("QuantizeLinear", {tensor({5}, {0.5f, 1.5f, 2.5f, -1000, 1000}), tensor({}, {1})});
  EXPECT_EQ(out.dtype, DType::u8);
  EXPECT_THAT(values_of(out), ElementsAre(0, 2, 2, 0, 255));
  // 0.3 / 0.1f is just below or above 3 depending on division or multiplication by the reciprocal.
  EXPECT_THAT(values_of(run_node("QuantizeLinear", {tensor({1}, {0.25f}), tensor({}, {0.1f})})),
              ElementsAre(2));
}

TEST(Ops, LogSumExpOfExtremes) {
  Tensor x = tensor({3, 2}, {1000, 1000, -kInf, -kInf, kInf, 1});
  Tensor out =
      run_node("ReduceLogSumExp", {x}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}, 13);
  EXPECT_THAT(values_of(out), ElementsAre(DoubleNear(1000.6931, 1e-3), -kInf, kInf));
}

TEST(Ops, LongReductionsOfFewRowsAreCutIntoParts) {
  const int64_t rows = 3, length = 1 << 19;
  Tensor x = Tensor::make(DType::f32, {rows, length});
  double sums[rows] = {};
  for (int64_t i = 0; i < rows * length; ++i) {
    x.as_mutable<float>()[i] = static_cast<float>((i * 7919) % 1013) / 512 - 0.5f;
    sums[i / length] += x.as<float>()[i];
  }
  x.as_mutable<float>()[length + 12345] = 77;
  x.as_mutable<float>()[2 * length + 400000] = kNan;
  auto greatest = values_of(run_node("ReduceMax", {x}, {{"axes", std::vector<int64_t>{1}}}, 11));
  EXPECT_FLOAT_EQ(greatest[0], 1012.0f / 512 - 0.5f);
  EXPECT_EQ(greatest[1], 77);
  EXPECT_TRUE(std::isnan(greatest[2]));
  auto total = values_of(run_node("ReduceSum", {x}, {{"axes", std::vector<int64_t>{1}}}, 11));
  EXPECT_NEAR(total[0], sums[0], 1e-6 * sums[0]);
  // 2 * 3 * prime elements have no equal parts.
  Tensor odd = Tensor::make(DType::f32, {1, 1000003});
  for (float& v : odd.as_mutable<float>()) v = 1;
  EXPECT_EQ(values_of(run_node("ReduceSum", {odd}))[0], 1000003);
}

TEST(Ops, ShapesThatContradictEachOtherAreRefused) {
  auto message_of = [](const std::string& op, const std::vector<Tensor>& inputs) -> std::string {
    try {
      run_node(op, inputs);
    } catch (const Error& e) {
      return e.kind() == ErrorKind::model ? e.message() : "of another kind: " + e.message();
    }
    return "none";
  };
  Tensor data = tensor({2, 2}, {1, 2, 3, 4}), wide = tensor({2, 4}, std::vector<float>(8, 1));
  EXPECT_EQ(message_of("GatherElements", {data, ints({2, 9}, std::vector<int64_t>(18, 0))}),
            "indices of GatherElements: dimension 1 is 9, at most 2");
  EXPECT_EQ(message_of("ScatterElements", {data, ints({2, 4}, std::vector<int64_t>(8, 0)), wide}),
            "indices of ScatterElements: dimension 1 is 4, at most 2");
  EXPECT_EQ(message_of("ScatterElements", {wide, ints({2, 4}, std::vector<int64_t>(8, 0)), data}),
            "updates of ScatterElements: dimension 1 is 2, expected 4");
  EXPECT_EQ(message_of("ScatterND", {data, ints({2, 1}, {0, 1}), wide}),
            "updates of ScatterND: dimension 1 is 4, expected 2");
  EXPECT_EQ(message_of("ReverseSequence", {data, ints({3}, {1, 1, 1})}),
            "sequence_lens: dimension 0 is 3, expected 2");
}

TEST(Ops, ReductionsOfEmptySets) {
  std::map<std::string, Attribute> over_0 = {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}};
  Tensor x = tensor({0, 1}, {});
  EXPECT_THAT(values_of(run_node("ReduceProd", {x}, over_0, 13)), ElementsAre(1));
  EXPECT_THAT(values_of(run_node("ReduceMax", {x}, over_0, 13)), ElementsAre(-kInf));
  EXPECT_THAT(values_of(run_node("ReduceLogSum", {x}, over_0, 13)), ElementsAre(-kInf));
  EXPECT_TRUE(std::isnan(values_of(run_node("ReduceMean", {x}, over_0, 13)).at(0)));
}

TEST(Ops, OldSoftmaxFlattens) {
  Tensor x = tensor({1, 2, 2}, {0, 0, 0, 0});
  EXPECT_THAT(values_of(run_node("Softmax", {x}, {}, 11)), ElementsAre(0.25, 0.25, 0.25, 0.25));
  EXPECT_THAT(values_of(run_node("Softmax", {x}, {}, 13)), ElementsAre(0.5, 0.5, 0.5, 0.5));
}

TEST(Ops, OldBroadcastPlacesTheOperand) {
  Tensor a = tensor({2, 2, 2}, {0, 0, 0, 0, 0, 0, 0, 0}), b = tensor({2}, {1, 2});
  std::map<std::string, Attribute> attributes = {{"axis", int64_t{1}}, {"broadcast", int64_t{1}}};
  EXPECT_THAT(values_of(run_node("Add", {a, b}, attributes, 6)), ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
}

TEST(Ops, VarianceOfLargeMeans) {
  Tensor x = tensor({1, 4}, {1e6f, 1e6f + 1, 1e6f + 2, 1e6f + 3}), one = tensor({4}, {1, 1, 1, 1});
  Tensor y = run_node("LayerNormalization", {x, one}, {{"epsilon", 0.0f}});
  EXPECT_THAT(values_of(y), ElementsAre(DoubleNear(-1.3416408f, 1e-5f), DoubleNear(-0.4472136f, 1e-5f),
                                        DoubleNear(0.4472136f, 1e-5f), DoubleNear(1.3416408f, 1e-5f)));
}

TEST(Ops, LrnWindowsMayExceedTheChannels) {
  Tensor x = tensor({1, 3, 1}, {1, 2, 3});
  for (int64_t size : {11, 101}) {
    std::map<std::string, Attribute> attributes = {{"size", size}, {"alpha", 1.0f}, {"beta", 1.0f}};
    double all = 1 + 14.0 / static_cast<double>(size);
    EXPECT_THAT(values_of(run_node("LRN", {x}, attributes)),
                ElementsAre(DoubleNear(1 / all, 1e-6), DoubleNear(2 / all, 1e-6), DoubleNear(3 / all, 1e-6)));
  }
}

TEST(Ops, ArgMaxTiesAndNan) {
  Tensor x = tensor({1, 4}, {1, 3, 3, 0});
  std::map<std::string, Attribute> last = {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}};
  EXPECT_THAT(values_of(run_node("ArgMax", {x}, {{"axis", int64_t{1}}})), ElementsAre(1));
  EXPECT_THAT(values_of(run_node("ArgMax", {x}, last)), ElementsAre(2));
  EXPECT_THAT(values_of(run_node("ArgMin", {tensor({1, 3}, {1, kNan, 0})}, {{"axis", int64_t{1}}})),
              ElementsAre(1));
}

TEST(Ops, RandomNumbersRepeatAndSpread) {
  std::map<std::string, Attribute> shape = {{"shape", std::vector<int64_t>{1000}}, {"seed", 7.0f}};
  auto a = values_of(run_node("RandomNormal", {}, shape)), b = values_of(run_node("RandomNormal", {}, shape));
  EXPECT_EQ(a, b);
  double mean = 0, square = 0;
  for (double v : a) mean += v / 1000, square += v * v / 1000;
  EXPECT_NEAR(mean, 0, 0.15);
  EXPECT_NEAR(square, 1, 0.2);
}

} // namespace
} // namespace tbx
