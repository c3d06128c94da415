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

enum class Pages : uint8_t { small, huge };
/// The same of memory that goes back to the system with its last owner, where a heap would keep some of it.
/// Huge pages are asked for where there is at least one.
std::shared_ptr<void> allocate_pages(int64_t bytes, Pages pages);

} // namespace tbx
