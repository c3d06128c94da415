// Room of states: the memory that a session keeps for inputs which grow from run to run.
#pragma once

#include <span>
#include <vector>

#include "runtime/executable.h"

namespace tbx::runtime {

/// Sizes of a state's memory, with `room` along the dimension that grows.
std::vector<int64_t> sizes_with_room(const Executable& plan, const SignatureEntry& state, int64_t room);

/// Whether the session may move the state to larger memory: its size is a symbol of the plan.
bool grows(const Executable& plan, const SignatureEntry& state);

/// Bytes of all states. `symbols`: of a run, which bind what those that grow have room for.
int64_t state_bytes(const Executable& plan, std::span<const int64_t> symbols);

} // namespace tbx::runtime
