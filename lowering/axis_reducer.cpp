// AxisReducer: reductions over some axes of an iteration space. Long ones are done in parts: a part is a row
// of its own for the threads, and small enough that a second look at it finds it in cache.
#include <algorithm>
#include <limits>

#include "ir/lane_runner.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// The reduced axis `axis` (its number among them) in `count` parts of `length`; the last ones may be shorter
/// or empty unless `even`.
struct AxisReducer::Parts {
  size_t axis = 0;
  int64_t count = 1;
  SymInt length;
  bool even = false;
  bool leads = false; ///< parts are the outermost dimension of what is made of them, else the innermost one
};

namespace {

constexpr int64_t kRows = 8; // enough rows for two threads as they are
/// Where sizes are guesses, shorter rows are not worth a second kernel.
constexpr int64_t kDynamicLength = 1 << 14;
/// Both for the pixels of images: where channels come last, the rows are lanes of vectors and make few tasks.
constexpr int64_t kImageRows = 128, kImageLength = 1 << 10;
/// The same where columns are reduced, which are lanes, too: the parts are then the outermost dimension.
constexpr int64_t kColumns = 128, kColumnLength = 1 << 12;
/// Parts of few rows, for two threads; of images and long rows at least, and at most.
constexpr int64_t kMinParts = 8, kMaxParts = 256, kDynamicParts = 64;
/// Elements of an image from which on it matters to threads where it lies.
constexpr int64_t kImageElements = 1 << 14;

/// A row that the cache of a core does not hold; shorter ones are not worth a second kernel.
int64_t long_row(const Target& target) { return target.l2_bytes / size_of(DType::f32); }
/// Elements of a part that is looked at twice: it stays in that cache with room to spare.
int64_t length_of_part(const Target& target) { return long_row(target) / 8; }
/// Elements of a step of an unrolled loop: four vectors.
int64_t step_of_loop(const Target& target) {
  return int64_t{4} * target.vector_bytes() / size_of(DType::f32);
}

/// By how much more rows and parts it takes than two threads need.
int64_t crowd(const Target& target) { return target.cuda ? 1 : std::max(1, target.threads / 2); }

/// What changes no result; of places: what is no better than any element.
Expr identity(ir::Context& c, ReduceOp op, DType type) {
  if (op == ReduceOp::argmax || op == ReduceOp::argmax_last) op = ReduceOp::max;
  if (op == ReduceOp::argmin || op == ReduceOp::argmin_last) op = ReduceOp::min;
  ir::Scalar s = ir::reduction_identity(op, type);
  return is_float(type) ? c.constant(type, s.f) : c.constant_int(type, s.i);
}

} // namespace

AxisReducer::AxisReducer(OpContext& ctx, SymInts sizes, std::vector<int> axes)
    : ctx_(ctx), sizes_(std::move(sizes)), axes_(std::move(axes)), count_(1) {
  size_t next = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    bool reduce = next < axes_.size() && axes_[next] == static_cast<int>(d);
    next += reduce;
    (reduce ? reduced_ : kept_).push_back(sizes_[d]);
  }
  count_ = ir::product(reduced_);
}

SymInts AxisReducer::indices() const {
  SymInts at;
  size_t next = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    bool reduce = next < axes_.size() && axes_[next] == static_cast<int>(d);
    int k = static_cast<int>(reduce ? next : d - next);
    at.push_back(reduce ? ctx_.c.rvar(k) : ctx_.c.var(k));
    next += reduce;
  }
  return at;
}

