// TensorBox and StorageBox: inlining, realization, strided views of buffers.
#include "ir/tensor_box.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"

namespace tbx::ir {
namespace {

/// Constants up to this many elements are looked at to see whether all are equal.
constexpr int64_t kUniformScan = 4096;

/// The one value of a constant whose elements are all equal, as an expression; nullptr otherwise.
Expr uniform_value(Context& c, const Tensor& t) {
  int64_t n = t.numel();
  if (n == 0 || n > kUniformScan || t.dtype == DType::string || is_complex(t.dtype)) return nullptr;
  int64_t width = size_of(t.dtype);
  for (int64_t i = 1; i < n; ++i)
    if (std::memcmp(t.data, t.data + i * width, static_cast<size_t>(width)) != 0) return nullptr;
  DType type = compute_type(t.dtype);
  return is_float(type) ? c.constant(type, element_as_double(t, 0))
                        : c.constant_int(type, element_as_int(t, 0));
}

} // namespace

BufferId StorageBox::realize(Program& program, std::string reason) {
  if (is_realized()) return buffer();
  Loops loops = std::get<Loops>(std::move(data_));
  const bool narrow = stored != DType::undefined && loops.dtype == DType::f32;
  BufferId id = program.new_buffer(name, narrow ? stored : loops.dtype, loops.ranges);
  data_ = id;
  program.operations.push_back({Compute{std::move(loops), id}, origins, std::move(reason)});
  return id;
}

TensorBox::TensorBox(std::shared_ptr<StorageBox> storage, DType dtype, SymInts sizes)
    : storage_(std::move(storage)), dtype_(dtype), sizes_(std::move(sizes)), storage_sizes_(sizes_) {}

TensorBox TensorBox::view(Context& c, SymInts sizes, const SymInts& map) const {
  TBX_INTERNAL(map.size() == sizes_.size());
  TensorBox v;
  v.storage_ = storage_;
  v.dtype_ = dtype_;
  v.storage_sizes_ = storage_sizes_;
  Extents extents{sizes, {}};
  SymInts composed = map;
  if (!identity_) {
    composed.clear();
    for (SymInt e : map_) composed.push_back(substitute(e, {map, {}}));
  }
  v.identity_ = sizes.size() == storage_sizes_.size();
  for (size_t k = 0; k < composed.size(); ++k) {
    composed[k] = simplify(composed[k], extents);
    v.identity_ = v.identity_ && provably_equal(sizes[k], storage_sizes_[k]) &&
                  (composed[k] == c.var(static_cast<int>(k)) || (sizes[k].is(1) && composed[k].is(0)));
  }
  v.sizes_ = std::move(sizes);
  if (!v.identity_) v.map_ = std::move(composed);
  return v;
}

/// The indirect values of `indices`, which carry checks, are all part of `value`.
static bool keeps_checks(Expr value, std::span<const SymInt> indices) {
  if (std::ranges::none_of(indices, has_indirect)) return true;
  std::unordered_set<const SymNode*> missing;
  for (SymInt e : indices)
    visit(e, [&](const SymNode& n) {
      if (n.kind == SymKind::indirect) missing.insert(&n);
    });
  visit(value, [&](Expr n) {
    for (SymInt e : n->indices)
      if (has_indirect(e)) visit(e, [&](const SymNode& i) { missing.erase(&i); });
  });
  return missing.empty();
}

/// The element of `storage` at `at`: of the nest that computes it, or of memory.
static Expr load_from(Program& program, StorageBox& storage, DType dtype, SymInts at) {
  Context& c = *program.context;
  if (!storage.is_realized() && storage.loops().kind == LoopKind::pointwise) {
    // As precise as the value would be in memory: inlining never changes a result.
    const Loops& loops = storage.loops();
    bool as_stored = !is_low_precision_float(loops.dtype) ||
                     (loops.body->op == Op::load && program.at(loops.body->buffer).dtype == loops.dtype);
    return substitute(
        as_stored ? loops.body : c.round_to(loops.body, loops.dtype, loops.dtype != DType::f8e5m2), {at, {}});
  }
  BufferId id = storage.realize(program, "read by another nest");
  const Buffer& b = program.at(id);
  if (b.kind == BufferKind::constant && std::ranges::none_of(at, has_indirect))
    if (Expr value = uniform_value(c, *b.constant)) return value;
  for (size_t k = 0; k < at.size(); ++k)
    if (b.sizes[k].is(1) && !has_indirect(at[k])) at[k] = 0;
  return c.load(id, compute_type(dtype), std::move(at));
}

Expr TensorBox::load(Program& program, std::span<const SymInt> indices) const {
  TBX_INTERNAL(indices.size() == sizes_.size());
  SymInts at(indices.begin(), indices.end());
  if (!identity_) {
    SymInts mapped;
    for (SymInt e : map_) mapped.push_back(substitute(e, {at, {}}));
    at = std::move(mapped);
  }
  Expr value = load_from(program, *storage_, dtype_, std::move(at));
  if (keeps_checks(value, indices)) return value;
  // What is the same all along an axis has no use for an index into it, which must be checked all the same.
  BufferId whole = realize_whole(program, *this, "read at places that data decides");
  return program.context->load(whole, compute_type(dtype_), {indices.begin(), indices.end()});
}

/// Libraries take strides that nest: no dimension steps inside of what another one spans. Diagonals (a
/// dimension that moves two indices) and overlapping windows do not.
static bool nested(const StridedView& v) {
  size_t rank = v.sizes.size(), r = v.start.size();
  for (size_t d = 0; d < rank; ++d) {
    size_t moved = 0;
    for (size_t k = 0; k < r; ++k) moved += !v.coefficients[d * r + k].is(0);
    if (moved > 1 && !v.sizes[d].is(1)) return false;
  }
  for (size_t k = 0; k < r; ++k)
    for (size_t d = 0; d < rank; ++d)
      for (size_t e = 0; e < d; ++e) {
        SymInt a = v.coefficients[d * r + k], b = v.coefficients[e * r + k];
        if (a.is(0) || b.is(0) || v.sizes[d].is(1) || v.sizes[e].is(1)) continue;
        if (!provably_nonnegative(a - b * v.sizes[e]) && !provably_nonnegative(b - a * v.sizes[d]))
          return false;
      }
  return true;
}

/// A view of a buffer in memory that regroups dimensions ([b, s, c] seen as [b*s, c]) is strided when the
/// buffer is row-major: the whole address goes into its last index. Fixes the buffer's layout.
static std::optional<StridedView> regrouped(Program& p, const TensorBox& x) {
  if (!x.storage()->is_realized() || x.index_map().empty()) return std::nullopt;
  Buffer& b = p.at(x.storage()->buffer());
  SymInts strides = contiguous_strides(b.sizes);
  bool row_major = b.strides.empty() || b.strides == strides;
  if (!row_major || b.slice_of >= 0 || b.overwrites >= 0) return std::nullopt;
  size_t rank = x.sizes().size(), r = strides.size();
  SymInt address = 0;
  for (size_t k = 0; k < r; ++k) address += x.index_map()[k] * strides[k];
  address = simplify(address, {x.sizes(), {}});
  StridedView v{b.id, x.sizes(), SymInts(rank * r, SymInt(0)), SymInts(r, SymInt(0))};
  for (size_t d = 0; d < rank; ++d) {
    auto affine = affine_in(address, p.context->var(static_cast<int>(d)).node());
    if (!affine || has_loop_variable(affine->coefficient)) return std::nullopt;
    v.coefficients[d * r + r - 1] = affine->coefficient;
    address = affine->rest;
  }
  if (has_loop_variable(address) || has_indirect(address)) return std::nullopt;
  v.start[r - 1] = address;
  if (!nested(v)) return std::nullopt;
  b.strides = std::move(strides);
  return v;
}

static const SymInts& sizes_of_storage(const Program& p, const StorageBox& storage) {
  return storage.is_realized() ? p.at(storage.buffer()).sizes : storage.loops().ranges;
}

/// The box shows all elements of its storage, in their order; dimensions may be grouped otherwise.
static bool is_whole_in_order(const Program& p, const TensorBox& x) {
  if (x.is_identity_view()) return true;
  const SymInts& ranges = sizes_of_storage(p, *x.storage());
  if (!provably_equal(product(ranges), product(x.sizes()))) return false;
  const SymInts strides = contiguous_strides(ranges), own = contiguous_strides(x.sizes());
  SymInt from = 0, at = 0;
  for (size_t k = 0; k < strides.size(); ++k) from += x.index_map()[k] * strides[k];
  for (size_t d = 0; d < own.size(); ++d) at += p.context->var(static_cast<int>(d)) * own[d];
  const Extents extents{x.sizes(), {}};
  return simplify(from, extents) == simplify(at, extents);
}

/// The box shows all elements of a nest that is not in memory, in their order: only dimensions are grouped
/// otherwise.
static bool only_regroups(const Program& p, const TensorBox& x) {
  return !x.storage()->is_realized() && !x.is_identity_view() && is_whole_in_order(p, x);
}

/// The same where all sizes are known. Others are not asked about: what is simplified for a name must not
/// decide in which order sums of symbols are written.
static bool is_known_whole(const Program& p, const TensorBox& x) {
  auto known = [](const SymInts& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](SymInt s) { return s.is_constant(); });
  };
  return x.is_identity_view() ||
         (known(x.sizes()) && known(sizes_of_storage(p, *x.storage())) && is_whole_in_order(p, x));
}

