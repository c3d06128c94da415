// Tensors made from attributes, shapes and indices: Constant, Shape, Size, Range, EyeLike, OneHot, Trilu, ...
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

const char* const kMicrosoft = "com.microsoft";

std::shared_ptr<const Tensor> floats(std::span<const float> values, bool scalar) {
  Tensor t = Tensor::make(DType::f32,
                          scalar ? std::vector<int64_t>{} : std::vector{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<float>().begin());
  return std::make_shared<const Tensor>(std::move(t));
}

std::shared_ptr<const Tensor> ints(std::span<const int64_t> values, bool scalar) {
  Tensor t = Tensor::of_ints(values);
  if (scalar) t.dims.clear();
  return std::make_shared<const Tensor>(std::move(t));
}

std::vector<LoweredValue> lower_constant(OpContext& ctx) {
  if (auto t = ctx.attr_tensor("value")) return {t};
  if (ctx.has_attr("value_int")) return {ints(std::vector{ctx.attr_int("value_int", 0)}, true)};
  if (ctx.has_attr("value_ints")) return {ints(ctx.attr_ints("value_ints"), false)};
  if (ctx.has_attr("value_float")) return {floats(std::vector{ctx.attr_float("value_float", 0)}, true)};
  if (ctx.has_attr("value_floats")) return {floats(ctx.attr_floats("value_floats"), false)};
  if (ctx.has_attr("value_string"))
    return {std::make_shared<const Tensor>(Tensor::of_strings({}, {ctx.attr_string("value_string", "")}))};
  if (ctx.has_attr("value_strings")) {
    auto words = ctx.attr_strings("value_strings");
    auto n = static_cast<int64_t>(words.size());
    return {std::make_shared<const Tensor>(Tensor::of_strings({n}, std::move(words)))};
  }
  throw_unsupported("a constant given in this form");
}

/// Sizes given as data: non-negative, of reasonable rank.
SymInts shape_input(OpContext& ctx, int i) {
  SymInts sizes = ctx.known_or_throw(i, "shape");
  for (SymInt s : sizes)
    TBX_MODEL(!s.is_constant() || s.constant() >= 0, "size {} is negative", s.constant());
  return sizes;
}

std::vector<LoweredValue> lower_constant_of_shape(OpContext& ctx) {
  SymInts sizes = shape_input(ctx, 0);
  auto value = ctx.attr_tensor("value");
  if (!value) return {full(ctx, DType::f32, sizes, 0)};
  TBX_MODEL(value->numel() == 1, "value has {} elements", value->numel());
  auto one = std::make_shared<Tensor>(*value);
  one->dims.clear();
  return {ir::expand(ctx.program, ir::make_constant(ctx.program, *one), sizes)};
}

std::vector<LoweredValue> lower_shape(OpContext& ctx) {
  SymInts sizes = ctx.sizes(0);
  auto rank = static_cast<int64_t>(sizes.size());
  auto bound = [&](const char* name, int64_t otherwise) {
    int64_t v = ctx.attr_int(name, otherwise);
    return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  return {KnownTensor{DType::i64, {end - start}, {sizes.begin() + start, sizes.begin() + end}, 1}};
}

std::vector<LoweredValue> lower_size(OpContext& ctx) {
  return {KnownTensor{DType::i64, {}, {ir::product(ctx.sizes(0))}, 1}};
}

// --- Range

/// Number of elements where all three bounds are known: max(0, ceil((limit - start) / delta)).
std::optional<SymInt> known_range_count(OpContext& ctx) {
  double number[3];
  SymInt exact[3];
  int64_t denominator = 1;
  bool all_exact = true, all_numbers = true;
  for (int i = 0; i < 3; ++i) {
    auto t = ctx.constant(i);
    auto k = ctx.known_tensor(i);
    TBX_MODEL(ir::product(ctx.sizes(i)).is(1) || !ir::product(ctx.sizes(i)).is_constant(),
              "input {} is no scalar", i);
    if (t) number[i] = element_as_double(*t, 0);
    all_numbers &= t != nullptr;
    all_exact &= k != nullptr;
    if (k) denominator = std::lcm(denominator, k->denominator);
  }
  if (all_exact) {
    for (int i = 0; i < 3; ++i) {
      auto k = ctx.known_tensor(i);
      TBX_MODEL(k->values.size() == 1, "input {} is no scalar", i);
      exact[i] = k->values[0] * SymInt(denominator / k->denominator);
    }
    if (!exact[2].is_constant()) return std::nullopt;
    int64_t step = std::max(exact[2].constant(), -INT64_MAX); // whose magnitude is a number, too
    TBX_MODEL(step != 0, "delta is 0");
    SymInt span = step > 0 ? exact[1] - exact[0] : exact[0] - exact[1];
    // Rounded up so that a step near the end of its type is not added to anything.
    return ir::max(ir::floordiv(span - SymInt(1), std::abs(step)) + SymInt(1), 0);
  }
  if (!all_numbers) return std::nullopt;
  TBX_MODEL(number[2] != 0, "delta is 0");
  double count = std::ceil((number[1] - number[0]) / number[2]);
  TBX_MODEL(!(count > 1e15), "a range of {} elements", count);
  return SymInt(count > 0 ? static_cast<int64_t>(count) : int64_t{0});
}

std::vector<LoweredValue> lower_range(OpContext& ctx) {
  auto count = known_range_count(ctx);
  if (!count) {
    std::vector<ValueId> values;
    for (int i = 0; i < ctx.num_inputs(); ++i)
      if (!ctx.constant(i)) values.push_back(ctx.node.input(i));
    ask_for_elements("start, limit and delta must be known while compiling", values);
  }
  auto scalar = [&](int i) { return ir::reshape(ctx.program, ctx.in(i), {}).load(ctx.program, {}); };
  // 16-bit floats are generated in f32 (stash_type); ORT's form has no delta.
  return {generate(ctx, ctx.dtype(0), {*count}, [&](std::span<const SymInt> at) {
    Expr start = scalar(0);
    Expr step = ir::mul(to_compute(ctx.c.index(at[0]), start->dtype), scalar(2));
    return ir::add(start, step);
  })};
}

// --- index patterns

std::vector<LoweredValue> lower_eye_like(OpContext& ctx) {
  SymInts sizes = ctx.sizes(0);
  TBX_MODEL(sizes.size() == 2, "input of rank {}", sizes.size());
  DType type = ctx.attr_dtype("dtype", ctx.dtype(0));
  int64_t k = ctx.attr_int("k", 0);
  return {generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
    Expr hit = ir::binary(Op::equal, ctx.c.index(at[1]),
                          ir::add(ctx.c.index(at[0]), ctx.c.constant_int(DType::i64, k)));
    DType compute = compute_type(type);
    return ir::where(hit, ctx.c.constant(compute, 1), ctx.c.constant(compute, 0));
  })};
}

