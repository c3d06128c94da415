// Operators that only rearrange: reshapes, transposes, concatenation, splitting, tiling, space/depth blocks.
#include <algorithm>
#include <numeric>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/ops/joined_view.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

// --- views

/// ONNX Reshape: 0 copies the input's dimension (unless allowzero), one -1 is inferred.
Values reshape_to(OpContext& ctx, SymInts target, bool allow_zero) {
  const TensorBox& x = ctx.in(0);
  int inferred = -1;
  SymInt rest = 1;
  for (size_t k = 0; k < target.size(); ++k) {
    if (target[k].is(-1)) {
      TBX_MODEL(inferred < 0, "the shape {} has more than one -1", ir::to_string(target));
      inferred = static_cast<int>(k);
      continue;
    }
    if (target[k].is(0) && !allow_zero) {
      TBX_MODEL(k < x.sizes().size(), "dimension {} of the shape is 0 (copy), but the input has rank {}", k,
                x.rank());
      target[k] = x.sizes()[k];
    }
    TBX_MODEL(!target[k].is_constant() || target[k].constant() >= 0, "dimension {} of the shape is {}", k,
              target[k].is_constant() ? target[k].constant() : 0);
    rest = rest * target[k];
  }
  SymInt total = ir::product(x.sizes());
  if (inferred >= 0) {
    TBX_MODEL(!rest.is(0), "cannot infer -1 in the shape {} beside a 0", ir::to_string(target));
    // Equal dimensions cancel before dividing, so that [b, s, 768] -> [0, 0, -1] gives 768, not
    // (b*s*768)//(b*s).
    SymInt numerator = 1, denominator = 1;
    std::vector<bool> used(target.size(), false);
    for (SymInt s : x.sizes()) {
      bool cancelled = false;
      for (size_t k = 0; k < target.size() && !cancelled; ++k)
        if (static_cast<int>(k) != inferred && !used[k] && ir::provably_equal(target[k], s) &&
            !s.is_constant())
          used[k] = cancelled = true;
      if (!cancelled) numerator = numerator * s;
    }
    for (size_t k = 0; k < target.size(); ++k)
      if (static_cast<int>(k) != inferred && !used[k]) denominator = denominator * target[k];
    target[inferred] = ir::floordiv(numerator, denominator);
    auto n = numerator.as_constant(), d = denominator.as_constant();
    TBX_MODEL(!n || !d || *n % *d == 0, "shape {} does not fit the input of shape {}", ir::to_string(target),
              ir::to_string(x.sizes()));
  } else if (auto n = total.as_constant(), d = rest.as_constant(); n && d) {
    TBX_MODEL(*n == *d, "shape {} has {} elements, the input of shape {} has {}", ir::to_string(target), *d,
              ir::to_string(x.sizes()), *n);
  }
  return {ir::reshape(ctx.program, x, target)};
}

Values reshape_attr(OpContext& ctx) {
  SymInts target;
  for (int64_t d : ctx.attr_ints("shape")) target.push_back(d);
  return reshape_to(ctx, target, false);
}

Values reshape_input(OpContext& ctx) {
  return reshape_to(ctx, ctx.known_or_throw(1, "shape"), ctx.attr_int("allowzero", 0) != 0);
}

Values flatten(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int64_t axis = ctx.attr_int("axis", 1);
  TBX_MODEL(axis >= -x.rank() && axis <= x.rank(), "axis {} is outside [-{}, {}]", axis, x.rank(), x.rank());
  if (axis < 0) axis += x.rank();
  std::span<const SymInt> sizes(x.sizes());
  return {ir::reshape(ctx.program, x, {ir::product(sizes.first(axis)), ir::product(sizes.subspan(axis))})};
}

std::vector<int64_t> axes_of(OpContext& ctx, int input_since, bool& given) {
  given = true;
  if (ctx.opset() < input_since) {
    given = ctx.has_attr("axes");
    return ctx.attr_ints("axes");
  }
  if (ctx.has(1)) return ctx.ints_or_throw(1, "axes");
  given = false;
  return {};
}

