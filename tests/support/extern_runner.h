// Runs the extern calls of a reference run with the kernels that would be chosen for them.
#pragma once

#include "lowering/extern_run.h"

namespace tbx::test {

using lowering::run_extern;

} // namespace tbx::test
