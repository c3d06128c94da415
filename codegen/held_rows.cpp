#include "codegen/held_rows.h"

#include "codegen/plan_threads.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tbx::codegen {

using ir::Access;
using ir::Expr;
using ir::Op;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

constexpr int kMostSteps = 16;

/// The inner space of the first phase that has one of constant size.
const ir::SymInts* common_inner(const ir::KernelProgram& kernel) {
  for (const Phase& phase : kernel.phases)
    if (!phase.inner.empty()) return ir::product(phase.inner).as_constant() ? &phase.inner : nullptr;
  return nullptr;
}

/// How a buffer is used by the statements.
struct Use {
  int stores = 0, loads = 0, first = -1, last = -1; ///< phases
  SymInt address;
  bool good =
      true; ///< all accesses so far are to one address, by a phase of the rows, loads behind the store
};

class Finder {
public:
  Finder(const ir::KernelProgram& kernel, int lanes, HeldRows& rows)
      : kernel_(kernel), rows_(rows),
        along_(kernel.context->rvar(static_cast<int>(common_inner(kernel)->size()) - 1).node(), lanes) {}

  /// The largest number of values that are held at once.
  int run() {
    for (const Phase& phase : kernel_.phases)
      rows_.phases.push_back(phase.inner == *common_inner(kernel_) && !is_scan_of_team(phase));
    alive_.resize(kernel_.phases.size());
    find_buffers();
    find_values();
    return *std::max_element(alive_.begin(), alive_.end());
  }

private:
  void note_life(int first, int last) {
    for (int p = first; p < last; ++p) ++alive_[p];
  }

  void find_buffers() {
    std::vector<Use> uses(kernel_.buffers.size());
    auto note = [&](int b, SymInt address, size_t p, bool store) {
      Use& u = uses[b];
      if (store) {
        u.good &= ++u.stores == 1;
        u.first = static_cast<int>(p);
        u.address = address;
      }
      u.last = static_cast<int>(p);
      u.good &= rows_.phases[p] && u.stores == 1 && u.address == address;
    };
    for (size_t p = 0; p < kernel_.phases.size(); ++p)
      for (const Stmt& s : kernel_.phases[p].stmts) {
        ir::visit(ir::values_of(s), [&](Expr e) {
          if (e->op != Op::load) return;
          note(e->buffer, e->indices[0], p, false);
          uses[e->buffer].good &= !e->mask();
          ++uses[e->buffer].loads;
        });
        if (s.buffer < 0) continue;
        if (s.kind != StmtKind::store || s.mode != ir::StoreMode::set || s.mask) uses[s.buffer].good = false;
        note(s.buffer, s.address, p, true);
      }
    for (size_t b = 0; b < uses.size(); ++b) {
      const ir::KernelBuffer& k = kernel_.buffers[b];
      if (uses[b].good && uses[b].stores == 1 && uses[b].loads > 0 && !k.may_alias &&
          along_.form(uses[b].address).stride.is(1) &&
          (k.access == Access::row_local || k.access == Access::write)) {
        rows_.buffers.push_back(static_cast<int>(b));
        note_life(uses[b].first, uses[b].last);
      } else if (uses[b].stores > 0 || k.may_alias)
        changing_.insert(static_cast<int>(b));
    }
  }

  /// Worth a register: what is loaded or computed at some cost, the same in every phase.
  bool is_worth(Expr e) {
    if (e->dtype != DType::f32 || !along_.varies(e)) return false;
    if (e->op == Op::load && rows_.holds(e->buffer)) return false; // is in one already
    bool good = true, dear = false;
    ir::visit(e, [&](Expr x) {
      good &= x->op != Op::local && x->op != Op::random;
      if (x->op == Op::load) {
        good &= !changing_.contains(x->buffer);
        dear |= !rows_.holds(x->buffer);
      }
      dear |= ir::is_expensive(x->op);
    });
    return good && dear;
  }

