// What operators say of themselves beside their lowering.
#include <gtest/gtest.h>

#include "lowering/op_registry.h"

namespace tbx::test {
namespace {

using lowering::Registry;
using lowering::Trait;

Node node(std::string op, std::map<std::string, Attribute> attributes = {}, std::string domain = "") {
  Node n;
  n.op_type = std::move(op);
  n.domain = std::move(domain);
  n.attributes = std::move(attributes);
  return n;
}

TEST(Registry, MovesWhereAttributesSaySo) {
  auto moves = [](const Node& n) { return Registry::instance().moves(n); };
  EXPECT_TRUE(moves(node("Gather")));
  EXPECT_FALSE(moves(node("Add")));
  EXPECT_FALSE(moves(node("Gather", {}, "com.microsoft")));
  for (const char* op : {"Resize", "Upsample", "GridSample"}) {
    EXPECT_TRUE(moves(node(op, {{"mode", std::string("nearest")}}))) << op;
    EXPECT_FALSE(moves(node(op, {{"mode", std::string("linear")}}))) << op;
  }
  EXPECT_TRUE(moves(node("Resize")));
  EXPECT_FALSE(moves(node("GridSample")));
  for (const char* op : {"ScatterElements", "ScatterND"}) {
    EXPECT_TRUE(moves(node(op))) << op;
    EXPECT_TRUE(moves(node(op, {{"reduction", std::string("none")}}))) << op;
    EXPECT_FALSE(moves(node(op, {{"reduction", std::string("add")}}))) << op;
  }
}

TEST(Registry, ClassifiersNameTheirLabels) {
  auto labels = [](const Node& n) {
    const std::string* name = Registry::instance().labels_of(n);
    return name ? *name : "";
  };
  EXPECT_EQ(labels(node("LinearClassifier", {}, "ai.onnx.ml")), "classlabels_ints");
  EXPECT_EQ(labels(node("SVMClassifier", {}, "ai.onnx.ml")), "classlabels_ints");
  EXPECT_EQ(labels(node("TreeEnsembleClassifier", {}, "ai.onnx.ml")), "classlabels_int64s");
  EXPECT_EQ(labels(node("SVMRegressor", {}, "ai.onnx.ml")), "");
  EXPECT_EQ(labels(node("LinearClassifier")), "");
}

TEST(Registry, BodiesRunByThemselves) {
  for (const char* op : {"If", "Loop", "Scan", "SequenceMap"})
    EXPECT_TRUE(has(Trait::runs_bodies, node(op))) << op;
  EXPECT_FALSE(has(Trait::runs_bodies, node("FlexAttention")));
}

} // namespace
} // namespace tbx::test
