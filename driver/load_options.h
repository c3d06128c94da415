// What the options of a compilation mean for a package, which is compiled already.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// ModelError that names an option which would have changed what was compiled.
LoadOptions load_options(const CompileOptions& options);

/// Name and value of the options that say what was compiled, for people.
std::vector<std::pair<std::string, std::string>> described(const CompileOptions& options);

} // namespace tbx::driver
