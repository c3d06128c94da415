// Views: permute, expand, reshape, squeeze, unsqueeze, slice as index maps.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ir/tensor_box.h"

namespace tbx::ir {
namespace {

SymInts variables(Context& c, int rank) {
  SymInts v;
  for (int k = 0; k < rank; ++k) v.push_back(c.var(k));
  return v;
}

std::string text(const SymInts& sizes) { return to_string(std::span<const SymInt>(sizes)); }

SymInt distance(SymInt a, SymInt b) { return max(a - b, b - a); }

/// 0 when s == 1, else 1: makes an index stand still along a broadcast dimension known at run time only.
SymInt moves(SymInt s) { return min(distance(s, 1), 1); }

/// Sizes that data decides cannot be checked before the run.
bool may_assume_equal(const Program& p, SymInt s, SymInt t) {
  return p.assume_broadcast && !has_unbacked(s) && !has_unbacked(t);
}

/// The one to go on with of two sizes assumed equal.
SymInt plainer(SymInt s, SymInt t) {
  if (s.is_constant() || t.is_constant()) return s.is_constant() ? s : t;
  bool s_plain = s.node()->kind == SymKind::symbol, t_plain = t.node()->kind == SymKind::symbol;
  if (s_plain != t_plain) return s_plain ? s : t;
  return s.node()->id < t.node()->id ? s : t;
}

/// The common size of a dimension pair, with a run-time check where it cannot be proven.
SymInt broadcast_dim(Program& p, SymInt s, SymInt t) {
  if (provably_equal(s, t) || t.is(1)) return s;
  if (s.is(1)) return t;
  std::string message =
      "dimensions " + to_string(s) + " and " + to_string(t) + " cannot be broadcast together";
  if (s.is_constant() && t.is_constant()) throw_model_error("{}", message);
  if (may_assume_equal(p, s, t)) {
    p.add_check(distance(s, t), true, message, true);
    return plainer(s, t);
  }
  SymInt unlike = distance(s, t);
  for (SymInt d : {s, t})
    if (!d.is_constant()) unlike = min(unlike, distance(d, 1));
  p.add_check(unlike, true, message);
  // A constant that is not 1 is the size whatever the other one is.
  if (s.is_constant()) return s;
  if (t.is_constant()) return t;
  return max(s, t) * min(min(s, t), 1);
}

/// Dimensions of two shapes that cover the same elements: old[first_old, last_old) and new[first_new,
/// last_new).
struct ReshapeGroup {
  size_t first_old, last_old, first_new, last_new;
};

/// The least runs of dimensions ending at olds[i - 1] and news[j - 1] that provably have equal products.
std::optional<ReshapeGroup> match_group(const SymInts& olds, size_t i, const SymInts& news, size_t j) {
  size_t last_i = i, last_j = j;
  SymInt a = olds[--i], b = news[--j];
  while (!provably_equal(a, b)) {
    // Grow the smaller side; symbols are compared by what divides what, then by their likely size.
    bool grow_old = provably_divisible(b, a) || (!provably_divisible(a, b) && size_hint(a) < size_hint(b));
    if (i == 0 && j == 0) return std::nullopt;
    if (j == 0 || (grow_old && i > 0)) {
      a = a * olds[--i];
    } else {
      b = b * news[--j];
    }
  }
  return ReshapeGroup{i, last_i, j, last_j};
}

/// Splits both shapes (without 1s) into runs of equal product: from the innermost dimension outwards, then
/// equal dimensions from the outermost inwards. What is left is one group.
std::vector<ReshapeGroup> match_groups(const SymInts& olds, const SymInts& news) {
  std::vector<ReshapeGroup> groups;
  size_t i = olds.size(), j = news.size();
  while (i > 0 && j > 0) {
    auto group = match_group(olds, i, news, j);
    if (!group) break;
    groups.push_back(*group);
    i = group->first_old;
    j = group->first_new;
  }
  size_t first = 0;
  for (; first < i && first < j && provably_equal(olds[first], news[first]); ++first)
    groups.push_back({first, first + 1, first, first + 1});
  if (first < i || first < j) groups.push_back({first, i, first, j});
  return groups;
}

} // namespace

TensorBox permute(Program& p, const TensorBox& x, std::span<const int> order) {
  SymInts sizes, map(x.sizes().size());
  for (size_t k = 0; k < order.size(); ++k) {
    sizes.push_back(x.sizes()[order[k]]);
    map[order[k]] = p.context->var(static_cast<int>(k));
  }
  return x.view(*p.context, std::move(sizes), map);
}

SymInts broadcast_sizes(Program& p, const SymInts& a, const SymInts& b) {
  size_t rank = std::max(a.size(), b.size());
  SymInts sizes(rank, SymInt(1));
  for (size_t k = 0; k < rank; ++k) {
    SymInt s = k < rank - a.size() ? SymInt(1) : a[k - (rank - a.size())];
    SymInt t = k < rank - b.size() ? SymInt(1) : b[k - (rank - b.size())];
    sizes[k] = broadcast_dim(p, s, t);
  }
  return sizes;
}

TensorBox expand(Program& p, const TensorBox& x, const SymInts& sizes) {
  TBX_MODEL(sizes.size() >= x.sizes().size(), "cannot expand rank {} to rank {}", x.rank(), sizes.size());
  size_t lead = sizes.size() - x.sizes().size();
  SymInts map;
  bool same = lead == 0;
  for (size_t k = 0; k < x.sizes().size(); ++k) {
    SymInt s = x.sizes()[k], t = sizes[lead + k], v = p.context->var(static_cast<int>(lead + k));
    if (provably_equal(s, t)) {
      map.push_back(v);
      continue;
    }
    same = false;
    if (s.is(1)) {
      map.push_back(0);
      continue;
    }
    std::string message = "dimension " + to_string(s) + " cannot be expanded to " + to_string(t);
    bool assume = !s.is_constant() && may_assume_equal(p, s, t);
    bool must_equal = s.is_constant() || assume;
    p.add_check(must_equal ? distance(s, t) : min(distance(s, t), distance(s, 1)), true, message, assume);
    map.push_back(must_equal ? v : v * moves(s));
  }
  return same ? x : x.view(*p.context, sizes, map);
}

TensorBox reshape(Program& p, const TensorBox& x, SymInts sizes) {
  Context& c = *p.context;
  SymInt before = product(x.sizes()), after = product(sizes);
  if (!provably_equal(before, after))
    p.add_check(before - after, true, "cannot reshape " + text(x.sizes()) + " to " + text(sizes));
  if (sizes == x.sizes()) return x;
  if (before.is(0) || after.is(0)) return x.view(c, std::move(sizes), SymInts(x.sizes().size(), SymInt(0)));
  // Dimensions of size 1 take no part.
  std::vector<int> old_axes, new_axes;
  SymInts olds, news;
  for (int k = 0; k < x.rank(); ++k)
    if (!x.sizes()[k].is(1)) {
      old_axes.push_back(k);
      olds.push_back(x.sizes()[k]);
    }
  for (size_t k = 0; k < sizes.size(); ++k)
    if (!sizes[k].is(1)) {
      new_axes.push_back(static_cast<int>(k));
      news.push_back(sizes[k]);
    }
  SymInts map(x.sizes().size(), SymInt(0));
  for (const ReshapeGroup& g : match_groups(olds, news)) {
    SymInt flat = 0, step = 1;
    for (size_t j = g.last_new; j-- > g.first_new;) {
      flat += c.var(new_axes[j]) * step;
      step = step * news[j];
    }
    step = 1;
    for (size_t i = g.last_old; i-- > g.first_old;) {
      SymInt index = floordiv(flat, step);
      if (i != g.first_old) index = mod(index, olds[i]);
      map[old_axes[i]] = index;
      step = step * olds[i];
    }
  }
  return x.view(c, std::move(sizes), map);
}

TensorBox squeeze(Program& p, const TensorBox& x, std::span<const int> axes) {
  SymInts sizes, map;
  for (int k = 0; k < x.rank(); ++k) {
    if (std::find(axes.begin(), axes.end(), k) != axes.end()) {
      p.add_check(x.sizes()[k] - SymInt(1), true,
                  "dimension " + std::to_string(k) + " of " + text(x.sizes()) +
                      " is squeezed but is not of size 1");
      map.push_back(0);
    } else {
      map.push_back(p.context->var(static_cast<int>(sizes.size())));
      sizes.push_back(x.sizes()[k]);
    }
  }
  return x.view(*p.context, std::move(sizes), map);
}

TensorBox unsqueeze(Program& p, const TensorBox& x, std::span<const int> axes) {
  int rank = x.rank() + static_cast<int>(axes.size()), from = 0;
  SymInts sizes, map;
  for (int k = 0; k < rank; ++k) {
    if (std::find(axes.begin(), axes.end(), k) != axes.end()) {
      sizes.push_back(1);
    } else {
      sizes.push_back(x.sizes()[from++]);
      map.push_back(p.context->var(k));
    }
  }
  return x.view(*p.context, std::move(sizes), map);
}

TensorBox slice(Program& p, const TensorBox& x, int axis, SymInt start, SymInt step, SymInt length) {
  if (start.is(0) && step.is(1) && provably_equal(length, x.sizes()[axis])) return x;
  SymInts sizes = x.sizes(), map = variables(*p.context, x.rank());
  sizes[axis] = length;
  map[axis] = start + step * map[axis];
  return x.view(*p.context, std::move(sizes), map);
}

} // namespace tbx::ir
