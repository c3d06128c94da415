// Memory of packed weights: blocks that live as long as a session, side by side on huge pages.
#pragma once

#include <cstdint>
#include <memory>

namespace tbx {

/// As allocate_aligned, for what is written once and kept. The system clears a huge page seven times faster
/// than as many small ones, and most weights are smaller than a few of those: so blocks share large pieces of
/// memory, each of which goes back to the system with the last block in it.
std::shared_ptr<void> allocate_weights(int64_t bytes);

} // namespace tbx
