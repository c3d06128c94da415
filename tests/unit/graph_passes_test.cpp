// Every graph pass: it fires on the spellings it is for, leaves near misses alone, and keeps the values.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/passes/graph_passes.h"
#include "graph/passes/passes.h"
#include "graph_helper.h"
#include "lowering/reference_run.h"

namespace tbx::test {
namespace {

int count_ops(const Graph& g, const std::string& op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op_type == op;
  return n;
}

Tensor ramp(std::vector<int64_t> dims, float from, float step) {
  Tensor t = Tensor::make(DType::f32, dims);
  for (int64_t i = 0; i < t.numel(); ++i) t.as_mutable<float>()[i] = from + step * static_cast<float>(i % 17);
  return t;
}

Tensor scalar(float v) { return tensor({}, {v}); }

/// Values of all outputs before and after a pass; the pass must do `rewrites` of them.
void expect_same_values(Graph& g, int (*pass)(Graph&), int rewrites, const std::vector<Tensor>& inputs,
                        double tolerance = 1e-5) {
  std::vector<Tensor> before = lowering::run_program(lowering::lower_or_throw(g), inputs);
  EXPECT_EQ(pass(g), rewrites);
  graph::eliminate_dead_code(g);
  verify(g);
  std::vector<Tensor> after = lowering::run_program(lowering::lower_or_throw(g), inputs);
  ASSERT_EQ(before.size(), after.size());
  for (size_t o = 0; o < before.size(); ++o) {
    ASSERT_EQ(before[o].dims, after[o].dims);
    std::vector<double> a = values_of(before[o]), b = values_of(after[o]);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::fabs(a[i]))) << i;
  }
}

TEST(GraphPasses, NoOpsAreRemoved) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {3, 5});
  ValueId a = h.node("Identity", {x});
  ValueId b = h.node("Transpose", {a}, {{"perm", std::vector<int64_t>{0, 1}}});
  h.output(h.node("Relu", {h.node("Dropout", {b})}));
  expect_same_values(h.graph, graph::eliminate_no_ops, 3, {ramp({3, 5}, -1, 0.2f)});
  EXPECT_EQ(h.graph.nodes.size(), 1u);
}

TEST(GraphPasses, ARealTransposeStays) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {3, 5});
  h.output(h.node("Relu", {h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}})}));
  EXPECT_EQ(graph::eliminate_no_ops(h.graph), 0);
}

TEST(GraphPasses, ConstantsAreFolded) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2, 3});
  ValueId w = h.node("Transpose", {h.constant(ramp({3, 2}, 0, 1))});
  ValueId negated = h.node("Neg", {w});
  for (ValueId v : {w, negated}) { // what the importer's inference finds
    h.graph.at(v).type.kind = ValueType::tensor;
    h.graph.at(v).type.dtype = DType::f32;
    h.graph.at(v).type.shape = ir::SymInts{2, 3};
  }
  h.output(h.node("Add", {x, negated}));
  expect_same_values(h.graph, graph::fold_constants, 2, {ramp({2, 3}, 0, 1)});
  EXPECT_EQ(h.graph.nodes.size(), 1u);
}

TEST(GraphPasses, EqualNodesAreComputedOnce) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {4});
  ValueId a = h.node("Exp", {x}), b = h.node("Exp", {x}), c = h.node("Sin", {x});
  h.output(h.node("Add", {h.node("Mul", {a, b}), c}));
  expect_same_values(h.graph, graph::eliminate_common_subexpressions, 1, {ramp({4}, 0, 0.3f)});
  EXPECT_EQ(count_ops(h.graph, "Exp"), 1);
}

TEST(GraphPasses, DifferentAttributesAreNotEqual) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {4});
  h.output(h.node(
      "Add", {h.node("LeakyRelu", {x}, {{"alpha", 0.1f}}), h.node("LeakyRelu", {x}, {{"alpha", 0.2f}})}));
  EXPECT_EQ(graph::eliminate_common_subexpressions(h.graph), 0);
}