  void find_values() {
    std::unordered_map<Expr, int> first; // phase that has it
    std::unordered_map<Expr, int> held;  // phase that had it last
    for (size_t p = 0; p < kernel_.phases.size(); ++p) {
      if (!rows_.phases[p]) continue;
      std::vector<Expr> left;
      std::unordered_set<Expr> seen;
      auto look = [&](Expr e) {
        if (seen.insert(e).second) left.push_back(e);
      };
      for (const Stmt& s : kernel_.phases[p].stmts) {
        look(s.value);
        if (s.mask) look(s.mask);
      }
      std::vector<Expr> here;
      while (!left.empty()) {
        Expr e = left.back();
        left.pop_back();
        here.push_back(e);
        auto it = first.find(e);
        if (it != first.end() && is_worth(e)) {
          auto [last, fresh] = held.try_emplace(e, it->second);
          if (fresh) rows_.values.push_back({e, it->second});
          note_life(last->second, static_cast<int>(p));
          last->second = static_cast<int>(p);
          continue; // its operands are not needed here
        }
        for (int i = 0; i < e->num_args; ++i) look(e->args[i]);
      }
      for (Expr e : here) first.try_emplace(e, static_cast<int>(p));
    }
    // Those of one phase in a fixed order: they may need each other.
    std::stable_sort(rows_.values.begin(), rows_.values.end(),
                     [](const auto& a, const auto& b) { return a.phase < b.phase; });
  }

  const ir::KernelProgram& kernel_;
  HeldRows& rows_;
  LaneAnalysis along_;
  std::vector<int> alive_;           ///< by phase: values held from it to the next one
  std::unordered_set<int> changing_; ///< buffers whose elements are not the same in every phase
};

} // namespace

bool HeldRows::holds(int buffer) const {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

RowWork row_work(const ir::KernelProgram& kernel) {
  RowWork work;
  const ir::SymInts* inner = common_inner(kernel);
  if (!inner) return work;
  work.points = *ir::product(*inner).as_constant();
  std::unordered_set<Expr> seen;
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts)
      ir::visit(ir::values_of(s), [&](Expr e) {
        if (e->op != Op::constant && seen.insert(e).second)
          work.instructions += ir::is_expensive(e->op) ? 16 : 1;
      });
  return work;
}

HeldRows hold_rows(const ir::KernelProgram& kernel, int lanes, int threads, const Gpu& gpu) {
  HeldRows rows;
  const RowWork work = row_work(kernel);
  const int64_t step = int64_t{lanes} * threads, steps = (work.points + step - 1) / step;
  const int64_t most_held = gpu.registers_of(threads) / 2; // elements of a thread, between two phases
  if (work.points == 0 || work.points % lanes != 0 || steps > kMostSteps ||
      steps * lanes > gpu.registers_of(1) / 2 || steps * lanes * work.instructions > gpu.instructions)
    return rows;
  rows.threads = threads;
  rows.steps = static_cast<int>(steps);
  const int64_t held = Finder(kernel, lanes, rows).run() * steps * lanes;
  return held <= most_held ? rows : HeldRows{};
}

SharedRows share_rows(const ir::KernelProgram& kernel, int lanes, int64_t most_bytes) {
  SharedRows shared;
  const ir::SymInts* inner = common_inner(kernel);
  if (!inner || inner->size() != 1) return shared;
  LaneAnalysis along(kernel.context->rvar(0).node(), lanes, 1);
  shared.points = (*(*inner)[0].as_constant() + lanes - 1) / lanes * lanes;
  std::vector<bool> changing(kernel.buffers.size());
  for (size_t b = 0; b < changing.size(); ++b) changing[b] = kernel.buffers[b].access != Access::read;
  std::vector<std::pair<Expr, int>> loads; // in the order of the text
  std::unordered_map<Expr, bool> again;
  for (size_t p = 0; p < kernel.phases.size(); ++p) {
    const Phase& phase = kernel.phases[p];
    shared.phases.push_back(phase.inner == *inner && !is_scan_of_team(phase));
    if (!shared.phases.back()) continue;
    std::unordered_set<Expr> here;
    for (const Stmt& s : phase.stmts)
      ir::visit(ir::values_of(s), [&](Expr e) {
        if (e->op != Op::load || e->mask() || changing[e->buffer] || kernel.buffers[e->buffer].may_alias)
          return;
        const LaneForm form = along.form(e->indices[0]);
        if (form.kind != LaneForm::affine || !form.stride.is(1) || !here.insert(e).second) return;
        auto [it, fresh] = again.try_emplace(e, false);
        if (fresh)
          loads.emplace_back(e, static_cast<int>(p));
        else
          it->second = true;
      });
  }
  for (auto& [load, phase] : loads) {
    const int64_t bytes = (shared.points + int64_t{2} * lanes) * size_of(kernel.buffers[load->buffer].dtype);
    if (!again[load] || shared.bytes + bytes > most_bytes) continue;
    shared.rows.push_back({load, phase, shared.bytes});
    shared.bytes += (bytes + 15) / 16 * 16;
  }
  return shared;
}

} // namespace tbx::codegen
