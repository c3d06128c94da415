// Pooling over regions given at run time (RoiAlign, MaxRoiPool) and convolution at displaced positions
// (DeformConv): reductions and pointwise sums over indirect reads.
#include <algorithm>
#include <array>
#include <numeric>

#include "lowering/ops/channels.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/products.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

constexpr int64_t kUnrolledSamples = 4; ///< of a bin: more are a loop

Expr both(Expr a, Expr b) { return a ? ir::binary(Op::logical_and, a, b) : b; }
Expr integer(OpContext& ctx, int64_t v) { return ctx.c.constant_int(DType::i64, v); }
Expr floor_index(Expr x) { return x->context->cast(ir::unary(Op::floor, x), DType::i64); }

/// An i64 expression as an index of dimension `size`; what is outside is moved to the border, so that reads
/// need no mask (which would also be one on the loads inside the index).
SymInt clamped(OpContext& ctx, Expr i, SymInt size) {
  Expr last = ctx.c.index(size - SymInt(1));
  return ctx.c.indirect(ir::binary(Op::min, ir::binary(Op::max, i, integer(ctx, 0)), last), size, false);
}

/// The largest element of an i64 tensor, at least 0, as a size known while running.
SymInts largest_at_run_time(OpContext& ctx, const std::vector<TensorBox>& xs, const std::string& what) {
  std::vector<TensorBox> rows;
  for (const TensorBox& x : xs) {
    AxisReducer reduce(ctx, x.sizes(), axes_from(0, x.rank()));
    TensorBox largest = reduce(ReduceOp::max, DType::i64, x);
    rows.push_back(ir::reshape(ctx.program, largest, {1}));
  }
  TensorBox all = concatenate(ctx, rows, 0);
  return sizes_at_run_time(
      ctx, map(ctx, DType::i64, all, [&](Expr e) { return ir::binary(Op::max, e, number(e, 0)); }), what);
}

// --- RoiAlign

/// One side of the regions: where bins start, how large they are, how many samples they take.
struct RoiAxis {
  TensorBox start, bin, samples; ///< [regions]; samples undefined when fixed
};

RoiAxis roi_axis(OpContext& ctx, const TensorBox& rois, int column, int64_t bins, double scale,
                 bool half_pixel, DType type, bool adaptive) {
  SymInts sizes{rois.sizes()[0]};
  auto coordinate = [&](int c) {
    return [&ctx, &rois, scale, half_pixel, type, c](std::span<const SymInt> at) {
      const SymInt place[] = {at[0], SymInt(c)};
      Expr e = to_compute(rois.load(ctx.program, place), type);
      return ir::sub(ir::mul(e, number(e, scale)), number(e, half_pixel ? 0.5 : 0.0));
    };
  };
  auto length = [&](std::span<const SymInt> at) {
    Expr l = ir::sub(coordinate(column + 2)(at), coordinate(column)(at));
    // Without the half pixel shift malformed regions count as one pixel.
    return half_pixel ? l : ir::binary(Op::max, l, number(l, 1));
  };
  auto bin = [&](std::span<const SymInt> at) {
    Expr l = length(at);
    return ir::div(l, number(l, static_cast<double>(bins)));
  };
  RoiAxis a;
  a.start = generate(ctx, type, sizes, coordinate(column));
  a.bin = generate(ctx, type, sizes, bin);
  if (adaptive)
    a.samples = generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) {
      Expr n = ctx.c.cast(ir::unary(Op::ceil, bin(at)), DType::i64);
      return ir::binary(Op::max, n, number(n, 0));
    });
  for (const TensorBox* x : {&a.start, &a.bin, &a.samples})
    if (x->defined()) realize(ctx, *x, "read by every bin of a region");
  return a;
}

/// Where the samples along one side read and how much their two neighbours count: [regions, bins, samples].
/// What lies outside of the image has the weights 0.
struct RoiSamples {
  std::array<TensorBox, 2> index;  ///< i32, inside of the image
  std::array<TensorBox, 2> weight; ///< the first one is above 0 inside
};

