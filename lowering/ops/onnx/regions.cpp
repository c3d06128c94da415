// Pooling over regions given at run time (RoiAlign, MaxRoiPool): reductions over indirect reads.
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
constexpr int64_t kMostBins =
    1 << 20; ///< along a side, and samples of each: products of them do not overflow

Expr both(Expr a, Expr b) { return a ? ir::binary(Op::logical_and, a, b) : b; }
Expr integer(OpContext& ctx, int64_t v) { return ctx.c.constant_int(DType::i64, v); }

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

struct RoiOptions {
  int64_t bins[2]; ///< height and width of the result
  int64_t ratio;   ///< samples of a bin along each side; 0: as many as it has pixels
  double scale;    ///< from coordinates of rois to pixels
  bool half_pixel; ///< pixels lie in the middle of their squares
  bool max;        ///< of the samples; else their mean

  bool adaptive() const { return ratio == 0; }
};

RoiOptions options_of(OpContext& ctx) {
  RoiOptions o;
  const std::string mode = ctx.attr_string("mode", "avg");
  TBX_MODEL(mode == "avg" || mode == "max", "unknown mode '{}'", mode);
  o.max = mode == "max";
  const std::string shift = ctx.attr_string("coordinate_transformation_mode",
                                            ctx.opset() < 16 ? "output_half_pixel" : "half_pixel");
  TBX_MODEL(shift == "half_pixel" || shift == "output_half_pixel",
            "unknown coordinate_transformation_mode '{}'", shift);
  o.half_pixel = shift == "half_pixel";
  o.bins[0] = ctx.attr_int("output_height", 1);
  o.bins[1] = ctx.attr_int("output_width", 1);
  o.ratio = ctx.attr_int("sampling_ratio", 0);
  for (int64_t v : o.bins) TBX_MODEL(v > 0 && v < kMostBins, "a size is {}", v);
  TBX_MODEL(o.ratio >= 0 && o.ratio < kMostBins, "sampling_ratio is {}", o.ratio);
  o.scale = ctx.attr_float("spatial_scale", 1);
  return o;
}

/// X [N, C, H, W], rois [R, 4] (x1, y1, x2, y2), batch_indices [R] -> [R, C, height, width].
class RoiAlign {
public:
  RoiAlign(OpContext& ctx, const RoiOptions& options)
      : ctx_(ctx), c_(ctx.c), o_(options), x_(ctx.in(0)), rois_(ctx.in(1)), type_(compute_type(x_.dtype())) {}

  TensorBox run() {
    const SymInt regions = rois_.sizes()[0], channels = x_.sizes()[1];
    for (int k = 0; k < 2; ++k)
      axes_[k] = roi_axis(ctx_, rois_, 1 - k, o_.bins[k], o_.scale, o_.half_pixel, type_, o_.adaptive());
    SymInts grid{o_.ratio, o_.ratio};
    if (o_.adaptive())
      grid = largest_at_run_time(ctx_, {axes_[0].samples, axes_[1].samples},
                                 "the number of samples of a region");
    for (int k = 0; k < 2; ++k)
      samples_[k] = roi_samples(ctx_, axes_[k], x_.sizes()[2 + k], o_.bins[k], grid[k], type_);

    constexpr int64_t kGuess = 4; // samples of a bin, where a run decides
    const int64_t reads = 4 * o_.bins[0] * o_.bins[1] * (o_.adaptive() ? kGuess : o_.ratio * o_.ratio);
    // Loops over regions, bins and channels; the channels innermost where X is read that way.
    last_ = channels_last_pays(x_, SymInt(reads) * regions);
    roi_ = c_.var(0);
    channel_ = c_.var(last_ ? 3 : 1);
    for (int k = 0; k < 2; ++k) bin_[k] = c_.var(last_ ? 1 + k : 2 + k);
    const SymInts sizes = last_ ? SymInts{regions, o_.bins[0], o_.bins[1], channels}
                                : SymInts{regions, channels, o_.bins[0], o_.bins[1]};
    if (!last_) realize_if_repeated(ctx_.program, x_, {regions, channels, x_.sizes()[2], x_.sizes()[3]});
    image_ = last_ ? with_channels_last(ctx_, x_) : x_;
    Expr batch = c_.cast(ctx_.in(2).load(ctx_.program, {&roi_, 1}), DType::i64);
    image_number_ = c_.indirect(batch, x_.sizes()[0], false);
    TensorBox y =
        ir::make_pointwise(ctx_.program, x_.dtype(), sizes, to_compute(pooled(sizes, grid), x_.dtype()));
    return last_ ? with_channels_second(ctx_, y) : y;
  }

private:
  /// Number of samples of a bin along one side.
  Expr count_of(int k) const {
    return o_.adaptive() ? axes_[k].samples.load(ctx_.program, {&roi_, 1}) : integer(ctx_, o_.ratio);
  }

