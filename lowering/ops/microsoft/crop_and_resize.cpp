// com.microsoft CropAndResize: boxes of images, each resampled to one size with aligned corners.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Positions in an image axis of `size` for `count` samples between the ends of a box.
Expr sample_position(OpContext& ctx, Expr start, Expr end, SymInt size, int64_t count, SymInt at) {
  Expr last = size_as(ctx.c, size - SymInt(1), start->dtype);
  if (count == 1) {
    auto wide = [](Expr e) { return to_compute(e, DType::f64); };
    Expr middle = ir::mul(number(wide(start), 0.5), wide(ir::add(start, end)));
    return to_compute(ir::mul(middle, wide(last)), start->dtype);
  }
  Expr step = ir::div(ir::mul(ir::sub(end, start), last), number(start, static_cast<double>(count - 1)));
  Expr i = ctx.c.index(at), low = ir::mul(start, last), high = ir::mul(end, last);
  Expr inside = ir::add(low, ir::mul(to_compute(i, start->dtype), step));
  Expr is_last = ir::binary(Op::equal, i, number(i, static_cast<double>(count - 1)));
  return ir::where(ir::binary(Op::equal, i, number(i, 0)), low, ir::where(is_last, high, inside));
}

/// Away from zero at ties.
Expr rounded_up(Expr x) {
  Expr whole = ir::unary(Op::floor, x);
  Expr up = ir::binary(Op::greater_equal, ir::sub(x, whole), number(x, 0.5));
  return ir::where(up, ir::add(whole, number(x, 1)), whole);
}

/// X [N, C, H, W], boxes [R, 4] as y1, x1, y2, x2 in units of the image, their images [R] ->
/// [R, C, crop height, crop width].
Values crop_and_resize(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &boxes = ctx.in(1), &images = ctx.in(2);
  TBX_MODEL(x.rank() == 4 && boxes.rank() == 2 && images.rank() == 1,
            "X, rois and batch_indices have ranks {}, {} and {}, expected 4, 2 and 1", x.rank(), boxes.rank(),
            images.rank());
  TBX_MODEL(is_float(x.dtype()) && boxes.dtype() == x.dtype(), "X is of type {}, rois of type {}",
            name_of(x.dtype()), name_of(boxes.dtype()));
  std::vector<int64_t> crop = ctx.ints_or_throw(3, "crop_size");
  TBX_MODEL(crop.size() == 2 && crop[0] > 0 && crop[1] > 0, "crop_size is not two positive sizes");
  std::string mode = ctx.attr_string("mode", "bilinear");
  TBX_MODEL(mode == "bilinear" || mode == "nearest", "unknown mode '{}'", mode);
  ctx.program.add_check(boxes.sizes()[1] - SymInt(4), true, "CropAndResize: a region has not 4 coordinates");
  ctx.program.add_check(boxes.sizes()[0] - images.sizes()[0], true,
                        "CropAndResize: rois and batch_indices differ in number");
  SymInts sizes{boxes.sizes()[0], x.sizes()[1], crop[0], crop[1]};
  realize_if_repeated(ctx.program, x, sizes);
  double outside = ctx.attr_float("extrapolation_value", 0);
  return {generate(ctx, x.dtype(), sizes, [&](std::span<const SymInt> at) {
    auto corner = [&](int k) {
      const SymInt from[] = {at[0], k};
      return boxes.load(ctx.program, from);
    };
    Expr position[2], inside = nullptr;
    for (int k = 0; k < 2; ++k) {
      SymInt size = x.sizes()[2 + k];
      Expr p = sample_position(ctx, corner(k), corner(2 + k), size, crop[k], at[2 + k]);
      Expr last = size_as(ctx.c, size - SymInt(1), p->dtype);
      Expr in = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, p, number(p, 0)),
                           ir::binary(Op::less_equal, p, last));
      inside = inside ? ir::binary(Op::logical_and, inside, in) : in;
      position[k] = ir::where(in, p, number(p, 0));
    }
    SymInt image =
        ctx.c.indirect(to_compute(images.load(ctx.program, {&at[0], 1}), DType::i64), x.sizes()[0], false);
    auto pixel = [&](Expr row, Expr column) {
      const SymInt from[] = {image, at[1], ctx.c.indirect(to_compute(row, DType::i64), x.sizes()[2], false),
                             ctx.c.indirect(to_compute(column, DType::i64), x.sizes()[3], false)};
      Expr v = x.load(ctx.program, from);
      return ir::mask_loads(v, inside);
    };
    Expr value;
    if (mode == "nearest") {
      value = pixel(rounded_up(position[0]), rounded_up(position[1]));
    } else {
      Expr low[2], high[2], part[2];
      for (int k = 0; k < 2; ++k) {
        low[k] = ir::unary(Op::floor, position[k]);
        high[k] = ir::unary(Op::ceil, position[k]);
        part[k] = ir::sub(position[k], low[k]);
      }
      auto between = [](Expr a, Expr b, Expr t) { return ir::add(a, ir::mul(ir::sub(b, a), t)); };
      value = between(between(pixel(low[0], low[1]), pixel(low[0], high[1]), part[1]),
                      between(pixel(high[0], low[1]), pixel(high[0], high[1]), part[1]), part[0]);
    }
    return ir::where(inside, value, number(value, outside));
  })};
}

} // namespace

void register_crop_and_resize(Registry& r) {
  r.add("CropAndResize", since(1), crop_and_resize, "com.microsoft");
  r.type_from(0, {"CropAndResize"}, "com.microsoft");
  r.need("CropAndResize", 2, index_into(0, 0), "com.microsoft");
}

} // namespace tbx::lowering
