// Values of the public API <-> values of the runtime.
#pragma once

#include "base/value.h"
#include "tensorbox/tensorbox.h"

namespace tbx::package {

/// A view of the caller's memory. ModelError when a tensor's elements are missing.
RuntimeValue to_runtime(const OnnxValue& value, const std::string& name);
RuntimeValue to_runtime(const TensorView& view, const std::string& name);
/// What has no owner is copied: it is memory of the caller that the model passed through.
OnnxValue to_public(RuntimeValue value);

} // namespace tbx::package