  /// The greatest sample of the bin, or their mean.
  Expr pooled(const SymInts& sizes, const SymInts& grid) const {
    const Expr count = ir::mul(count_of(0), count_of(1));
    Expr total = nullptr;
    if (!o_.adaptive() && o_.ratio * o_.ratio <= kUnrolledSamples) {
      for (int64_t y = 0; y < o_.ratio; ++y)
        for (int64_t x = 0; x < o_.ratio; ++x) total = joined(total, sample(y, x));
    } else {
      Expr v = sample(c_.rvar(0), c_.rvar(1));
      // Samples that a smaller region does not have count for nothing.
      Expr taken = nullptr;
      if (o_.max && o_.adaptive())
        for (int k = 0; k < 2; ++k)
          taken = both(taken, ir::binary(Op::less, c_.index(c_.rvar(k)), count_of(k)));
      if (taken) v = ir::where(taken, v, number(v, -std::numeric_limits<double>::infinity()));
      total = ir::make_reduction(ctx_.program, o_.max ? ReduceOp::max : ReduceOp::sum, type_, sizes, grid, v)
                  .load(ctx_.program, loop_vars(c_, 4));
    }
    if (!o_.max) return ir::div(total, to_compute(ir::binary(Op::max, count, integer(ctx_, 1)), type_));
    if (!o_.adaptive()) return total;
    return ir::where(ir::binary(Op::greater, count, integer(ctx_, 0)), total, number(total, 0));
  }

  Expr joined(Expr a, Expr b) const { return !a ? b : o_.max ? ir::binary(Op::max, a, b) : ir::add(a, b); }

  /// One sample: its weighted sum, or the maximum over its four weighted neighbours, as ONNX defines it.
  Expr sample(SymInt y, SymInt x) const {
    SymInt index[2][2];
    Expr weight[2][2];
    for (int k = 0; k < 2; ++k)
      for (int j = 0; j < 2; ++j) {
        const SymInt at[] = {roi_, bin_[k], k == 0 ? y : x};
        Expr i = c_.cast(samples_[k].index[j].load(ctx_.program, at), DType::i64);
        index[k][j] = c_.indirect(i, x_.sizes()[2 + k], false);
        weight[k][j] = samples_[k].weight[j].load(ctx_.program, at);
      }
    Expr value = nullptr;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const SymInts place = last_ ? SymInts{image_number_, index[0][i], index[1][j], channel_}
                                    : SymInts{image_number_, channel_, index[0][i], index[1][j]};
        value = joined(value, ir::mul(ir::mul(weight[0][i], weight[1][j]),
                                      to_compute(image_.load(ctx_.program, place), type_)));
      }
    Expr zero = number(value, 0);
    Expr inside =
        both(ir::binary(Op::greater, weight[0][0], zero), ir::binary(Op::greater, weight[1][0], zero));
    return ir::where(inside, value, zero);
  }

  OpContext& ctx_;
  ir::Context& c_;
  const RoiOptions o_;
  const TensorBox &x_, &rois_;
  const DType type_;
  RoiAxis axes_[2];
  RoiSamples samples_[2];
  TensorBox image_; ///< X, with the channels innermost where `last_`
  bool last_ = false;
  SymInt roi_, channel_, bin_[2]; ///< loop variables
  SymInt image_number_;           ///< of the region
};

