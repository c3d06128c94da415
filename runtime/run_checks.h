// What a run looks at before it begins: inputs against the signature, and the checks of the plan.
#pragma once

#include <span>
#include <vector>

#include "runtime/session.h"

namespace tbx::runtime {

/// The symbols that inputs give; -1: not known yet. Throws Error (model) where an input is not what the
/// signature says.
void bind_symbols(const Executable& plan, std::span<const RunTensor> inputs, std::vector<int64_t>& symbols);
/// Dimensions, and all checks whose symbols are known.
void check_inputs(const Executable& plan, std::span<const RunTensor> inputs,
                  std::span<const int64_t> symbols);
/// The checks whose symbols are all known; of those only the ones on a `fresh` symbol, where there are any.
void run_checks(const Executable& plan, std::span<const int64_t> symbols, std::span<const int> fresh);

} // namespace tbx::runtime
