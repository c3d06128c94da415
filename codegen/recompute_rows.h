// Recompute rows: what is cheaper to compute again in a later phase than to keep in memory until then.
#pragma once

#include <optional>

#include "ir/kernel.h"

namespace tbx::codegen {

/// The kernel without those row-local buffers whose elements are functions of a few operations of what stays
/// the same in all phases: where they were loaded they are computed. For rows that no thread's registers
/// hold, of which every element kept costs a store and a load; nullopt: there are none. Its test is
/// EmitCudaRows.
std::optional<ir::KernelProgram> recompute_rows(const ir::KernelProgram& kernel);

} // namespace tbx::codegen
