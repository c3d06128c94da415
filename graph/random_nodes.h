// Which operators draw random numbers: their results are never folded, and two of them are never one.
#pragma once

#include "graph/graph.h"

namespace tbx {

/// Whether the node may draw; a Dropout may, as its training mode can be an input. Not of bodies in
/// attributes.
bool draws_random_numbers(const Node& node);

} // namespace tbx
