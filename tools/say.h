// say: the only way in which text that may hold names of a model goes to the terminal.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/printable.h"

namespace tbx::tools {

/// Writes printable(text); throws std::system_error as fmt::print does.
inline void put(std::FILE* to, const std::string& text) {
  fmt::print(to, "{}", printable(text, Lines::kept));
}

template <class... A> void say(std::FILE* to, fmt::format_string<A...> f, A&&... a) {
  put(to, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> void say(fmt::format_string<A...> f, A&&... a) {
  put(stdout, fmt::format(f, std::forward<A>(a)...));
}

/// A name within a line.
inline std::string name_text(const std::string& name) { return printable(name, Lines::escaped); }

} // namespace tbx::tools
