// Lowering as a whole: known values, realize policy, outputs, origins, errors.
#include "lowering/lower.h"

#include <gmock/gmock.h>

#include "../support/onnx_text.h"
#include "base/error.h"
#include "graph_helper.h"
#include "lowering/op_registry.h"
#include "lowering/reference_run.h"

namespace tbx {
namespace {

using lowering::Demand;
using lowering::lower_or_throw;
using lowering::run_program;
using test::GraphHelper;
using test::ints;
using test::tensor;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

Demand demand_of(const Graph& graph, const lowering::LowerOptions& options = {}) {
  lowering::Lowered lowered = lowering::lower(graph, options);
  EXPECT_TRUE(std::holds_alternative<Demand>(lowered));
  return std::get<Demand>(std::move(lowered));
}

TEST(Lowering, ShapeComputationLeavesOneOperation) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), h.symbol("seq"), 64});
  ValueId shape = h.node("Shape", {x});
  ValueId seq = h.node("Gather", {shape, h.constant(ints({}, {1}))}, {{"axis", int64_t{0}}});
  ValueId doubled = h.node("Mul", {seq, h.constant(ints({}, {2}))});
  ValueId less = h.node("Sub", {doubled, h.constant(ints({}, {1}))});
  h.output(h.node("Range", {h.constant(ints({}, {0})), less, h.constant(ints({}, {1}))}));
  ir::Program p = lower_or_throw(h.graph);
  EXPECT_EQ(p.operations.size(), 1u);
  EXPECT_EQ(to_string(p.at(p.outputs[0].buffer).sizes[0]), to_string(ir::max(h.symbol("seq") * 2 - 1, 0)));
  Tensor out = run_program(p, {tensor({1, 2, 64}, std::vector<float>(128))}).at(0);
  EXPECT_THAT(values_of(out), ElementsAre(0, 1, 2));
}

TEST(Lowering, FloatDetourOfASizeLeavesNothingWhereItStaysExact) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.graph.context->symbol("n", 0, 1 << 24)});
  ValueId n = h.node("Squeeze", {h.node("Shape", {x}), h.constant(ints({1}, {0}))});
  ValueId f = h.node("Cast", {n}, {{"to", int64_t{1}}});
  ValueId half = h.node("Mul", {f, h.constant(tensor({}, {0.5f}))});
  ValueId floor = h.node("Floor", {half});
  ValueId back = h.node("Cast", {floor}, {{"to", int64_t{7}}});
  h.output(h.node("Range", {h.constant(ints({}, {0})), back, h.constant(ints({}, {1}))}));
  ir::Program p = lower_or_throw(h.graph);
  EXPECT_EQ(p.operations.size(), 1u);
  EXPECT_EQ(run_program(p, {tensor({7}, std::vector<float>(7))}).at(0).dims, std::vector<int64_t>{3});
}

TEST(Lowering, FloatDetourOfAnUnboundedSizeIsAnAssumption) {
  GraphHelper h;
  ValueId f =
      h.node("Cast", {h.node("Shape", {h.input("x", DType::f32, {h.symbol("n")})})}, {{"to", int64_t{1}}});
  ValueId third = h.node("Floor", {h.node("Div", {f, h.constant(tensor({}, {3}))})});
  h.output(h.node("Expand", {h.constant(tensor({}, {1})), h.node("Cast", {third}, {{"to", int64_t{7}}})}));
  lowering::LowerOptions options;
  options.assume_exact_floats = true;
  ir::Program p = lower_or_throw(h.graph, options);
  ASSERT_EQ(p.checks.size(), 1u);
  EXPECT_TRUE(p.checks[0].assumption);
  EXPECT_EQ(p.checks[0].value, ir::SymInt(1 << 24) - h.symbol("n"));
  EXPECT_EQ(run_program(p, {tensor({8}, std::vector<float>(8))}).at(0).dims, std::vector<int64_t>{2});
  EXPECT_EQ(demand_of(h.graph).kind, Demand::Kind::shapes);
}

TEST(Lowering, RoundedQuotientsAreNotReckonedWith) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.graph.context->symbol("n", 0, 100)});
  ValueId f = h.node("Cast", {h.node("Shape", {x})}, {{"to", int64_t{1}}});
  ValueId part = h.node("Div", {f, h.constant(tensor({}, {3}))});
  ValueId again = h.node("Floor", {h.node("Mul", {part, h.constant(tensor({}, {3}))})});
  h.output(h.node("Expand", {h.constant(tensor({}, {1})), h.node("Cast", {again}, {{"to", int64_t{7}}})}));
  EXPECT_EQ(demand_of(h.graph).kind, Demand::Kind::shapes);
}

TEST(Lowering, CheapSharedValueIsInlinedExpensiveOneRealized) {
  for (const char* op : {"Neg", "Exp"}) {
    GraphHelper h;
    ValueId x = h.input("x", DType::f32, {8});
    ValueId shared = h.node(op, {x});
    h.output(h.node("Add", {shared, x}));
    h.output(h.node("Mul", {shared, x}));
    EXPECT_EQ(lower_or_throw(h.graph).operations.size(), op == std::string("Neg") ? 2u : 3u) << op;
  }
}

