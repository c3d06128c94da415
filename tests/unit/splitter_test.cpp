// Which nodes run on values of a run: by their types first, then as lowering demands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/onnx_text.h"
#include "base/error.h"
#include "driver/value_compile.h"
#include "graph/partition/graph_part.h"
#include "graph/partition/splitter.h"

namespace tbx::test {
namespace {

using graph::Splitter;
using lowering::Demand;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char* kLoop = R"(g (int64 n, float[k] x) => (float[k] y) <float[k] b, float[k] e> {
  c = Constant<value = bool {1}>() a = Exp(x)
  b = Loop(n, c, a) <body = body(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
    co = Identity(ci) so = Add(s, s) }>
  y = Neg(b)
})";

std::vector<std::string> operators(const Graph& g, const std::vector<int>& nodes) {
  std::vector<std::string> ops;
  for (int i : nodes) ops.push_back(g.nodes[static_cast<size_t>(i)].op_type);
  return ops;
}

/// Part `p` of the split asks this for its node of the operator.
bool meet(Splitter& split, const Graph& g, size_t p, Demand::Kind kind, const std::string& op,
          size_t input = 0) {
  const graph::Part part = split.parts()[p];
  std::vector<ValueId> from;
  const Graph lowered = graph::extract(g, part.nodes, part.inputs, part.outputs, from);
  for (size_t i = 0; i < lowered.nodes.size(); ++i)
    if (lowered.nodes[i].op_type == op)
      return split.meet({lowered, from}, {kind,
                                          Error(ErrorKind::unsupported, "it must be known"),
                                          static_cast<int>(i),
                                          {lowered.nodes[i].inputs[input]},
                                          {}});
  throw std::runtime_error("no " + op);
}

TEST(Splitter, ADemandPutsItsNodeOnValues) {
  Graph g = import_text(kLoop);
  Splitter split(g);
  ASSERT_EQ(split.parts().size(), 1u);
  EXPECT_THAT(operators(g, split.parts()[0].nodes), ElementsAre("Exp", "Loop", "Neg"));
  EXPECT_THAT(split.value_nodes()[0], IsEmpty());
  const int version = split.version();
  ASSERT_TRUE(meet(split, g, 0, Demand::Kind::split, "Loop"));
  EXPECT_EQ(split.version(), version);
  ASSERT_EQ(split.parts().size(), 2u);
  EXPECT_THAT(operators(g, split.parts()[0].nodes), ElementsAre("Exp"));
  EXPECT_THAT(operators(g, split.value_nodes()[0]), ElementsAre("Loop"));
  EXPECT_THAT(operators(g, split.parts()[1].nodes), ElementsAre("Neg"));
  EXPECT_FALSE(meet(split, g, 0, Demand::Kind::split, "Exp")) << "it has no form on values";
  EXPECT_FALSE(meet(split, g, 0, Demand::Kind::assumptions, "Exp"));
}

/// All is looked at again then, by types, which say nothing of the loop.
TEST(Splitter, WhatADemandPutOnValuesStaysThereWhenABodyTakesAnOperatorsPlace) {
  for (const bool before_lowering : {false, true}) {
    std::string text = kLoop;
    text.replace(text.find("Neg(b)"), 6, "Celu(b)");
    Graph g = import_text(text);
    Splitter split(g);
    const int version = split.version();
    if (before_lowering)
      ASSERT_TRUE(split.runs_later(graph::Part(split.parts()[0])));
    else
      ASSERT_TRUE(meet(split, g, 0, Demand::Kind::split, "Loop"));
    ASSERT_TRUE(meet(split, g, 1, Demand::Kind::split, "Celu"));
    EXPECT_NE(split.version(), version);
    ASSERT_EQ(split.parts().size(), 2u);
    EXPECT_THAT(operators(g, split.value_nodes()[0]), ElementsAre("Loop"));
    EXPECT_THAT(operators(g, split.parts()[1].nodes), ::testing::Not(::testing::Contains("Celu")));
  }
}

TEST(Splitter, WhatMustBeKnownIsMadeBefore) {
  Graph g = import_text("g (float[n] x, int64[2] a) => (float[] y) { s = Mul(a, a) y = Reshape(x, s) }");
  Splitter split(g);
  ASSERT_TRUE(meet(split, g, 0, Demand::Kind::elements, "Reshape", 1));
  ASSERT_EQ(split.parts().size(), 2u);
  EXPECT_THAT(operators(g, split.parts()[0].nodes), ElementsAre("Mul"));
  EXPECT_THAT(operators(g, split.parts()[1].nodes), ElementsAre("Reshape"));
  EXPECT_FALSE(meet(split, g, 1, Demand::Kind::elements, "Reshape", 1)) << "it is there already";
}

TEST(Splitter, ControlFlowOfWhatWaitsRunsOnValues) {
  Graph g = import_text(kLoop);
  Splitter split(g);
  EXPECT_TRUE(split.runs_later(graph::Part(split.parts()[0])));
  EXPECT_THAT(operators(g, split.value_nodes()[0]), ElementsAre("Loop"));
  EXPECT_FALSE(split.runs_later(graph::Part(split.parts()[0])));
}

/// Before each of the two loops is found out, and behind them: what stays as it was is not lowered again.
TEST(Splitter, WhatSplitsHaveInCommonIsLoweredOnce) {
  int lowered = 0;
  CompileOptions options;
  options.compile = false;
  options.progress = [&](const std::string& stage, int, int) { lowered += stage == "lower"; };
  const driver::ValueProgram program =
      driver::compile_values(import_text(R"(g (int64 n, float[k] x) => (float[k] y) <float[k] b, float[k] e> {
    c = Constant<value = bool {1}>() a = Exp(x)
    b = Loop(n, c, a) <body = p(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
      co = Identity(ci) so = Add(s, s) }>
    d = Exp(b)
    e = Loop(n, c, d) <body = q(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
      co = Identity(ci) so = Add(s, s) }>
    y = Neg(e)
  })"),
                             options);
  EXPECT_EQ(program.segments.size(), 5u) << "three parts and two bodies";
  // All; a and the rest; the rest in two parts. And the bodies.
  EXPECT_EQ(lowered, 1 + 2 + 2 + 2);
}

} // namespace
} // namespace tbx::test
