// Moves the constant every address of a buffer begins with out of the kernel and into the place it is called
// from: the copies of 1,000 slices, equal but for where they begin, are one function then.
#include <algorithm>
#include <limits>

#include "fusion/build_kernel.h"

namespace tbx::fusion {

using namespace ir;

namespace {

int64_t constant_part(SymInt address) {
  if (auto c = address.as_constant()) return *c;
  return address.node()->kind == SymKind::add ? address.node()->constant : 0;
}

class OffsetMover {
public:
  explicit OffsetMover(KernelProgram& kernel) : kernel_(kernel), c_(*kernel.context) {}

  void run() {
    offsets_.assign(kernel_.buffers.size(), std::numeric_limits<int64_t>::max());
    for_each_access([&](int buffer, SymInt address, const Extents&) {
      offsets_[buffer] = std::min(offsets_[buffer], constant_part(address));
    });
    for (size_t b = 0; b < offsets_.size(); ++b) {
      const KernelBuffer& buffer = kernel_.buffers[b];
      const bool movable = buffer.access != Access::row_local && !buffer.may_alias;
      if (!movable || offsets_[b] < 0 || offsets_[b] == std::numeric_limits<int64_t>::max()) offsets_[b] = 0;
    }
    // What is left must count upwards from the new beginning, as all addresses of kernels do.
    for_each_access([&](int buffer, SymInt address, const Extents& extents) {
      if (offsets_[buffer] > 0 && !provably_nonnegative(address - SymInt(offsets_[buffer]), extents))
        offsets_[buffer] = 0;
    });
    if (std::ranges::all_of(offsets_, [](int64_t o) { return o == 0; })) return;
    for (Phase& phase : kernel_.phases)
      for (Stmt& s : phase.stmts) {
        s.value = moved(s.value);
        if (s.mask) s.mask = moved(s.mask);
        if (s.buffer >= 0) s.address = moved(s.address) - SymInt(offsets_[s.buffer]);
      }
    for (size_t b = 0; b < offsets_.size(); ++b) {
      kernel_.buffers[b].offset = offsets_[b];
      kernel_.buffers[b].numel = kernel_.buffers[b].numel - SymInt(offsets_[b]);
    }
  }

private:
  template <class F> void for_each_access(F&& fn) const {
    for (const Phase& phase : kernel_.phases) {
      const Extents extents = kernel_.extents(phase);
      for (const Stmt& s : phase.stmts) {
        std::vector<Expr> roots{s.value};
        if (s.mask) roots.push_back(s.mask);
        if (s.buffer >= 0) {
          fn(s.buffer, s.address, extents);
          roots.push_back(c_.index(s.address));
        }
        visit(roots, [&](Expr n) {
          if (n->op == Op::load) fn(n->buffer, n->indices[0], extents);
        });
      }
    }
  }

  Expr moved(Expr e) const {
    return rewrite(e, [&](Expr n) -> Expr {
      if (n->op != Op::load || offsets_[n->buffer] == 0) return n;
      return c_.load(n->buffer, n->dtype, {n->indices[0] - SymInt(offsets_[n->buffer])}, n->mask());
    });
  }

  /// Loads inside the address.
  SymInt moved(SymInt address) const {
    return address.is_constant() ? address : moved(c_.index(address))->indices[0];
  }

  KernelProgram& kernel_;
  Context& c_;
  std::vector<int64_t> offsets_; ///< by kernel buffer, elements
};

} // namespace

void move_offsets(KernelProgram& kernel) { OffsetMover(kernel).run(); }

} // namespace tbx::fusion
