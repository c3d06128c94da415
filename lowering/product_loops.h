// Products that libraries compute, as the loop nests they stand for.
#pragma once

#include <vector>

#include "ir/tensor_box.h"

namespace tbx::lowering {

/// Loop nests whose sum the call computes: the product, then the bias. Of matrix products and convolutions of
/// floats; ir::NoDerivative for every other kernel.
std::vector<ir::Compute> as_loops(const ir::Program& program, const ir::ExternCall& call);

} // namespace tbx::lowering
