// Extern calls of a reference run, by plain loops: no library has a part in what is folded or compared with.
#pragma once

#include "lowering/reference_run.h"

namespace tbx::lowering {

/// An ExternFn. Throws what the kernel throws; UnsupportedError when there is none.
std::vector<Tensor> run_extern(const ir::ExternCall& call, std::span<const ExternArgument> inputs,
                               std::span<const ExternArgument> outputs);
/// The same but for problems that are for libraries: UnsupportedError.
std::vector<Tensor> run_host(const ir::ExternCall& call, std::span<const ExternArgument> inputs,
                             std::span<const ExternArgument> outputs);

} // namespace tbx::lowering
