// The inverses of window operators: Col2Im sums blocks back into an image, MaxUnpool puts maxima where they
// came from.
#include <algorithm>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// An attribute with `n` entries in [least, 2^31).
std::vector<int64_t> window_ints(OpContext& ctx, const char* name, size_t n, int64_t otherwise,
                                 int64_t least) {
  std::vector<int64_t> v = ctx.attr_ints(name, std::vector<int64_t>(n, otherwise));
  TBX_MODEL(v.size() == n, "{} has {} entries, expected {}", name, v.size(), n);
  for (int64_t x : v) TBX_MODEL(x >= least && x < (int64_t{1} << 31), "{} has the value {}", name, x);
  return v;
}

/// [N, C * product(block), blocks] -> [N, C, image...]: every pixel sums the window positions that cover it.
Values col2im(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 3, "the input has rank {}, expected 3", x.rank());
  SymInts image = ctx.known_or_throw(1, "image_shape");
  std::vector<int64_t> block = ctx.ints_or_throw(2, "block_shape");
  size_t n = image.size();
  TBX_MODEL(n >= 1 && block.size() == n, "{} image sizes, {} block sizes", n, block.size());
  int64_t taps = 1;
  for (int64_t b : block)
    TBX_MODEL(b > 0 && !__builtin_mul_overflow(taps, b, &taps) && taps < (int64_t{1} << 31),
              "a block size is {}", b);
  std::vector<int64_t> strides = window_ints(ctx, "strides", n, 1, 1),
                       dilations = window_ints(ctx, "dilations", n, 1, 1),
                       pads = window_ints(ctx, "pads", 2 * n, 0, 0);
  SymInt channels = ir::floordiv(x.sizes()[1], taps), blocks = 1;
  ctx.program.add_check(ir::mod(x.sizes()[1], taps), true,
                        "Col2Im: dimension 1 is no multiple of the block size");
  SymInts sizes{x.sizes()[0], channels}, reduced, counts;
  for (size_t k = 0; k < n; ++k) {
    TBX_MODEL(!image[k].is_constant() || image[k].constant() >= 0, "an image size is {}",
              image[k].constant());
    SymInt room = image[k] + SymInt(pads[k] + pads[n + k] - dilations[k] * (block[k] - 1) - 1);
    counts.push_back(ir::max(ir::floordiv(room, strides[k]) + SymInt(1), 0));
    blocks = blocks * counts.back();
    sizes.push_back(image[k]);
    reduced.emplace_back(block[k]);
  }
  ctx.program.add_check(x.sizes()[2] - blocks, true, "Col2Im: dimension 2 is not the number of blocks");
  SymInt tap = 0, column = 0;
  Expr covered = nullptr;
  auto need = [&](Expr e) { covered = covered ? ir::binary(Op::logical_and, covered, e) : e; };
  Expr zero = ctx.c.constant_int(DType::i64, 0);
  for (size_t k = 0; k < n; ++k) {
    int d = static_cast<int>(k);
    SymInt from = ctx.c.var(2 + d) + SymInt(pads[k]) - ctx.c.rvar(d) * SymInt(dilations[k]);
    SymInt at = ir::floordiv(from, strides[k]);
    if (strides[k] != 1) need(ir::binary(Op::equal, ctx.c.index(ir::mod(from, strides[k])), zero));
    need(ir::binary(Op::greater_equal, ctx.c.index(from), zero));
    need(ir::binary(Op::less, ctx.c.index(at), ctx.c.index(counts[k])));
    tap = tap * SymInt(block[k]) + ctx.c.rvar(d);
    column = column * counts[k] + at;
  }
  const SymInt place[] = {ctx.c.var(0), ctx.c.var(1) * SymInt(taps) + tap, column};
  Expr v = ir::mask_loads(x.load(ctx.program, place), covered);
  v = ir::where(covered, v, number(v, 0));
  return {ir::make_reduction(ctx.program, ReduceOp::sum, x.dtype(), sizes, reduced, v)};
}

