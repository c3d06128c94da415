// Plan key: what a plan depends on beyond the model's own bytes.
#pragma once

#include <string>

#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// Differs where compiling the same model may give another plan, or another error: options, machine,
/// environment, versions of the libraries. `options` are those of a session, limits included. Throws Error
/// where they cannot be.
std::string plan_surroundings(const CompileOptions& options);

/// Digits that change with every build of this library; empty: it does not say.
const std::string& build_identity();

} // namespace tbx::driver
