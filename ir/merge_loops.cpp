#include "ir/merge_loops.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace tbx::ir {
namespace {

/// Calls `fn` on every index expression of the kernel: store addresses, load addresses, index values.
void for_each_index(const KernelProgram& kernel, const std::function<void(SymInt)>& fn) {
  std::vector<Expr> roots;
  std::function<void(SymInt)> from_index = [&](SymInt e) {
    fn(e);
    visit(e, [&](const SymNode& n) {
      if (n.kind == SymKind::indirect) roots.push_back(n.value);
    });
  };
  std::unordered_set<Expr> seen;
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts) {
      from_index(s.address);
      roots.push_back(s.value);
      if (s.mask) roots.push_back(s.mask);
    }
  while (!roots.empty()) {
    Expr root = roots.back();
    roots.pop_back();
    if (!seen.insert(root).second) continue;
    visit(root, [&](Expr n) {
      if (n->op == Op::load || n->op == Op::index)
        for (SymInt i : n->indices) fn(i);
    });
  }
}

/// coefficient(a) == extent_b * coefficient(b) in every index: a*extent_b + b acts as one variable.
bool act_as_one(const std::unordered_set<SymInt>& indices, const SizeFacts& facts, SymInt a, SymInt b,
                SymInt extent_b) {
  for (SymInt e : indices) {
    if (!depends_on(e, a.node()) && !depends_on(e, b.node())) continue;
    auto fa = affine_in(e, a.node());
    auto fb = affine_in(e, b.node());
    if (!fa || !fb || !facts.equal(fa->coefficient, extent_b * fb->coefficient)) return false;
  }
  return true;
}

class Merger {
public:
  Merger(KernelProgram& kernel, const SizeFacts& facts)
      : kernel_(kernel), facts_(facts), c_(*kernel.context) {}

  void run() {
    for_each_index(kernel_, [&](SymInt e) {
      if (has_loop_variable(e)) indices_.insert(e);
    });
    merge_outer();
    merge_inner();
  }

private:
  /// Loops of this extent keep threads busy when a loop behind them is moved into one before them, as the
  /// height of an image into its width across the channels. Lines may be as short as a single element.
  static bool gives_enough_tasks(const SymInts& extents, const std::vector<int>& run) {
    constexpr int64_t kMany = 256;
    const auto extent = extents[run.back()].as_constant();
    return run.size() == 1 && extent && *extent >= kMany;
  }

  /// Plans new loops for `extents`: returns the substitution of old variables and the new extents.
  /// `any_order`: loops need not be neighbours.
  bool plan(const SymInts& extents, const std::function<SymInt(int)>& variable, SymInts& merged,
            SymInts& replacement, bool any_order) {
    // Runs of loops that merge: each old loop belongs to one new loop, the last of a run carries the
    // variable.
    std::vector<std::vector<int>> runs;
    bool changed = false;
    for (size_t k = 0; k < extents.size(); ++k) {
      const int loop = static_cast<int>(k);
      if (extents[k].is(1)) {
        changed = true;
        continue;
      }
      size_t r = runs.size();
      while (r > 0 &&
             !act_as_one(indices_, facts_, variable(runs[r - 1].back()), variable(loop), extents[k])) {
        --r;
        if (!any_order || r == 0 || !gives_enough_tasks(extents, runs[r])) {
          r = 0;
          break;
        }
      }
      if (r == 0) {
        runs.push_back({loop});
        continue;
      }
      std::rotate(runs.begin() + static_cast<std::ptrdiff_t>(r) - 1,
                  runs.begin() + static_cast<std::ptrdiff_t>(r), runs.end());
      runs.back().push_back(loop);
      changed = true;
    }
    std::vector<int> run_of(extents.size(), -1);
    merged.clear();
    for (size_t r = 0; r < runs.size(); ++r) {
      merged.emplace_back(1);
      for (int loop : runs[r]) {
        merged.back() = merged.back() * extents[loop];
        run_of[loop] = static_cast<int>(r);
      }
    }
    replacement.assign(extents.size(), SymInt(0));
    for (size_t k = 0; k < extents.size(); ++k) {
      bool last_of_run = run_of[k] >= 0;
      for (size_t j = k + 1; j < extents.size(); ++j) last_of_run &= run_of[j] != run_of[k];
      if (last_of_run) replacement[k] = variable(run_of[k]);
    }
    return changed;
  }

  void rewrite_all(const Substitution& s) {
    for (Phase& phase : kernel_.phases) rewrite_phase(phase, s);
  }

  static void rewrite_phase(Phase& phase, const Substitution& s) {
    for (Stmt& st : phase.stmts) {
      st.value = ir::substitute(st.value, s);
      if (st.mask) st.mask = ir::substitute(st.mask, s);
      st.address = ir::substitute(st.address, s);
    }
  }

  void merge_outer() {
    SymInts merged, replacement;
    if (!plan(
            kernel_.outer, [&](int k) { return c_.var(k); }, merged, replacement, true))
      return;
    kernel_.outer = merged;
    rewrite_all({replacement, {}});
    std::unordered_set<SymInt> renewed;
    for (SymInt e : indices_) renewed.insert(ir::substitute(e, {replacement, {}}));
    indices_ = std::move(renewed);
  }

  /// All phases with inner loops share them, so they merge alike (scans keep their single loop).
  void merge_inner() {
    const SymInts* inner = nullptr;
    for (const Phase& phase : kernel_.phases) {
      if (phase.inner.empty()) continue;
      if (inner && *inner != phase.inner) return;
      inner = &phase.inner;
    }
    if (!inner) return;
    SymInts merged, replacement, extents = *inner;
    if (!plan(
            extents, [&](int k) { return c_.rvar(k); }, merged, replacement, false))
      return;
    if (merged.empty()) merged.push_back(1); // a reduction over one element still needs its loop
    for (Phase& phase : kernel_.phases) {
      if (phase.inner.empty()) continue;
      phase.inner = merged;
      rewrite_phase(phase, {{}, replacement});
    }
  }

  KernelProgram& kernel_;
  const SizeFacts& facts_;
  Context& c_;
  std::unordered_set<SymInt> indices_;
};

} // namespace

void merge_loops(KernelProgram& kernel, const SizeFacts& facts) { Merger(kernel, facts).run(); }

} // namespace tbx::ir
