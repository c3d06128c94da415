// TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier: attributes to a forest for the host kernel.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/ml/forest.h"
#include "lowering/ops/ml/ml.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using extern_kernels::Attributes;

std::vector<double> elements(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = element_as_double(t, static_cast<int64_t>(i));
  return out;
}

/// The numbers of `name`, or of `name`_as_tensor; empty when neither is there.
std::vector<double> reals(const OpContext& ctx, const std::string& name) {
  if (auto t = ctx.attr_tensor(name + "_as_tensor")) {
    TBX_MODEL(!ctx.has_attr(name), "attributes '{}' and '{}_as_tensor' are both given", name, name);
    return elements(*t);
  }
  std::vector<float> f = ctx.attr_floats(name);
  return {f.begin(), f.end()};
}

/// Doubles are compared as doubles, everything else as f32.
DType compared_type(const OpContext& ctx) { return ctx.dtype(0) == DType::f64 ? DType::f64 : DType::f32; }

SymInt rows_in(const OpContext& ctx) {
  SymInts sizes = ctx.sizes(0);
  TBX_MODEL(sizes.size() == 1 || sizes.size() == 2, "the input has rank {}, expected 1 or 2", sizes.size());
  return sizes.size() == 1 ? SymInt(1) : sizes[0];
}

Attributes kernel_attributes(const OpContext& ctx, const ForestBuilder& forest, int64_t aggregate,
                             PostTransform transform) {
  TBX_MODEL(forest.base.size() <= 1 || static_cast<int64_t>(forest.base.size()) == forest.targets,
            "{} base values for {} targets", forest.base.size(), forest.targets);
  const ir::SymInts sizes = ctx.sizes(0);
  if (!sizes.empty() && sizes.back().is_constant())
    TBX_MODEL(sizes.back().constant() >= forest.features(), "the trees read {} features, the input has {}",
              forest.features(), sizes.back().constant());
  Attributes a = forest.attributes(compared_type(ctx));
  a["aggregate"] = aggregate;
  a["transform"] = static_cast<int64_t>(transform);
  for (const char* name : {"classes", "one_sided", "positive"}) a[name] = int64_t{0};
  return a;
}

// --- the form of ai.onnx.ml 1 to 4: nodes named by tree and node, leaves among them

int64_t mode_of(const std::string& name) {
  static const std::unordered_map<std::string, int64_t> modes = {
      {"BRANCH_LEQ", 0}, {"BRANCH_LT", 1},  {"BRANCH_GTE", 2}, {"BRANCH_GT", 3},
      {"BRANCH_EQ", 4},  {"BRANCH_NEQ", 5}, {"LEAF", -1}};
  auto it = modes.find(name);
  TBX_MODEL(it != modes.end(), "unknown node mode '{}'", name);
  return it->second;
}

void check_length(const char* name, size_t length, size_t expected) {
  TBX_MODEL(length == expected, "attribute '{}' has {} entries, expected {}", name, length, expected);
}

/// The place of each node in the attributes, by tree and node.
class NodeNumbers {
public:
  NodeNumbers(const std::vector<int64_t>& trees, const std::vector<int64_t>& ids) : trees_(trees), ids_(ids) {
    order_.resize(trees.size());
    std::iota(order_.begin(), order_.end(), 0);
    auto less = [&](int32_t a, int32_t b) { return name_of_node(a) < name_of_node(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), less)) std::sort(order_.begin(), order_.end(), less);
    auto same = [&](int32_t a, int32_t b) { return name_of_node(a) == name_of_node(b); };
    const auto twice = std::adjacent_find(order_.begin(), order_.end(), same);
    TBX_MODEL(twice == order_.end(), "node {} of tree {} is there twice", ids_[*twice], trees_[*twice]);
    for (size_t i = 0; i < order_.size(); ++i)
      if (i == 0 || trees_[order_[i]] != trees_[order_[i - 1]]) first_.emplace(trees_[order_[i]], i);
  }

  int32_t at(int64_t tree, int64_t id) const {
    const std::pair wanted(tree, id);
    if (const auto first = first_.find(tree); first != first_.end()) {
      // Most trees have nodes 0, 1, 2 and so on.
      const size_t guess = first->second + static_cast<size_t>(std::clamp<int64_t>(id, 0, kMaxGuess));
      if (guess < order_.size() && name_of_node(order_[guess]) == wanted) return order_[guess];
    }
    auto less = [&](int32_t a, const auto& name) { return name_of_node(a) < name; };
    const auto it = std::lower_bound(order_.begin(), order_.end(), wanted, less);
    TBX_MODEL(it != order_.end() && name_of_node(*it) == wanted, "tree {} has no node {}", tree, id);
    return *it;
  }