TEST(GraphPasses, TransposesMerge) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2, 3, 4});
  ValueId a = h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 2, 0}}});
  h.output(h.node("Relu", {h.node("Transpose", {a}, {{"perm", std::vector<int64_t>{1, 2, 0}}})}));
  expect_same_values(h.graph, graph::merge_transposes, 1, {ramp({2, 3, 4}, -2, 0.5f)});
  EXPECT_EQ(count_ops(h.graph, "Transpose"), 1);
}

enum class GeluNesting { half_first, half_last, inside };

ValueId add_gelu(GraphHelper& h, ValueId x, GeluNesting nesting, bool divide, bool swap) {
  ValueId scaled = divide ? h.node("Div", {x, h.constant(scalar(1.41421356f))})
                          : h.node("Mul", {x, h.constant(scalar(0.70710678f))});
  ValueId one = h.constant(scalar(1)), half = h.constant(scalar(0.5f)), erf = h.node("Erf", {scaled});
  ValueId sum = swap ? h.node("Add", {one, erf}) : h.node("Add", {erf, one});
  switch (nesting) {
  case GeluNesting::half_first: return h.node("Mul", {h.node("Mul", {x, half}), sum});
  case GeluNesting::half_last: return h.node("Mul", {h.node("Mul", {x, sum}), half});
  case GeluNesting::inside: return h.node("Mul", {x, h.node("Mul", {half, sum})});
  }
  return -1;
}

TEST(GraphPasses, GeluInEverySpelling) {
  for (GeluNesting nesting : {GeluNesting::half_first, GeluNesting::half_last, GeluNesting::inside})
    for (bool divide : {false, true})
      for (bool swap : {false, true}) {
        GraphHelper h;
        ValueId x = h.input("x", DType::f32, {17});
        h.output(add_gelu(h, x, nesting, divide, swap));
        expect_same_values(h.graph, graph::fuse_gelu, 1, {ramp({17}, -3, 0.4f)});
        EXPECT_EQ(h.graph.nodes.size(), 1u);
      }
}

TEST(GraphPasses, TanhGelu) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {17});
  ValueId cube = h.node("Pow", {x, h.constant(scalar(3))});
  ValueId inner = h.node("Add", {x, h.node("Mul", {h.constant(scalar(0.044715f)), cube})});
  ValueId tanh = h.node("Tanh", {h.node("Mul", {h.constant(scalar(0.7978846f)), inner})});
  ValueId sum = h.node("Add", {tanh, h.constant(scalar(1))});
  h.output(h.node("Mul", {h.node("Mul", {h.constant(scalar(0.5f)), x}), sum}));
  expect_same_values(h.graph, graph::fuse_gelu, 1, {ramp({17}, -3, 0.4f)});
  EXPECT_EQ(count_ops(h.graph, "Gelu"), 1);
}

TEST(GraphPasses, AlmostGeluIsLeftAlone) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {17}), y = h.input("y", DType::f32, {17});
  // Another value in the error function, then another constant.
  ValueId erf = h.node("Erf", {h.node("Mul", {y, h.constant(scalar(0.70710678f))})});
  ValueId sum = h.node("Add", {erf, h.constant(scalar(1))});
  h.output(h.node("Mul", {h.node("Mul", {x, h.constant(scalar(0.5f))}), sum}));
  ValueId other = h.node("Erf", {h.node("Mul", {x, h.constant(scalar(0.8f))})});
  h.output(h.node(
      "Mul", {h.node("Mul", {x, h.constant(scalar(0.5f))}), h.node("Add", {other, h.constant(scalar(1))})}));
  EXPECT_EQ(graph::fuse_gelu(h.graph), 0);
}

TEST(GraphPasses, Swish) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {17});
  h.output(h.node("Mul", {h.node("Sigmoid", {x}), x}));
  h.output(h.node("Mul", {x, h.node("HardSigmoid", {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}})}));
  h.output(h.node("Mul", {x, h.node("HardSigmoid", {x}, {{"alpha", 0.3f}, {"beta", 0.5f}})}));
  expect_same_values(h.graph, graph::fuse_swish, 2, {ramp({17}, -4, 0.5f)});
}

