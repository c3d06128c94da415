#include "fusion/horizontal_fusion.h"

#include <algorithm>

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr int kNear = 4; ///< operations from the last member: further ones wait for what comes between

/// A reduction to one element.
bool is_total(const Compute& compute) {
  return compute.loops.kind == LoopKind::reduction && product(compute.loops.ranges).is(1);
}

bool same_extents(const SymInts& a, const SymInts& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), provably_equal);
}

/// Binds the variables of `mine` to the axes that `theirs` has at the same places; all of them.
bool bind_indices(const Draft& d, const Member& first, const SymInts& theirs, const Loops& loops,
                  const SymInts& mine, Member& m) {
  auto variable = [](SymInt i) {
    return !i.is_constant() && (i.node()->kind == SymKind::var || i.node()->kind == SymKind::rvar);
  };
  for (size_t k = 0; k < mine.size(); ++k) {
    if (theirs[k].is_constant() && mine[k] == theirs[k]) continue;
    if (!variable(theirs[k]) || !variable(mine[k])) return false;
    const bool reduced = mine[k].node()->kind == SymKind::rvar;
    const auto& axes = theirs[k].node()->kind == SymKind::rvar ? first.axis_of_rvar : first.axis_of_var;
    const int axis = axes[theirs[k].node()->number], number = mine[k].node()->number;
    const SymInt extent = (reduced ? loops.reduction_ranges : loops.ranges)[number];
    if (axis == Member::kUnit ||
        !bind_variable(d, reduced ? m.axis_of_rvar : m.axis_of_var, number, axis, extent))
      return false;
  }
  auto bound = [](const std::vector<int>& axes) {
    return std::find(axes.begin(), axes.end(), Member::kUnbound) == axes.end();
  };
  return bound(m.axis_of_var) && bound(m.axis_of_rvar);
}

} // namespace

size_t HorizontalFusion::HashRanges::operator()(const SymInts& ranges) const {
  size_t h = ranges.size();
  for (SymInt r : ranges) h = h * 31 + r.hash();
  return h;
}

void HorizontalFusion::begun(int draft, const Compute& compute) {
  if (is_total(compute)) last_total_ = draft;
  if (is_part(compute)) last_part_[compute.loops.ranges] = draft;
}

int HorizontalFusion::last_alike(const Compute& compute) const {
  if (is_total(compute)) return last_total_;
  if (!is_part(compute)) return -1;
  const auto it = last_part_.find(compute.loops.ranges);
  return it == last_part_.end() ? -1 : it->second;
}

const char* HorizontalFusion::bind(const Draft& d, const Compute& compute, Member& m) const {
  if (bind_sibling(d, compute.loops, m)) return "same points, shared data";
  if (bind_part(d, compute, m)) return "parts of concatenations over the same loops";
  if (bind_total(d, compute, m)) return "totals over the same loops";
  return nullptr;
}

/// Same loops over the same inputs are bound positionally when a common buffer is read with equal indices;
/// else a row and its reduction by the input that both read.
bool HorizontalFusion::bind_sibling(const Draft& d, const Loops& loops, Member& m) const {
  const Member& first = d.members.front();
  const Compute* other = compute_of(program_, first.op);
  if (!other) return false;
  const std::vector<Expr> theirs = loads_of(other->loops), mine = loads_of(loops);
  if (!same_extents(other->loops.ranges, loops.ranges) ||
      !same_extents(other->loops.reduction_ranges, loops.reduction_ranges))
    return bind_row(d, other->loops, theirs, loops, mine, m);
  for (Expr load : mine)
    if (std::find(theirs.begin(), theirs.end(), load) != theirs.end()) {
      m.axis_of_var = first.axis_of_var;
      m.axis_of_rvar = first.axis_of_rvar;
      m.short_axis = first.short_axis; // of a group that has longer nests beside
      m.end = first.end;
      return true;
    }
  return false;
}

/// What a nest reads, without constants.
std::vector<Expr> HorizontalFusion::loads_of(const Loops& loops) const {
  std::vector<Expr> loads;
  visit(loops.body, [&](Expr n) {
    if (n->op == Op::load && !n->indices.empty() && program_.at(n->buffer).kind != BufferKind::constant)
      loads.push_back(n);
  });
  return loads;
}

