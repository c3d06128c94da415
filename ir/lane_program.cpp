#include "ir/lane_program.h"

#include <algorithm>

#include "base/error.h"

namespace tbx::ir {
namespace {

class PhaseCompiler {
public:
  PhaseCompiler(const KernelProgram& kernel, const Phase& phase, bool vertical)
      : kernel_(kernel), phase_(phase), vertical_(vertical) {
    Context& c = *kernel.context;
    if (vertical && !kernel.outer.empty()) block_ = c.var(static_cast<int>(kernel.outer.size()) - 1).node();
    if (!vertical && !phase.inner.empty()) block_ = c.rvar(static_cast<int>(phase.inner.size()) - 1).node();
    for (const Stmt& s : phase.stmts) {
      if (s.kind == StmtKind::store || s.kind == StmtKind::scan) written_.push_back(s.buffer);
      if (s.kind == StmtKind::let) own_locals_.push_back(s.number);
    }
  }

  LanePhase run() {
    out_.phase = &phase_;
    for (const Stmt& s : phase_.stmts) {
      LaneStmt stmt{&s};
      stmt.value = value(s.value);
      if (s.mask) stmt.mask = value(s.mask);
      if (s.kind == StmtKind::store || s.kind == StmtKind::scan) stmt.address = index(s.address);
      stmt.slots_needed = out_.slots.size();
      out_.stmts.push_back(std::move(stmt));
    }
    return std::move(out_);
  }

private:
  int add(Slot slot) {
    out_.slots.push_back(std::move(slot));
    return static_cast<int>(out_.slots.size()) - 1;
  }

  bool uniform(int slot) const { return slot < 0 || out_.slots[slot].uniform; }

  int value(Expr root) {
    if (auto it = slot_of_.find(root); it != slot_of_.end()) return it->second;
    visit(root, [&](Expr e) {
      if (!slot_of_.contains(e)) slot_of_.emplace(e, compile(e));
    });
    return slot_of_.at(root);
  }

  /// Operands, those inside indirect indices included, have been compiled.
  int compile(Expr e) {
    Slot slot{SlotKind::op, e};
    for (int i = 0; i < e->num_args; ++i) slot.args[i] = slot_of_.at(e->args[i]);
    slot.uniform = uniform(slot.args[0]) && uniform(slot.args[1]) && uniform(slot.args[2]);
    switch (e->op) {
    case Op::constant: slot.kind = SlotKind::constant; break;
    case Op::accumulator:
      slot.kind = SlotKind::accumulator;
      slot.uniform = !vertical_;
      break;
    case Op::local:
      slot.kind = SlotKind::local;
      slot.uniform = !vertical_ && !contains(own_locals_, e->number);
      break;
    case Op::index: {
      // The value is used whatever any mask says, so its guards hold everywhere.
      LaneIndex at = index(e->indices[0]);
      int s = materialized(at);
      if (at.guards.empty()) return s;
      slot.kind = SlotKind::sum;
      slot.terms = {{1, s}};
      slot.uniform = uniform(s);
      slot.address = std::move(at);
      break;
    }
    case Op::load: {
      slot.kind = SlotKind::load;
      slot.address = index(e->indices[0]);
      bool still = slot.address.affine ? slot.address.step.is(0) : uniform(slot.address.slot);
      bool lane_private = vertical_ && kernel_.buffers[e->buffer].access == Access::row_local;
      slot.uniform = slot.uniform && still && !lane_private && !contains(written_, e->buffer);
      break;
    }
    default: break;
    }
    return add(std::move(slot));
  }

  static bool contains(const std::vector<int>& v, int x) {
    return std::find(v.begin(), v.end(), x) != v.end();
  }

  LaneIndex index(SymInt e) {
    LaneIndex out;
    visit(e, [&](const SymNode& n) {
      // A statement's address is the one place whose indirect values are no operands of an Expr.
      if (n.kind == SymKind::indirect) value(n.value);
    });
    if (auto affine = split(e)) {
      out.affine = true;
      out.base = affine->rest;
      out.step = affine->coefficient;
      return out;
    }
    out.slot = symbolic(e);
    out.guards = guards_of(e);
    return out;
  }