RoiSamples roi_samples(OpContext& ctx, const RoiAxis& axis, SymInt size, int64_t bins, SymInt grid,
                       DType type) {
  SymInts sizes{axis.start.sizes()[0], SymInt(bins), grid};
  struct Position {
    Expr inside, low, fraction, last;
  };
  auto position = [&](std::span<const SymInt> at) -> Position {
    auto of_roi = [&](const TensorBox& t) { return t.load(ctx.program, at.first(1)); };
    Expr start = of_roi(axis.start), bin = of_roi(axis.bin), sample = ctx.c.index(at[2]), inside = nullptr;
    Expr samples = axis.samples.defined() ? of_roi(axis.samples) : ctx.c.index(grid);
    if (axis.samples.defined()) inside = ir::binary(Op::less, sample, samples);
    Expr step = ir::div(ir::add(to_compute(sample, type), number(start, 0.5)), to_compute(samples, type));
    Expr p = ir::add(ir::add(start, ir::mul(to_compute(ctx.c.index(at[1]), type), bin)), ir::mul(step, bin));
    Expr length = size_as(ctx.c, size, type), zero = number(p, 0);
    inside = both(inside, ir::binary(Op::greater_equal, p, number(p, -1)));
    inside = both(inside, ir::binary(Op::less_equal, p, length));
    p = ir::binary(Op::max, p, zero);
    Expr last = ir::sub(length, number(p, 1)), low = ir::binary(Op::min, ir::unary(Op::floor, p), last);
    Expr fraction = ir::where(ir::binary(Op::greater_equal, low, last), zero, ir::sub(p, low));
    return {inside, low, fraction, last};
  };
  RoiSamples s;
  for (int j = 0; j < 2; ++j) {
    s.index[j] = generate(ctx, DType::i32, sizes, [&](std::span<const SymInt> at) {
      Position p = position(at);
      Expr i = j == 0 ? p.low : ir::binary(Op::min, ir::add(p.low, number(p.low, 1)), p.last);
      return ctx.c.cast(ir::where(p.inside, i, number(i, 0)), DType::i32);
    });
    s.weight[j] = generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
      Position p = position(at);
      Expr w = j == 0 ? ir::sub(number(p.fraction, 1), p.fraction) : p.fraction;
      return ir::where(p.inside, w, number(w, 0));
    });
    realize(ctx, s.index[j], "read by every channel of a region");
    realize(ctx, s.weight[j], "read by every channel of a region");
  }
  return s;
}

