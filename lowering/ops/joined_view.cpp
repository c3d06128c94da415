#include "lowering/ops/joined_view.h"

namespace tbx::lowering {
namespace {

/// What `x` shows at the places of its dimensions.
SymInts index_map_of(OpContext& ctx, const TensorBox& x) {
  return x.is_identity_view() ? loop_vars(ctx.c, x.rank()) : x.index_map();
}

/// `b` shows what `a` would show behind its end along `axis`.
bool continues(OpContext& ctx, const TensorBox& a, const TensorBox& b, int axis) {
  const SymInts from = index_map_of(ctx, a), to = index_map_of(ctx, b);
  if (from.size() != to.size()) return false;
  SymInts behind = loop_vars(ctx.c, a.rank());
  behind[axis] = behind[axis] + a.sizes()[axis];
  const ir::Extents extents{b.sizes(), {}};
  for (size_t k = 0; k < from.size(); ++k)
    if (ir::simplify(ir::substitute(from[k], {behind, {}}), extents) != ir::simplify(to[k], extents))
      return false;
  return true;
}

/// Elements that lie side by side behind an index along `axis`: fewer are read one by one when the index
/// jumps.
bool has_rows(const TensorBox& x, int axis) {
  SymInt row = 1;
  for (int k = axis + 1; k < x.rank(); ++k) row = row * x.sizes()[k];
  return row.is_constant() && row.constant() >= 2 * Target::kShortRow;
}

} // namespace

std::optional<TensorBox> joined_view(OpContext& ctx, std::vector<TensorBox> parts, int axis) {
  for (const TensorBox& x : parts)
    if (x.storage() != parts[0].storage() || x.dtype() != parts[0].dtype()) return std::nullopt;
  for (const TensorBox& x : parts)
    for (int k = 0; k < x.rank(); ++k)
      if (k != axis && !ir::provably_equal(x.sizes()[k], parts[0].sizes()[k])) return std::nullopt;
  for (size_t i = 0; i + 1 < parts.size();) {
    if (!continues(ctx, parts[i], parts[i + 1], axis)) {
      ++i;
      continue;
    }
    SymInts sizes = parts[i].sizes();
    sizes[axis] += parts[i + 1].sizes()[axis];
    parts[i] = parts[i].view(ctx.c, sizes, loop_vars(ctx.c, parts[i].rank()));
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  if (parts.size() == 1) return parts[0];
  if (parts.size() > 2 || !continues(ctx, parts[1], parts[0], axis) || !has_rows(parts[0], axis))
    return std::nullopt;
  SymInts sizes = parts[0].sizes(), at = loop_vars(ctx.c, parts[0].rank());
  const SymInt first = parts[1].sizes()[axis];
  sizes[axis] += first;
  if (!sizes[axis].is_constant()) return std::nullopt; // a remainder by what may be 0
  at[axis] = ir::mod(at[axis] + first, sizes[axis]);
  return parts[1].view(ctx.c, sizes, at);
}

} // namespace tbx::lowering
