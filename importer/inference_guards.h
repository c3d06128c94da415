// What ONNX's inference functions take for granted, and hostile models do not give.
#pragma once

#include "importer/inference.h"

namespace tbx::importer {

/// ModelError where a number or string of the node would make ONNX's own inference function of its operator
/// hang, write outside its memory or allocate without bound (onnx 1.23.2; each rule was found by fuzzing).
void check_before_inference(const NodeView& node);
/// The constant of input `i` in the type that ONNX's function reads it in (onnx 1.23.2).
Tensor data_for_inference(const NodeView& node, size_t i);
/// Whether ONNX's function that computes lists of integers may see this value of input `i` (onnx 1.23.2).
bool is_fit_for_propagation(const NodeView& node, size_t i, const onnx::TensorShapeProto& value);
/// Puts right where ONNX's function contradicts the operator's schema (onnx 1.23.2).
void correct_after_inference(const NodeView& node, std::vector<onnx::TypeProto>& outputs);

} // namespace tbx::importer