/// X [N, C, H, W], rois [R, 4] (x1, y1, x2, y2), batch_indices [R] -> [R, C, height, width].
Values roi_align(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &rois = ctx.in(1), &batches = ctx.in(2);
  TBX_MODEL(x.rank() == 4 && rois.rank() == 2 && batches.rank() == 1,
            "X, rois and batch_indices have ranks {}, {} and {}, expected 4, 2 and 1", x.rank(), rois.rank(),
            batches.rank());
  ctx.program.add_check(rois.sizes()[1] - SymInt(4), true, "RoiAlign: rois do not have 4 coordinates");
  ctx.program.add_check(rois.sizes()[0] - batches.sizes()[0], true,
                        "RoiAlign: rois and batch_indices differ in number");
  std::string mode = ctx.attr_string("mode", "avg");
  TBX_MODEL(mode == "avg" || mode == "max", "unknown mode '{}'", mode);
  std::string shift = ctx.attr_string("coordinate_transformation_mode",
                                      ctx.opset() < 16 ? "output_half_pixel" : "half_pixel");
  TBX_MODEL(shift == "half_pixel" || shift == "output_half_pixel",
            "unknown coordinate_transformation_mode '{}'", shift);
  const int64_t bins[] = {ctx.attr_int("output_height", 1), ctx.attr_int("output_width", 1)};
  const int64_t ratio = ctx.attr_int("sampling_ratio", 0);
  for (int64_t v : bins) TBX_MODEL(v > 0 && v < (1 << 20), "a size is {}", v);
  TBX_MODEL(ratio >= 0 && ratio < (1 << 20), "sampling_ratio is {}", ratio);
  const double scale = ctx.attr_float("spatial_scale", 1);
  const DType type = compute_type(x.dtype());
  const bool adaptive = ratio == 0, max = mode == "max";

  RoiAxis axes[2];
  for (int k = 0; k < 2; ++k)
    axes[k] = roi_axis(ctx, rois, 1 - k, bins[k], scale, shift == "half_pixel", type, adaptive);
  SymInts grid{ratio, ratio};
  if (adaptive)
    grid = largest_at_run_time(ctx, {axes[0].samples, axes[1].samples}, "the number of samples of a region");
  RoiSamples samples[2];
  for (int k = 0; k < 2; ++k)
    samples[k] = roi_samples(ctx, axes[k], x.sizes()[2 + k], bins[k], grid[k], type);

  SymInt regions = rois.sizes()[0], channels = x.sizes()[1];
  const int64_t reads = 4 * bins[0] * bins[1] * (adaptive ? 4 : ratio * ratio);
  const bool last = channels_last_pays(ctx, x, SymInt(reads) * regions);
  // Loops over regions, bins and channels; the channels innermost where X is read that way.
  const SymInt roi = ctx.c.var(0), channel = ctx.c.var(last ? 3 : 1);
  const SymInt bin[] = {ctx.c.var(last ? 1 : 2), ctx.c.var(last ? 2 : 3)};
  SymInts sizes =
      last ? SymInts{regions, bins[0], bins[1], channels} : SymInts{regions, channels, bins[0], bins[1]};
  if (!last) realize_if_repeated(ctx.program, x, {regions, channels, x.sizes()[2], x.sizes()[3]});
  TensorBox image = last ? with_channels_last(ctx, x) : x;
  Expr batch = ctx.c.cast(batches.load(ctx.program, {&roi, 1}), DType::i64);
  SymInt n = ctx.c.indirect(batch, x.sizes()[0], false);
  /// One sample: its weighted sum, or the maximum over its four weighted neighbours, as ONNX defines it.
  auto sample = [&](SymInt gy, SymInt gx) {
    SymInt index[2][2];
    Expr weight[2][2];
    for (int k = 0; k < 2; ++k)
      for (int j = 0; j < 2; ++j) {
        const SymInt at[] = {roi, bin[k], k == 0 ? gy : gx};
        Expr i = ctx.c.cast(samples[k].index[j].load(ctx.program, at), DType::i64);
        index[k][j] = ctx.c.indirect(i, x.sizes()[2 + k], false);
        weight[k][j] = samples[k].weight[j].load(ctx.program, at);
      }
    Expr value = nullptr;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const SymInts place = last ? SymInts{n, index[0][i], index[1][j], channel}
                                   : SymInts{n, channel, index[0][i], index[1][j]};
        Expr term =
            ir::mul(ir::mul(weight[0][i], weight[1][j]), to_compute(image.load(ctx.program, place), type));
        value = !value ? term : max ? ir::binary(Op::max, value, term) : ir::add(value, term);
      }
    Expr zero = number(value, 0);
    Expr inside =
        both(ir::binary(Op::greater, weight[0][0], zero), ir::binary(Op::greater, weight[1][0], zero));
    return ir::where(inside, value, zero);
  };
  auto count_of = [&](int k) {
    return adaptive ? axes[k].samples.load(ctx.program, {&roi, 1}) : integer(ctx, ratio);
  };
  Expr count = ir::mul(count_of(0), count_of(1)), total = nullptr;
  if (!adaptive && ratio * ratio <= kUnrolledSamples) {
    for (int64_t gy = 0; gy < ratio; ++gy)
      for (int64_t gx = 0; gx < ratio; ++gx) {
        Expr v = sample(gy, gx);
        total = !total ? v : max ? ir::binary(Op::max, total, v) : ir::add(total, v);
      }
  } else {
    Expr v = sample(ctx.c.rvar(0), ctx.c.rvar(1));
    // Samples that a smaller region does not have count for nothing.
    Expr taken = nullptr;
    if (max && adaptive)
      for (int k = 0; k < 2; ++k)
        taken = both(taken, ir::binary(Op::less, ctx.c.index(ctx.c.rvar(k)), count_of(k)));
    if (taken) v = ir::where(taken, v, number(v, -std::numeric_limits<double>::infinity()));
    total = ir::make_reduction(ctx.program, max ? ReduceOp::max : ReduceOp::sum, type, sizes, grid, v)
                .load(ctx.program, loop_vars(ctx.c, 4));
  }
  if (max && adaptive)
    total = ir::where(ir::binary(Op::greater, count, integer(ctx, 0)), total, number(total, 0));
  if (!max) total = ir::div(total, to_compute(ir::binary(Op::max, count, integer(ctx, 1)), type));
  TensorBox y = ir::make_pointwise(ctx.program, x.dtype(), sizes, to_compute(total, x.dtype()));
  return {last ? with_channels_second(ctx, y) : y};
}

