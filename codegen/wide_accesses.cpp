#include "codegen/wide_accesses.h"

#include <algorithm>

#include "codegen/lanes.h"

namespace tbx::codegen {

using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

int most_lanes(const ir::KernelProgram& kernel, const Gpu& gpu) {
  int64_t narrowest = 8;
  for (const ir::KernelBuffer& b : kernel.buffers) narrowest = std::min(narrowest, size_of(b.dtype));
  return static_cast<int>(std::min<int64_t>(gpu.most_lanes, Gpu::kAccessBytes / narrowest));
}

bool suits(const ir::KernelProgram& kernel, const Phase& phase, const ir::SymNode* variable, int lanes,
           const std::vector<ir::Expr>& turned) {
  LaneAnalysis analysis(variable, lanes);
  bool good = true;
  for (const Stmt& s : phase.stmts)
    ir::visit_accesses(s, [&](int buffer, SymInt address) {
      for (ir::Expr e : turned)
        if (e->buffer == buffer && e->indices[0] == address) return;
      const LaneForm form = analysis.form(address);
      if (form.kind == LaneForm::uniform) {
        // Several lanes that store to one place: the last one counts, which only a scalar loop keeps cheap.
        good &= buffer != s.buffer || s.kind == StmtKind::reduce;
        return;
      }
      const ir::KernelBuffer& b = kernel.buffers[buffer];
      const int64_t wanted = std::min<int64_t>(Gpu::kAccessBytes, lanes * size_of(b.dtype));
      const int known = access_bytes(b, address, variable, lanes);
      good &= form.kind == LaneForm::affine && form.stride.is(1) && known % wanted == 0;
    });
  return good;
}

std::optional<SymInt> begin_of_rows(const ir::KernelProgram& kernel, const std::vector<const Phase*>& phases,
                                    const ir::SymNode* variable, int lanes,
                                    const std::vector<ir::Expr>& turned, bool backwards) {
  std::optional<SymInt> begin;
  bool good = true;
  auto visit_rows = [&](auto&& f) {
    for (const Phase* phase : phases) {
      LaneAnalysis analysis(variable, lanes, 1);
      for (const Stmt& s : phase->stmts)
        ir::visit_accesses(s, [&](int buffer, SymInt address) {
          for (ir::Expr e : turned)
            if (e->buffer == buffer && e->indices[0] == address) return;
          const LaneForm form = analysis.form(address);
          const auto place = ir::affine_in(address, variable);
          if (form.kind == LaneForm::uniform)
            good &= buffer != s.buffer || s.kind == StmtKind::reduce;
          else if (form.kind != LaneForm::affine || !form.stride.is(1) || !place)
            good = false;
          else
            f(place->rest + SymInt(kernel.buffers[buffer].offset), buffer, buffer == s.buffer);
        });
    }
  };
  visit_rows([&](SymInt first, int, bool) {
    if (!begin && (backwards || ir::has_loop_variable(first))) begin = first;
  });
  if (!begin) return std::nullopt;
  // What rows have in common is read often, if not in vectors, and rows of a block's own stay in a cache.
  auto is_shared = [&](SymInt first) {
    for (size_t k = 0; k < kernel.outer.size(); ++k) {
      const ir::SymNode* outer = kernel.context->var(static_cast<int>(k)).node();
      if (outer != variable && !ir::depends_on(first, outer)) return true;
    }
    return false;
  };
  visit_rows([&](SymInt first, int buffer, bool stored) {
    good &= known_divisor(first - *begin, nullptr, 1) % lanes == 0 || (!stored && is_shared(first)) ||
            kernel.buffers[buffer].access == ir::Access::row_local;
  });
  return good ? begin : std::nullopt;
}

} // namespace tbx::codegen
