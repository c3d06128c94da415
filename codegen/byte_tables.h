// Values of 8 bits that depend on one other value of 8 bits: chains of dequantising, activation and
// quantising. What such a chain gives for each of the 256 values is known while compiling, and looking it up
// is cheaper than computing it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ir/expr.h"

namespace tbx::codegen {

struct ByteTable {
  ir::Expr source = nullptr;       ///< i8 or u8
  std::array<uint8_t, 256> values; ///< bits of the result by bits of the source
};

/// The table of an i8 or u8 value; nothing where it depends on more than one value of 8 bits, or where
/// computing it takes no more instructions than looking it up.
std::optional<ByteTable> byte_table(ir::Expr e);

} // namespace tbx::codegen
