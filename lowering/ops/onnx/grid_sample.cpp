// AffineGrid, and GridSample over any number of spatial dimensions: pointwise sums over the neighbours of
// each position.
#include "lowering/op_helpers.h"
#include "lowering/ops/channels.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

enum class Padding { zeros, border, reflection };
enum class Interpolation : uint8_t { nearest, linear, cubic };

/// Neighbours along each dimension.
int count_of(Interpolation mode) {
  return mode == Interpolation::nearest ? 1 : mode == Interpolation::linear ? 2 : 4;
}

/// What a position reads along one dimension, and how much each neighbour counts.
struct Neighbours {
  std::vector<Expr> index, weight; ///< nearest has no weights
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

/// Reads x [N, C, spatial...] at positions given by expressions.
class Sampler {
public:
  Sampler(OpContext& ctx, const TensorBox& x, Interpolation mode, Padding padding, bool align_corners)
      : ctx_(ctx), c_(ctx.c), x_(x), mode_(mode), padding_(padding), align_(align_corners) {}

  /// Along dimension `k`, of a grid coordinate in [-1, 1].
  Neighbours neighbours(Expr coordinate, int k) const {
    Expr p = position(coordinate, k);
    if (mode_ == Interpolation::nearest) {
      p = bring_inside(ir::unary(Op::round_even, p), k);
      return {{index(c_.cast(p, DType::i64), k)}, {}};
    }
    // Cubic weights see the position as it is: beyond a border each neighbour is brought inside by itself.
    if (mode_ == Interpolation::linear || padding_ == Padding::reflection) p = bring_inside(p, k);
    Expr base = ir::unary(Op::floor, p), t = ir::sub(p, base), first = c_.cast(base, DType::i64);
    const int count = count_of(mode_), before = mode_ == Interpolation::linear ? 0 : 1;
    Neighbours n;
    for (int j = 0; j < count; ++j) n.index.push_back(index(ir::add(first, integer(j - before)), k));
    n.weight =
        mode_ == Interpolation::linear ? std::vector<Expr>{ir::sub(number(t, 1), t), t} : cubic_weights(t);
    return n;
  }

  /// The element of `image`, which is x in any order of dimensions, at indices as `neighbours` gives them;
  /// `place` puts them where they belong.
  Expr load(const TensorBox& image, const std::vector<Expr>& at,
            const std::function<SymInts(const SymInts&)>& place) const {
    SymInts indices;
    Expr inside = nullptr;
    for (size_t k = 0; k < at.size(); ++k) {
      Expr i = at[k];
      if (padding_ == Padding::zeros) {
        Expr in = ir::binary(Op::greater_equal, i, integer(0));
        inside = inside ? ir::binary(Op::logical_and, inside, in) : in;
        i = ir::binary(Op::max, i, integer(0));
      }
      indices.push_back(c_.indirect(i, size(static_cast<int>(k)), false));
    }
    Expr v = image.load(ctx_.program, place(indices));
    // The indices lie inside whatever the position: a mask on the loads would be one on the grid's, too.
    return inside ? ir::where(inside, v, number(v, 0)) : v;
  }

private:
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

  /// The index along dimension `k` that a whole position reads: inside, or -1 where 0 is read.
  Expr index(Expr i, int k) const {
    SymInt length = size(k);
    Expr last = c_.index(length - SymInt(1));
    if (padding_ == Padding::reflection) i = reflect(i, length);
    if (padding_ != Padding::zeros) return ir::binary(Op::min, ir::binary(Op::max, i, integer(0)), last);
    Expr in = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, i, integer(0)),
                         ir::binary(Op::less_equal, i, last));
    return ir::where(in, i, integer(-1));
  }

  Expr reflect(Expr i, SymInt length) const {
    SymInt period = align_ ? ir::max(length * SymInt(2) - SymInt(2), 1) : length * SymInt(2);
    Expr p = c_.index(period), m = ir::binary(Op::floor_mod, i, p);
    Expr back = ir::sub(align_ ? p : c_.index(period - SymInt(1)), m);
    return ir::binary(Op::min, m, back);
  }

  OpContext& ctx_;
  ir::Context& c_;
  const TensorBox& x_;
  Interpolation mode_;
  Padding padding_;
  bool align_;
};

Interpolation interpolation_of(OpContext& ctx) {
  const std::string mode = ctx.attr_string("mode", "linear");
  if (mode == "nearest") return Interpolation::nearest;
  if (mode == "linear" || mode == "bilinear") return Interpolation::linear;
  if (mode == "cubic" || mode == "bicubic") return Interpolation::cubic;
  throw_model_error("unknown mode '{}'", mode);
}