private:
  static constexpr int64_t kMaxGuess = int64_t{1} << 31;
  std::pair<int64_t, int64_t> name_of_node(int32_t i) const { return {trees_[i], ids_[i]}; }

  const std::vector<int64_t>&trees_, &ids_;
  std::vector<int32_t> order_;                ///< by name
  std::unordered_map<int64_t, size_t> first_; ///< of each tree, in `order_`
};

/// `prefix`: "target" or "class".
ForestBuilder named_forest(OpContext& ctx, const std::string& prefix, int64_t targets) {
  ForestBuilder forest;
  forest.targets = targets;
  forest.base = reals(ctx, "base_values");
  auto trees = ctx.attr_ints("nodes_treeids"), ids = ctx.attr_ints("nodes_nodeids"),
       features = ctx.attr_ints("nodes_featureids"), yes = ctx.attr_ints("nodes_truenodeids"),
       no = ctx.attr_ints("nodes_falsenodeids"), missing = ctx.attr_ints("nodes_missing_value_tracks_true");
  auto modes = ctx.attr_strings("nodes_modes");
  auto splits = reals(ctx, "nodes_values");
  size_t n = trees.size();
  TBX_MODEL(n > 0, "attribute 'nodes_treeids' is missing or empty");
  check_length("nodes_nodeids", ids.size(), n);
  check_length("nodes_featureids", features.size(), n);
  check_length("nodes_truenodeids", yes.size(), n);
  check_length("nodes_falsenodeids", no.size(), n);
  check_length("nodes_modes", modes.size(), n);
  check_length("nodes_values", splits.size(), n);
  if (!missing.empty()) check_length("nodes_missing_value_tracks_true", missing.size(), n);

  std::unordered_set<int64_t> seen;
  for (size_t i = 0; i < n; ++i) {
    forest.node();
    if ((i > 0 && trees[i] == trees[i - 1]) || !seen.insert(trees[i]).second) continue;
    forest.root(static_cast<int32_t>(i));
  }
  const NodeNumbers number(trees, ids);
  auto find = [&](int64_t tree, int64_t id) { return number.at(tree, id); };
  for (size_t i = 0; i < n; ++i) {
    int64_t mode = mode_of(modes[i]);
    if (mode < 0) continue;
    int mask = ForestBuilder::mask_of(mode);
    if (!missing.empty() && missing[i]) mask |= ForestBuilder::kUnordered;
    forest.branch(static_cast<int32_t>(i), features[i], mask, splits[i], find(trees[i], yes[i]),
                  find(trees[i], no[i]));
  }
  auto weight_trees = ctx.attr_ints(prefix + "_treeids"), weight_nodes = ctx.attr_ints(prefix + "_nodeids"),
       weight_targets = ctx.attr_ints(prefix + "_ids");
  auto weights = reals(ctx, prefix + "_weights");
  check_length("weights", weights.size(), weight_trees.size());
  check_length("weights' node ids", weight_nodes.size(), weight_trees.size());
  check_length("weights' targets", weight_targets.size(), weight_trees.size());
  for (size_t i = 0; i < weights.size(); ++i)
    forest.weight(find(weight_trees[i], weight_nodes[i]), weight_targets[i], weights[i]);
  return forest;
}

Values tree_ensemble_regressor(OpContext& ctx) {
  int64_t targets = ctx.attr_int("n_targets", 1);
  TBX_MODEL(targets > 0, "n_targets is {}", targets);
  static const std::map<std::string, int64_t> aggregates = {
      {"AVERAGE", 0}, {"SUM", 1}, {"MIN", 2}, {"MAX", 3}};
  std::string aggregate = ctx.attr_string("aggregate_function", "SUM");
  TBX_MODEL(aggregates.count(aggregate), "unknown aggregate_function '{}'", aggregate);
  ForestBuilder forest = named_forest(ctx, "target", targets);
  return host_call(ctx, {{DType::f32, {rows_in(ctx), targets}}},
                   kernel_attributes(ctx, forest, aggregates.at(aggregate), post_transform(ctx)));
}

Values tree_ensemble_classifier(OpContext& ctx) {
  ClassLabels labels = class_labels(ctx, "classlabels_int64s", "classlabels_strings");
  int64_t classes = labels.size();
  ForestBuilder forest = named_forest(ctx, "class", classes);
  Attributes a = kernel_attributes(ctx, forest, 1, post_transform(ctx));
  auto ids = ctx.attr_ints("class_ids");
  auto weights = reals(ctx, "class_weights");
  a["classes"] = classes;
  a["one_sided"] = int64_t{classes == 2 && std::set<int64_t>(ids.begin(), ids.end()).size() == 1};
  a["positive"] = int64_t{std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; })};
  Values out =
      host_call(ctx, {{DType::i64, {rows_in(ctx)}}, {DType::f32, {rows_in(ctx), classes}}}, std::move(a));
  return {labels_of(ctx, out[0].tensor, labels), out[1]};
}

// --- the form of ai.onnx.ml 5: leaves of their own, children by position

