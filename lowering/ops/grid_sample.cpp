// GridSample over any number of spatial dimensions: pointwise sums over the neighbours of each position.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

enum class Padding { zeros, border, reflection };

/// Reads x [N, C, spatial...] at positions given by expressions.
class Sampler {
public:
  Sampler(OpContext& ctx, const TensorBox& x, Padding padding, bool align_corners)
      : ctx_(ctx), c_(ctx.c), x_(x), padding_(padding), align_(align_corners) {}

  Expr number_like(Expr e, double v) const { return number(e, v); }
  SymInt size(int k) const { return x_.sizes()[2 + k]; }
  Expr extent(Expr like, int k) const { return size_as(c_, size(k), like->dtype); }
  Expr integer(int64_t v) const { return c_.constant_int(DType::i64, v); }

  /// The position along dimension `k` of a grid coordinate in [-1, 1].
  Expr position(Expr n, int k) const {
    Expr length = extent(n, k), half = number(n, 0.5), one = number(n, 1);
    if (align_) return ir::mul(ir::mul(ir::add(n, one), half), ir::sub(length, one));
    return ir::mul(ir::sub(ir::mul(ir::add(n, one), length), one), half);
  }

  /// A position beyond the border brought inside as the padding says.
  Expr bring_inside(Expr x, int k) const {
    Expr length = extent(x, k), one = number(x, 1), zero = number(x, 0);
    if (padding_ == Padding::zeros) return x;
    Expr lo = align_ ? zero : number(x, -0.5), hi = ir::sub(length, align_ ? one : number(x, 0.5));
    Expr outside = ir::binary(Op::logical_or, ir::binary(Op::less, x, lo), ir::binary(Op::greater, x, hi));
    if (padding_ == Padding::border)
      return ir::where(outside, ir::binary(Op::min, ir::binary(Op::max, x, zero), ir::sub(length, one)), x);
    // A triangle wave over [lo, hi]; one element reflects into itself.
    Expr range = ir::binary(Op::max, ir::sub(hi, lo), number(x, 1e-30));
    Expr distance = ir::unary(Op::abs, ir::sub(x, lo));
    Expr turns = ir::unary(Op::floor, ir::div(distance, range));
    Expr rest = ir::sub(distance, ir::mul(turns, range));
    Expr half = ir::mul(turns, number(x, 0.5));
    Expr even = ir::binary(Op::equal, ir::unary(Op::floor, half), half);
    Expr reflected = ir::add(lo, ir::where(even, rest, ir::sub(range, rest)));
    if (align_) reflected = ir::where(ir::binary(Op::greater, length, one), reflected, zero);
    return ir::where(outside, reflected, x);
  }

  /// Whole positions as indices; elements outside are 0 or come from inside.
  Expr load(const SymInts& outer, const std::vector<Expr>& at) const {
    SymInts place = outer;
    Expr inside = nullptr;
    for (size_t k = 0; k < at.size(); ++k) {
      SymInt length = size(static_cast<int>(k));
      Expr last = c_.index(length - SymInt(1)), i = at[k];
      if (padding_ == Padding::reflection) i = reflect(i, length);
      if (padding_ == Padding::zeros) {
        Expr in = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, i, integer(0)),
                             ir::binary(Op::less_equal, i, last));
        inside = inside ? ir::binary(Op::logical_and, inside, in) : in;
      }
      i = ir::binary(Op::min, ir::binary(Op::max, i, integer(0)), last);
      place.push_back(c_.indirect(i, length, false));
    }
    Expr v = x_.load(ctx_.program, place);
    // The indices lie inside whatever the position: a mask on the loads would be one on the grid's, too.
    return inside ? ir::where(inside, v, number(v, 0)) : v;
  }

private:
  Expr reflect(Expr i, SymInt length) const {
    SymInt period = align_ ? ir::max(length * SymInt(2) - SymInt(2), 1) : length * SymInt(2);
    Expr p = c_.index(period), m = ir::binary(Op::floor_mod, i, p);
    Expr back = ir::sub(align_ ? p : c_.index(period - SymInt(1)), m);
    return ir::binary(Op::min, m, back);
  }

  OpContext& ctx_;
  ir::Context& c_;
  const TensorBox& x_;
  Padding padding_;
  bool align_;
};

/// Keys' cubic weights of the four neighbours at -1, 0, 1, 2 of a position `t` in [0, 1).
std::vector<Expr> cubic_weights(Expr t) {
  const double a = -0.75;
  auto n = [&](double v) { return number(t, v); };
  auto horner = [&](Expr x, double p3, double p2, double p1, double p0) {
    return ir::add(ir::mul(ir::add(ir::mul(ir::add(ir::mul(n(p3), x), n(p2)), x), n(p1)), x), n(p0));
  };
  auto near = [&](Expr x) { return horner(x, a + 2, -(a + 3), 0, 1); };
  auto far = [&](Expr x) { return horner(x, a, -5 * a, 8 * a, -4 * a); };
  Expr one = n(1);
  return {far(ir::add(t, one)), near(t), near(ir::sub(one, t)), far(ir::sub(n(2), t))};
}