TensorBox AxisReducer::of_parts(ReduceOp op, DType dtype, const Parts& parts, const Body& body) const {
  SymInts at = indices(), rows = kept_, rest = reduced_;
  rows.insert(parts.leads ? rows.begin() : rows.end(), SymInt(parts.count));
  rest[parts.axis] = parts.length;
  int part = static_cast<int>(kept_.size());
  if (parts.leads) {
    ir::Substitution one_on;
    for (int k = 0; k < part; ++k) one_on.vars.push_back(ctx_.c.var(k + 1));
    for (size_t k = 0; k < reduced_.size(); ++k) one_on.rvars.push_back(ctx_.c.rvar(static_cast<int>(k)));
    for (SymInt& i : at) i = ir::substitute(i, one_on);
    part = 0;
  }
  SymInt place = ctx_.c.var(part) * parts.length + ctx_.c.rvar(static_cast<int>(parts.axis));
  at[axes_[parts.axis]] = place;
  Expr value = body(at);
  if (!parts.even) {
    Expr inside = ir::binary(Op::less, ctx_.c.index(place), ctx_.c.index(reduced_[parts.axis]));
    value = ctx_.c.where(inside, ir::mask_loads(value, inside), identity(ctx_.c, op, value->dtype));
  }
  return ir::make_reduction(ctx_.program, op, dtype, rows, rest, value);
}

/// The parts of one row, as the reduced variable goes through them.
SymInts AxisReducer::along_parts(const Parts& parts) const { return in_part(parts, ctx_.c.rvar(0)); }

/// Part `i` of one row, as of_parts() places it.
SymInts AxisReducer::in_part(const Parts& parts, SymInt i) const {
  SymInts at = loop_vars(ctx_.c, static_cast<int>(kept_.size()));
  at.insert(parts.leads ? at.begin() : at.end(), i);
  return at;
}

TensorBox AxisReducer::arg_of_parts(ReduceOp op, const Parts& parts, const Body& body) const {
  ir::Program& p = ctx_.program;
  const SymInt last = reduced_[0] - SymInt(1);
  TensorBox inside = of_parts(op, DType::i64, parts, body); // behind the end only where all before is as bad
  realize(ctx_, inside, "best places in parts of a long row");
  auto position = [&](Expr part, Expr within) {
    Expr e = ir::add(ir::mul(part, size_as(ctx_.c, parts.length, DType::i64)), within);
    return ir::binary(Op::min, e, size_as(ctx_.c, last, DType::i64));
  };
  SymInts rows = kept_, here = loop_vars(ctx_.c, static_cast<int>(kept_.size()) + 1), at = indices();
  rows.insert(parts.leads ? rows.begin() : rows.end(), SymInt(parts.count));
  const SymInt part = parts.leads ? here.front() : here.back();
  if (parts.leads) // the kept dimensions are one variable on
    for (size_t d = 0, k = 1; d < at.size(); ++d)
      if (static_cast<int>(d) != axes_[0]) at[d] = ctx_.c.var(static_cast<int>(k++));
  at[axes_[0]] = ctx_.c.indirect(position(ctx_.c.index(part), inside.load(p, here)), reduced_[0], false);
  Expr value = body(at);
  TensorBox best = ir::make_pointwise(p, value->dtype, rows, value);
  realize(ctx_, best, "best elements of parts of a long row");
  TensorBox winner =
      ir::make_reduction(p, op, DType::i64, kept_, {parts.count}, best.load(p, along_parts(parts)));
  realize(ctx_, winner, "part with the best element");
  SymInts own = loop_vars(ctx_.c, static_cast<int>(kept_.size()));
  Expr number = winner.load(p, own);
  SymInts of_winner = in_part(parts, ctx_.c.indirect(number, parts.count, false));
  return ir::unsqueeze(
      p, ir::make_pointwise(p, DType::i64, kept_, position(number, inside.load(p, of_winner))), axes_);
}

TensorBox AxisReducer::operator()(ReduceOp op, DType dtype, const Body& body) const {
  auto parts = parts_of_image(op);
  return reduced_in(parts ? parts : parts_of_few_rows(op), op, dtype, body);
}

