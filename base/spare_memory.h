// Memory for libraries that do not look at what malloc gave them.
#pragma once

namespace tbx {

/// Throws std::bad_alloc where the process cannot get some megabytes more. Asked before a library makes
/// things of its own: oneDNN writes into what malloc gave it, oneTBB waits for ever, where there is no
/// memory.
void require_spare_memory();

} // namespace tbx
