// Post-operations: pointwise work on the result of an extern call moves into the call where the library can
// do it.
#pragma once

#include <string>

#include "fusion/schedule.h"

namespace tbx::fusion {

/// Needs a program without fixed layouts. For every extern call whose only reader is a pointwise nest over
/// the same points, the longest chain of post-operations that the kernel accepts is moved into the call.
/// Reasons for stopping are appended to the operation's reason.
void fuse_post_ops(ir::Program& program, const Target& target);

/// Why no fast kernel takes the call with its post-operations: asked of the kernels themselves, since
/// libraries fall back to plain loops where their fast ones do not know an operand. Sizes known at run time
/// only are taken to be middling. `result`: the sizes of the result.
std::string refused_as_a_whole(const ir::Program& program, const ir::ExternCall& call,
                               const ir::SymInts& result, const Target& target);

} // namespace tbx::fusion
