// What ONNX's inference functions take for granted, and hostile models do not give.
#pragma once

#include "importer/inference.h"

namespace tbx::importer {

/// ModelError where a number or string of the node would make ONNX's own inference function of its operator
/// hang, write outside its memory or allocate without bound (onnx 1.23.2; each rule was found by fuzzing).
void check_before_inference(const NodeView& node);

} // namespace tbx::importer
