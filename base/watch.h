// The address sanitizer, where this process runs under one: it knows the blocks of the heap, but not which
// part of a block belongs to nobody. Without it all of this does nothing.
#pragma once

#include <cstdint>

namespace tbx {

bool is_watched();
/// From now on a read or write of these bytes by watched code is reported, or is none any more.
void forbid(const void* memory, int64_t bytes);
void allow(const void* memory, int64_t bytes);

} // namespace tbx
