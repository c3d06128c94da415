// Bounds of memory: every index of a lowered program lies below the extent of its dimension, or is checked.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::ir {

/// Indices of a program that the extents of loops, masks and the checks that were there do not prove.
struct BoundsReport {
  int plan_checks = 0;   ///< the sizes of a run decide: checked once, before it
  int kernel_checks = 0; ///< the loops or the data decide: checked where the element is read or stored
};

/// Visits every load, store and operand of a library call. What is not proven to lie inside of its buffer
/// gets a Check of the program where it holds for all points of the nest or for none that sizes do not tell,
/// else an indirect index, which kernels check. Neither refuses a run that stays inside: an empty nest reads
/// nothing.
BoundsReport check_bounds(Program& program);

} // namespace tbx::ir