TensorBox AxisReducer::reduced_in(const std::optional<Parts>& parts, ReduceOp op, DType dtype,
                                  const Body& body) const {
  ir::Program& p = ctx_.program;
  if (parts) {
    if (op >= ReduceOp::argmax) return arg_of_parts(op, *parts, body);
    DType wide = is_float(dtype) ? compute_type(dtype) : dtype;
    TensorBox partial = of_parts(op, wide, *parts, body);
    realize(ctx_, partial, "parts of a long reduction with few rows");
    return ir::unsqueeze(
        p, ir::make_reduction(p, op, dtype, kept_, {parts->count}, partial.load(p, along_parts(*parts))),
        axes_);
  }
  return ir::unsqueeze(p, ir::make_reduction(p, op, dtype, kept_, reduced_, body(indices())), axes_);
}

/// The first number from `first` to `last` of parts of one length into which dimension `k` of the reduced
/// ones can be cut: of whole vectors where it can be, since each part ends with a loop for what is left.
std::optional<int64_t> AxisReducer::even_parts(size_t k, int64_t first, int64_t last) const {
  const int64_t vectors = step_of_loop(ctx_.program.target);
  const int64_t size = reduced_[k].constant(), step = first < last ? 1 : -1;
  for (int64_t of : {k + 1 == reduced_.size() ? vectors : 1, int64_t{1}})
    for (int64_t n = first; n != last + step; n += step)
      if (size % (n * of) == 0) return n;
  return std::nullopt;
}

std::optional<AxisReducer::Parts> AxisReducer::parts_of_image(ReduceOp op) const {
  const Target& target = ctx_.program.target;
  const bool image = axes_.size() >= 2 && axes_.front() == 2 && axes_.size() + 2 == sizes_.size();
  const auto channels = ir::product(kept_).as_constant(), length = count_.as_constant();
  if (target.cuda || target.threads < 2 || op >= ReduceOp::argmax || !image || !sizes_[0].is(1) ||
      !channels || !length || *channels == 0 || *channels * *length < kImageElements)
    return std::nullopt;
  // Single rows: only these join the kernel that makes the image.
  const int64_t rows = reduced_[0].constant();
  if (rows >= target.threads && rows <= kMaxParts * crowd(target)) return Parts{0, rows, 1, true, true};
  return std::nullopt;
}

std::optional<AxisReducer::Parts> AxisReducer::parts_of_few_rows(ReduceOp op) const {
  if (reduced_.empty()) return std::nullopt;
  if (op >= ReduceOp::argmax && reduced_.size() > 1) return std::nullopt; // positions count over all axes
  auto rows = ir::product(kept_).as_constant(), length = count_.as_constant();
  const bool image = axes_.size() >= 2 && axes_.front() == 2 && axes_.size() + 2 == sizes_.size();
  const bool columns = !image && axes_.back() + 1 < static_cast<int>(sizes_.size());
  if (ctx_.program.target.cuda && op < ReduceOp::argmax && rows && *rows > 0 && length) {
    // Columns are summed by warps side by side, rows by blocks. Channels of images lie beside each other.
    const Gpu& gpu = ctx_.program.target.gpu;
    const bool across = image || axes_.back() + 1 < static_cast<int>(sizes_.size());
    const int64_t wanted = (across ? gpu.threads / 2 : gpu.blocks()) / *rows;
    const int64_t most = std::min(wanted, *length / (across ? gpu.part_of_column : gpu.part_of_row));
    if (most < (image ? kMinParts : 2)) return std::nullopt;
    for (size_t k = 0; k < reduced_.size(); ++k)
      for (int64_t n = most; n >= std::max<int64_t>(2, most / 4); --n)
        if (reduced_[k].constant() % n == 0) return Parts{k, n, reduced_[k].constant() / n, true, across};
    size_t longest = 0;
    for (size_t k = 1; k < reduced_.size(); ++k)
      if (reduced_[k].constant() > reduced_[longest].constant()) longest = k;
    const int64_t parts = std::min(most, reduced_[longest].constant());
    if (parts < 2) return std::nullopt;
    return Parts{longest, parts, ir::ceildiv(reduced_[longest], parts), false, across};
  }
  const int64_t many = crowd(ctx_.program.target);
  const int64_t enough = (image ? kImageRows : columns ? kColumns : kRows) * many;
  if (!rows || *rows == 0 || *rows >= enough) return std::nullopt;
  if (length) {
    const int64_t least = long_row(ctx_.program.target);
    if (columns && (*length < kColumnLength || *length < least / *rows)) return std::nullopt;
    if (!columns && *length < (image ? kImageLength : least)) return std::nullopt;
    for (size_t k = 0; k < reduced_.size(); ++k)
      if (auto n = even_parts(k, kMaxParts * many, kMinParts * many))
        return Parts{k, *n, reduced_[k].constant() / *n, true, columns};
  } else if (ir::has_unbacked(count_) || ir::size_hint(count_) < kDynamicLength) {
    return std::nullopt;
  }
  size_t longest = 0;
  for (size_t k = 1; k < reduced_.size(); ++k)
    if (ir::size_hint(reduced_[k]) > ir::size_hint(reduced_[longest])) longest = k;
  const int64_t parts = kDynamicParts * many;
  if (ir::size_hint(reduced_[longest]) < parts) return std::nullopt;
  return Parts{longest, parts, ir::ceildiv(reduced_[longest], parts), false, columns};
}

