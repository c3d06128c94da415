// Operators that pick, place or extend elements: Slice, Gather*, Scatter*, Pad, ReverseSequence.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

// --- Slice

/// 1 when `v` is negative, else 0.
SymInt is_negative(SymInt v) {
  if (v.is_constant()) return v.constant() < 0 ? 1 : 0;
  if (ir::provably_nonnegative(v)) return 0;
  return SymInt(1) - ir::min(ir::max(v + SymInt(1), 0), 1);
}

/// Counts a negative position from the end and clamps it to [lo, hi].
SymInt clamp_position(SymInt v, SymInt size, SymInt lo, SymInt hi) {
  if (v.is_constant() && v.constant() < -ir::kMaxSize) return lo;
  if (v.is_constant() && v.constant() > ir::kMaxSize) return hi;
  return ir::min(ir::max(v + size * is_negative(v), lo), hi);
}

TensorBox slice_axis(OpContext& ctx, const TensorBox& x, int axis, SymInt start, SymInt end, int64_t step) {
  step = std::clamp(step, -ir::kMaxSize, ir::kMaxSize); // a longer one takes one element as well
  SymInt size = x.sizes()[axis], last = size - SymInt(1);
  if (step > 0) {
    start = clamp_position(start, size, 0, size);
    end = clamp_position(end, size, 0, size);
    SymInt length = ir::max(ir::ceildiv(end - start, step), 0);
    return ir::slice(ctx.program, x, axis, start, step, length);
  }
  start = clamp_position(start, size, 0, last);
  end = clamp_position(end, size, -1, last);
  SymInt length = ir::max(ir::ceildiv(start - end, -step), 0);
  return ir::slice(ctx.program, x, axis, start, step, length);
}

