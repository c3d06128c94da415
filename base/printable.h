// Text of strangers as people may see it: names in a model are any bytes, and a terminal obeys some of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tbx {

/// Bytes of the UTF-8 character that `text` begins with; 0 where it begins with none.
size_t utf8_length(std::string_view text);

enum class Lines {
  kept,   ///< line feeds and tabs stay
  escaped ///< the result is one line
};

/// `text` as valid UTF-8 without what a terminal obeys: control characters and bytes that are no UTF-8 become
/// \x1b, characters that turn the order of writing \u202e.
std::string printable(std::string_view text, Lines lines);

} // namespace tbx
