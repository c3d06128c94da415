#include "lowering/ops/ml/forest.h"

#include <algorithm>

#include "base/error.h"
#include "extern_kernels/host/forest.h"

namespace tbx::lowering {
namespace {

constexpr int64_t kMaxFeature = (int64_t{1} << 28) - 1; ///< what a node of the kernel can hold
constexpr int64_t kMaxNodes = (int64_t{1} << 31) - 2;

template <class T> std::shared_ptr<const Tensor> tensor_of(DType type, const auto& values) {
  Tensor t = Tensor::make(type, {static_cast<int64_t>(values.size())});
  std::transform(values.begin(), values.end(), t.as_mutable<T>().begin(),
                 [](auto v) { return static_cast<T>(v); });
  return std::make_shared<const Tensor>(std::move(t));
}

std::shared_ptr<const Tensor> reals(DType type, const std::vector<double>& values) {
  return type == DType::f64 ? tensor_of<double>(type, values) : tensor_of<float>(type, values);
}

std::shared_ptr<const Tensor> indices(const std::vector<int32_t>& values) {
  return tensor_of<int32_t>(DType::i32, values);
}

} // namespace

int ForestBuilder::mask_of(int64_t mode) {
  switch (mode) {
  case 0: return kLess | kEqual;
  case 1: return kLess;
  case 2: return kGreater | kEqual;
  case 3: return kGreater;
  case 4: return kEqual;
  case 5: return kLess | kGreater | kUnordered;
  default: throw_model_error("{} is no branch mode", mode);
  }
}

int32_t ForestBuilder::node() {
  TBX_MODEL(size() < kMaxNodes, "the trees have more than {} nodes", kMaxNodes);
  auto at = static_cast<int32_t>(size());
  feature_.push_back(0);
  mask_.push_back(0);
  yes_.push_back(at);
  no_.push_back(at);
  split_.push_back(0);
  weights_.emplace_back();
  return at;
}

void ForestBuilder::branch(int32_t at, int64_t feature, int mask, double split, int32_t yes, int32_t no) {
  TBX_MODEL(feature >= 0 && feature <= kMaxFeature, "feature {} of tree node {} is out of range", feature,
            at);
  TBX_MODEL(yes >= 0 && yes < size() && no >= 0 && no < size(), "a child of tree node {} does not exist", at);
  TBX_MODEL(yes != at && no != at, "tree node {} is its own child", at);
  feature_[at] = static_cast<int32_t>(feature);
  mask_[at] = mask;
  split_[at] = split;
  yes_[at] = yes;
  no_[at] = no;
}

void ForestBuilder::member(int32_t at, int64_t feature, std::vector<double> values, bool missing_is_member,
                           int32_t yes, int32_t no) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  int missing = missing_is_member ? kUnordered : 0;
  struct Part {
    int32_t at;
    size_t begin, end;
  };
  if (values.empty()) {
    branch(at, feature, missing, 0, yes, no);
    return;
  }
  std::vector<Part> open{{at, 0, values.size()}};
  while (!open.empty()) {
    Part p = open.back();
    open.pop_back();
    if (p.end - p.begin == 1) {
      branch(p.at, feature, kEqual | missing, values[p.begin], yes, no);
      continue;
    }
    size_t middle = (p.begin + p.end) / 2;
    int32_t low = node(), high = node();
    branch(p.at, feature, kLess | kEqual | missing, values[middle - 1], low, high);
    open.push_back({low, p.begin, middle});
    open.push_back({high, middle, p.end});
  }
}

void ForestBuilder::weight(int32_t leaf, int64_t target, double value) {
  TBX_MODEL(target >= 0 && target < targets, "a leaf weighs target {} of {}", target, targets);
  weights_[leaf].push_back({static_cast<int32_t>(target), value});
}

int64_t ForestBuilder::features() const {
  return feature_.empty() ? 0 : int64_t{*std::max_element(feature_.begin(), feature_.end())} + 1;
}

/// Nodes may be shared between branches; a walk must end.
extern_kernels::Attributes ForestBuilder::attributes(DType type) const {
  extern_kernels::check_acyclic(roots_, yes_, no_);
  std::vector<int32_t> leaf_begin{0}, leaf_target;
  std::vector<double> leaf_weight;
  for (const auto& weights : weights_) {
    for (const Weight& w : weights) {
      leaf_target.push_back(w.target);
      leaf_weight.push_back(w.value);
    }
    leaf_begin.push_back(static_cast<int32_t>(leaf_target.size()));
  }
  return {{"feature", indices(feature_)},
          {"mask", indices(mask_)},
          {"yes", indices(yes_)},
          {"no", indices(no_)},
          {"split", reals(type, split_)},
          {"roots", indices(roots_)},
          {"leaf_begin", indices(leaf_begin)},
          {"leaf_target", indices(leaf_target)},
          {"leaf_weight", reals(type, leaf_weight)},
          {"base", reals(type, base)},
          {"targets", targets}};
}

} // namespace tbx::lowering