std::optional<AxisReducer::Parts> AxisReducer::parts_of_long_rows() const {
  auto length = count_.as_constant();
  const Target& target = ctx_.program.target;
  if (!length || *length < long_row(target)) return std::nullopt;
  const int64_t least = std::max(kMinParts, *length / length_of_part(target));
  for (size_t k = 0; k < reduced_.size(); ++k) {
    int64_t size = reduced_[k].constant();
    if (size < least) continue;
    constexpr int64_t kTried = 1 << 16; // no row that memory holds has as many parts
    if (auto n = even_parts(k, least, std::min({size, 4 * least, least + kTried})))
      return Parts{k, *n, size / *n, true};
    return Parts{k, least, ir::ceildiv(SymInt(size), least), false};
  }
  return std::nullopt;
}

Moments AxisReducer::moments(const TensorBox& x, DType type) const {
  ir::Program& p = ctx_.program;
  auto value = [&](std::span<const SymInt> at) { return to_compute(x.load(p, at), type); };
  auto divided = [&](const TensorBox& sum) {
    TensorBox mean =
        map(ctx_, type, sum, [&](Expr s) { return ir::div(s, size_as(ctx_.c, count_, s->dtype)); });
    realize(ctx_, mean, "statistic of a row");
    return mean;
  };
  auto squared = [](Expr d) { return ir::mul(d, d); };
  auto parts = parts_of_long_rows();
  if (!parts) {
    // One kernel looks at a row three times while it is in cache: not in parts of images.
    const auto rows = parts_of_few_rows(ReduceOp::sum);
    TensorBox mean = divided(reduced_in(rows, ReduceOp::sum, type, value));
    TensorBox means = ir::expand(p, mean, sizes_);
    return {mean, reduced_in(rows, ReduceOp::sum, type, [&](std::span<const SymInt> at) {
              return squared(ir::sub(value(at), means.load(p, at)));
            })};
  }
  // Mean and squares of each part, then of all of them together (Chan, Golub, LeVeque): with n_i elements,
  // mean = sum n_i mean_i / n, squares = sum (squares_i + n_i (mean_i - mean)^2).
  const int part = static_cast<int>(kept_.size());
  auto elements = [&](SymInt i) {
    SymInt n = ir::floordiv(count_, reduced_[parts->axis]);
    if (parts->even) return size_as(ctx_.c, n * parts->length, type);
    SymInt left = reduced_[parts->axis] - i * parts->length;
    return size_as(ctx_.c, n * ir::max(ir::min(parts->length, left), 0), type);
  };
  SymInts rows = kept_, here = loop_vars(ctx_.c, part + 1);
  rows.push_back(parts->count);
  TensorBox sums = of_parts(ReduceOp::sum, type, *parts, value);
  Expr n = elements(ctx_.c.var(part));
  n = parts->even ? n : ir::binary(Op::max, n, number(n, 1));
  TensorBox means = ir::make_pointwise(p, type, rows, ir::div(sums.load(p, here), n));
  realize(ctx_, means, "means of the parts of long rows");
  TensorBox squares = of_parts(ReduceOp::sum, type, *parts, [&](std::span<const SymInt> at) {
    return squared(ir::sub(value(at), means.load(p, here)));
  });
  realize(ctx_, squares, "squares of the parts of long rows");

  SymInts from = along_parts(*parts);
  Expr weight = elements(ctx_.c.rvar(0));
  auto together = [&](Expr e) {
    return ir::unsqueeze(p, ir::make_reduction(p, ReduceOp::sum, type, kept_, {parts->count}, e), axes_);
  };
  TensorBox mean = divided(together(ir::mul(weight, means.load(p, from))));
  SymInts row = indices(); // the mean's own dimensions: 1 where reduced
  for (int a : axes_) row[a] = 0;
  Expr apart = squared(ir::sub(means.load(p, from), mean.load(p, row)));
  return {mean, together(ir::add(squares.load(p, from), ir::mul(weight, apart)))};
}

