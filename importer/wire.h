// A look over the protobuf bytes of a model before protobuf builds anything from them.
#pragma once

#include <cstddef>
#include <span>

#include "importer/import.h"

namespace tbx::importer {

/// ModelError when the bytes are not a sequence of well-formed fields, when graphs are nested too deeply, or
/// when there are so many nodes or parts that parsing would take memory out of proportion: an empty message
/// is two bytes in the file and hundreds in memory. Raw tensor data is stepped over, so the cost is that of
/// the graph alone.
void check_wire(std::span<const std::byte> bytes, const ImportOptions& options);

} // namespace tbx::importer