/// All dimensions of 1: the rank of the result depends on those that are not known while compiling. They are
/// taken as not 1. A run for which that is wrong gets code for those sizes of its inputs that decide: first
/// for the ones that are 1 and any others from 2 on, with which dimensions computed from them are again taken
/// as not 1; where that is wrong, too, for the very sizes. Sizes that data decides are known once they are
/// those of an input, so the node goes where they are.
std::vector<int> dimensions_of_one(OpContext& ctx, const TensorBox& x) {
  std::vector<int> axes;
  for (int a = 0; a < x.rank(); ++a) {
    const SymInt n = x.sizes()[a];
    if (n.is(1)) axes.push_back(a);
    const ir::Bounds bounds = ir::bounds_of(n);
    if (n.is_constant() || bounds.lo > 1 || bounds.hi < 1) continue;
    const std::string what = fmt::format("whether dimension {} of {} is 1", a, ir::to_string(x.sizes()));
    if (ir::has_unbacked(n)) ask_for_elements(what + " must be known while compiling", {ctx.node.input(0)});
    const bool assume =
        ctx.program.assume_broadcast || (ctx.program.assume_exact_floats && is_made_of_several(n));
    if (!assume) ask_for_size(n, what + " must be known while compiling");
    ctx.program.add_check(ir::max(n - 2, -n), false, what, true);
  }
  return axes;
}

Values squeeze(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  bool given;
  std::vector<int64_t> list = axes_of(ctx, 13, given);
  std::vector<int> axes;
  if (given) {
    axes = ctx.axes(list, x.rank());
    for (int a : axes)
      TBX_MODEL(!x.sizes()[a].is_constant() || x.sizes()[a].is(1),
                "axis {} has size {}, only 1 can be squeezed", a, x.sizes()[a].constant());
  } else {
    axes = dimensions_of_one(ctx, x);
  }
  return {ir::squeeze(ctx.program, x, axes)};
}

Values unsqueeze(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  bool given;
  std::vector<int64_t> list = axes_of(ctx, 13, given);
  return {ir::unsqueeze(ctx.program, x, ctx.axes(list, x.rank() + static_cast<int>(list.size())))};
}

Values transpose(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  std::vector<int64_t> perm = ctx.attr_ints("perm");
  if (perm.empty())
    for (int k = x.rank(); k-- > 0;) perm.push_back(k);
  TBX_MODEL(static_cast<int>(perm.size()) == x.rank(), "perm has {} entries, the input has rank {}",
            perm.size(), x.rank());
  std::vector<int> order;
  std::vector<bool> seen(perm.size(), false);
  for (int64_t p : perm) {
    order.push_back(ctx.axis(p, x.rank()));
    TBX_MODEL(!seen[order.back()], "perm names axis {} twice", order.back());
    seen[order.back()] = true;
  }
  return {ir::permute(ctx.program, x, order)};
}

/// Bidirectional, as in ONNX: the input's own dimensions may be larger than the shape's.
Values expand(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  SymInts sizes = ir::broadcast_sizes(ctx.program, x.sizes(), ctx.known_or_throw(1, "shape"));
  return {ir::expand(ctx.program, x, sizes)};
}

Values tile_by(OpContext& ctx, const SymInts& repeats) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(static_cast<int>(repeats.size()) == x.rank(), "{} repeats for an input of rank {}",
            repeats.size(), x.rank());
  SymInts sizes, map;
  for (int k = 0; k < x.rank(); ++k) {
    TBX_MODEL(!repeats[k].is_constant() || repeats[k].constant() >= 0, "repeat {} of axis {} is negative",
              repeats[k].constant(), k);
    sizes.push_back(x.sizes()[k] * repeats[k]);
    SymInt v = ctx.c.var(k);
    bool single = x.sizes()[k].is(1) || x.sizes()[k].is(0);
    map.push_back(repeats[k].is(1) ? v : single ? SymInt(0) : ir::mod(v, x.sizes()[k]));
  }
  return {x.view(ctx.c, sizes, map)};
}

Values tile(OpContext& ctx) { return tile_by(ctx, ctx.known_or_throw(1, "repeats")); }

/// Opset 1: `tiles` and `axis` are scalar inputs.
Values tile_1(OpContext& ctx) {
  SymInts repeats(ctx.rank(0), SymInt(1));
  const std::vector<int64_t> axis = ctx.ints_or_run(2, "axis"), tiles = ctx.ints_or_run(1, "tiles");
  TBX_MODEL(axis.size() == 1, "axis (input 2) has {} elements, expected one", axis.size());
  TBX_MODEL(tiles.size() == 1, "tiles (input 1) has {} elements, expected one", tiles.size());
  repeats[ctx.axis(axis[0], ctx.rank(0))] = tiles[0];
  return tile_by(ctx, repeats);
}

