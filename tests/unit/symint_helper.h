// Symbolic integers from their texts.
#pragma once

#include <string>

#include "ir/symint.h"

namespace tbx::ir {

/// Reads what to_string writes: i0, i1, ... are variables, r0, ... variables of reductions, other words
/// symbols.
SymInt parse(Context& c, const std::string& text);
/// Texts separated by commas.
SymInts parse_list(Context& c, const std::string& text);
/// Symbols and variables in one order of creation, so that texts do not depend on the test.
void declare(Context& c);

} // namespace tbx::ir
