// Sources: which earlier steps computed what a step reads.
#pragma once

#include <vector>

#include "runtime/executable.h"

namespace tbx::runtime {

/// By step: the earlier ones whose results it reads, in order; of a buffer that several write in parts, all
/// of these. Inputs and constants have none.
std::vector<std::vector<int>> sources_of(const Executable& executable);

} // namespace tbx::runtime