/// A nest of its own for what the box shows. It has the name of the value where it is all of that.
static TensorBox copy_of(Program& p, const TensorBox& x) {
  SymInts at;
  for (int k = 0; k < x.rank(); ++k) at.push_back(p.context->var(k));
  TensorBox copy = make_pointwise(p, x.dtype(), x.sizes(), x.load(p, at));
  if (is_known_whole(p, x)) copy.storage()->name = x.storage()->name;
  copy.storage()->origins = x.storage()->origins;
  return copy;
}

StridedView realize_strided(Program& p, const TensorBox& x, std::string reason) {
  Context& c = *p.context;
  TensorBox box = x;
  auto strided = [&](const TensorBox& b) -> std::optional<StridedView> {
    size_t rank = b.sizes().size();
    if (b.is_identity_view()) {
      StridedView v{-1, b.sizes(), SymInts(rank * rank, SymInt(0)), SymInts(rank, SymInt(0))};
      for (size_t d = 0; d < rank; ++d) v.coefficients[d * rank + d] = 1;
      return v;
    }
    const SymInts& map = b.index_map();
    size_t r = map.size();
    StridedView v{-1, b.sizes(), SymInts(rank * r, SymInt(0)), map};
    for (size_t k = 0; k < r; ++k)
      for (size_t d = 0; d < rank; ++d) {
        auto affine = affine_in(v.start[k], c.var(static_cast<int>(d)).node());
        if (!affine || has_loop_variable(affine->coefficient)) return std::nullopt;
        v.coefficients[d * r + k] = affine->coefficient;
        v.start[k] = affine->rest;
      }
    for (SymInt s : v.start)
      if (has_loop_variable(s) || has_indirect(s)) return std::nullopt;
    if (!nested(v)) return std::nullopt;
    return v;
  };
  auto view = strided(box);
  bool whole = box.storage()->is_realized() || box.is_identity_view();
  if (!whole && view) {
    // A view of a nest that is not in memory: computing just the view beats computing all of the storage.
    const Loops& loops = box.storage()->loops();
    whole = loops.kind != LoopKind::pointwise || provably_equal(product(loops.ranges), product(box.sizes()));
  }
  if (!view) {
    // In the loops of the nest itself, which are those of what it is computed from: statistics of its rows.
    if (only_regroups(p, box)) box.storage()->realize(p, reason);
    if (auto same_memory = regrouped(p, box)) return *same_memory;
  }
  if (!view || !whole) {
    if (const DType narrow = memory_type(p, box); narrow != box.dtype() && !box.is_identity_view()) {
      box = copy_of(p, box);
      box.storage()->stored = narrow;
    }
    BufferId id = realize_whole(p, box, reason);
    box = make_buffer_box(p, id);
    view = strided(box);
  }
  view->buffer = box.storage()->realize(p, std::move(reason));
  return *view;
}

DType memory_type(const Program& p, const TensorBox& x) {
  const StorageBox& s = *x.storage();
  if (s.is_realized()) return p.at(s.buffer()).dtype;
  return s.stored != DType::undefined && s.loops().dtype == DType::f32 ? s.stored : s.loops().dtype;
}

TensorBox wide_in_memory(Program& p, const TensorBox& x) {
  return x.dtype() == DType::f32 && memory_type(p, x) != DType::f32 ? copy_of(p, x) : x;
}

BufferId realize_whole(Program& p, const TensorBox& x, std::string reason) {
  if (x.is_identity_view()) return x.storage()->realize(p, std::move(reason));
  return copy_of(p, x).storage()->realize(p, std::move(reason));
}

} // namespace tbx::ir