Values slice_with(OpContext& ctx, const SymInts& starts, const SymInts& ends, std::vector<int64_t> axes,
                  std::vector<int64_t> steps) {
  TensorBox x = ctx.in(0);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  TBX_MODEL(starts.size() == ends.size() && starts.size() == axes.size() && starts.size() == steps.size(),
            "{} starts, {} ends, {} axes, {} steps", starts.size(), ends.size(), axes.size(), steps.size());
  std::vector<bool> seen(x.rank(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    int axis = ctx.axis(axes[i], x.rank());
    TBX_MODEL(!seen[axis], "axis {} is sliced twice", axis);
    TBX_MODEL(steps[i] != 0, "step of axis {} is 0", axis);
    seen[axis] = true;
    x = slice_axis(ctx, x, axis, starts[i], ends[i], steps[i]);
  }
  return {x};
}

SymInts as_symints(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

Values slice_attr(OpContext& ctx) {
  return slice_with(ctx, as_symints(ctx.attr_ints("starts")), as_symints(ctx.attr_ints("ends")),
                    ctx.attr_ints("axes"), {});
}

Values slice_input(OpContext& ctx) {
  std::vector<int64_t> axes, steps;
  if (ctx.has(3)) axes = ctx.ints_or_throw(3, "axes");
  if (ctx.has(4)) steps = ctx.ints_or_throw(4, "steps");
  SymInts starts = ctx.known_or_throw(1, "starts"), ends = ctx.known_or_throw(2, "ends");
  if (axes.empty() && ctx.has(3) && starts.empty()) return {ctx.in(0)};
  return slice_with(ctx, starts, ends, axes, steps);
}

// --- Gather

/// An index that is known while compiling is inside of its axis, whatever the sizes of a run.
void require_index(OpContext& ctx, SymInt i, SymInt extent) {
  const std::string message =
      fmt::format("index {} is outside an axis of size {}", ir::to_string(i), ir::to_string(extent));
  ctx.program.add_check(extent - SymInt(1) - i, false, message);
  ctx.program.add_check(extent + i, false, message);
}

/// Indices known while compiling are looked at then, or before a run: every `step`-th from `first`.
void check_known_indices(OpContext& ctx, const TensorBox& indices, SymInt extent, int64_t first,
                         int64_t step) {
  if (!is_integer(indices.dtype())) return;
  auto each = [&](int64_t n, auto&& index_at) {
    std::optional<std::pair<int64_t, int64_t>> range; // of those that are numbers
    for (int64_t k = first; k < n; k += step) {
      const SymInt i = index_at(k);
      if (!i.is_constant()) {
        require_index(ctx, i, extent);
        continue;
      }
      const int64_t v = i.constant();
      range = range ? std::pair(std::min(range->first, v), std::max(range->second, v)) : std::pair(v, v);
    }
    if (!range) return;
    require_index(ctx, range->first, extent);
    require_index(ctx, range->second, extent);
  };
  if (indices.constant)
    each(indices.constant->numel(), [&](int64_t k) { return SymInt(element_as_int(*indices.constant, k)); });
  else if (indices.known_values)
    each(static_cast<int64_t>(indices.known_values->size()),
         [&](int64_t k) { return (*indices.known_values)[static_cast<size_t>(k)]; });
}

/// The element of an index tensor as an index below `extent`; negative ones count from the end.
SymInt index_below(OpContext& ctx, const TensorBox& indices, std::span<const SymInt> at, SymInt extent) {
  const bool tuple = !at.empty() && at.back().is_constant();
  check_known_indices(ctx, indices, extent, tuple ? at.back().constant() : 0,
                      tuple ? indices.sizes().back().as_constant().value_or(1) : 1);
  if (extent.is(1) && indices.known_values) return 0;
  Expr value = indices.load(ctx.program, at);
  return ctx.c.indirect(ctx.c.cast(value, DType::i64), extent, true);
}

/// An index that is known while compiling, made non-negative; nullopt otherwise.
std::optional<SymInt> known_index(OpContext& ctx, int input, SymInt extent) {
  auto known = ctx.known(input);
  if (!known || known->size() != 1) return std::nullopt;
  SymInt i = (*known)[0];
  require_index(ctx, i, extent);
  return i + extent * is_negative(i);
}

Values gather(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
  SymInt extent = x.sizes()[axis];
  SymInts index_sizes = ctx.sizes(1);
  int q = static_cast<int>(index_sizes.size());
  SymInts sizes(x.sizes().begin(), x.sizes().begin() + axis);
  sizes.insert(sizes.end(), index_sizes.begin(), index_sizes.end());
  sizes.insert(sizes.end(), x.sizes().begin() + axis + 1, x.sizes().end());
  SymInts vars = loop_vars(ctx.c, static_cast<int>(sizes.size()));
  SymInts at(vars.begin(), vars.begin() + axis);
  if (auto fixed = known_index(ctx, 1, extent)) {
    at.push_back(*fixed);
    at.insert(at.end(), vars.begin() + axis + q, vars.end());
    return {x.view(ctx.c, sizes, at)};
  }
  realize_if_repeated(ctx.program, x, sizes);
  at.push_back(index_below(ctx, ctx.in(1), std::span(vars).subspan(axis, q), extent));
  at.insert(at.end(), vars.begin() + axis + q, vars.end());
  return {ir::make_pointwise(ctx.program, x.dtype(), sizes, x.load(ctx.program, at))};
}

enum class Fit { equal, within };

/// Dimension `d` of `part` is as large as that of `whole`, or no larger: at once where both are known, else
/// before a run. Loop nests read by the sizes of one tensor what belongs to another, so this is a question of
/// memory safety.
void require_fit(OpContext& ctx, SymInt part, SymInt whole, int d, Fit fit, std::string_view what) {
  ctx.program.add_check(whole - part, fit == Fit::equal,
                        fmt::format("{}: dimension {} is {}, {} {}", what, d, ir::to_string(part),
                                    fit == Fit::equal ? "expected" : "at most", ir::to_string(whole)));
}

Values gather_elements(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &indices = ctx.in(1);
  TBX_MODEL(indices.rank() == x.rank(), "indices of rank {} for data of rank {}", indices.rank(), x.rank());
  int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
  SymInts at = loop_vars(ctx.c, x.rank());
  SymInts place = at;
  for (int d = 0; d < x.rank(); ++d)
    if (d != axis)
      require_fit(ctx, indices.sizes()[d], x.sizes()[d], d, Fit::within, "indices of GatherElements");
  realize_if_repeated(ctx.program, x, indices.sizes());
  place[axis] = index_below(ctx, indices, at, x.sizes()[axis]);
  return {ir::make_pointwise(ctx.program, x.dtype(), indices.sizes(), x.load(ctx.program, place))};
}

/// The last dimension of an index tensor, which says how many axes it indexes.
int tuple_length(const TensorBox& indices, int limit) {
  TBX_MODEL(indices.rank() >= 1, "indices must have rank 1 or more");
  auto k = indices.sizes().back().as_constant();
  if (!k) throw_unsupported("the last dimension of indices is not known while compiling");
  TBX_MODEL(*k >= 1 && *k <= limit, "indices name {} axes, at most {} are there", *k, limit);
  return static_cast<int>(*k);
}

Values gather_nd(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &indices = ctx.in(1);
  int batch = static_cast<int>(ctx.attr_int("batch_dims", 0));
  TBX_MODEL(batch >= 0 && batch < x.rank() && batch < indices.rank(), "batch_dims {} for ranks {} and {}",
            batch, x.rank(), indices.rank());
  for (int d = 0; d < batch; ++d)
    require_fit(ctx, indices.sizes()[d], x.sizes()[d], d, Fit::equal, "indices of GatherND");
  int k = tuple_length(indices, x.rank() - batch), q = indices.rank();
  SymInts sizes(indices.sizes().begin(), indices.sizes().end() - 1);
  sizes.insert(sizes.end(), x.sizes().begin() + batch + k, x.sizes().end());
  SymInts vars = loop_vars(ctx.c, static_cast<int>(sizes.size()));
  SymInts at(vars.begin(), vars.begin() + batch);
  realize_if_repeated(ctx.program, x, sizes);
  for (int j = 0; j < k; ++j) {
    SymInts tuple(vars.begin(), vars.begin() + q - 1);
    tuple.push_back(j);
    at.push_back(index_below(ctx, indices, tuple, x.sizes()[batch + j]));
  }
  at.insert(at.end(), vars.begin() + q - 1, vars.end());
  return {ir::make_pointwise(ctx.program, x.dtype(), sizes, x.load(ctx.program, at))};
}

// --- Scatter

ir::StoreMode store_mode(OpContext& ctx) {
  std::string reduction = ctx.attr_string("reduction", "none");
  if (reduction == "none") return ir::StoreMode::set;
  if (reduction == "add") return ir::StoreMode::add;
  if (reduction == "mul") return ir::StoreMode::mul;
  if (reduction == "max") return ir::StoreMode::max;
  if (reduction == "min") return ir::StoreMode::min;
  throw_model_error("unknown reduction '{}'", reduction);
}

/// A copy of `x` into which `value` is stored at `indices` for every point of `ranges`.
TensorBox scatter_into(OpContext& ctx, const TensorBox& x, const SymInts& ranges, const SymInts& indices,
                       Expr value, ir::StoreMode mode) {
  ir::Program& p = ctx.program;
  ir::TensorBox copy = ir::make_pointwise(p, x.dtype(), x.sizes(), x.load(p, loop_vars(ctx.c, x.rank())));
  ir::BufferId base = copy.storage()->realize(p, "base of a scatter");
  ir::BufferId target = p.new_buffer("", x.dtype(), x.sizes());
  p.at(target).overwrites = base;
  p.operations.push_back({ir::Scatter{ranges, indices, value, nullptr, mode, target}, {}, "scatter"});
  return ir::make_buffer_box(p, target);
}

Values scatter_elements(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &indices = ctx.in(1), &updates = ctx.in(2);
  TBX_MODEL(indices.rank() == x.rank() && updates.rank() == x.rank(),
            "ranks of data, indices, updates: {}, {}, {}", x.rank(), indices.rank(), updates.rank());
  // Scatter of opset 11 is deprecated: ONNX checks no types of it.
  TBX_MODEL(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, "the indices are {}, not int64",
            name_of(indices.dtype()));
  TBX_MODEL(updates.dtype() == x.dtype(), "the updates are {}, the data is {}", name_of(updates.dtype()),
            name_of(x.dtype()));
  int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
  for (int d = 0; d < x.rank(); ++d) {
    require_fit(ctx, updates.sizes()[d], indices.sizes()[d], d, Fit::equal, "updates of ScatterElements");
    if (d != axis)
      require_fit(ctx, indices.sizes()[d], x.sizes()[d], d, Fit::within, "indices of ScatterElements");
  }
  SymInts at = loop_vars(ctx.c, x.rank()), place = at;
  place[axis] = index_below(ctx, indices, at, x.sizes()[axis]);
  return {scatter_into(ctx, x, indices.sizes(), place, updates.load(ctx.program, at), store_mode(ctx))};
}

Values scatter_nd(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &indices = ctx.in(1), &updates = ctx.in(2);
  int k = tuple_length(indices, x.rank()), q = indices.rank();
  SymInts ranges(indices.sizes().begin(), indices.sizes().end() - 1);
  ranges.insert(ranges.end(), x.sizes().begin() + k, x.sizes().end());
  TBX_MODEL(updates.rank() == static_cast<int>(ranges.size()), "updates have rank {}, expected {}",
            updates.rank(), ranges.size());
  for (int d = 0; d < updates.rank(); ++d)
    require_fit(ctx, updates.sizes()[d], ranges[d], d, Fit::equal, "updates of ScatterND");
  SymInts vars = loop_vars(ctx.c, static_cast<int>(ranges.size())), at;
  for (int j = 0; j < k; ++j) {
    SymInts tuple(vars.begin(), vars.begin() + q - 1);
    tuple.push_back(j);
    at.push_back(index_below(ctx, indices, tuple, x.sizes()[j]));
  }
  at.insert(at.end(), vars.begin() + q - 1, vars.end());
  return {scatter_into(ctx, x, ranges, at, updates.load(ctx.program, vars), store_mode(ctx))};
}

/// Writes `update` into a cache along `axis` from per-batch positions (opset 24).
Values tensor_scatter(OpContext& ctx) {
  const TensorBox &cache = ctx.in(0), &update = ctx.in(1);
  TBX_MODEL(cache.rank() == update.rank(), "cache of rank {}, update of rank {}", cache.rank(),
            update.rank());
  int axis = ctx.axis(ctx.attr_int("axis", -2), cache.rank());
  std::string mode = ctx.attr_string("mode", "linear");
  TBX_MODEL(mode == "linear" || mode == "circular", "unknown mode '{}'", mode);
  for (int d = 0; d < cache.rank(); ++d)
    require_fit(ctx, update.sizes()[d], cache.sizes()[d], d, d == axis ? Fit::within : Fit::equal,
                "update of TensorScatter");
  if (ctx.has(2)) {
    TBX_MODEL(ctx.rank(2) == 1, "write_indices of rank {}, expected 1", ctx.rank(2));
    require_fit(ctx, ctx.sizes(2)[0], cache.sizes()[0], 0, Fit::equal, "write_indices of TensorScatter");
  }
  SymInts at = loop_vars(ctx.c, cache.rank()), place = at;
  if (ctx.has(2)) {
    SymInt batch = at[0];
    Expr start = ctx.c.cast(ctx.in(2).load(ctx.program, {&batch, 1}), DType::i64);
    Expr position = ir::add(start, ctx.c.index(at[axis]));
    if (mode == "circular") position = ir::binary(Op::floor_mod, position, ctx.c.index(cache.sizes()[axis]));
    place[axis] = ctx.c.indirect(position, cache.sizes()[axis], false);
  } else if (mode == "circular") {
    place[axis] = ir::mod(at[axis], cache.sizes()[axis]);
  }
  return {scatter_into(ctx, cache, update.sizes(), place, update.load(ctx.program, at), ir::StoreMode::set)};
}

// --- Pad

Expr in_range(ir::Context& c, SymInt i, SymInt size) {
  Expr e = c.index(i), zero = c.constant_int(DType::i64, 0);
  return ir::binary(Op::logical_and, ir::binary(Op::greater_equal, e, zero),
                    ir::binary(Op::less, e, c.index(size)));
}

/// The element of an axis of size `n` that position `i` shows, which may lie outside.
SymInt padded_from(const std::string& mode, SymInt i, SymInt n) {
  if (mode == "edge") return ir::min(ir::max(i, 0), n - SymInt(1));
  if (mode == "wrap") return n.is(0) ? i : ir::mod(i, n); // of nothing no position is one
  TBX_MODEL(mode == "reflect", "unknown mode '{}'", mode);
  if (n.is(1)) return 0;
  SymInt period = ir::max(SymInt(2) * n - SymInt(2), 1), m = ir::mod(i, period);
  return ir::min(m, ir::max(period - m, 0));
}

/// mask_loads, but for the loads of `tables`, which are sound for every position: a mask of lanes would make
/// their values differ from lane to lane.
Expr masked_except(Expr value, Expr mask, const std::vector<Expr>& tables) {
  return ir::rewrite(value, [&](Expr n) {
    if (n->op != Op::load || std::find(tables.begin(), tables.end(), n) != tables.end()) return n;
    Expr both = n->mask() ? ir::binary(Op::logical_and, n->mask(), mask) : mask;
    return n->context->load(n->buffer, n->dtype, n->indices, both);
  });
}

Values pad_by(OpContext& ctx, const SymInts& before, const SymInts& after, Expr fill) {
  const TensorBox& x = ctx.in(0);
  std::string mode = ctx.attr_string("mode", "constant");
  SymInts sizes, at;
  Expr mask = nullptr, middle = nullptr;
  SymInt in_middle;
  std::vector<Expr> tables;
  for (int k = 0; k < x.rank(); ++k) {
    SymInt n = x.sizes()[k], i = ctx.c.var(k);
    sizes.push_back(n + before[k] + after[k]);
    TBX_MODEL(!sizes[k].is_constant() || sizes[k].constant() >= 0, "axis {} would get size {}", k,
              sizes[k].constant());
    if (before[k].is(0) && after[k].is(0)) {
      at.push_back(i);
      continue;
    }
    if (mode == "constant") {
      SymInt src = i - before[k];
      at.push_back(src);
      Expr inside = in_range(ctx.c, src, n);
      mask = mask ? ir::binary(Op::logical_and, mask, inside) : inside;
      continue;
    }
    // What a negative pad takes away is not repeated at the other end.
    const SymInt added = ir::max(before[k], 0), cut = added - before[k],
                 left = n - cut - ir::max(SymInt(0) - after[k], 0);
    if (left != n)
      ctx.program.add_check(left - ir::min(added + ir::max(after[k], 0), 1), false,
                            fmt::format("nothing is left of axis {} that pads could repeat", k));
    // A table of the elements along this axis: cheaper than finding them for each element.
    TensorBox table = generate(ctx, DType::i32, {sizes[k]}, [&](std::span<const SymInt> place) {
      return ctx.c.cast(ctx.c.index(cut + padded_from(mode, place[0] - added, left)), DType::i32);
    });
    realize(ctx, table, "read for every row");
    tables.push_back(table.load(ctx.program, {&i, 1}));
    at.push_back(ctx.c.indirect(ctx.c.cast(tables.back(), DType::i64), n, false));
    if (k + 1 < x.rank()) continue;
    in_middle = i - before[k];
    middle = in_range(ctx.c, in_middle, n);
  }
  if (middle) {
    // Most of a row lies as it does in x: only its ends are looked up.
    SymInts twice = sizes, direct = at;
    twice.push_back(2);
    realize_if_repeated(ctx.program, x, twice);
    direct.back() = in_middle;
    Expr ends = ir::unary(Op::logical_not, middle);
    Expr value = ir::where(middle, masked_except(x.load(ctx.program, direct), middle, tables),
                           masked_except(x.load(ctx.program, at), ends, tables));
    return {ir::make_pointwise(ctx.program, x.dtype(), sizes, value)};
  }
  realize_if_repeated(ctx.program, x, sizes);
  Expr value = x.load(ctx.program, at);
  if (mask) value = ir::where(mask, ir::mask_loads(value, mask), fill);
  return {ir::make_pointwise(ctx.program, x.dtype(), sizes, value)};
}

Values pad_attr(OpContext& ctx) {
  std::vector<int64_t> pads = ctx.attr_ints(ctx.opset() < 2 ? "paddings" : "pads");
  int rank = ctx.rank(0);
  TBX_MODEL(static_cast<int>(pads.size()) == 2 * rank, "{} pads for an input of rank {}", pads.size(), rank);
  Expr fill = ctx.c.constant(compute_type(ctx.dtype(0)), ctx.attr_float("value", 0));
  return pad_by(ctx, {pads.begin(), pads.begin() + rank}, {pads.begin() + rank, pads.end()}, fill);
}

Values pad_input(OpContext& ctx) {
  int rank = ctx.rank(0);
  SymInts pads = ctx.known_or_throw(1, "pads");
  std::vector<int> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.has(3)) {
    axes.clear();
    for (int64_t a : ctx.ints_or_throw(3, "axes")) axes.push_back(ctx.axis(a, rank));
  }
  TBX_MODEL(pads.size() == 2 * axes.size(), "{} pads for {} axes", pads.size(), axes.size());
  SymInts before(rank, SymInt(0)), after(rank, SymInt(0));
  for (size_t k = 0; k < axes.size(); ++k) {
    before[axes[k]] = pads[k];
    after[axes[k]] = pads[axes.size() + k];
  }
  DType type = compute_type(ctx.dtype(0));
  Expr fill = ctx.c.constant_int(type, 0);
  if (ctx.has(2)) fill = ctx.in(2).load(ctx.program, SymInts(ctx.rank(2), SymInt(0)));
  return pad_by(ctx, before, after, fill);
}

/// The middle of what is too long, zeros around what is too short.
Values center_crop_pad(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  SymInts wanted = ctx.known_or_throw(1, "shape");
  std::vector<int> axes(x.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.has_attr("axes")) {
    axes.clear();
    for (int64_t a : ctx.attr_ints("axes")) axes.push_back(ctx.axis(a, x.rank()));
  }
  TBX_MODEL(wanted.size() == axes.size(), "{} sizes for {} axes", wanted.size(), axes.size());
  SymInts before(x.rank(), SymInt(0)), after = before;
  for (size_t k = 0; k < axes.size(); ++k) {
    SymInt n = x.sizes()[axes[k]], more = wanted[k] - n;
    before[axes[k]] = ir::floordiv(ir::max(more, 0), 2) - ir::floordiv(ir::max(SymInt(0) - more, 0), 2);
    after[axes[k]] = more - before[axes[k]];
  }
  return pad_by(ctx, before, after, ctx.c.constant_int(compute_type(x.dtype()), 0));
}

Values reverse_sequence(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &lengths = ctx.in(1);
  int time = ctx.axis(ctx.attr_int("time_axis", 0), x.rank()),
      batch = ctx.axis(ctx.attr_int("batch_axis", 1), x.rank());
  TBX_MODEL(time != batch, "time_axis and batch_axis are both {}", time);
  TBX_MODEL(lengths.rank() == 1, "sequence_lens of rank {}, expected 1", lengths.rank());
  require_fit(ctx, lengths.sizes()[0], x.sizes()[batch], 0, Fit::equal, "sequence_lens");
  SymInts at = loop_vars(ctx.c, x.rank()), place = at;
  SymInt b = at[batch];
  Expr length = ctx.c.cast(lengths.load(ctx.program, {&b, 1}), DType::i64), t = ctx.c.index(at[time]);
  Expr mirrored = ir::sub(ir::sub(length, ctx.c.constant_int(DType::i64, 1)), t);
  place[time] =
      ctx.c.indirect(ir::where(ir::binary(Op::less, t, length), mirrored, t), x.sizes()[time], false);
  return {ir::make_pointwise(ctx.program, x.dtype(), x.sizes(), x.load(ctx.program, place))};
}

} // namespace

