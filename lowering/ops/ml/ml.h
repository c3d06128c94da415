// What the lowerings of ai.onnx.ml share.
#pragma once

#include "extern_kernels/problem.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {

inline constexpr const char* kMl = "ai.onnx.ml";

/// `post_transform` as numbered in TreeEnsemble of ai.onnx.ml 5; ModelError for an unknown name.
enum class PostTransform { none = 0, softmax = 1, logistic = 2, softmax_zero = 3, probit = 4 };
PostTransform post_transform(const OpContext& ctx);

/// The scores of classes or targets [rows, n] after the transform, row by row.
TensorBox transform_scores(OpContext& ctx, const TensorBox& scores, PostTransform transform);

/// Class labels of a classifier, ints or strings. ModelError when there are none or both.
struct ClassLabels {
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  int64_t size() const { return static_cast<int64_t>(strings.empty() ? ints.size() : strings.size()); }
};
ClassLabels class_labels(const OpContext& ctx, const char* ints, const char* strings);

/// The label of each class index (i64); an index is within the labels.
LoweredValue labels_of(OpContext& ctx, const TensorBox& index, const ClassLabels& labels);

/// Input 0 as rows [N, F]: a vector is one row.
TensorBox rows_of(OpContext& ctx);

/// A constant tensor of floats.
TensorBox float_constant(OpContext& ctx, std::vector<int64_t> dims, const std::vector<float>& values);

} // namespace tbx::lowering
