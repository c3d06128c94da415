// Large aligned blocks of memory, on huge pages where the system offers them.
#pragma once

#include <cstdint>
#include <memory>

namespace tbx {

/// Memory of the machine, or of the control group that limits this process.
int64_t memory_limit();

/// At least `bytes` (>= 0), 64-byte aligned, contents undefined; 64 bytes behind the end may be read. Throws
/// Error (model) when it is more than memory_limit() or there is no memory.
std::shared_ptr<void> allocate_aligned(int64_t bytes);

/// The same of large blocks that are written once and given up soon: their memory goes back to the system with
/// the last owner, where a heap would keep it.
std::shared_ptr<void> allocate_pages(int64_t bytes);

} // namespace tbx