  std::optional<Affine> split(SymInt e) const {
    if (has_indirect(e)) return std::nullopt;
    return block_ ? affine_in(e, block_) : Affine{0, e};
  }

  int materialized(const LaneIndex& index) {
    if (!index.affine) return index.slot;
    Slot slot{SlotKind::affine};
    slot.uniform = index.step.is(0);
    slot.address = index;
    return add(std::move(slot));
  }

  std::vector<int> guards_of(SymInt e) {
    std::vector<int> guards;
    std::vector<SymInt> stack{e};
    while (!stack.empty()) {
      SymInt x = stack.back();
      stack.pop_back();
      if (x.is_constant()) continue;
      if (x.node()->kind == SymKind::indirect) {
        int slot = symbolic(x);
        if (!contains(guards, slot)) guards.push_back(slot);
      }
      for (auto& [coefficient, term] : x.node()->terms) stack.push_back(SymInt(term));
      for (SymInt a : x.node()->args) stack.push_back(a);
    }
    return guards;
  }

  int symbolic(SymInt e) {
    if (!e.is_constant())
      if (auto it = slot_of_index_.find(e.node()); it != slot_of_index_.end()) return it->second;
    int slot;
    if (auto affine = split(e)) {
      slot = materialized({true, affine->rest, affine->coefficient});
    } else {
      slot = compile(*e.node());
    }
    if (!e.is_constant()) slot_of_index_.emplace(e.node(), slot);
    return slot;
  }

  int compile(const SymNode& n) {
    Slot slot{SlotKind::sum};
    switch (n.kind) {
    case SymKind::indirect:
      slot.kind = SlotKind::indirect;
      slot.args[0] = slot_of_.at(n.value);
      slot.args[1] = symbolic(n.args[0]);
      slot.origin = n.origin;
      break;
    case SymKind::add: {
      // What is affine goes into one slot.
      SymInt plain = n.constant;
      for (auto [coefficient, term] : n.terms) {
        if (split(SymInt(term))) {
          plain += SymInt(coefficient) * SymInt(term);
        } else {
          slot.terms.emplace_back(coefficient, symbolic(SymInt(term)));
        }
      }
      if (plain.is_constant()) {
        slot.constant = plain.constant();
      } else {
        slot.terms.emplace_back(1, symbolic(plain));
      }
      break;
    }
    case SymKind::mul:
      slot.kind = SlotKind::product;
      for (SymInt f : n.args) slot.terms.emplace_back(1, symbolic(f));
      break;
    case SymKind::floordiv:
    case SymKind::mod:
    case SymKind::min:
    case SymKind::max:
      slot.kind = n.kind == SymKind::floordiv ? SlotKind::floordiv
                  : n.kind == SymKind::mod    ? SlotKind::mod
                  : n.kind == SymKind::min    ? SlotKind::min
                                              : SlotKind::max;
      slot.args[0] = symbolic(n.args[0]);
      slot.args[1] = symbolic(n.args[1]);
      break;
    default: TBX_INTERNAL(false && "leaves are affine");
    }
    slot.uniform = uniform(slot.args[0]) && uniform(slot.args[1]);
    for (auto& [coefficient, term] : slot.terms) slot.uniform = slot.uniform && uniform(term);
    return add(std::move(slot));
  }

  const KernelProgram& kernel_;
  const Phase& phase_;
  bool vertical_;
  const SymNode* block_ = nullptr;
  std::vector<int> written_, own_locals_;
  LanePhase out_;
  std::unordered_map<Expr, int> slot_of_;
  std::unordered_map<const SymNode*, int> slot_of_index_;
};

} // namespace

LaneProgram::LaneProgram(const KernelProgram& k, bool vertical) : kernel(k), vertical(vertical) {
  for (const Phase& phase : kernel.phases) phases.push_back(PhaseCompiler(kernel, phase, vertical).run());
}

} // namespace tbx::ir