/// A nest over the elements of rows and a reduction of the same rows, which then are read once. Of the two
/// one reduces; both read the input at all their points, along its contiguous dimension.
bool HorizontalFusion::bind_row(const Draft& d, const Loops& other, const std::vector<Expr>& theirs,
                                const Loops& loops, const std::vector<Expr>& mine, Member& m) const {
  constexpr int64_t kLeastRow = 64; // shorter ones are done several at a time
  const Loops& reduction = loops.kind == LoopKind::reduction ? loops : other;
  if ((loops.kind == LoopKind::reduction) == (other.kind == LoopKind::reduction)) return false;
  if (reduction.reduction_ranges.size() != 1 || size_hint(reduction.reduction_ranges[0]) < kLeastRow)
    return false;
  for (Expr load : mine)
    for (Expr their : theirs) {
      if (load->buffer != their->buffer || load->mask() || their->mask()) continue;
      const SymInt along = (&reduction == &loops ? load : their)->indices.back();
      if (along != program_.context->rvar(0) || !program_.at(load->buffer).strides.back().is(1)) continue;
      Member bound = m;
      if (!bind_indices(d, d.members.front(), their->indices, loops, load->indices, bound)) continue;
      m = std::move(bound);
      return true;
    }
  return false;
}

/// A part of a concatenation, which nobody reads by itself.
bool HorizontalFusion::is_part(const Compute& compute) const {
  return compute.loops.kind == LoopKind::pointwise && program_.at(compute.output).slice_of >= 0;
}

/// Parts over the same loops are one kernel though they share nothing: keys and values that are appended,
/// embeddings side by side.
bool HorizontalFusion::bind_part(const Draft& d, const Compute& compute, Member& m) const {
  const Compute* first = compute_of(program_, d.members.front().op);
  if (d.has_reduction || !first || !is_part(*first) || !is_part(compute) ||
      first->loops.ranges != compute.loops.ranges)
    return false;
  constexpr size_t kMostParts = 16; // each is a stream in and one out
  if (d.members.size() >= kMostParts) return false;
  // Large ones only with what follows at once: whoever reads them finds them in cache, with all that the
  // kernel reads and writes.
  const int64_t large = target_.l2_bytes / 16 / size_of(DType::f32);
  if (m.op - d.last_op > kNear && size_hint(product(compute.loops.ranges)) > large) return false;
  m.axis_of_var = d.members.front().axis_of_var;
  m.short_axis = d.members.front().short_axis;
  m.end = d.members.front().end;
  return true;
}

/// Totals over equal loops that follow each other are one kernel though they share nothing: the smallest
/// and the largest of what rows gave.
bool HorizontalFusion::bind_total(const Draft& d, const Compute& compute, Member& m) const {
  const Member& first = d.members.front();
  const Compute* other = compute_of(program_, first.op);
  if (!other || !is_total(*other) || !is_total(compute) || m.op - d.last_op > kNear ||
      other->loops.reduction_ranges != compute.loops.reduction_ranges)
    return false;
  m.axis_of_rvar = first.axis_of_rvar;
  return true;
}

/// Small nests over points in the same number of dimensions, of which one may be of another length, are one
/// kernel of a GPU: the rotation of queries and those of keys, which go into a cache with the values.
std::optional<Beside> HorizontalFusion::beside(const Draft& d, int op, const Loops& loops) const {
  constexpr int64_t kMostPoints = 1 << 15; // which start together anyway
  if (!target_.cuda || d.has_reduction || op - d.last_op > kNear || loops.kind != LoopKind::pointwise)
    return std::nullopt;
  Beside joined{{op, std::vector<int>(loops.ranges.size(), Member::kUnit), {}}, d.axes};
  Member& member = joined.member;
  size_t axis = 0;
  for (size_t k = 0; k < loops.ranges.size(); ++k) {
    const SymInt extent = loops.ranges[k];
    if (extent.is(1)) continue;
    if (axis == d.axes.size() || !extent.is_constant() || !d.axes[axis].is_constant()) return std::nullopt;
    member.axis_of_var[k] = static_cast<int>(axis);
    if (extent != d.axes[axis]) {
      if (member.short_axis >= 0) return std::nullopt;
      member.short_axis = static_cast<int>(axis);
      member.end = extent;
      joined.axes[axis] = ir::max(extent, d.axes[axis]);
    }
    ++axis;
  }
  const int shorter = member.short_axis;
  if (axis != d.axes.size() || product(joined.axes).constant() > kMostPoints) return std::nullopt;
  for (const Member& m : d.members) {
    const Compute* other = compute_of(program_, m.op);
    if (!other || other->loops.kind != LoopKind::pointwise ||
        (m.short_axis >= 0 && shorter >= 0 && m.short_axis != shorter))
      return std::nullopt;
  }
  if (shorter >= 0 && joined.axes[shorter] == member.end) member.short_axis = -1;
  return joined;
}

void HorizontalFusion::widen(Draft& d, const SymInts& axes) {
  for (size_t a = 0; a < axes.size(); ++a) {
    if (axes[a] == d.axes[a]) continue;
    for (Member& m : d.members)
      if (m.short_axis < 0) m.short_axis = static_cast<int>(a), m.end = d.axes[a];
    d.axes[a] = axes[a];
  }
}

} // namespace tbx::fusion
