// numpy's .npy format, version 1 to 3: magic, header length, a Python dict literal, data.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include "tools/common.h"

namespace tbx::tools {

/// An array of any byte order and memory order, as a row-major tensor. Types that numpy lacks, which it saves
/// as bytes ('|V2'), become unsigned integers. `path` is for messages. Throws UsageError.
OwnedTensor parse_npy(const std::string& path, const std::string& bytes);
/// The file's bytes; types that numpy lacks become unsigned integers of the same width.
std::string to_npy(const OwnedTensor& t);
/// True when numpy has this element type.
bool numpy_has(int32_t type);

} // namespace tbx::tools
