// Row norms: recognises the operations that norm one row, so that a kernel that reads the row can do it.
#pragma once

#include <optional>
#include <vector>

#include "fusion/dependencies.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

/// (x - mean) / deviation, or x over its root mean square, times scale, plus shift.
struct RowNorm {
  extern_kernels::RowWork work;      ///< of which norm, epsilon and rounded
  ir::ExternOperand x, scale, shift; ///< views [1, k]; the last two may be absent
  std::vector<int> operations;       ///< all that compute it, which nobody else reads
};

/// The row of `length` elements that `load` reads while `variable` runs, of which each moves along one whole
/// dimension of its buffer of f32, f16 or bf16, as a view [1, length].
std::optional<ir::ExternOperand> row_view(const ir::Program& program, ir::Expr load, ir::SymInt variable,
                                          ir::SymInt length);

/// What the pointwise operation `op` computes, where that is a norm of one row of constant length that lies
/// in memory.
std::optional<RowNorm> find_row_norm(const ir::Program& program, const Dependencies& deps, int op);

} // namespace tbx::fusion
