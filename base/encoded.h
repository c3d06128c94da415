// Floats of 16 bits made of those of 32.
#pragma once

#include <optional>

#include "base/tensor.h"

namespace tbx {

/// A float32 tensor in a float of 16 bits, each element rounded to the nearest; nullopt where a finite one
/// would become infinite.
std::optional<Tensor> encoded(DType type, const Tensor& from);

} // namespace tbx
