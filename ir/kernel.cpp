#include "ir/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/index_range.h"

namespace tbx::ir {
namespace {

const char* name_of(Access access) {
  switch (access) {
  case Access::read: return "read";
  case Access::write: return "write";
  case Access::read_write: return "read_write";
  case Access::row_local: return "row_local";
  }
  return "?";
}

const char* name_of(StoreMode mode) {
  switch (mode) {
  case StoreMode::set: return "=";
  case StoreMode::add: return "+=";
  case StoreMode::mul: return "*=";
  case StoreMode::max: return "max=";
  case StoreMode::min: return "min=";
  }
  return "?";
}

std::string to_string(const Stmt& s) {
  std::string mask = s.mask ? " if " + to_string(s.mask) : "";
  switch (s.kind) {
  case StmtKind::store:
    return fmt::format("b{}[{}] {} {}{}", s.buffer, to_string(s.address), name_of(s.mode), to_string(s.value),
                       mask);
  case StmtKind::reduce: return fmt::format("acc{} {}= {}", s.number, name_of(s.reduce), to_string(s.value));
  case StmtKind::scan:
    return fmt::format("b{}[{}] = {}scan {} {}", s.buffer, to_string(s.address),
                       s.exclusive ? "exclusive " : "", name_of(s.reduce), to_string(s.value));
  case StmtKind::let: return fmt::format("local{} = {}", s.number, to_string(s.value));
  }
  return "?";
}

} // namespace

std::vector<Expr> operands_of(const Stmt& s) {
  std::vector<Expr> values{s.value};
  if (s.mask) values.push_back(s.mask);
  return values;
}

std::vector<Expr> address_values_of(const Stmt& s) {
  std::vector<Expr> values;
  if (s.buffer >= 0)
    visit(s.address, [&](const SymNode& n) {
      if (n.kind == SymKind::indirect) values.push_back(n.value);
    });
  return values;
}

std::vector<Expr> values_of(const Stmt& s) {
  std::vector<Expr> values = operands_of(s);
  for (Expr e : address_values_of(s)) values.push_back(e);
  return values;
}

std::string to_string(const KernelProgram& kernel) {
  std::string out =
      fmt::format("kernel outer {}{}\n", to_string(kernel.outer), kernel.sequential ? " sequential" : "");
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const KernelBuffer& buffer = kernel.buffers[b];
    out += fmt::format("  b{}: {} {}[{}]{}\n", b, name_of(buffer.access), tbx::name_of(buffer.dtype),
                       to_string(buffer.numel), buffer.offset ? fmt::format(" from {}", buffer.offset) : "");
  }
  for (const Phase& phase : kernel.phases) {
    out += fmt::format("  phase {}\n", to_string(phase.inner));
    for (const Stmt& s : phase.stmts) out += "    " + to_string(s) + "\n";
  }
  return out;
}

namespace {

/// Addresses over loops of known extents, all points of which are reached: those of masks and indirect values
/// are checked where they are used, those over symbols by what check_bounds() found.
void verify_address(const KernelProgram& kernel, int buffer, SymInt address, const Extents& extents) {
  auto empty = [](SymInt e) { return !provably_positive(e); };
  if (std::ranges::any_of(extents.vars, empty) || std::ranges::any_of(extents.rvars, empty)) return;
  auto least = extreme(address, extents, false), greatest = extreme(address, extents, true);
  if (!least || !greatest) return;
  const SymInt room = kernel.buffers[static_cast<size_t>(buffer)].numel - SymInt(1) - *greatest;
  TBX_INTERNAL(!least->is_constant() || least->constant() >= 0);
  TBX_INTERNAL(!room.is_constant() || room.constant() >= 0);
}

} // namespace

void verify(const KernelProgram& kernel) {
  std::vector<bool> accumulators(kernel.num_accumulators, false), locals(kernel.num_locals, false);
  auto check_expr = [&](Expr e, const Extents& extents) {
    visit(e, [&](Expr n) {
      switch (n->op) {
      case Op::load: {
        TBX_INTERNAL(n->buffer >= 0 && n->buffer < static_cast<int>(kernel.buffers.size()));
        TBX_INTERNAL(n->indices.size() == 1);
        TBX_INTERNAL(n->dtype == compute_type(kernel.buffers[n->buffer].dtype));
        if (!n->mask()) verify_address(kernel, n->buffer, n->indices[0], extents);
        break;
      }
      case Op::accumulator:
        TBX_INTERNAL(n->number >= 0 && n->number < kernel.num_accumulators && accumulators[n->number]);
        break;
      case Op::local:
        TBX_INTERNAL(n->number >= 0 && n->number < kernel.num_locals && locals[n->number]);
        break;
      default: break;
      }
    });
  };
  for (const Phase& phase : kernel.phases) {
    std::vector<int> reduced;
    const Extents extents = kernel.extents(phase);
    for (const Stmt& s : phase.stmts) {
      check_expr(s.value, extents);
      if (s.mask) {
        check_expr(s.mask, extents);
        TBX_INTERNAL(s.mask->dtype == DType::boolean);
      }
      for (Expr e : address_values_of(s)) check_expr(e, extents);
      switch (s.kind) {
      case StmtKind::store:
      case StmtKind::scan:
        TBX_INTERNAL(s.buffer >= 0 && s.buffer < static_cast<int>(kernel.buffers.size()));
        TBX_INTERNAL(s.value->dtype == compute_type(kernel.buffers[s.buffer].dtype));
        TBX_INTERNAL(kernel.buffers[s.buffer].access != Access::read);
        if (!s.mask) verify_address(kernel, s.buffer, s.address, extents);
        break;
      case StmtKind::reduce: reduced.push_back(s.number); break;
      case StmtKind::let: locals.at(s.number) = true; break;
      }
    }
    for (int number : reduced) accumulators.at(number) = true;
  }
}

} // namespace tbx::ir
