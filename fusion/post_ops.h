// Post-operations: pointwise work on the result of an extern call moves into the call where the library can
// do it.
#pragma once

#include "fusion/schedule.h"

namespace tbx::fusion {

/// Needs a program without fixed layouts. For every extern call whose only reader is a pointwise nest over
/// the same points, the longest chain of post-operations that the kernel accepts is moved into the call.
/// Reasons for stopping are appended to the operation's reason. `cuda`: libraries of GPUs are asked.
void fuse_post_ops(ir::Program& program, bool cuda = false);

} // namespace tbx::fusion
