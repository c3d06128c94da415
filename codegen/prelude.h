// The part of the prelude that some kernels need: parsing the whole of it costs more than compiling a small
// kernel.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/emit.h"

namespace tbx::codegen {

/// Items of the prelude that `text` uses, directly or through other items, for the element types it uses.
std::string prelude_for(Isa isa, const std::string& text);

/// Another number where prelude_for() gives other text for the same kernels. A start with a filled cache asks
/// for this alone: looking for the items that a text uses takes longer than loading its object.
uint64_t prelude_hash(Isa isa);

} // namespace tbx::codegen