/// Zeros with the values of X at flat positions I of the shape that the pooling had as its input. A larger
/// output_shape leaves room at the end of each dimension.
Values max_unpool(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &indices = ctx.in(1);
  TBX_MODEL(x.rank() >= 3 && indices.rank() == x.rank(), "X has rank {}, I has rank {}", x.rank(),
            indices.rank());
  auto n = static_cast<size_t>(x.rank() - 2);
  TBX_MODEL(ctx.has_attr("kernel_shape"), "attribute 'kernel_shape' is missing");
  std::vector<int64_t> kernel = window_ints(ctx, "kernel_shape", n, 1, 1),
                       strides = window_ints(ctx, "strides", n, 1, 1),
                       pads = window_ints(ctx, "pads", 2 * n, 0, 0);
  SymInts inferred{x.sizes()[0], x.sizes()[1]};
  for (size_t k = 0; k < n; ++k)
    inferred.push_back((x.sizes()[2 + k] - SymInt(1)) * SymInt(strides[k]) +
                       SymInt(kernel[k] - pads[k] - pads[n + k]));
  for (size_t k = 0; k < n; ++k) {
    SymInt s = inferred[2 + k];
    TBX_MODEL(!s.is_constant() || s.constant() >= 0 || x.sizes()[2 + k].is(0), "axis {} would get size {}",
              k + 2, s.constant());
    inferred[2 + k] = ir::max(s, 0);
  }
  for (int k = 0; k < x.rank(); ++k)
    ctx.program.add_check(x.sizes()[k] - indices.sizes()[k], true, "MaxUnpool: the shapes of X and I differ");

  ir::Program& p = ctx.program;
  SymInt total = ir::product(inferred);
  ir::BufferId base = full(ctx, x.dtype(), {total}, 0).storage()->realize(p, "base of a scatter");
  ir::BufferId target = p.new_buffer("", x.dtype(), {total});
  p.at(target).overwrites = base;
  SymInts at = loop_vars(ctx.c, x.rank());
  Expr value = x.load(p, at);
  SymInt place = ctx.c.indirect(ctx.c.cast(indices.load(p, at), DType::i64), total, false);
  p.operations.push_back(
      {ir::Scatter{x.sizes(), {place}, value, nullptr, ir::StoreMode::set, target}, {}, "scatter"});
  TensorBox y = ir::reshape(p, ir::make_buffer_box(p, target), inferred);
  if (!ctx.has(2)) return {y};
  SymInts wanted = ctx.known_or_throw(2, "output_shape");
  TBX_MODEL(wanted.size() == inferred.size(), "output_shape has {} entries, expected {}", wanted.size(),
            inferred.size());
  Expr inside = nullptr;
  for (size_t k = 0; k < wanted.size(); ++k) {
    TBX_MODEL(!wanted[k].is_constant() || wanted[k].constant() >= 0, "output_shape has the value {}",
              wanted[k].constant());
    p.add_check(wanted[k] - inferred[k], false, "MaxUnpool: output_shape is smaller than the pooled input");
    if (ir::provably_equal(wanted[k], inferred[k])) continue;
    Expr in = ir::binary(Op::less, ctx.c.index(at[k]), ctx.c.index(inferred[k]));
    inside = inside ? ir::binary(Op::logical_and, inside, in) : in;
  }
  if (!inside) return {y};
  Expr v = ir::mask_loads(y.load(p, at), inside);
  return {ir::make_pointwise(p, x.dtype(), wanted, ir::where(inside, v, number(v, 0)))};
}

} // namespace

void register_fold_image(Registry& r) {
  r.add("Col2Im", since(18), col2im);
  r.add("MaxUnpool", since(9), max_unpool);
  r.mark(Trait::by_part, {"Col2Im"});
  r.need("MaxUnpool", 1, between(0, 1));
}

} // namespace tbx::lowering