// --- MaxRoiPool

/// X [N, C, H, W], rois [R, 5] (batch, x1, y1, x2, y2, both ends belong to it) -> [R, C, height, width].
Values max_roi_pool(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &rois = ctx.in(1);
  TBX_MODEL(x.rank() == 4 && rois.rank() == 2, "X and rois have ranks {} and {}, expected 4 and 2", x.rank(),
            rois.rank());
  ctx.program.add_check(rois.sizes()[1] - SymInt(5), true, "MaxRoiPool: rois do not have 5 entries");
  std::vector<int64_t> pooled = ctx.attr_ints("pooled_shape");
  TBX_MODEL(pooled.size() == 2, "pooled_shape has {} entries, expected 2", pooled.size());
  for (int64_t v : pooled) TBX_MODEL(v > 0 && v < (1 << 20), "pooled_shape has the value {}", v);
  const double scale = ctx.attr_float("spatial_scale", 1);
  const DType type = compute_type(x.dtype());
  // First row or column of each bin and their number, clipped to the image: [R, pooled].
  TensorBox begin[2], extent[2];
  for (int k = 0; k < 2; ++k) {
    SymInts sizes{rois.sizes()[0], pooled[k]};
    auto edge = [&](SymInt roi, int column) {
      const SymInt place[] = {roi, SymInt(column)};
      Expr e = to_compute(rois.load(ctx.program, place), type);
      e = ir::mul(e, number(e, scale));
      // Halves are rounded away from 0.
      Expr away = ir::unary(Op::floor, ir::add(ir::unary(Op::abs, e), number(e, 0.5)));
      return ir::where(ir::binary(Op::less, e, number(e, 0)), ir::unary(Op::neg, away), away);
    };
    auto border = [&](std::span<const SymInt> at, bool end) {
      Expr start = edge(at[0], 2 - k), stop = edge(at[0], 4 - k), one = number(start, 1);
      Expr length = ir::binary(Op::max, ir::add(ir::sub(stop, start), one), one);
      Expr bin = ir::div(length, number(length, static_cast<double>(pooled[k])));
      Expr i = to_compute(ctx.c.index(at[1] + SymInt(end ? 1 : 0)), type);
      Expr p = ir::add(ir::unary(end ? Op::ceil : Op::floor, ir::mul(i, bin)), start);
      Expr size = size_as(ctx.c, x.sizes()[2 + k], type);
      return ctx.c.cast(ir::binary(Op::min, ir::binary(Op::max, p, number(p, 0)), size), DType::i64);
    };
    begin[k] =
        generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) { return border(at, false); });
    extent[k] = generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) {
      return ir::binary(Op::max, ir::sub(border(at, true), border(at, false)), integer(ctx, 0));
    });
    realize(ctx, begin[k], "read by every channel");
    realize(ctx, extent[k], "read by every channel");
  }
  SymInts window = largest_at_run_time(ctx, {extent[0], extent[1]}, "the size of a bin");
  SymInt regions = rois.sizes()[0], channels = x.sizes()[1];
  const bool last = channels_last_pays(ctx, x, SymInt(pooled[0] * pooled[1]) * regions);
  // Loops over regions, bins and channels; the channels innermost where X is read that way.
  const SymInt roi = ctx.c.var(0), channel = ctx.c.var(last ? 3 : 1);
  SymInt inside[2];
  Expr some = nullptr;
  for (int k = 0; k < 2; ++k) {
    const SymInt bin[] = {roi, ctx.c.var(last ? 1 + k : 2 + k)};
    Expr one = integer(ctx, 1), n = extent[k].load(ctx.program, bin);
    some = both(some, ir::binary(Op::greater, n, integer(ctx, 0)));
    // A smaller bin than the largest one reads its last row or column again, which changes no maximum.
    Expr step = ir::binary(Op::min, ctx.c.index(ctx.c.rvar(k)), ir::sub(n, one));
    inside[k] = clamped(ctx, ir::add(begin[k].load(ctx.program, bin), step), x.sizes()[2 + k]);
  }
  const SymInt batch[] = {roi, SymInt(0)};
  Expr n = ctx.c.cast(to_compute(rois.load(ctx.program, batch), type), DType::i64);
  SymInt image = ctx.c.indirect(n, x.sizes()[0], false);
  if (!last) realize_if_repeated(ctx.program, x, {regions, channels, x.sizes()[2], x.sizes()[3]});
  Expr v = last ? with_channels_last(ctx, x).load(ctx.program, SymInts{image, inside[0], inside[1], channel})
                : x.load(ctx.program, SymInts{image, channel, inside[0], inside[1]});
  SymInts sizes = last ? SymInts{regions, pooled[0], pooled[1], channels}
                       : SymInts{regions, channels, pooled[0], pooled[1]};
  TensorBox best = ir::make_reduction(ctx.program, ReduceOp::max, x.dtype(), sizes, window, v);
  Expr result = best.load(ctx.program, loop_vars(ctx.c, 4));
  // Empty bins are 0.
  result = ir::where(some, result, number(result, 0));
  TensorBox y = ir::make_pointwise(ctx.program, x.dtype(), sizes, result);
  if (!last) return {y};
  realize(ctx, y, "a vector of channels has one bin");
  return {with_channels_second(ctx, y)};
}