std::optional<ExpSums> AxisReducer::exp_sums(const TensorBox& x, DType type, const UnaryBody& exp) const {
  ir::Program& p = ctx_.program;
  auto parts = parts_of_long_rows();
  if (!parts) parts = parts_of_few_rows(ReduceOp::max);
  if (!parts) return std::nullopt;
  auto value = [&](std::span<const SymInt> at) { return to_compute(x.load(p, at), type); };
  TensorBox tops = of_parts(ReduceOp::max, type, *parts, value);
  realize(ctx_, tops, "greatest of the parts of long rows");
  const SymInts here = loop_vars(ctx_.c, static_cast<int>(kept_.size()) + 1);
  // Of a part that is -inf all over any finite number may be taken away.
  Expr top = tops.load(p, here), least = number(top, -std::numeric_limits<double>::infinity());
  Expr shift = ir::where(ir::binary(Op::equal, top, least), number(top, 0), top);
  TensorBox sums = of_parts(ReduceOp::sum, type, *parts,
                            [&](std::span<const SymInt> at) { return exp(ir::sub(value(at), shift)); });
  realize(ctx_, sums, "exponentials of the parts of long rows");
  SymInts from = along_parts(*parts), row = indices();
  for (int a : axes_) row[a] = 0; // the result's own dimensions
  auto together = [&](ReduceOp op, Expr e) {
    return ir::unsqueeze(p, ir::make_reduction(p, op, type, kept_, {parts->count}, e), axes_);
  };
  TensorBox greatest = together(ReduceOp::max, tops.load(p, from));
  realize(ctx_, greatest, "greatest of a row");
  Expr apart = exp(ir::sub(tops.load(p, from), greatest.load(p, row)));
  TensorBox sum = together(ReduceOp::sum, ir::mul(sums.load(p, from), apart));
  realize(ctx_, sum, "exponentials of a row");
  return ExpSums{greatest, sum};
}

TensorBox AxisReducer::operator()(ReduceOp op, DType dtype, const TensorBox& x,
                                  const UnaryBody& before) const {
  return (*this)(op, dtype, [&](std::span<const SymInt> at) {
    Expr e = x.load(ctx_.program, at);
    return before ? before(e) : e;
  });
}

TensorBox AxisReducer::drop(const TensorBox& result) const {
  return ir::squeeze(ctx_.program, result, axes_);
}

} // namespace tbx::lowering
