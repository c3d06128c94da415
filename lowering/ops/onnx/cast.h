// Conversion of one element, shared by the casts and the quantising operators.
#pragma once

#include <string>

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// ONNX Cast of a value to `to`, in the compute type of `to`: integers wrap, floats saturate to integers,
/// narrow floats round (`saturate` and `round_mode` as in Cast).
Expr cast_element(Expr x, DType to, bool saturate = true, const std::string& round_mode = "up");

} // namespace tbx::lowering