Padding padding_of(OpContext& ctx) {
  const std::string padding = ctx.attr_string("padding_mode", "zeros");
  if (padding == "zeros") return Padding::zeros;
  if (padding == "border") return Padding::border;
  if (padding == "reflection") return Padding::reflection;
  throw_model_error("unknown padding_mode '{}'", padding);
}

/// x [N, C, spatial...], grid [N, positions..., coordinates].
void check_shapes(OpContext& ctx, const TensorBox& x, const TensorBox& grid) {
  const int spatial = x.rank() - 2;
  TBX_MODEL(spatial >= 1 && grid.rank() == x.rank(), "X has rank {}, grid has rank {}", x.rank(),
            grid.rank());
  SymInt tuple = grid.sizes().back();
  TBX_MODEL(!tuple.is_constant() || tuple.is(spatial), "grid holds {} coordinates for {} spatial dimensions",
            tuple.constant(), spatial);
  ctx.program.add_check(tuple - SymInt(spatial), true,
                        "GridSample: grid holds another number of coordinates");
  ctx.program.add_check(x.sizes()[0] - grid.sizes()[0], true, "GridSample: batches of X and grid differ");
}

/// The neighbours along one dimension of all positions [N, positions...], in memory.
struct NeighbourTables {
  std::vector<TensorBox> index, weight; ///< one per neighbour; nearest has no weights

  Neighbours at(OpContext& ctx, std::span<const SymInt> position) const {
    Neighbours n;
    for (const TensorBox& t : index) n.index.push_back(ctx.c.cast(t.load(ctx.program, position), DType::i64));
    for (const TensorBox& t : weight) n.weight.push_back(t.load(ctx.program, position));
    return n;
  }
};

using NeighboursAt = std::function<Neighbours(std::span<const SymInt> position)>;

NeighbourTables make_tables(OpContext& ctx, const SymInts& positions, int count, DType type,
                            const NeighboursAt& neighbours) {
  auto table = [&](DType dtype, std::vector<Expr> Neighbours::*part, int j) {
    TensorBox t = generate(ctx, dtype, positions, [&](std::span<const SymInt> at) {
      return to_compute((neighbours(at).*part)[j], dtype);
    });
    realize(ctx, t, "read by every channel");
    return t;
  };
  NeighbourTables tables;
  for (int j = 0; j < count; ++j) {
    tables.index.push_back(table(DType::i32, &Neighbours::index, j));
    if (count > 1) tables.weight.push_back(table(type, &Neighbours::weight, j));
  }
  return tables;
}

/// The sum of what is read at all combinations of neighbours, one along each dimension, times their weights;
/// `read` gets their indices.
Expr interpolated(const std::vector<Neighbours>& near,
                  const std::function<Expr(const std::vector<Expr>&)>& read) {
  std::vector<Expr> chosen(near.size());
  // Over the neighbours along dimension k, of their weight times the sum over the dimensions behind it.
  std::function<Expr(size_t)> sum = [&](size_t k) -> Expr {
    if (k == near.size()) return read(chosen);
    Expr total = nullptr;
    for (size_t j = 0; j < near[k].index.size(); ++j) {
      chosen[k] = near[k].index[j];
      Expr term = sum(k + 1);
      if (!near[k].weight.empty()) term = ir::mul(near[k].weight[j], term);
      total = total ? ir::add(total, term) : term;
    }
    return total;
  };
  return sum(0);
}

