// The innermost loops of Winograd's convolution, for every instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "extern_kernels/problem.h"
#include "extern_kernels/vector_tile.h"

namespace tbx::extern_kernels::winograd {

/// Columns of a panel of packed weights, and of the sums that are made of it.
inline constexpr int64_t kPanel = 32;
/// Floats that lines of channels are padded to.
inline constexpr int64_t kLine = 16;
/// Rows of a product at most.
inline constexpr int64_t kRows = 14;
/// Results of a tile at most.
inline constexpr int64_t kResults = 16;

/// A post-operation at one tile.
struct TileOp {
  PostOp::Kind kind;
  float alpha = 0, beta = 0;
  int64_t channel_step = 0;            ///< of the operand
  const float* operand[kResults] = {}; ///< its first channel, for each result; nullptr: outside
};

/// Results of one tile in one panel.
struct TileOutput {
  const float* sums = nullptr; ///< [product, ...] of the first column
  int64_t sums_step = 0;       ///< between products
  int64_t channels = 0;        ///< columns that are results
  const float* bias = nullptr; ///< of the first column, as many as `channels`; nullptr: none
  std::span<const TileOp> ops;
  int64_t first = 0;             ///< the first column's channel, for operands
  float* results[kResults] = {}; ///< [row, column]: where the first channel goes; nullptr: nowhere
};

struct Loops {
  /// to[product * step + channel] of a tile whose pixels are given; whole lines are written, zeros behind the
  /// last channel.
  void (*transform_input)(const float* const* pixels, int64_t channels, float* to, int64_t step);
  /// sums[row, column] = rows[row * row_step + l] * panel[l, column], for up to kRows rows and the first
  /// `columns` columns, of whole vectors. `more`: added to what is there.
  /// `beside`: fetched meanwhile.
  void (*multiply)(const float* rows, int64_t row_step, int count, int64_t depth, const float* panel,
                   int64_t columns, float* sums, bool more, FetchLines beside);
  /// False where a result is not finite: then nothing has been stored.
  bool (*transform_output)(const TileOutput& tile);
  /// Bias and post-operations of finished sums [result, kPanel].
  void (*store)(const TileOutput& tile);
};

/// For tiles of `m` results along both dimensions (2 or 4), on this CPU.
const Loops& loops(int m);

/// Why a post-operation is none of those that the loops do; nullptr: it is one.
const char* refused_op(PostOp::Kind kind);

} // namespace tbx::extern_kernels::winograd
