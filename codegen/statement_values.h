// What a statement computes, value by value.
#pragma once

#include "ir/kernel.h"

namespace tbx::codegen {

/// Calls f on every value of a statement: what it stores or adds, its mask, indices in its address.
template <class F> void visit_values(const ir::Stmt& s, F&& f) {
  ir::visit(s.value, f);
  if (s.mask) ir::visit(s.mask, f);
  if (s.buffer >= 0)
    ir::visit(s.address, [&](const ir::SymNode& n) {
      if (n.kind == ir::SymKind::indirect) ir::visit(n.value, f);
    });
}

} // namespace tbx::codegen