std::vector<LoweredValue> lower_trilu(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "input of rank {}", x.rank());
  bool upper = ctx.attr_int("upper", 1) != 0;
  return {generate(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    ir::Context& c = ctx.c;
    Expr k = c.constant_int(DType::i64, 0);
    if (ctx.has(1)) k = ir::reshape(ctx.program, ctx.in(1), {}).load(ctx.program, {});
    Expr distance = ir::sub(c.index(at[at.size() - 1]), c.index(at[at.size() - 2]));
    Expr keep = ir::binary(upper ? Op::greater_equal : Op::less_equal, distance, k);
    Expr e = x.load(ctx.program, at);
    return ir::where(keep, e, number(e, 0));
  })};
}

std::vector<LoweredValue> lower_one_hot(OpContext& ctx) {
  const TensorBox& indices = ctx.in(0);
  auto depth_values = ctx.known_tensor(1);
  if (!depth_values || depth_values->values.size() != 1 || depth_values->denominator != 1)
    ask_for_elements("depth must be known while compiling", {ctx.node.input(1)});
  SymInt depth = depth_values->values[0];
  TBX_MODEL(!depth.is_constant() || depth.constant() >= 0, "depth is {}", depth.constant());
  TBX_MODEL(ctx.rank(2) == 1, "values of rank {}", ctx.rank(2));
  ctx.program.add_check(ctx.sizes(2)[0] - SymInt(2), true, "values does not have two elements");
  int axis = ctx.axis(ctx.attr_int("axis", -1), indices.rank() + 1);
  SymInts sizes = indices.sizes();
  sizes.insert(sizes.begin() + axis, depth);
  const SymInt zero[] = {0}, one[] = {1};
  return {generate(ctx, ctx.dtype(2), sizes, [&](std::span<const SymInt> at) {
    SymInts from(at.begin(), at.end());
    from.erase(from.begin() + axis);
    Expr index = to_compute(indices.load(ctx.program, from), DType::i64), n = ctx.c.index(depth);
    Expr wrapped = ir::where(ir::binary(Op::less, index, number(index, 0)), ir::add(index, n), index);
    Expr hit = ir::binary(Op::equal, wrapped, ctx.c.index(at[axis]));
    return ir::where(hit, ctx.in(2).load(ctx.program, one), ctx.in(2).load(ctx.program, zero));
  })};
}

std::vector<LoweredValue> lower_identity(OpContext& ctx) { return {ctx.value(0)}; }

/// The value once more, for memory of another type: what graph/passes/narrow_storage.cpp makes.
std::vector<LoweredValue> lower_store(OpContext& ctx) {
  return {map(ctx, ctx.in(0).dtype(), ctx.in(0), [](Expr e) { return e; })};
}

} // namespace

void register_creation(Registry& r) {
  r.add("Constant", since(1), lower_constant);
  r.add("ConstantOfShape", since(9), lower_constant_of_shape);
  r.add("Shape", since(1), lower_shape);
  r.add("Size", since(1), lower_size);
  r.add("Range", since(11), lower_range);
  r.add("EyeLike", since(9), lower_eye_like);
  r.add("Trilu", since(14), lower_trilu);
  r.add("OneHot", since(9), lower_one_hot);
  r.add("Identity", since(1), lower_identity);
  r.add("Store", since(1), lower_store, "tensorbox");
  r.add("Trilu", since(1), lower_trilu, kMicrosoft);
  r.type_from(0, {"Trilu"}, kMicrosoft);
  r.narrow(Narrow::view, {"Identity"});
  r.narrow(Narrow::wide_inputs, {"Store"}, "tensorbox");
  r.narrow(Narrow::follows, {"Shape", "Size"}); // read no element
  r.mark(Trait::moves, {"OneHot", "Trilu"});
  r.mark(Trait::by_part, {"Identity"});
  r.mark(Trait::reads_shape, {"Shape", "Size"});
  r.mark(Trait::no_gradient, {"ConstantOfShape", "Shape", "Size"});
  r.mark(Trait::keeps_first, {"Identity", "Trilu"});
  r.mark(Trait::takes_quotients, {"Identity"});
  r.mark(Trait::half_follows, {"Identity"});
  r.need("ConstantOfShape", 0, some());
  for (const char* op : {"OneHot", "Range"}) r.need(op, 1, some());
  r.need("Range", 2, between(1, 2));
}

} // namespace tbx::lowering
