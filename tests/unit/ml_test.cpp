// ai.onnx.ml, training operators, images: against plain computations, and their errors.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "../support/extern_runner.h"
#include "extern_kernels/image/image.h"
#include "graph_helper.h"

namespace tbx {
namespace {

using test::error_of;
using test::ints;
using test::tensor;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Tensor> run_domain(const std::string& domain, const std::string& op, std::vector<Tensor> inputs,
                               std::map<std::string, Attribute> attributes, int opset, int outputs = 1) {
  test::GraphHelper h;
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i)
    ids.push_back(
        h.input("x" + std::to_string(i), inputs[i].dtype, {inputs[i].dims.begin(), inputs[i].dims.end()}));
  h.node(op, ids, std::move(attributes), opset, outputs);
  h.graph.nodes.back().domain = domain;
  for (ValueId v : h.graph.nodes.back().outputs) h.output(v);
  return lowering::run_program(lowering::lower_or_throw(h.graph), std::move(inputs), test::run_extern);
}

// --- trees

using Ints = std::vector<int64_t>;

/// Complete trees of random conditions, and a plain walk through them.
struct RandomTrees {
  RandomTrees(unsigned seed, int trees, int depth, int features, int targets)
      : random(seed), targets(targets) {
    static const char* const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
    for (int t = 0; t < trees; ++t)
      for (int64_t i = 0; i < (int64_t{2} << depth) - 1; ++i) {
        bool leaf = i >= (int64_t{1} << depth) - 1;
        tree.push_back(t);
        id.push_back(i);
        feature.push_back(leaf ? 0 : below(features));
        split.push_back(static_cast<float>(below(7)) - 3);
        mode.push_back(leaf ? "LEAF" : names[below(6)]);
        yes.push_back(leaf ? 0 : 2 * i + 1);
        no.push_back(leaf ? 0 : 2 * i + 2);
        missing.push_back(below(2));
        if (!leaf) continue;
        weight_tree.push_back(t);
        weight_node.push_back(i);
        weight_target.push_back(below(targets));
        weight.push_back(static_cast<float>(below(100)) / 16 - 3);
      }
  }

  std::map<std::string, Attribute> attributes(const char* aggregate) const {
    return {{"nodes_treeids", tree},         {"nodes_nodeids", id},
            {"nodes_featureids", feature},   {"nodes_values", split},
            {"nodes_modes", mode},           {"nodes_truenodeids", yes},
            {"nodes_falsenodeids", no},      {"nodes_missing_value_tracks_true", missing},
            {"target_treeids", weight_tree}, {"target_nodeids", weight_node},
            {"target_ids", weight_target},   {"target_weights", weight},
            {"n_targets", int64_t{targets}}, {"aggregate_function", std::string(aggregate)}};
  }

  std::vector<double> predict(const float* x, const std::string& aggregate) const {
    std::vector<double> sum(static_cast<size_t>(targets), 0);
    std::vector<bool> seen(sum.size(), false);
    int trees = 0;
    for (size_t root = 0; root < tree.size(); ++root) {
      if (id[root] != 0) continue;
      ++trees;
      size_t at = root;
      while (mode[at] != "LEAF") {
        float v = x[feature[at]], s = split[at];
        const std::string& m = mode[at];
        bool go = m == "BRANCH_LEQ"   ? v <= s
                  : m == "BRANCH_LT"  ? v < s
                  : m == "BRANCH_GTE" ? v >= s
                  : m == "BRANCH_GT"  ? v > s
                  : m == "BRANCH_EQ"  ? v == s
                                      : v != s;
        go = go || (missing[at] && std::isnan(v));
        at = root + static_cast<size_t>(go ? yes[at] : no[at]);
      }
      for (size_t k = 0; k < weight.size(); ++k) {
        if (weight_tree[k] != tree[at] || weight_node[k] != id[at]) continue;
        auto t = static_cast<size_t>(weight_target[k]);
        double w = weight[k];
        if (aggregate == "MIN" && seen[t]) w = std::min(w, sum[t]);
        if (aggregate == "MAX" && seen[t]) w = std::max(w, sum[t]);
        sum[t] = aggregate == "MIN" || aggregate == "MAX" ? w : sum[t] + w;
        seen[t] = true;
      }
    }
    for (double& s : sum)
      if (aggregate == "AVERAGE") s /= trees;
    return sum;
  }

