// The operations of library calls, as `tbx explain` and bench/ count them: a multiplication and an addition
// per result and term of a sum. What is done with single elements besides (softmax, activations) is left out.
#pragma once

#include <vector>

#include "extern_kernels/problem.h"
#include "ir/tensor_box.h"

namespace tbx::driver {

/// `each` operations for every point of a space.
struct CallWork {
  double each = 2;
  ir::SymInts sizes;
};

/// Of products, convolutions, attention, recurrent layers, packed products and experts; others have none.
std::vector<CallWork> work_of(const ir::Program& program, const ir::ExternCall& call);

} // namespace tbx::driver
