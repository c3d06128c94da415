// What operators say of themselves beside their lowering.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

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

TEST(Registry, FindsWhatItLists) {
  const std::vector<const lowering::OpEntry*> all = Registry::instance().all();
  ASSERT_GT(all.size(), 200u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Registry::instance().find(all[i]->domain, all[i]->name, all[i]->since), all[i]);
    if (i == 0) continue;
    auto key = [](const lowering::OpEntry* e) { return std::tuple(e->domain, e->name, e->since); };
    EXPECT_LT(key(all[i - 1]), key(all[i]));
  }
  EXPECT_EQ(Registry::instance().find("com.nobody", "Add", 20), nullptr);
  EXPECT_EQ(Registry::instance().find("", "Add", 0), nullptr);
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

TEST(Registry, BodiesDifferentiate) {
  for (const char* op : {"Attention", "CausalConvWithState", "LinearAttention", "SequenceMap"})
    EXPECT_TRUE(has(Trait::by_body, node(op))) << op;
  EXPECT_FALSE(has(Trait::by_body, node("Attention", {}, "com.microsoft")));
  EXPECT_TRUE(has(Trait::on_values, node("SequenceMap")));
  EXPECT_FALSE(has(Trait::on_values, node("Loop")));
}

TEST(Registry, InputsOfAttention) {
  const Registry& registry = Registry::instance();
  auto masks = [&](const Node& n) {
    std::vector<int> found;
    for (int i = 0; i < 6; ++i)
      if (registry.is_mask(n, i)) found.push_back(i);
    return found;
  };
  EXPECT_EQ(masks(node("Attention")), (std::vector<int>{3}));
  EXPECT_EQ(masks(node("FusedAttention", {}, "tensorbox")), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(masks(node("MatMul")), std::vector<int>{});
  EXPECT_EQ(registry.past_of(node("GroupQueryAttention", {}, "com.microsoft")), 3);
  EXPECT_EQ(registry.past_of(node("GroupQueryAttention")), -1);
}

TEST(Registry, ProductsAndTheirWeights) {
  for (const char* op : {"MatMul", "Gemm", "Conv", "ConvTranspose"})
    EXPECT_TRUE(has(Trait::has_weights, node(op))) << op;
  EXPECT_FALSE(has(Trait::has_weights, node("Einsum")));
  for (const char* op : {"LSTM", "GRU", "RNN"}) EXPECT_TRUE(has(Trait::has_gates, node(op))) << op;
  EXPECT_TRUE(has(Trait::convolves, node("ConvTranspose")));
  EXPECT_FALSE(has(Trait::convolves, node("MatMul")));
}

TEST(Registry, OperatorsOfComplexNumbers) {
  EXPECT_TRUE(has(Trait::by_pair, node("Compress")));
  EXPECT_TRUE(has(Trait::by_pair, node("Unique")));
  EXPECT_FALSE(has(Trait::by_pair, node("NonZero")));
  EXPECT_TRUE(has(Trait::recasts, node("BitCast")));
  EXPECT_FALSE(has(Trait::recasts, node("Cast")));
}

} // namespace
} // namespace tbx::test