// --- blocks

Values depth_to_space(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected at least 3", x.rank());
  int64_t b = ctx.required_int("blocksize");
  TBX_MODEL(b > 0, "blocksize is {}", b);
  bool dcr = ctx.attr_string("mode", "DCR") == "DCR";
  int spatial = x.rank() - 2;
  SymInt blocks = 1;
  for (int k = 0; k < spatial; ++k) blocks = blocks * SymInt(b);
  auto channels = x.sizes()[1].as_constant();
  TBX_MODEL(!channels || *channels % blocks.constant() == 0, "{} channels do not divide into blocks of {}",
            channels.value_or(0), blocks.constant());
  SymInt depth = ir::floordiv(x.sizes()[1], blocks);
  // View as [N, b.., C', spatial..] (DCR) or [N, C', b.., spatial..] (CRD), then interleave blocks and space.
  SymInts split{x.sizes()[0]};
  if (!dcr) split.push_back(depth);
  for (int k = 0; k < spatial; ++k) split.push_back(b);
  if (dcr) split.push_back(depth);
  for (int k = 0; k < spatial; ++k) split.push_back(x.sizes()[2 + k]);
  int block0 = dcr ? 1 : 2, depth_axis = dcr ? 1 + spatial : 1, space0 = 2 + spatial;
  std::vector<int> order{0, depth_axis};
  SymInts result{x.sizes()[0], depth};
  for (int k = 0; k < spatial; ++k) {
    order.push_back(space0 + k);
    order.push_back(block0 + k);
    result.push_back(x.sizes()[2 + k] * SymInt(b));
  }
  TensorBox y = ir::permute(ctx.program, ir::reshape(ctx.program, x, split), order);
  return {ir::reshape(ctx.program, y, result)};
}

Values space_to_depth(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected at least 3", x.rank());
  int64_t b = ctx.required_int("blocksize");
  TBX_MODEL(b > 0, "blocksize is {}", b);
  bool dcr = ctx.attr_string("mode", "DCR") == "DCR";
  int spatial = x.rank() - 2;
  SymInts split{x.sizes()[0], x.sizes()[1]}, result{x.sizes()[0]};
  SymInt depth = x.sizes()[1];
  for (int k = 0; k < spatial; ++k) {
    auto size = x.sizes()[2 + k].as_constant();
    TBX_MODEL(!size || *size % b == 0, "spatial size {} is not a multiple of blocksize {}", size.value_or(0),
              b);
    split.push_back(ir::floordiv(x.sizes()[2 + k], b));
    split.push_back(b);
    depth = depth * SymInt(b);
  }
  std::vector<int> order{0};
  if (!dcr) order.push_back(1);
  for (int k = 0; k < spatial; ++k) order.push_back(3 + 2 * k);
  if (dcr) order.push_back(1);
  result.push_back(depth);
  for (int k = 0; k < spatial; ++k) {
    order.push_back(2 + 2 * k);
    result.push_back(split[2 + 2 * k]);
  }
  TensorBox y = ir::permute(ctx.program, ir::reshape(ctx.program, x, split), order);
  return {ir::reshape(ctx.program, y, result)};
}

/// com.microsoft UnfoldTensor: windows of `size` elements along one axis, every `step` elements; the places
/// in a window become a new last axis.
Values unfold(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() > 0, "the input is a scalar, expected at least one dimension");
  int axis = ctx.axis(ctx.attr_int("dim", -1), x.rank());
  int64_t size = ctx.required_int("size"), step = ctx.attr_int("step", 1);
  TBX_MODEL(size > 0 && step > 0, "size is {} and step is {}, both must be positive", size, step);
  SymInt room = x.sizes()[axis] - SymInt(size);
  ctx.program.add_check(room, false,
                        fmt::format("axis {} has fewer elements than a window of {}", axis, size));
  SymInts sizes = x.sizes(), map = loop_vars(ctx.c, x.rank());
  sizes[axis] = ir::floordiv(room, step) + SymInt(1);
  sizes.push_back(size);
  map[axis] = map[axis] * SymInt(step) + ctx.c.var(x.rank());
  return {x.view(ctx.c, sizes, map)};
}