Values tree_ensemble(OpContext& ctx) {
  auto needed = [&](const char* name) {
    TBX_MODEL(ctx.has_attr(name), "attribute '{}' is missing", name);
    return ctx.attr_ints(name);
  };
  auto tensor = [&](const char* name) {
    auto t = ctx.attr_tensor(name);
    TBX_MODEL(t != nullptr, "attribute '{}' is missing", name);
    return elements(*t);
  };
  auto features = needed("nodes_featureids"), yes = needed("nodes_truenodeids"),
       no = needed("nodes_falsenodeids"), yes_leaf = needed("nodes_trueleafs"),
       no_leaf = needed("nodes_falseleafs"), roots = needed("tree_roots"), targets = needed("leaf_targetids"),
       missing = ctx.attr_ints("nodes_missing_value_tracks_true");
  auto splits = tensor("nodes_splits"), weights = tensor("leaf_weights");
  auto mode_tensor = ctx.attr_tensor("nodes_modes");
  TBX_MODEL(mode_tensor && is_integer(mode_tensor->dtype),
            "attribute 'nodes_modes' is no tensor of integers");
  std::vector<int64_t> modes = to_ints(*mode_tensor);
  size_t n = features.size(), leaves = weights.size();
  check_length("nodes_truenodeids", yes.size(), n);
  check_length("nodes_falsenodeids", no.size(), n);
  check_length("nodes_trueleafs", yes_leaf.size(), n);
  check_length("nodes_falseleafs", no_leaf.size(), n);
  check_length("nodes_splits", splits.size(), n);
  check_length("nodes_modes", modes.size(), n);
  check_length("leaf_targetids", targets.size(), leaves);
  if (!missing.empty()) check_length("nodes_missing_value_tracks_true", missing.size(), n);
  std::vector<double> members;
  if (auto t = ctx.attr_tensor("membership_values")) members = elements(*t);

  ForestBuilder forest;
  forest.targets = ctx.attr_int("n_targets", 1);
  TBX_MODEL(forest.targets > 0, "n_targets is {}", forest.targets);
  for (size_t i = 0; i < n + leaves; ++i) forest.node();
  auto child = [&](int64_t id, int64_t leaf) {
    int64_t limit = static_cast<int64_t>(leaf ? leaves : n);
    TBX_MODEL(id >= 0 && id < limit, "a node has {} {} as a child, there are {}", leaf ? "leaf" : "node", id,
              limit);
    return static_cast<int32_t>(leaf ? static_cast<int64_t>(n) + id : id);
  };
  size_t next_member = 0;
  std::vector<char> is_leaf(n, 0);
  for (size_t i = 0; i < n; ++i) {
    int32_t t = child(yes[i], yes_leaf[i]), f = child(no[i], no_leaf[i]), at = static_cast<int32_t>(i);
    bool to_true = !missing.empty() && missing[i];
    is_leaf[i] = yes_leaf[i] && no_leaf[i] && t == f;
    if (modes[i] != 6) {
      forest.branch(at, features[i],
                    ForestBuilder::mask_of(modes[i]) | (to_true ? ForestBuilder::kUnordered : 0), splits[i],
                    t, f);
      continue;
    }
    std::vector<double> set;
    while (next_member < members.size() && !std::isnan(members[next_member]))
      set.push_back(members[next_member++]);
    TBX_MODEL(next_member++ < members.size(), "membership_values has too few sets");
    forest.member(at, features[i], std::move(set), to_true, t, f);
  }
  for (size_t i = 0; i < leaves; ++i) forest.weight(static_cast<int32_t>(n + i), targets[i], weights[i]);
  for (int64_t root : roots) {
    TBX_MODEL(root >= 0 && root < static_cast<int64_t>(n), "root {} of {} nodes", root, n);
    forest.root(is_leaf[root] ? child(yes[root], 1) : static_cast<int32_t>(root));
  }
  int64_t aggregate = ctx.attr_int("aggregate_function", 1), transform = ctx.attr_int("post_transform", 0);
  TBX_MODEL(aggregate >= 0 && aggregate <= 3, "unknown aggregate_function {}", aggregate);
  TBX_MODEL(transform >= 0 && transform <= 4, "unknown post_transform {}", transform);
  return host_call(ctx, {{ctx.dtype(0), {rows_in(ctx), forest.targets}}},
                   kernel_attributes(ctx, forest, aggregate, static_cast<PostTransform>(transform)));
}

} // namespace

void register_ml_trees(Registry& r) {
  r.add("TreeEnsemble", since(5), tree_ensemble, kMl);
  r.add("TreeEnsembleRegressor", since(1), tree_ensemble_regressor, kMl);
  r.add("TreeEnsembleClassifier", since(1), tree_ensemble_classifier, kMl);
  r.labels_in("classlabels_int64s", "TreeEnsembleClassifier", kMl);
}

} // namespace tbx::lowering