Values roi_align(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &rois = ctx.in(1), &batches = ctx.in(2);
  TBX_MODEL(x.rank() == 4 && rois.rank() == 2 && batches.rank() == 1,
            "X, rois and batch_indices have ranks {}, {} and {}, expected 4, 2 and 1", x.rank(), rois.rank(),
            batches.rank());
  ctx.program.add_check(rois.sizes()[1] - SymInt(4), true, "RoiAlign: rois do not have 4 coordinates");
  ctx.program.add_check(rois.sizes()[0] - batches.sizes()[0], true,
                        "RoiAlign: rois and batch_indices differ in number");
  return {RoiAlign(ctx, options_of(ctx)).run()};
}

// --- MaxRoiPool

/// The rows (k = 0) or columns (k = 1) of each bin, clipped to the image: [R, bins].
struct BinRows {
  TensorBox first, count;
};

BinRows bin_rows(OpContext& ctx, const TensorBox& rois, int k, int64_t bins, double scale, SymInt size,
                 DType type) {
  const SymInts sizes{rois.sizes()[0], bins};
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
    Expr bin = ir::div(length, number(length, static_cast<double>(bins)));
    Expr i = to_compute(ctx.c.index(at[1] + SymInt(end ? 1 : 0)), type);
    Expr p = ir::add(ir::unary(end ? Op::ceil : Op::floor, ir::mul(i, bin)), start);
    Expr last = size_as(ctx.c, size, type);
    return ctx.c.cast(ir::binary(Op::min, ir::binary(Op::max, p, number(p, 0)), last), DType::i64);
  };
  BinRows rows;
  rows.first =
      generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) { return border(at, false); });
  rows.count = generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) {
    return ir::binary(Op::max, ir::sub(border(at, true), border(at, false)), integer(ctx, 0));
  });
  realize(ctx, rows.first, "read by every channel");
  realize(ctx, rows.count, "read by every channel");
  return rows;
}

/// X [N, C, H, W], rois [R, 5] (batch, x1, y1, x2, y2, both ends belong to it) -> [R, C, height, width].
Values max_roi_pool(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &rois = ctx.in(1);
  TBX_MODEL(x.rank() == 4 && rois.rank() == 2, "X and rois have ranks {} and {}, expected 4 and 2", x.rank(),
            rois.rank());
  ctx.program.add_check(rois.sizes()[1] - SymInt(5), true, "MaxRoiPool: rois do not have 5 entries");
  std::vector<int64_t> pooled = ctx.attr_ints("pooled_shape");
  TBX_MODEL(pooled.size() == 2, "pooled_shape has {} entries, expected 2", pooled.size());
  for (int64_t v : pooled) TBX_MODEL(v > 0 && v < kMostBins, "pooled_shape has the value {}", v);
  const double scale = ctx.attr_float("spatial_scale", 1);
  const DType type = compute_type(x.dtype());
  const BinRows bins[] = {bin_rows(ctx, rois, 0, pooled[0], scale, x.sizes()[2], type),
                          bin_rows(ctx, rois, 1, pooled[1], scale, x.sizes()[3], type)};
  SymInts window = largest_at_run_time(ctx, {bins[0].count, bins[1].count}, "the size of a bin");
  SymInt regions = rois.sizes()[0], channels = x.sizes()[1];
  const bool last = channels_last_pays(x, SymInt(pooled[0] * pooled[1]) * regions);
  // Loops over regions, bins and channels; the channels innermost where X is read that way.
  const SymInt roi = ctx.c.var(0), channel = ctx.c.var(last ? 3 : 1);
  SymInt inside[2];
  Expr some = nullptr;
  for (int k = 0; k < 2; ++k) {
    const SymInt bin[] = {roi, ctx.c.var(last ? 1 + k : 2 + k)};
    Expr one = integer(ctx, 1), n = bins[k].count.load(ctx.program, bin);
    some = both(some, ir::binary(Op::greater, n, integer(ctx, 0)));
    // A smaller bin than the largest one reads its last row or column again, which changes no maximum.
    Expr step = ir::binary(Op::min, ctx.c.index(ctx.c.rvar(k)), ir::sub(n, one));
    inside[k] = clamped_index(ctx, ir::add(bins[k].first.load(ctx.program, bin), step), x.sizes()[2 + k]);
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

} // namespace

void register_regions(Registry& r) {
  r.add("RoiAlign", since(10), roi_align);
  r.add("MaxRoiPool", since(1), max_roi_pool);
  r.need("RoiAlign", 2, index_into(0, 0));
}

} // namespace tbx::lowering
