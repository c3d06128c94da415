// What a pointwise nest does with the result of a library call, as a chain of post-operations.
#pragma once

#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "extern_kernels/problem.h"
#include "ir/expr.h"

namespace tbx::fusion {

/// (value of `load` - zero) * scale: what DequantizeLinear makes of bytes.
struct Dequantised {
  ir::Expr load;
  double zero = 0, scale = 1;
};

/// One step of the chain: how `cur` becomes the next expression.
struct Link {
  ir::Expr next;
  extern_kernels::PostOp op;
  ir::Expr operand = nullptr;         ///< the extra operand: a load, a constant, or what a kernel computes
  std::optional<Dequantised> bytes{}; ///< what the operand is, where it lies in memory as bytes
};

/// Behind integers and bytes a linear step joins the one before it, and zero points move behind the clip that
/// they come before: they are added to whole numbers there.
void append_step(std::vector<extern_kernels::PostOp>& steps, extern_kernels::PostOp step);

/// Recognises what the consumer does with `cur` (an f32 value) inside `root`.
class ChainMatcher {
public:
  /// `product` is the load that the chain begins with. Of `integers`, or bytes made of them: scales may be
  /// computed, and tensors of bytes added.
  ChainMatcher(ir::Expr root, ir::Expr product, bool integers);

  std::optional<Link> next(ir::Expr cur) const;
  /// The one conversion of the exact sum; nullptr where there is none or another use.
  ir::Expr as_f32(ir::Expr sum) const;
  /// The one float that is made of the bytes.
  std::optional<std::pair<ir::Expr, Dequantised>> as_dequantised(ir::Expr bytes) const;

private:
  bool usable(ir::Expr cur, const Link& link) const;
  std::optional<Link> binary_link(ir::Expr cur, ir::Expr user) const;
  bool moves_with_one(ir::Expr e) const;

  ir::Expr root_, product_;
  bool integers_;
  std::vector<ir::Expr> nodes_;
  std::unordered_set<ir::Expr> present_;
  std::set<ir::Op> operations_; ///< of the nodes
};

} // namespace tbx::fusion