std::vector<LoweredValue> grid_sample(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &grid = ctx.in(1);
  const Interpolation mode = interpolation_of(ctx);
  const Padding padding = padding_of(ctx);
  check_shapes(ctx, x, grid);
  const int spatial = x.rank() - 2, count = count_of(mode);
  SymInts sizes{x.sizes()[0], x.sizes()[1]};
  sizes.insert(sizes.end(), grid.sizes().begin() + 1, grid.sizes().end() - 1);
  if (!ir::product(sizes).is(0))
    for (int k = 0; k < spatial; ++k)
      ctx.program.add_check(x.sizes()[2 + k] - SymInt(1), false, "GridSample: X has no elements to sample");
  SymInts positions{sizes[0]};
  positions.insert(positions.end(), sizes.begin() + 2, sizes.end());

  const DType type = x.dtype() == DType::f64 || grid.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Sampler sampler(ctx, x, mode, padding, ctx.attr_int("align_corners", 0) != 0);
  auto neighbours = [&](int k) -> NeighboursAt {
    return [&, k](std::span<const SymInt> at) {
      SymInts from(at.begin(), at.end());
      from.emplace_back(spatial - 1 - k); // the last coordinate is the first dimension's
      return sampler.neighbours(to_compute(grid.load(ctx.program, from), type), k);
    };
  };
  // Computed once for all channels, and put into memory.
  std::vector<NeighbourTables> tables;
  if (!x.sizes()[1].is(1))
    for (int k = 0; k < spatial; ++k)
      tables.push_back(make_tables(ctx, positions, count, type, neighbours(k)));

  SymInt reads = ir::product(positions);
  for (int k = 0; k < spatial; ++k) reads = reads * SymInt(count);
  const bool last = !tables.empty() && channels_last_pays(x, reads);
  realize_if_repeated(ctx.program, x, sizes);
  TensorBox image = last ? with_channels_last(ctx, x) : x;
  // Loops over the batch, positions and channels; the channels innermost where x is read that way.
  SymInts at = loop_vars(ctx.c, x.rank()), position{at[0]};
  const SymInt channel = last ? at.back() : at[1];
  position.insert(position.end(), at.begin() + (last ? 1 : 2), at.end() - (last ? 1 : 0));
  auto place = [&](const SymInts& indices) {
    SymInts all{at[0]};
    if (!last) all.push_back(channel);
    all.insert(all.end(), indices.begin(), indices.end());
    if (last) all.push_back(channel);
    return all;
  };
  std::vector<Neighbours> near;
  near.reserve(static_cast<size_t>(spatial));
  for (int k = 0; k < spatial; ++k)
    near.push_back(tables.empty() ? neighbours(k)(position) : tables[k].at(ctx, position));
  const Expr value = interpolated(near, [&](const std::vector<Expr>& indices) {
    Expr v = sampler.load(image, indices, place);
    return mode == Interpolation::nearest ? v : to_compute(v, type);
  });
  SymInts order = positions;
  order.push_back(sizes[1]);
  TensorBox y =
      ir::make_pointwise(ctx.program, x.dtype(), last ? order : sizes, to_compute(value, x.dtype()));
  if (last) realize(ctx, y, "channels innermost: loops in another order would read single elements");
  return {last ? with_channels_second(ctx, y) : y};
}

/// theta [N, r, r + 1] applied to the positions, in [-1, 1], of the elements of an image of `size`
/// [N, C, spatial...]: [N, spatial..., r], the coordinate of the last dimension first.
std::vector<LoweredValue> affine_grid(OpContext& ctx) {
  const TensorBox& theta = ctx.in(0);
  SymInts size = ctx.known_or_throw(1, "size");
  int r = static_cast<int>(size.size()) - 2;
  TBX_MODEL(r == 2 || r == 3, "size has {} elements, expected 4 or 5", size.size());
  TBX_MODEL(theta.rank() == 3, "theta of rank {}, expected 3", theta.rank());
  ctx.program.add_check(theta.sizes()[1] - SymInt(r), true, "AffineGrid: theta has another number of rows");
  ctx.program.add_check(theta.sizes()[2] - SymInt(r + 1), true,
                        "AffineGrid: theta has another number of columns");
  ctx.program.add_check(theta.sizes()[0] - size[0], true, "AffineGrid: batches of theta and size differ");
  bool corners = ctx.attr_int("align_corners", 0) != 0;
  DType type = compute_type(theta.dtype());
  SymInts sizes = {size[0]};
  sizes.insert(sizes.end(), size.begin() + 2, size.end());
  sizes.push_back(r);
  return {generate(ctx, theta.dtype(), sizes, [&](std::span<const SymInt> at) {
    auto real = [&](SymInt i) { return ctx.c.cast(ctx.c.index(i), type); };
    auto factor = [&](SymInt column) {
      const SymInt place[] = {at[0], at.back(), column};
      return theta.load(ctx.program, place);
    };
    Expr sum = factor(r);
    for (int k = 0; k < r; ++k) {
      SymInt i = at[r - k], n = size[r + 1 - k];
      // (2 i + 1) / n - 1, or 2 i / (n - 1) - 1 where the corners are elements; a single one is at -1 then
      Expr position = corners ? ir::div(real(SymInt(2) * i), real(ir::max(n - SymInt(1), 1)))
                              : ir::div(real(SymInt(2) * i + SymInt(1)), real(n));
      sum = ir::add(sum, ir::mul(factor(k), ir::sub(position, number(position, 1))));
    }
    return sum;
  })};
}

} // namespace

void register_grid_sample(Registry& r) {
  r.add("GridSample", since(16), grid_sample);
  r.add("AffineGrid", since(20), affine_grid);
  r.moves_where({"GridSample"}, "mode", "nearest", "linear");
}

} // namespace tbx::lowering
