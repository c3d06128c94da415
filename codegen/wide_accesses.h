// Wide accesses: where threads of a GPU can load and store neighbouring elements 16 bytes at a time.
#pragma once

#include <optional>
#include <vector>

#include "base/target.h"
#include "ir/kernel.h"

namespace tbx::codegen {

/// Of the narrowest type in an access.
int most_lanes(const ir::KernelProgram& kernel, const Gpu& gpu);

/// Accesses of the phase with neighbouring points of `variable` in `lanes` lanes, but for the loads `turned`:
/// all uniform, or contiguous and as wide as they can be.
bool suits(const ir::KernelProgram& kernel, const ir::Phase& phase, const ir::SymNode* variable, int lanes,
           const std::vector<ir::Expr>& turned = {});

/// Rows along `variable` begin at no multiple of a vector, each somewhere else: the element that point 0 has
/// in them, but for the loads `turned`. Nothing where vectors that are whole in one of the buffers are not so
/// in another one of rows. `backwards`: vectors are counted from the ends of rows, which are anywhere.
std::optional<ir::SymInt> begin_of_rows(const ir::KernelProgram& kernel,
                                        const std::vector<const ir::Phase*>& phases,
                                        const ir::SymNode* variable, int lanes,
                                        const std::vector<ir::Expr>& turned = {}, bool backwards = false);

} // namespace tbx::codegen