// --- joining and splitting

/// Few small inputs are selected in one pointwise nest; otherwise every input is written into its slice.
constexpr int64_t kInlineConcatElements = 1024;

TensorBox concat_boxes(OpContext& ctx, const std::vector<TensorBox>& all, int axis) {
  for (const TensorBox& x : all) {
    TBX_MODEL(x.rank() == all[0].rank(), "inputs of rank {} and {}", all[0].rank(), x.rank());
    TBX_MODEL(x.dtype() == all[0].dtype(), "inputs of types {} and {}", name_of(all[0].dtype()),
              name_of(x.dtype()));
    for (int k = 0; k < x.rank(); ++k) {
      SymInt a = all[0].sizes()[k], b = x.sizes()[k];
      if (k != axis && !ir::provably_equal(a, b))
        ctx.program.add_check(a - b, true,
                              fmt::format("dimension {} is {} in one input and {} in another", k,
                                          ir::to_string(a), ir::to_string(b)));
    }
  }
  std::vector<TensorBox> xs;
  for (const TensorBox& x : all)
    if (!x.sizes()[axis].is(0)) xs.push_back(x);
  if (xs.empty()) return all[0];
  if (xs.size() == 1) return xs[0];
  if (auto view = joined_view(ctx, xs, axis)) return *view;
  SymInts sizes = xs[0].sizes();
  sizes[axis] = 0;
  for (const TensorBox& x : xs) sizes[axis] += x.sizes()[axis];
  auto numel = ir::product(sizes).as_constant();
  if (numel && *numel <= kInlineConcatElements) {
    SymInts at = loop_vars(ctx.c, static_cast<int>(sizes.size()));
    SymInt start = sizes[axis], along = at[axis];
    Expr body = nullptr;
    for (size_t i = xs.size(); i-- > 0;) {
      start = start - xs[i].sizes()[axis];
      // Outside its own part an input is read at its first element, which exists.
      SymInt local = ir::min(ir::max(along - start, 0), xs[i].sizes()[axis] - SymInt(1));
      at[axis] = local;
      Expr value = xs[i].load(ctx.program, at);
      body =
          body ? ir::where(ir::binary(Op::less, ctx.c.index(along), ctx.c.index(start + xs[i].sizes()[axis])),
                           value, body)
               : value;
    }
    return ir::make_pointwise(ctx.program, xs[0].dtype(), sizes, body);
  }
  ir::BufferId whole = ctx.program.new_buffer("", xs[0].dtype(), sizes);
  SymInt start = 0;
  for (const TensorBox& x : xs) {
    ir::BufferId part = ctx.program.new_buffer("", x.dtype(), x.sizes());
    ir::Buffer& b = ctx.program.at(part);
    b.slice_of = whole;
    b.slice_start.assign(sizes.size(), SymInt(0));
    b.slice_start[axis] = start;
    start += x.sizes()[axis];
    ir::Loops loops;
    loops.ranges = x.sizes();
    loops.dtype = x.dtype();
    loops.body = x.load(ctx.program, loop_vars(ctx.c, x.rank()));
    ctx.program.operations.push_back({ir::Compute{std::move(loops), part}, {}, "part of a concatenation"});
  }
  return ir::make_buffer_box(ctx.program, whole);
}

Values concat(OpContext& ctx) {
  std::vector<TensorBox> xs;
  xs.reserve(static_cast<size_t>(ctx.num_inputs()));
  for (int i = 0; i < ctx.num_inputs(); ++i) xs.push_back(ctx.in(i));
  TBX_MODEL(!xs.empty(), "no inputs");
  int64_t raw = ctx.opset() < 4 ? ctx.attr_int("axis", 1) : ctx.required_int("axis");
  int axis = ctx.axis(raw, xs[0].rank());
  return {concat_boxes(ctx, xs, axis)};
}