ValueId add_layer_norm(GraphHelper& h, ValueId x, bool pow, ValueId scale, ValueId bias) {
  std::map<std::string, Attribute> last{{"axes", std::vector<int64_t>{-1}}};
  ValueId centred = h.node("Sub", {x, h.node("ReduceMean", {x}, last, 17)});
  ValueId square = pow ? h.node("Pow", {centred, h.constant(scalar(2))}) : h.node("Mul", {centred, centred});
  ValueId variance = h.node("ReduceMean", {square}, last, 17);
  ValueId root = h.node("Sqrt", {h.node("Add", {variance, h.constant(scalar(1e-5f))})});
  return h.node("Add", {bias, h.node("Mul", {h.node("Div", {centred, root}), scale})});
}

TEST(GraphPasses, LayerNormalization) {
  for (bool pow : {false, true}) {
    GraphHelper h;
    ValueId x = h.input("x", DType::f32, {3, 17});
    h.output(add_layer_norm(h, x, pow, h.constant(ramp({17}, 0.5f, 0.1f)), h.constant(ramp({17}, -1, 0.1f))));
    for (Node& n : h.graph.nodes) // the helper does not infer shapes; the importer does
      for (ValueId v : n.outputs) h.graph.at(v).type.dtype = DType::f32;
    expect_same_values(h.graph, graph::fuse_layer_norm, 1, {ramp({3, 17}, -2, 0.3f)}, 1e-4);
    EXPECT_EQ(h.graph.nodes.size(), 1u);
  }
}

TEST(GraphPasses, WeightsAreDequantizedByChannel) {
  GraphHelper h;
  const std::vector<int64_t> dims{37, 1, 5, 3};
  Tensor weight = Tensor::make(DType::i8, dims), scale = Tensor::make(DType::f32, {37});
  for (int64_t i = 0; i < weight.numel(); ++i)
    weight.as_mutable<int8_t>()[i] = static_cast<int8_t>(i * 29 % 251 - 125);
  for (int64_t i = 0; i < 37; ++i) scale.as_mutable<float>()[i] = 0.01f * static_cast<float>(i + 1);
  const ValueId x = h.input("x", DType::f32, {37, 1, 5, 3});
  const ValueId w =
      h.node("DequantizeLinear", {h.constant(weight), h.constant(scale)}, {{"axis", int64_t{0}}});
  h.graph.at(w).type = h.graph.at(x).type;
  h.output(h.node("Add", {x, w}));
  EXPECT_EQ(graph::dequantize_weights(h.graph), 1);
  const Tensor* found = h.graph.at(w).constant.get();
  ASSERT_TRUE(found);
  ASSERT_EQ(found->dims, dims);
  for (int64_t i = 0; i < weight.numel(); ++i)
    EXPECT_EQ(found->as<float>()[i], static_cast<float>(weight.as<int8_t>()[i]) * scale.as<float>()[i / 15]);
}

TEST(GraphPasses, BatchNormalizationFoldsIntoTheConvolution) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 2, 4, 4});
  ValueId w = h.constant(ramp({3, 2, 3, 3}, -0.5f, 0.07f)), b = h.constant(ramp({3}, 0.1f, 0.2f));
  ValueId conv = h.node("Conv", {x, w, b});
  ValueId norm =
      h.node("BatchNormalization", {conv, h.constant(ramp({3}, 0.5f, 0.3f)), h.constant(ramp({3}, -1, 0.5f)),
                                    h.constant(ramp({3}, 0.2f, 0.1f)), h.constant(ramp({3}, 1, 0.4f))});
  h.output(norm);
  EXPECT_EQ(graph::fold_batch_norm(h.graph), 1);
  graph::eliminate_dead_code(h.graph);
  verify(h.graph);
  ASSERT_EQ(h.graph.nodes.size(), 1u);
  EXPECT_EQ(h.graph.nodes[0].op_type, "Conv");
  // w' = w * scale/sqrt(var + eps), b' = (b - mean)*scale/sqrt(var + eps) + shift, for channel 1.
  double factor = 0.8 / std::sqrt(1.4 + 1e-5);
  EXPECT_NEAR(values_of(*h.graph.at(h.graph.nodes[0].inputs[1]).constant)[18], (-0.5 + 0.07 * 1) * factor,
              1e-6);
  EXPECT_NEAR(values_of(*h.graph.at(h.graph.nodes[0].inputs[2]).constant)[1], (0.3 - 0.3) * factor - 0.5,
              1e-6);
}

