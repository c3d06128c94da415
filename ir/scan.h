// The loops of kernels for running values.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::ir {

struct ScanLoops {
  SymInts outer; ///< var(k) < outer[k]: all dimensions but the axis
  SymInt inner;  ///< rvar(0) < inner, in the order in which values are added
  SymInts at;    ///< of these variables, the index of the result
};
ScanLoops loops_of_scan(Context& c, const Loops& scan);

} // namespace tbx::ir