TEST(Lowering, DiamondChainStaysLinear) {
  GraphHelper h;
  ValueId v = h.input("x", DType::f32, {4});
  for (int i = 0; i < 400; ++i) v = h.node("Add", {v, h.node("Neg", {v})});
  h.output(v);
  ir::Program p = lower_or_throw(h.graph);
  EXPECT_LT(p.operations.size(), 20u);
  EXPECT_GT(p.operations.size(), 2u);
}

TEST(Lowering, OutputsHaveBuffersOfTheirOwn) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  ValueId y = h.node("Neg", {x});
  h.output(x);
  h.output(y);
  h.output(y);
  h.output(h.constant(tensor({2}, {5, 6})));
  ir::Program p = lower_or_throw(h.graph);
  std::set<ir::BufferId> seen;
  for (const ir::ProgramOutput& o : p.outputs) EXPECT_TRUE(seen.insert(o.buffer).second);
  for (const ir::ProgramInput& i : p.inputs) EXPECT_FALSE(seen.count(i.buffer));
  auto out = run_program(p, {tensor({2}, {1, 2})});
  EXPECT_THAT(values_of(out[0]), ElementsAre(1, 2));
  EXPECT_THAT(values_of(out[1]), ElementsAre(-1, -2));
  EXPECT_THAT(values_of(out[2]), ElementsAre(-1, -2));
  EXPECT_THAT(values_of(out[3]), ElementsAre(5, 6));
}

TEST(Lowering, DeadNodesAreNotLowered) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  h.node("NoSuchOperator", {x});
  h.output(h.node("Neg", {x}));
  EXPECT_EQ(lower_or_throw(h.graph).operations.size(), 1u);
}

TEST(Lowering, ErrorsNameTheNode) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  h.output(h.node("NoSuchOperator", {x}));
  try {
    lower_or_throw(h.graph);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_THAT(e.what(), HasSubstr("node 'NoSuchOperator0' (NoSuchOperator, opset 20)"));
  }
}

/// ONNX's schemas say which types an operator takes; others meet in the lowering.
TEST(Lowering, TypesThatDoNotMeetNameTheNode) {
  const Graph g = test::import_proto(test::parse_text(
      "<ir_version: 10, opset_import: [\"\": 18, \"com.microsoft\": 1]>\n"
      "g (float[2, 3] x, double[3] b) => (y) { [apart] y = com.microsoft.BiasGelu (x, b) }"));
  lowering::LowerOptions options;
  options.assume_broadcast = true;
  const Demand demand = demand_of(g, options);
  EXPECT_EQ(demand.kind, Demand::Kind::assumptions);
  for (const std::string& text :
       {std::string(demand.reason.what()), test::error_of([&] { lower_or_throw(g); })})
    EXPECT_THAT(text, testing::MatchesRegex(
                          "ModelError: node 'apart' .com.microsoft.BiasGelu, opset 1.: the operator "
                          "does not take inputs of types float32, float64: operands of types .*"));
}

TEST(Lowering, UnknownAxesNameTheGraphInput) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2, 3});
  ValueId axes = h.input("axes", DType::i64, {1});
  h.output(h.node("ReduceSum", {x, h.node("Neg", {axes})}, {{"keepdims", int64_t{0}}}));
  lowering::LowerOptions options;
  const Demand demand = demand_of(h.graph);
  EXPECT_EQ(demand.kind, Demand::Kind::elements);
  EXPECT_EQ(demand.node, 1);
  EXPECT_THAT(demand.values, ElementsAre(h.graph.nodes[1].inputs[1]));
  EXPECT_THAT(demand.inputs, ElementsAre("axes"));
  options.known_inputs["axes"] = std::make_shared<Tensor>(ints({1}, {-1}));
  auto out =
      run_program(lower_or_throw(h.graph, options), {tensor({2, 3}, {1, 2, 3, 4, 5, 6}), ints({1}, {-1})});
  EXPECT_THAT(values_of(out[0]), ElementsAre(6, 15));
}

/// What a node of a body asks for is told in terms of the outermost graph.
TEST(Lowering, ABodyAsksInTermsOfItsNode) {
  auto graph = [](const std::string& axes) {
    return test::import_text(
        "g (float[2] x, int64[1] a, float[n] w) => (float[] y) { t = Constant<value = bool {1}>() "
        "y = If(t) <then_branch = b () => (float[] z) { u = Exp(x) v = Neg(u) k = " +
        axes + " z = ReduceSum(v, k) }, else_branch = e () => (float[] z) { z = Neg(x) }> }");
  };
  const Graph elements = graph("Neg(a)");
  const Demand demand = demand_of(elements);
  EXPECT_EQ(demand.kind, Demand::Kind::elements);
  ASSERT_EQ(demand.node, static_cast<int>(elements.nodes.size()) - 1);
  EXPECT_EQ(elements.nodes[static_cast<size_t>(demand.node)].op_type, "If");
  EXPECT_THAT(demand.inputs, ElementsAre("a"));
  EXPECT_THAT(demand.reason.where(), HasSubstr("ReduceSum"));
  EXPECT_THAT(demand.reason.where(), HasSubstr(", in node"));

  const Graph sizes = graph("Shape(w)");
  const Demand of_sizes = demand_of(sizes);
  EXPECT_EQ(of_sizes.kind, Demand::Kind::shapes);
  EXPECT_EQ(of_sizes.node, static_cast<int>(sizes.nodes.size()) - 1);
  EXPECT_THAT(of_sizes.inputs, ElementsAre());
}