// --- DeformConv

/// A convolution whose kernel positions are displaced by `offset` and scaled by `mask`: the sampled columns
/// go through one matrix product per group.
Values deform_conv(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &w = ctx.in(1), &offset = ctx.in(2);
  TBX_MODEL(x.rank() == 4 && w.rank() == 4 && offset.rank() == 4,
            "X, W and offset have ranks {}, {} and {}, expected 4 (two spatial dimensions)", x.rank(),
            w.rank(), offset.rank());
  auto attribute = [&](const char* name, std::vector<int64_t> otherwise, int64_t least) {
    size_t n = otherwise.size();
    std::vector<int64_t> v = ctx.attr_ints(name, std::move(otherwise));
    TBX_MODEL(v.size() == n, "{} has {} entries, expected {}", name, v.size(), n);
    for (int64_t e : v) TBX_MODEL(e >= least && e < (int64_t{1} << 31), "{} has the value {}", name, e);
    return v;
  };
  std::vector<int64_t> kernel;
  for (int k = 2; k < 4; ++k) {
    auto size = w.sizes()[k].as_constant();
    if (!size) ask_for_sizes("the kernel size is not known while compiling");
    kernel.push_back(*size);
  }
  TBX_MODEL(attribute("kernel_shape", kernel, 1) == kernel, "kernel_shape is not that of W");
  std::vector<int64_t> strides = attribute("strides", {1, 1}, 1),
                       dilations = attribute("dilations", {1, 1}, 1),
                       pads = attribute("pads", {0, 0, 0, 0}, 0);
  const int64_t group = ctx.attr_int("group", 1), offset_group = ctx.attr_int("offset_group", 1);
  TBX_MODEL(group > 0 && offset_group > 0, "group is {}, offset_group is {}", group, offset_group);
  const int64_t taps = kernel[0] * kernel[1];
  SymInt batch = x.sizes()[0], channels = x.sizes()[1], per_group = w.sizes()[1], filters = w.sizes()[0];
  ir::Program& p = ctx.program;
  p.add_check(channels - per_group * SymInt(group), true, "DeformConv: channels of X and W do not match");
  p.add_check(ir::mod(channels, offset_group), true, "DeformConv: channels are no multiple of offset_group");
  p.add_check(ir::mod(filters, group), true, "DeformConv: filters are no multiple of group");
  SymInts out;
  for (int k = 0; k < 2; ++k) {
    SymInt room = x.sizes()[2 + k] + SymInt(pads[k] + pads[2 + k] - dilations[k] * (kernel[k] - 1) - 1);
    out.push_back(ir::max(ir::floordiv(room, strides[k]) + SymInt(1), 0));
  }
  auto check_shape = [&](const TensorBox& t, int64_t per_tap, const char* what) {
    TBX_MODEL(t.rank() == 4, "{} has rank {}, expected 4", what, t.rank());
    const SymInt want[] = {batch, SymInt(offset_group * taps * per_tap), out[0], out[1]};
    for (int k = 0; k < 4; ++k)
      p.add_check(t.sizes()[k] - want[k], true,
                  fmt::format("DeformConv: {} has a wrong size along dimension {}", what, k));
  };
  check_shape(offset, 2, "offset");
  if (ctx.has(4)) check_shape(ctx.in(4), 1, "mask");

  // Columns [N, C, taps, oh, ow].
  const DType type = compute_type(x.dtype());
  SymInts sizes{batch, channels, SymInt(taps), out[0], out[1]}, at = loop_vars(ctx.c, 5);
  SymInt set = ir::floordiv(at[1] * SymInt(offset_group), channels);
  std::vector<Expr> index[2], weight[2], valid[2];
  realize_if_repeated(p, x, sizes);
  realize_if_repeated(p, offset, sizes);
  for (int k = 0; k < 2; ++k) {
    SymInt tap = k == 0 ? ir::floordiv(at[2], kernel[1]) : ir::mod(at[2], kernel[1]);
    const SymInt place[] = {at[0], (set * SymInt(taps) + at[2]) * SymInt(2) + SymInt(k), at[3], at[4]};
    Expr shift = to_compute(offset.load(p, place), type);
    SymInt grid = at[3 + k] * SymInt(strides[k]) + tap * SymInt(dilations[k]) - SymInt(pads[k]);
    Expr position = ir::add(to_compute(ctx.c.index(grid), type), shift);
    Expr low = ir::unary(Op::floor, position), fraction = ir::sub(position, low),
         first = floor_index(position);
    weight[k] = {ir::sub(number(fraction, 1), fraction), fraction};
    for (int j = 0; j < 2; ++j) {
      Expr i = ir::add(first, integer(ctx, j));
      index[k].push_back(i);
      valid[k].push_back(ir::binary(Op::logical_and, ir::binary(Op::greater_equal, i, integer(ctx, 0)),
                                    ir::binary(Op::less, i, ctx.c.index(x.sizes()[2 + k]))));
    }
  }
  Expr value = nullptr;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      Expr in = ir::binary(Op::logical_and, valid[0][i], valid[1][j]);
      const SymInt place[] = {at[0], at[1], clamped(ctx, index[0][i], x.sizes()[2]),
                              clamped(ctx, index[1][j], x.sizes()[3])};
      Expr v = to_compute(x.load(p, place), type);
      Expr term = ir::mul(ir::mul(weight[0][i], weight[1][j]), ir::where(in, v, number(v, 0)));
      value = value ? ir::add(value, term) : term;
    }
  if (ctx.has(4)) {
    realize_if_repeated(p, ctx.in(4), sizes);
    const SymInt place[] = {at[0], set * SymInt(taps) + at[2], at[3], at[4]};
    value = ir::mul(value, to_compute(ctx.in(4).load(p, place), type));
  }
  TensorBox columns = ir::make_pointwise(p, x.dtype(), sizes, to_compute(value, x.dtype()));
  realize(ctx, columns, "operand of a matrix product");
  columns = ir::reshape(p, columns, {batch, SymInt(group), per_group * SymInt(taps), out[0] * out[1]});
  SymInt per_filter = ir::floordiv(filters, group);
  TensorBox weights = ir::reshape(p, w, {SymInt(1), SymInt(group), per_filter, per_group * SymInt(taps)});
  TensorBox y = matrix_product(ctx, weights, columns, nullptr, 1, 1, x.dtype());
  y = ir::reshape(p, y, {batch, filters, out[0], out[1]});
  if (!ctx.has(3)) return {y};
  TBX_MODEL(ctx.rank(3) == 1, "B has rank {}, expected 1", ctx.rank(3));
  p.add_check(ctx.sizes(3)[0] - filters, true, "DeformConv: B has another number of filters");
  return {
      map(ctx, x.dtype(), y, per_channel(ctx, ctx.in(3), 4), [](Expr a, Expr b) { return ir::add(a, b); })};
}

} // namespace

void register_regions(Registry& r) {
  r.add("RoiAlign", since(10), roi_align);
  r.add("MaxRoiPool", since(1), max_roi_pool);
  r.add("DeformConv", since(19), deform_conv);
  r.need("RoiAlign", 2, index_into(0, 0));
}

} // namespace tbx::lowering
