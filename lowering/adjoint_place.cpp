// Where the parts of a gradient go: to the element that a load read.
#include <algorithm>

#include "lowering/adjoint.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {
namespace {

/// How many times more elements than loops there may be where a nest over the elements replaces a scatter.
constexpr int64_t kSparse = 4;

/// A loop variable of the nest that an index contains with the coefficient 1 or -1: solved for it, the
/// element says at which value of the variable it is read.
struct Solved {
  int loop; ///< var(loop), then the rvars
  int dimension;
  bool negative;
  SymInt rest, extent;
};

class Inverse {
public:
  Inverse(ir::Context& c, const ir::Extents& extents) : c_(c), extents_(extents) {
    all_ = extents.vars;
    all_.insert(all_.end(), extents.rvars.begin(), extents.rvars.end());
  }

  /// False when the indices cannot be solved, each for a variable of its own.
  bool solve(const SymInts& indices, const SymInts& sizes) {
    for (size_t k = 0; k < indices.size(); ++k) {
      SymInt index = ir::simplify(indices[k], extents_);
      if (index.is(0) && sizes[k].is(1)) continue;
      if (!solve_one(static_cast<int>(k), index, sizes[k])) return false;
    }
    auto is_solved = [&](SymInt e) {
      return std::any_of(solved_.begin(), solved_.end(),
                         [&](const Solved& s) { return ir::depends_on(e, variable(s.loop).node()); });
    };
    return std::none_of(solved_.begin(), solved_.end(), [&](const Solved& s) { return is_solved(s.rest); });
  }

  /// The loops that no index says anything about, to be summed over: they become rvars.
  SymInts others;
  /// Variables of the nest in terms of those of the element; fills `others` and `mask`, true inside of the
  /// nest's loops (nullptr: always).
  ir::Substitution substitution(const SymInts& sizes) {
    SymInts to(all_.size(), SymInt(0));
    for (size_t v = 0; v < all_.size(); ++v) {
      if (find(static_cast<int>(v)) || all_[v].is(1)) continue;
      to[v] = c_.rvar(static_cast<int>(others.size()));
      others.push_back(all_[v]);
    }
    const ir::Substitution free = split(to);
    for (const Solved& s : solved_) {
      SymInt rest = ir::substitute(s.rest, free), element = c_.var(s.dimension);
      to[s.loop] = s.negative ? rest - element : element - rest;
      if (s.rest.is(0) && !s.negative && ir::provably_equal(sizes[s.dimension], s.extent)) continue;
      check(ir::binary(Op::greater_equal, c_.index(to[s.loop]), c_.constant_int(DType::i64, 0)));
      check(ir::binary(Op::less, c_.index(to[s.loop]), c_.index(s.extent)));
    }
    return split(to);
  }
  Expr mask = nullptr;

private:
  SymInt variable(int loop) const {
    const int n = static_cast<int>(extents_.vars.size());
    return loop < n ? c_.var(loop) : c_.rvar(loop - n);
  }
  const Solved* find(int loop) const {
    for (const Solved& s : solved_)
      if (s.loop == loop) return &s;
    return nullptr;
  }
  ir::Substitution split(const SymInts& to) const {
    auto middle = to.begin() + static_cast<std::ptrdiff_t>(extents_.vars.size());
    return {SymInts(to.begin(), middle), SymInts(middle, to.end())};
  }
  void check(Expr inside) { mask = mask ? ir::binary(Op::logical_and, mask, inside) : inside; }

  bool solve_one(int dimension, SymInt index, SymInt size) {
    std::optional<Solved> best;
    for (int v = 0; v < static_cast<int>(all_.size()); ++v) {
      if (find(v)) continue;
      auto affine = ir::affine_in(index, variable(v).node());
      if (!affine || (!affine->coefficient.is(1) && !affine->coefficient.is(-1))) continue;
      if (ir::has_indirect(affine->rest)) continue;
      const bool equal = ir::provably_equal(all_[v], size);
      const bool near = all_[v].is_constant() && size.is_constant() && all_[v].constant() > 0 &&
                        size.constant() / all_[v].constant() < kSparse;
      if (!equal && !near) continue;
      // A variable of the size of the dimension leaves the shorter loops to be summed over.
      if (!best || (equal && !ir::provably_equal(best->extent, size)))
        best = Solved{v, dimension, affine->coefficient.is(-1), affine->rest, all_[v]};
    }
    if (best) solved_.push_back(*best);
    return best.has_value();
  }

  ir::Context& c_;
  const ir::Extents& extents_;
  SymInts all_;
  std::vector<Solved> solved_;
};

} // namespace

std::optional<TensorBox> Adjoint::gathered(const ir::Partial& p, const ir::Extents& extents,
                                           const Boxes& locals) {
  const SymInts& sizes = from_.at(p.load->buffer).sizes;
  Inverse inverse(c_, extents);
  if (!inverse.solve(p.load->indices, sizes)) return std::nullopt;
  Expr value = ir::gated(p);
  if (Expr mask = p.load->mask()) value = ir::where(mask, value, number(value, 0));
  value = ir::substitute(replay_(value, locals), inverse.substitution(sizes));
  if (inverse.mask) value = ir::where(inverse.mask, ir::mask_loads(value, inverse.mask), number(value, 0));
  return ir::make_reduction(to_, ir::ReduceOp::sum, value->dtype, sizes, inverse.others, value);
}

TensorBox Adjoint::scattered(const ir::Partial& p, const ir::Extents& extents, const Boxes& locals) {
  const SymInts& sizes = from_.at(p.load->buffer).sizes;
  ir::Scatter s;
  s.mode = ir::StoreMode::add;
  s.ranges = extents.vars;
  s.ranges.insert(s.ranges.end(), extents.rvars.begin(), extents.rvars.end());
  ir::Substitution flat; // all loops are outer loops of a scatter
  for (size_t k = 0; k < s.ranges.size(); ++k)
    (k < extents.vars.size() ? flat.vars : flat.rvars).push_back(c_.var(static_cast<int>(k)));
  const ir::Extents loops{s.ranges, {}};
  auto convert = [&](Expr e) { return ir::simplify(ir::substitute(replay_(e, locals), flat), loops); };
  Expr mask = p.load->mask();
  if (p.gate) mask = mask ? ir::binary(Op::logical_and, mask, p.gate) : p.gate;
  if (mask) s.mask = convert(mask);
  s.value = convert(p.value);
  for (SymInt index : p.load->indices)
    s.indices.push_back(ir::simplify(ir::substitute(replay_(index), flat), loops));
  TensorBox zeros = ir::make_pointwise(to_, s.value->dtype, sizes, number(s.value, 0));
  return scatter_onto(to_, zeros, std::move(s));
}

} // namespace tbx::lowering
