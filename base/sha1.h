// SHA-1, as the checksums of external data are written in models. It says that a file is the one the model
// was saved with, not that nobody changed both.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tbx {

/// The digest as 40 hexadecimal digits in lower case. Looks at check_stop() on the way.
std::string sha1_hex(std::span<const std::byte> bytes);

} // namespace tbx
