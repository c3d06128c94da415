// ExternCall: a call of a library or host kernel in the program. One typed descriptor for all of them.
#pragma once

#include <string>
#include <vector>

#include "extern_kernels/problem.h"
#include "ir/symint.h"

namespace tbx::ir {

using BufferId = int32_t;

/// An operand: an affine view of a buffer (see StridedView in tensor_box.h). An absent optional operand has
/// buffer -1.
struct ExternOperand {
  BufferId buffer = -1;
  SymInts sizes;
  SymInts coefficients, start;
};

/// Destination-passing call: reads `inputs`, writes all of `outputs` (buffers with known symbolic shapes),
/// unless `output_symbols` is not empty: then the kernel makes its outputs itself and binds these unbacked
/// symbols, one per data-dependent dimension, in order of output and dimension.
struct ExternCall {
  extern_kernels::Problem problem;
  std::vector<ExternOperand> inputs;
  std::vector<BufferId> outputs;
  SymInts output_symbols;
  /// Sizes in which the problem sees its single output where they are not the buffer's own: the same elements
  /// in row-major order ([b, s, c] as [b*s, c]).
  SymInts output_sizes;
};

} // namespace tbx::ir
