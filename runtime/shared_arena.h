// Arenas: which threads a session's runs share with those of others.
#pragma once

#include <memory>

#include "runtime/arena.h"
#include "runtime/session.h"

namespace tbx::runtime {

/// The process-wide arena, of as many threads as the machine grants: however many sessions run at once, no
/// more threads work. A session that asks for another number of threads, or for a private arena, has one of
/// its own.
std::shared_ptr<Arena> arena_for(const SessionOptions& options);

} // namespace tbx::runtime