TEST(GraphPasses, AConvolutionWithTwoReadersKeepsItsWeights) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 1, 4, 4});
  ValueId conv = h.node("Conv", {x, h.constant(ramp({1, 1, 1, 1}, 2, 0))});
  ValueId one = h.constant(tensor({1}, {1}));
  h.output(h.node("BatchNormalization", {conv, one, one, one, one}));
  h.output(h.node("Relu", {conv}));
  EXPECT_EQ(graph::fold_batch_norm(h.graph), 0);
}

TEST(GraphPasses, PadsOfConvolutionsThatCannotBeAreLeftAlone) {
  const std::vector<int64_t> dilations{INT64_MAX, INT64_MAX}, fine{1, 1};
  for (const int64_t around : {int64_t{1}, INT64_MAX, INT64_MIN}) {
    GraphHelper h;
    const ValueId x = h.input("x", DType::f32, {1, 1, 4, 4}), w = h.input("w", DType::f32, {1, 1, 3, 3});
    const ValueId pads = h.constant(ints({8}, {0, 0, around, around, 0, 0, 0, 0}));
    const ValueId padded = h.node("Pad", {x, pads}, {}, 13);
    h.output(h.node("Conv", {padded, w}, {{"dilations", dilations}}, 13));
    EXPECT_EQ(graph::fold_pads(h.graph), 0) << around;
    h.output(h.node("Conv", {padded, w}, {{"dilations", fine}}, 13));
    EXPECT_EQ(graph::fold_pads(h.graph), around == 1) << around;
  }
}

TEST(GraphPasses, UnknownNamesAreErrors) {
  GraphHelper h;
  h.output(h.node("Relu", {h.input("x", DType::f32, {1})}));
  std::vector<std::string> disabled{"fuse_everything"};
  EXPECT_THROW(graph::run_graph_passes(h.graph, disabled), Error);
}

/// One convolution of bytes between DequantizeLinear; whether the pass makes it a product of integers.
bool multiplies_bytes(int64_t results, int64_t depth, int64_t group, int64_t kernel, int64_t least_group) {
  GraphHelper h;
  const ValueId scale = h.constant(scalar(0.5f)), zero = h.constant(Tensor::make(DType::u8, {}));
  const ValueId x =
      h.node("DequantizeLinear", {h.input("x", DType::u8, {1, depth * group, 9, 9}), scale, zero});
  const std::vector<int64_t> sizes{results, depth, kernel, kernel};
  const ValueId weights = h.constant(Tensor::make(DType::i8, sizes)),
                w = h.node("DequantizeLinear", {weights, scale});
  h.graph.at(weights).type.dtype = DType::i8;
  h.graph.at(weights).type.shape = ir::SymInts(sizes.begin(), sizes.end());
  h.output(h.node("Conv", {x, w}, {{"group", group}}));
  for (ValueId v : {x, w, h.graph.outputs[0]}) h.graph.at(v).type.dtype = DType::f32;
  Target target;
  target.byte_group = least_group;
  return graph::multiply_integers(h.graph, {target, DType::undefined}) > 0;
}

TEST(GraphPasses, SmallConvolutionsOfBytesStayFloatsWhereTheyLeaveVectorsEmpty) {
  EXPECT_TRUE(multiplies_bytes(8, 8, 1, 1, 8));
  EXPECT_FALSE(multiplies_bytes(7, 8, 1, 1, 8)); // results
  EXPECT_FALSE(multiplies_bytes(8, 7, 1, 1, 8)); // terms
  EXPECT_TRUE(multiplies_bytes(16, 1, 2, 3, 8));
  EXPECT_FALSE(multiplies_bytes(15 * 2, 1, 5, 3, 8));
  EXPECT_TRUE(multiplies_bytes(4, 1, 4, 1, 1)); // depthwise
  EXPECT_FALSE(multiplies_bytes(8, 8, 1, 1, 0));
}

} // namespace
} // namespace tbx::test