std::vector<LoweredValue> grid_sample(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &grid = ctx.in(1);
  std::string mode = ctx.attr_string("mode", "linear"), padding = ctx.attr_string("padding_mode", "zeros");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  TBX_MODEL(mode == "linear" || mode == "nearest" || mode == "cubic", "unknown mode '{}'", mode);
  TBX_MODEL(padding == "zeros" || padding == "border" || padding == "reflection", "unknown padding_mode '{}'",
            padding);
  int spatial = x.rank() - 2;
  TBX_MODEL(spatial >= 1 && grid.rank() == x.rank(), "X has rank {}, grid has rank {}", x.rank(),
            grid.rank());
  SymInt tuple = grid.sizes().back();
  TBX_MODEL(!tuple.is_constant() || tuple.is(spatial), "grid holds {} coordinates for {} spatial dimensions",
            tuple.constant(), spatial);
  ctx.program.add_check(tuple - SymInt(spatial), true,
                        "GridSample: grid holds another number of coordinates");
  ctx.program.add_check(x.sizes()[0] - grid.sizes()[0], true, "GridSample: batches of X and grid differ");
  SymInts sizes{x.sizes()[0], x.sizes()[1]};
  sizes.insert(sizes.end(), grid.sizes().begin() + 1, grid.sizes().end() - 1);
  if (!ir::product(sizes).is(0))
    for (int k = 0; k < spatial; ++k)
      ctx.program.add_check(x.sizes()[2 + k] - SymInt(1), false, "GridSample: X has no elements to sample");

  // Every channel reads the grid and every position many elements of x.
  realize_if_repeated(ctx.program, grid, sizes);
  realize_if_repeated(ctx.program, x, sizes);
  SymInts at = loop_vars(ctx.c, x.rank()), outer{at[0], at[1]}, from{at[0]};
  from.insert(from.end(), at.begin() + 2, at.end());
  from.emplace_back(0);
  DType type = x.dtype() == DType::f64 || grid.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Sampler sampler(ctx, x,
                  padding == "zeros"    ? Padding::zeros
                  : padding == "border" ? Padding::border
                                        : Padding::reflection,
                  ctx.attr_int("align_corners", 0) != 0);
  // Neighbours along each dimension with their weights; the last coordinate is the first dimension's.
  std::vector<std::vector<Expr>> index(spatial), weight(spatial);
  for (int k = 0; k < spatial; ++k) {
    from.back() = spatial - 1 - k;
    Expr p = sampler.position(to_compute(grid.load(ctx.program, from), type), k);
    if (mode == "nearest") {
      p = sampler.bring_inside(ir::unary(Op::round_even, p), k);
      index[k] = {ctx.c.cast(p, DType::i64)};
      continue;
    }
    // Cubic weights see the position as it is: beyond a border each neighbour is brought inside by itself.
    if (mode == "linear" || padding == "reflection") p = sampler.bring_inside(p, k);
    Expr base = ir::unary(Op::floor, p), t = ir::sub(p, base), first = ctx.c.cast(base, DType::i64);
    bool linear = mode == "linear";
    for (int j = linear ? 0 : -1; j <= (linear ? 1 : 2); ++j)
      index[k].push_back(ir::add(first, sampler.integer(j)));
    weight[k] = linear ? std::vector<Expr>{ir::sub(number(t, 1), t), t} : cubic_weights(t);
  }
  if (mode == "nearest") {
    std::vector<Expr> place;
    for (const auto& i : index) place.push_back(i[0]);
    return {ir::make_pointwise(ctx.program, x.dtype(), sizes, sampler.load(outer, place))};
  }
  // sum over neighbours along k of weight * (sum over the dimensions behind k)
  std::vector<Expr> place(spatial);
  std::function<Expr(int)> sum = [&](int k) -> Expr {
    if (k == spatial) return to_compute(sampler.load(outer, place), type);
    Expr total = nullptr;
    for (size_t j = 0; j < index[k].size(); ++j) {
      place[k] = index[k][j];
      Expr term = ir::mul(weight[k][j], sum(k + 1));
      total = total ? ir::add(total, term) : term;
    }
    return total;
  };
  return {ir::make_pointwise(ctx.program, x.dtype(), sizes, to_compute(sum(0), x.dtype()))};
}

} // namespace

void register_grid_sample(Registry& r) { r.add("GridSample", since(16), grid_sample); }

} // namespace tbx::lowering