  std::mt19937 random;
  int targets;
  Ints tree, id, feature, yes, no, missing, weight_tree, weight_node, weight_target;
  std::vector<float> split, weight;
  std::vector<std::string> mode;
};

TEST(Trees, AgreeWithAPlainWalk) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    const char* aggregate = std::array{"SUM", "AVERAGE", "MIN", "MAX"}[seed % 4];
    int targets = seed % 3 ? 1 : 3;
    RandomTrees trees(seed, 5, 4, 6, targets);
    for (int64_t rows : {0, 1, 7, 8, 9, 130}) {
      Tensor x = Tensor::make(DType::f32, {rows, 6});
      for (float& v : x.as_mutable<float>())
        v = trees.random() % 9 == 0 ? NAN : static_cast<float>(trees.random() % 7) - 3;
      auto got = values_of(
          run_domain("ai.onnx.ml", "TreeEnsembleRegressor", {x}, trees.attributes(aggregate), 3).at(0));
      for (int64_t r = 0; r < rows; ++r) {
        auto want = trees.predict(x.as<float>().data() + r * 6, aggregate);
        for (int t = 0; t < targets; ++t)
          ASSERT_NEAR(got[static_cast<size_t>(r * targets + t)], want[static_cast<size_t>(t)], 1e-5)
              << aggregate << " seed " << seed << " row " << r;
      }
    }
  }
}

TEST(Trees, NodesHaveAnyNamesInAnyOrder) {
  const RandomTrees trees(7, 4, 4, 6, 3);
  auto name = [](int64_t id) { return id % 3 == 0 ? -5 - 37 * id : id; };
  // All roots, then the nodes of all trees mixed, from the last one.
  std::vector<size_t> order;
  for (size_t i = 0; i < trees.id.size(); ++i)
    if (trees.id[i] == 0) order.push_back(i);
  const size_t roots = order.size();
  for (size_t i = trees.id.size(); i-- > 0;)
    if (trees.id[i] != 0) order.push_back(i);
  std::stable_sort(order.begin() + static_cast<long>(roots), order.end(),
                   [&](size_t a, size_t b) { return trees.id[a] % 5 < trees.id[b] % 5; });
  RandomTrees mixed = trees;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from = order[i];
    mixed.tree[i] = 3 - 2 * trees.tree[from];
    mixed.id[i] = name(trees.id[from]);
    mixed.feature[i] = trees.feature[from];
    mixed.split[i] = trees.split[from];
    mixed.mode[i] = trees.mode[from];
    mixed.yes[i] = name(trees.yes[from]);
    mixed.no[i] = name(trees.no[from]);
    mixed.missing[i] = trees.missing[from];
  }
  for (int64_t& t : mixed.weight_tree) t = 3 - 2 * t;
  for (int64_t& id : mixed.weight_node) id = name(id);
  Tensor x = Tensor::make(DType::f32, {33, 6});
  std::mt19937 random(3);
  for (float& v : x.as_mutable<float>()) v = static_cast<float>(random() % 7) - 3;
  auto got =
      values_of(run_domain("ai.onnx.ml", "TreeEnsembleRegressor", {x}, mixed.attributes("SUM"), 3).at(0));
  for (size_t r = 0; r < 33; ++r) {
    const auto want = trees.predict(x.as<float>().data() + r * 6, "SUM");
    for (size_t t = 0; t < 3; ++t) ASSERT_NEAR(got[r * 3 + t], want[t], 1e-5) << "row " << r;
  }
}

TEST(Trees, BadModelsAreRefused) {
  RandomTrees good(1, 2, 2, 3, 1);
  Tensor x = tensor({1, 3}, {0, 0, 0});
  auto error = [&](auto change) {
    RandomTrees bad = good;
    change(bad);
    return error_of(
        [&] { run_domain("ai.onnx.ml", "TreeEnsembleRegressor", {x}, bad.attributes("SUM"), 3); });
  };
  EXPECT_THAT(error([](RandomTrees& t) { t.yes[1] = 0; }), HasSubstr("the trees have a cycle"));
  EXPECT_THAT(error([](RandomTrees& t) { t.no[0] = 0; }), HasSubstr("is its own child"));
  EXPECT_THAT(error([](RandomTrees& t) { t.yes[0] = 99; }), HasSubstr("tree 0 has no node 99"));
  EXPECT_THAT(error([](RandomTrees& t) { t.id[1] = 0; }), HasSubstr("is there twice"));
  EXPECT_THAT(error([](RandomTrees& t) { t.mode[0] = "BRANCH"; }), HasSubstr("unknown node mode 'BRANCH'"));
  EXPECT_THAT(error([](RandomTrees& t) { t.split.pop_back(); }), HasSubstr("'nodes_values' has 13 entries"));
  EXPECT_THAT(error([](RandomTrees& t) { t.weight_target[0] = 1; }), HasSubstr("target 1 of 1"));
  EXPECT_THAT(error([](RandomTrees& t) { t.feature[0] = -1; }), HasSubstr("out of range"));
  EXPECT_THAT(error([](RandomTrees& t) { t.feature[0] = 7; }), HasSubstr("the trees read 8 features"));
}

