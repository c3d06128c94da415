// The option state of a session: which inputs it keeps, and what the plan says of them.
#pragma once

#include "fusion/state.h"
#include "graph/graph.h"
#include "runtime/executable.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// Inputs and outputs of the state behind all others. ModelError for names that the graph has not.
void put_state_last(Graph& graph, const CompileOptions& options);
/// Their buffers become parts of memory with room for more.
std::vector<fusion::StateInput> keep_state(ir::Program& program, const Graph& graph,
                                           const CompileOptions& options);
/// What runs are told of them. UnsupportedError where the host works on the state of a device.
void show_state(runtime::Executable& plan, const std::vector<fusion::StateInput>& state);

} // namespace tbx::driver
