// Rows of heads that are rotated by pairs, as their loop nests tell: rotation by position in decoders.
#pragma once

#include <optional>

#include "extern_kernels/problem.h"
#include "fusion/dependencies.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Cosines or sines: those of element 0 of the rows, by the batch entry (var(0)), and how they go on.
struct TurnNumbers {
  ir::Expr first = nullptr; ///< a load
  size_t along = 0;         ///< the dimension of its buffer
  int64_t step = 0;         ///< in elements of it
  bool operator==(const TurnNumbers&) const = default;
};

/// What one token's heads [B, H, 1, D] are: `x` rotated.
struct RotatedHeads {
  extern_kernels::HeadRotation rotation; ///< without what queries and keys become
  DType result = DType::undefined;       ///< what elements become; undefined: stay f32
  ir::ExternOperand x;
  TurnNumbers cosines, sines;
  int64_t count = 0;           ///< of cosines: as many as elements turn, or as pairs do
  std::vector<int> operations; ///< that compute the operand
};

/// How the operand [B, H, 1, D] of a call is made by rotation of what is in memory: by one nest, or by nests
/// that write its parts, and over parts of concatenations. Halves and neighbours, all of a head or its
/// beginning. nullopt where it is not.
std::optional<RotatedHeads> find_head_rotation(const ir::Program& program, const Dependencies& deps,
                                               const ir::ExternOperand& operand);

} // namespace tbx::fusion