TEST(Trees, SetMembershipIsASearch) {
  // One node: is x[0] one of 1, 2, 5, 9?
  auto strings = [](std::vector<uint8_t> v) {
    Tensor t = Tensor::make(DType::u8, {static_cast<int64_t>(v.size())});
    std::copy(v.begin(), v.end(), t.as_mutable<uint8_t>().begin());
    return std::make_shared<const Tensor>(std::move(t));
  };
  auto floats = [](std::vector<float> v) {
    auto n = static_cast<int64_t>(v.size());
    return std::make_shared<const Tensor>(tensor({n}, std::move(v)));
  };
  std::map<std::string, Attribute> a = {
      {"nodes_featureids", Ints{0}},      {"nodes_modes", strings({6})},
      {"nodes_splits", floats({0})},      {"nodes_truenodeids", Ints{0}},
      {"nodes_falsenodeids", Ints{1}},    {"nodes_trueleafs", Ints{1}},
      {"nodes_falseleafs", Ints{1}},      {"leaf_targetids", Ints{0, 0}},
      {"leaf_weights", floats({10, 20})}, {"tree_roots", Ints{0}},
      {"n_targets", int64_t{1}},          {"membership_values", floats({9, 1, 5, 2, NAN})}};
  Tensor x = tensor({8, 1}, {0, 1, 2, 3, 5, 9, 10, NAN});
  EXPECT_THAT(values_of(run_domain("ai.onnx.ml", "TreeEnsemble", {x}, a, 5).at(0)),
              ElementsAre(20, 10, 10, 20, 10, 10, 20, 20));
}

// --- training

TEST(Training, NesterovMomentumOfTwoTensors) {
  std::vector<Tensor> in = {tensor({}, {0.1f}),     ints({}, {0}),     tensor({2}, {1, 2}), tensor({1}, {3}),
                            tensor({2}, {0.5f, 1}), tensor({1}, {-1}), tensor({2}, {1, 1}), tensor({1}, {2})};
  auto out = run_domain(
      "ai.onnx.preview.training", "Momentum", in,
      {{"alpha", 0.9f}, {"beta", 0.5f}, {"norm_coefficient", 0.f}, {"mode", std::string("nesterov")}}, 1, 4);
  auto v = [](float old, float g) { return 0.9f * old + g; }; // beta counts from the second step on
  auto x = [&](float at, float old, float g) { return at - 0.1f * (g + 0.9f * v(old, g)); };
  EXPECT_NEAR(values_of(out[0])[0], x(1, 1, 0.5f), 1e-6);
  EXPECT_NEAR(values_of(out[0])[1], x(2, 1, 1), 1e-6);
  EXPECT_NEAR(values_of(out[1])[0], x(3, 2, -1), 1e-6);
  EXPECT_NEAR(values_of(out[2])[0], v(1, 0.5f), 1e-6);
  EXPECT_NEAR(values_of(out[3])[0], v(2, -1), 1e-6);
}

// --- images

using extern_kernels::image::decode;
using extern_kernels::image::Image;

Image decode_text(const std::string& s) {
  return decode({reinterpret_cast<const uint8_t*>(s.data()), s.size()});
}

TEST(Images, PortableMapsOfEveryKind) {
  EXPECT_THAT(decode_text("P3 # a comment\n2 1\n255\n1 2 3 250 251 252\n").rgb,
              ElementsAre(1, 2, 3, 250, 251, 252));
  EXPECT_THAT(decode_text("P2\n2 1 4 0 4").rgb, ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decode_text("P1\n2 1\n10").rgb, ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decode_text(std::string("P4\n2 1\n\x40", 8)).rgb, ElementsAre(255, 255, 255, 0, 0, 0));
  EXPECT_THAT(decode_text("P5\n1 1\n255\nA").rgb, ElementsAre(65, 65, 65));
}

TEST(Images, HostileImagesAreErrors) {
  EXPECT_THAT(error_of([] { decode_text("P6\n100000 100000\n255\nabc"); }), HasSubstr("cut short"));
  EXPECT_THAT(error_of([] { decode_text("P6\n99999999999 1\n255\nabc"); }), HasSubstr("too large"));
  EXPECT_THAT(error_of([] { decode_text("P6\n-1 1\n255\nabc"); }), HasSubstr("no number"));
  EXPECT_THAT(error_of([] { decode_text("hello"); }), HasSubstr("5 bytes are no image"));
  EXPECT_THAT(error_of([] { decode_text("BM"); }), HasSubstr("cut short"));
  for (const std::string& start :
       {std::string("\xff\xd8\xff"), std::string("\x89PNG\r\n\x1a\n"), std::string("II*\0", 4),
        std::string("RIFF\0\0\0\0WEBP", 12), std::string("\xff\x4f\xff\x51", 4)}) {
    std::string message = error_of([&] { decode_text(start + std::string(100, '\x7f')); });
    EXPECT_TRUE(message.find("cannot be read") != std::string::npos ||
                message.find("decodes no") != std::string::npos)
        << message;
  }
}

} // namespace
} // namespace tbx
