// Matches of regular expressions, which end when the run does.
#pragma once

#include <cstddef>

namespace re2 {
class RE2;
}

namespace tbx::runtime {

/// Looks at the time before `bytes` of text are held against an expression. ModelError where that takes
/// minutes: a match goes through the text once, each byte as many steps as the expression is long, and
/// nothing stops it.
void begin_match(const re2::RE2& expression, size_t bytes);

} // namespace tbx::runtime