TEST(Lowering, ANodeOnValuesDemandsASplit) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  h.output(h.node("NoSuchOperator", {h.node("Neg", {x})}));
  const Demand demand = demand_of(h.graph);
  EXPECT_EQ(demand.kind, Demand::Kind::split);
  EXPECT_EQ(demand.node, 1);
  EXPECT_THAT(demand.reason.what(), HasSubstr("node 'NoSuchOperator1'"));
}

TEST(Lowering, WhatOnlyTheAssumptionsContradictDemandsFewer) {
  GraphHelper h;
  // Were no dimension 1, NonZero would give pairs, and the second Squeeze had nothing to squeeze.
  ValueId x = h.input("x", DType::boolean, {h.symbol("n"), h.symbol("m")});
  ValueId found = h.node("NonZero", {h.node("Squeeze", {x}, {}, 12)}, {}, 12);
  h.output(
      h.node("Squeeze", {h.node("Transpose", {found}, {}, 12)}, {{"axes", std::vector<int64_t>{1}}}, 12));
  lowering::LowerOptions options;
  options.assume_broadcast = true;
  const Demand demand = demand_of(h.graph, options);
  EXPECT_EQ(demand.kind, Demand::Kind::assumptions);
  EXPECT_EQ(demand.reason.kind(), ErrorKind::model);
  EXPECT_EQ(demand_of(h.graph).kind, Demand::Kind::shapes);
}

TEST(Lowering, AssumedBroadcastKeepsPlainSizes) {
  GraphHelper h;
  ValueId a = h.input("a", DType::f32, {h.symbol("n")}), b = h.input("b", DType::f32, {h.symbol("m")});
  h.output(h.node("Add", {a, b}));
  lowering::LowerOptions options;
  options.assume_broadcast = true;
  ir::Program assumed = lower_or_throw(h.graph, options), general = lower_or_throw(h.graph);
  EXPECT_EQ(assumed.at(assumed.outputs[0].buffer).sizes[0], h.symbol("n"));
  ASSERT_EQ(assumed.checks.size(), 1u);
  EXPECT_TRUE(assumed.checks[0].assumption);
  Tensor one = tensor({1}, {1}), two = tensor({2}, {10, 20});
  EXPECT_THAT(values_of(run_program(assumed, {two, two}).at(0)), ElementsAre(20, 40));
  EXPECT_THROW(run_program(assumed, {one, two}), Error);
  EXPECT_THAT(values_of(run_program(general, {one, two}).at(0)), ElementsAre(11, 21));
}

TEST(Lowering, OriginsFollowInlinedProducers) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  h.output(h.node("Abs", {h.node("Neg", {x})}));
  ir::Program p = lower_or_throw(h.graph);
  ASSERT_EQ(p.operations.size(), 1u);
  EXPECT_THAT(p.operations[0].origins, ElementsAre(0, 1));
}

TEST(Lowering, DecidedIfIsInlined) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2});
  auto branch = [&](const char* op) {
    GraphHelper b;
    b.graph.context = h.graph.context;
    Value captured;
    captured.name = "x";
    b.graph.values.push_back(captured);
    b.graph.captures.push_back({0, x});
    b.output(b.node(op, {0}));
    return std::make_shared<Graph>(b.graph);
  };
  ValueId no = h.constant(test::booleans({}, {0}));
  h.output(h.node("If", {no}, {{"then_branch", branch("Abs")}, {"else_branch", branch("Neg")}}));
  EXPECT_THAT(values_of(run_program(lower_or_throw(h.graph), {tensor({2}, {1, -2})}).at(0)),
              ElementsAre(-1, 2));
}

TEST(Lowering, ConstantNodeIsEvaluated) {
  GraphHelper h;
  ValueId a = h.constant(tensor({2}, {1, 4}));
  h.output(h.node("Sqrt", {a}));
  auto out = lowering::evaluate_constant_node(h.graph, h.graph.nodes[0]);
  EXPECT_THAT(values_of(out.at(0)), ElementsAre(1, 2));
}

TEST(Registry, NewestFormNotNewerThanTheNode) {
  lowering::Registry r;
  auto nothing = [](lowering::OpContext&) { return std::vector<lowering::LoweredValue>{}; };
  r.add("X", 1, nothing);
  r.add("X", 13, nothing);
  EXPECT_EQ(r.find("", "X", 12)->since, 1);
  EXPECT_EQ(r.find("", "X", 13)->since, 13);
  EXPECT_EQ(r.find("", "X", 20)->since, 13);
  EXPECT_EQ(r.find("", "Y", 20), nullptr);
  EXPECT_EQ(r.find("other", "X", 20), nullptr);
}

} // namespace
} // namespace tbx
