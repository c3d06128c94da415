// Picture: what a model became, as an SVG that browsers show.
#pragma once

#include <string>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace tbx::tools {

/// A line for each kernel, in the order of execution: what it computes, lines to the kernels whose results it
/// reads, and a bar for its time, or the bytes that it moves where none has a time. The nodes, and why they
/// are (not) together, show under the pointer. `title`: a line above all.
std::string picture_of(const std::string& title, const std::vector<KernelReport>& kernels);

} // namespace tbx::tools
