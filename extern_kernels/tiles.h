// Tile registers (AMX): whether they are there, and how they are divided.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels {

enum class TileFeature : uint8_t { bf16, bytes };

/// Whether the CPU multiplies these in them, and the system keeps those of this process, which has to be
/// asked once.
bool has_tile_registers(TileFeature feature);

/// All registers are tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

} // namespace tbx::extern_kernels
