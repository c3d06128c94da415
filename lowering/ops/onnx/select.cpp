// Operators computed by host kernels: sorting, selection with data-dependent sizes.
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

Values top_k(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int axis = ctx.axis(ctx.attr_int("axis", -1), x.rank());
  SymInt k;
  if (ctx.opset() < 10) {
    k = ctx.required_int("k");
  } else {
    SymInts known = ctx.known_or_throw(1, "k");
    TBX_MODEL(known.size() == 1, "k has {} elements, expected 1", known.size());
    k = known[0];
  }
  if (k.is_constant()) TBX_MODEL(k.constant() >= 0, "k is {}", k.constant());
  if (k.is_constant() && x.sizes()[axis].is_constant())
    TBX_MODEL(k.constant() <= x.sizes()[axis].constant(), "k is {}, axis {} has size {}", k.constant(), axis,
              x.sizes()[axis].constant());
  else if (!ir::provably_nonnegative(x.sizes()[axis] - k))
    ctx.program.add_check(
        x.sizes()[axis] - k, false,
        fmt::format("k is {}, axis {} has size {}", ir::to_string(k), axis, ir::to_string(x.sizes()[axis])));
  SymInts sizes = x.sizes();
  sizes[axis] = k;
  return host_call(ctx, {{x.dtype(), sizes}, {DType::i64, sizes}},
                   {{"axis", int64_t{axis}},
                    {"largest", ctx.attr_int("largest", 1)},
                    {"sorted", ctx.attr_int("sorted", 1)}},
                   1);
}

Values non_zero(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  SymInt n = ctx.c.unbacked_symbol("nonzero");
  return host_call(ctx, {{DType::i64, {SymInt(x.rank() == 0 ? 1 : x.rank()), n}}}, {});
}

Values compress(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  SymInt n = ctx.c.unbacked_symbol("compressed");
  if (!ctx.has_attr("axis")) return host_call(ctx, {{x.dtype(), {n}}}, {});
  int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
  SymInts sizes = x.sizes();
  sizes[axis] = n;
  return host_call(ctx, {{x.dtype(), sizes}}, {{"axis", int64_t{axis}}});
}

Values unique(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  SymInt n = ctx.c.unbacked_symbol("unique");
  extern_kernels::Attributes attributes{{"sorted", ctx.attr_int("sorted", 1)}};
  SymInts sizes{n};
  SymInt length = ir::product(x.sizes());
  if (ctx.has_attr("axis")) {
    int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
    attributes["axis"] = int64_t{axis};
    sizes = x.sizes();
    sizes[axis] = n;
    length = x.sizes()[axis];
  }
  return host_call(ctx, {{x.dtype(), sizes}, {DType::i64, {n}}, {DType::i64, {length}}, {DType::i64, {n}}},
                   std::move(attributes));
}

Values non_max_suppression(OpContext& ctx) {
  SymInt n = ctx.c.unbacked_symbol("selected");
  return host_call(ctx, {{DType::i64, {n, 3}}}, {{"center_point_box", ctx.attr_int("center_point_box", 0)}});
}

} // namespace

void register_select(Registry& r) {
  r.add("TopK", since(1), top_k);
  r.add("NonZero", since(9), non_zero);
  r.add("Compress", since(9), compress);
  r.add("Unique", since(11), unique);
  r.add("NonMaxSuppression", since(10), non_max_suppression);
  r.mark(Trait::selects, {"Compress", "NonMaxSuppression", "NonZero", "Unique"});
  r.mark(Trait::by_pair, {"Compress", "Unique"});
  r.mark(Trait::moves, {"Compress"});
  r.mark(Trait::compares, {"Unique"});
  r.mark(Trait::tests, {"NonZero"});
  r.mark(Trait::no_gradient, {"NonZero"});
  r.mark(Trait::keeps_first, {"Compress"});
  r.need("TopK", 1, count_along(0, "axis", -1));
}

} // namespace tbx::lowering
