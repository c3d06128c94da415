// Optimize: ONNX file -> simplified ONNX file.
#pragma once

#include <filesystem>

#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// tbx::optimize(); throws Error.
OptimizeReport optimize(const std::filesystem::path& model, const std::filesystem::path& to,
                        const OptimizeOptions& options);

} // namespace tbx::driver
