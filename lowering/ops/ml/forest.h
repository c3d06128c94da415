// A tree ensemble on its way from the attributes of the ai.onnx.ml operators to the arrays of the host kernel
// (extern_kernels/host/forest.cpp).
#pragma once

#include <vector>

#include "extern_kernels/attributes.h"
#include "lowering/op_registry.h"

namespace tbx::lowering {

/// Nodes and leaves in one numbering. Conditions are sets of comparison results: a node goes to `yes` when
/// the comparison of the value with the split is in its mask.
class ForestBuilder {
public:
  static constexpr int kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;
  /// BRANCH_LEQ, LT, GTE, GT, EQ, NEQ as numbered in TreeEnsemble of ai.onnx.ml 5.
  static int mask_of(int64_t mode);

  /// A new node, a leaf until `branch` or `member` is called. Gives its number.
  int32_t node();
  /// Needs nodes made before; `feature` checked here.
  void branch(int32_t at, int64_t feature, int mask, double split, int32_t yes, int32_t no);
  /// Membership of a set, as a balanced tree of comparisons; NaN goes to `yes` when `missing_is_member`.
  void member(int32_t at, int64_t feature, std::vector<double> values, bool missing_is_member, int32_t yes,
              int32_t no);
  void weight(int32_t leaf, int64_t target, double value);
  void root(int32_t at) { roots_.push_back(at); }

  int64_t size() const { return static_cast<int64_t>(feature_.size()); }
  /// One more than the greatest feature that a node looks at.
  int64_t features() const;
  int64_t targets = 1;
  std::vector<double> base;

  /// The attributes of the kernel, values in `type` (f32 or f64). ModelError when a tree has a cycle.
  extern_kernels::Attributes attributes(DType type) const;

private:
  struct Weight {
    int32_t target;
    double value;
  };
  std::vector<int32_t> feature_, mask_, yes_, no_, roots_;
  std::vector<double> split_;
  std::vector<std::vector<Weight>> weights_;
};

} // namespace tbx::lowering