void register_indexing(Registry& r) {
  r.add("Slice", since(1), slice_attr);
  r.add("Slice", since(10), slice_input);
  r.add("Gather", since(1), gather);
  r.add("GatherElements", since(11), gather_elements);
  r.add("GatherND", since(11), gather_nd);
  r.add("Scatter", since(9), scatter_elements);
  r.add("ScatterElements", since(11), scatter_elements);
  r.add("ScatterND", since(11), scatter_nd);
  r.add("TensorScatter", since(24), tensor_scatter);
  r.add("Pad", since(1), pad_attr);
  r.add("Pad", since(11), pad_input);
  r.add("CenterCropPad", since(18), center_crop_pad);
  r.add("ReverseSequence", since(10), reverse_sequence);
  r.narrow(Narrow::view, {"Slice"});
  r.narrow(Narrow::follows, {"Pad", "Gather", "GatherElements", "GatherND"});
  r.mark(Trait::moves, {"CenterCropPad", "Gather", "GatherND", "Pad", "GatherElements", "Scatter", "Slice",
                        "ReverseSequence", "TensorScatter"});
  r.moves_where({"ScatterElements", "ScatterND"}, "reduction", "none", "none");
  r.mark(Trait::takes_quotients, {"Gather", "Slice"});
  r.mark(Trait::keeps_first, {"Slice", "Gather", "GatherElements", "GatherND", "Pad"});
  r.mark(Trait::half_follows, {"Slice", "Pad"});
  r.mark(Trait::half_lookup, {"Gather", "GatherND", "GatherElements"});
  for (const char* op : {"Gather", "GatherElements", "ScatterElements", "Scatter"})
    r.need(op, 1, index_into(0, "axis", 0));
  for (const char* op : {"GatherND", "ScatterND"}) r.need(op, 1, index_tuple());
  r.need("TensorScatter", 2, between(0, 1));
  r.need("ReverseSequence", 1, count_along(0, "time_axis", 0));
  r.need("Slice", 1, between(0, 1));
  r.need("Slice", 2, some());
  for (const char* op : {"Slice", "Pad"}) r.need(op, 3, axis_of_input());
  r.need("Slice", 4, between(1, 2));
  r.need("Pad", 1, between(0, 2));
}

} // namespace tbx::lowering
