// Products of bytes in tile registers (AMX): pixels of quantised networks times weights, and what is done to
// the sums before they are bytes again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "extern_kernels/problem.h"

namespace tbx::extern_kernels::bytes {

/// Terms and columns that are multiplied together: no product takes parts of them.
inline constexpr int64_t kTileTerms = 64, kTileColumns = 32;
/// Rows of a tile: with less, tiles are mostly empty.
inline constexpr int64_t kTileRows = 16;

/// What becomes of a sum behind its scale and bias. It is rounded to even and saturated to u8 at last.
struct TileWork {
  bool is_more = false; ///< rounded, clipped, times `alpha` plus `beta`
  float low = 0, high = 0, alpha = 1, beta = 0;
  int operand = -1; ///< input of u8 that lies as the result: added then, all of it times `gamma` plus `delta`
  float gamma = 1, delta = 0;

  /// nullopt: other operations.
  static std::optional<TileWork> of(std::span<const PostOp> ops);
};

/// Rows of u8 times weights of i8. A product with a scale and the sum with a bias are rounded once.
struct TileProduct {
  int64_t rows = 0, depth = 0, columns = 0;
  const uint8_t* a = nullptr;
  /// Rows are the pixels of lines of images, these steps apart; without `pixels` they lie one behind the
  /// other.
  int64_t pixels = 0, lines = 0, pixel_step = 0, line_step = 0, image_step = 0;
  const int8_t* weights = nullptr; ///< [columns / 16, depth / 64, 16, 16, 4]
  const float* scale = nullptr;    ///< of all columns, or of each
  bool is_of_columns = false;
  const float* bias = nullptr; ///< of each, or none
  TileWork work;
  const uint8_t* operand = nullptr;
  uint8_t* result = nullptr; ///< row by row

  /// By the threads of the arena.
  void run() const;
};

/// The CPU has such registers, and the system keeps them for this process.
bool has_byte_tiles();

} // namespace tbx::extern_kernels::bytes
