// Shared kernels: kernels that differ in factors alone become one kernel, which loads them.
#pragma once

#include "fusion/schedule.h"

namespace tbx::fusion {

/// Layers of a quantised network do the same work with scales of their own, and each scale in the text of its
/// kernel makes one kernel more to compile. Where several kernels are equal but for float32 constants that
/// are added, subtracted, multiplied or divided by, those that differ are read from a constant of the
/// program, so that code generation finds one text for all of them. What is computed stays the same, and so
/// do its roundings but for quotients, whose last place may be another where kernels divide faster by a
/// number that they know.
void share_kernels(ir::Program& program, std::span<Group> groups);

} // namespace tbx::fusion
