// Operators computed by host kernels: sorting, selection with data-dependent sizes.
#include <algorithm>

#include "extern_kernels/catalogue.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {

std::vector<LoweredValue> host_call(OpContext& ctx, std::vector<HostOutput> outputs,
                                    std::map<std::string, extern_kernels::Attribute> attributes,
                                    int num_inputs) {
  std::vector<std::optional<TensorBox>> inputs;
  int n = num_inputs < 0 ? ctx.num_inputs() : num_inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(ctx.has(i) ? std::optional(ctx.in(i)) : std::nullopt);
  return host_call(ctx, inputs, outputs, std::move(attributes));
}

namespace {

/// A size that only the call about to be emitted knows: no earlier call binds it.
bool is_made_here(const ir::Program& program, SymInt size) {
  if (size.is_constant() || size.node()->kind != ir::SymKind::symbol || !size.node()->unbacked) return false;
  return std::none_of(program.operations.begin(), program.operations.end(), [&](const ir::Operation& op) {
    const auto* call = std::get_if<ir::ExternCall>(&op.what);
    return call && std::find(call->output_symbols.begin(), call->output_symbols.end(), size) !=
                       call->output_symbols.end();
  });
}

} // namespace

std::vector<LoweredValue> host_call(OpContext& ctx, const std::vector<std::optional<TensorBox>>& inputs,
                                    const std::vector<HostOutput>& outputs,
                                    std::map<std::string, extern_kernels::Attribute> attributes,
                                    std::shared_ptr<const extern_kernels::CustomCall> custom) {
  ir::ExternCall call;
  extern_kernels::HostProblem problem{
      ctx.node.domain, ctx.node.op_type, ctx.opset(), std::move(attributes), {}, std::move(custom)};
  for (const auto& in : inputs) {
    call.inputs.emplace_back();
    if (in) call.inputs.back() = operand_of(ir::realize_strided(ctx.program, *in, "input of a host kernel"));
  }
  std::vector<LoweredValue> values;
  for (const HostOutput& out : outputs) {
    problem.output_types.push_back(out.dtype);
    ir::BufferId id = ctx.program.new_buffer("", out.dtype, out.sizes);
    call.outputs.push_back(id);
    for (SymInt s : out.sizes)
      if (is_made_here(ctx.program, s) &&
          std::find(call.output_symbols.begin(), call.output_symbols.end(), s) == call.output_symbols.end())
        call.output_symbols.push_back(s);
    values.emplace_back(ir::make_buffer_box(ctx.program, id));
  }
  call.problem = std::move(problem);
  ctx.program.operations.push_back({std::move(call), {}, "host kernel"});
  return values;
}

SymInts sizes_at_run_time(OpContext& ctx, const TensorBox& values, const std::string& what) {
  auto n = values.sizes().at(0).as_constant();
  TBX_INTERNAL(n && values.rank() == 1 && values.dtype() == DType::i64);
  ir::ExternCall call;
  extern_kernels::HostProblem problem{"tensorbox", "Sizes", 1, {{"what", what}}, {}, nullptr};
  call.inputs.push_back(operand_of(ir::realize_strided(ctx.program, values, "sizes of other values")));
  // Each size is bound by the shape of an output without elements.
  for (int64_t i = 0; i < *n; ++i) {
    SymInt size = ctx.c.unbacked_symbol("size");
    problem.output_types.push_back(DType::u8);
    call.outputs.push_back(ctx.program.new_buffer("", DType::u8, {size, 0}));
    call.output_symbols.push_back(size);
  }
  SymInts sizes = call.output_symbols;
  call.problem = std::move(problem);
  ctx.program.operations.push_back({std::move(call), {}, "sizes of other values"});
  return sizes;
}

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
  std::map<std::string, extern_kernels::Attribute> attributes{{"sorted", ctx.attr_int("sorted", 1)}};
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
  r.mark(Trait::moves, {"Compress"});
  r.mark(Trait::keeps_first, {"Compress"});
  r.need("TopK", 1, count_along(0, "axis", -1));
}

} // namespace tbx::lowering
