// The part of the prelude that some kernels need: parsing the whole of it costs more than compiling a small
// kernel.
#pragma once

#include <string>

#include "codegen/emit.h"

namespace tbx::codegen {

/// Items of the prelude that `text` uses, directly or through other items, for the element types it uses.
std::string prelude_for(Isa isa, const std::string& text);

} // namespace tbx::codegen