Values split_at(OpContext& ctx, int axis, const SymInts& lengths) {
  const TensorBox& x = ctx.in(0);
  Values out;
  SymInt start = 0;
  for (SymInt length : lengths) {
    ctx.program.add_check(length, false,
                          fmt::format("a part of the split has the length {}", ir::to_string(length)));
    out.emplace_back(ir::slice(ctx.program, x, axis, start, 1, length));
    start += length;
  }
  if (SymInt size = x.sizes()[axis]; !ir::provably_equal(start, size))
    ctx.program.add_check(start - size, true,
                          fmt::format("the split lengths add up to {}, axis {} has size {}",
                                      ir::to_string(start), axis, ir::to_string(size)));
  return out;
}

Values split(OpContext& ctx) {
  int axis = ctx.axis(ctx.attr_int("axis", 0), ctx.rank(0));
  int opset = ctx.opset();
  SymInts lengths;
  if (opset >= 13 || (opset == 1 && ctx.has(1))) {
    if (ctx.has(1)) lengths = ctx.known_or_throw(1, "split");
  } else {
    for (int64_t n : ctx.attr_ints("split")) lengths.push_back(n);
  }
  auto outputs = static_cast<int64_t>(ctx.node.outputs.size());
  SymInt size = ctx.sizes(0)[axis];
  if (lengths.empty()) {
    int64_t parts = ctx.attr_int("num_outputs", outputs);
    TBX_MODEL(parts > 0, "num_outputs is {}", parts);
    // Equal parts; from opset 18 on the last ones may be shorter or empty.
    SymInt chunk = opset >= 18 ? ir::ceildiv(size, parts) : ir::floordiv(size, parts);
    for (int64_t i = 0; i + 1 < parts; ++i)
      lengths.push_back(size.is_constant() ? ir::min(chunk, ir::max(size - chunk * SymInt(i), 0)) : chunk);
    if (opset < 18)
      ctx.program.add_check(
          ir::mod(size, parts), true,
          fmt::format("{} elements along axis {} are no {} equal parts", ir::to_string(size), axis, parts));
    SymInt last = size - chunk * SymInt(parts - 1);
    if (!size.is_constant())
      ctx.program.add_check(last, false, "Split: too few elements for num_outputs parts");
    lengths.push_back(size.is_constant() ? ir::max(last, 0) : last);
  }
  TBX_MODEL(static_cast<int64_t>(lengths.size()) == outputs, "{} split lengths for {} outputs",
            lengths.size(), outputs);
  return split_at(ctx, axis, lengths);
}

} // namespace

TensorBox concatenate(OpContext& ctx, const std::vector<TensorBox>& xs, int axis) {
  return concat_boxes(ctx, xs, axis);
}

void register_shape(Registry& r) {
  r.add("Reshape", since(1), reshape_attr);
  r.add("Reshape", since(5), reshape_input);
  r.add("Flatten", since(1), flatten);
  r.add("Squeeze", since(1), squeeze);
  r.add("Unsqueeze", since(1), unsqueeze);
  r.add("Transpose", since(1), transpose);
  r.add("Expand", since(8), expand);
  r.add("Tile", since(1), tile_1);
  r.add("Tile", since(6), tile);
  r.add("DepthToSpace", since(1), depth_to_space);
  r.add("SpaceToDepth", since(1), space_to_depth);
  r.add("UnfoldTensor", since(1), unfold, "com.microsoft");
  r.type_from(0, {"UnfoldTensor"}, "com.microsoft");
  r.add("Concat", since(1), concat);
  r.add("Split", since(1), split);
  r.narrow(Narrow::view, {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile",
                          "DepthToSpace", "SpaceToDepth", "Split"});
  r.narrow(Narrow::follows, {"Concat"});
  r.mark(Trait::moves, {"Concat", "DepthToSpace", "Expand", "Flatten", "Reshape", "SpaceToDepth", "Split",
                        "Squeeze", "Tile", "Transpose", "Unsqueeze"});
  r.mark(Trait::rearranges, {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"});
  r.mark(Trait::takes_quotients, {"Expand", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"});
  r.mark(Trait::keeps_first,
         {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Split", "Concat"});
  r.mark(Trait::keeps_others, {"Concat"});
  r.mark(Trait::half_follows, {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Split", "Concat",
                               "Expand", "Tile", "DepthToSpace", "SpaceToDepth"});
  r.need("Expand", 1, between(1, 2));
  r.need("Tile", 1, between(1, 3));
  r.need("Squeeze", 1, axis_of_input());
  r.need("Unsqueeze", 1, axis_of_output());
}

} // namespace tbx::lowering
