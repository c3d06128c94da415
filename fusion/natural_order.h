// Natural order: operands of matrix products keep the order in which they were computed.
#pragma once

#include "fusion/schedule.h"

namespace tbx::fusion {

/// Needs a program without fixed layouts. A pointwise nest that permutes or regroups the elements of one
/// buffer and whose result only matrix products read computes in the order of that buffer instead; the
/// products read a strided view of it. The heads of an attention are not transposed in memory then, and what
/// is left of the nest can become post-operations of the product that made the buffer.
void keep_natural_order(ir::Program& program);

} // namespace tbx::fusion
