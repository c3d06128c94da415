#include "lowering/ops/host_call.h"

#include <algorithm>

#include "lowering/ops/products.h"

namespace tbx::lowering {

extern_kernels::Attributes host_attributes(const Node& node) {
  extern_kernels::Attributes all;
  for (const auto& [name, value] : node.attributes)
    std::visit(
        [&, &name = name](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, float>)
            all[name] = double{v};
          else if constexpr (std::is_same_v<T, std::vector<float>>)
            all[name] = std::vector<double>(v.begin(), v.end());
          else if constexpr (std::is_constructible_v<extern_kernels::Attribute, T>)
            all[name] = v;
        },
        value);
  return all;
}

std::vector<LoweredValue> host_call(OpContext& ctx, const std::vector<HostOutput>& outputs,
                                    extern_kernels::Attributes attributes, int num_inputs) {
  std::vector<std::optional<TensorBox>> inputs;
  int n = num_inputs < 0 ? ctx.num_inputs() : num_inputs;
  inputs.reserve(static_cast<size_t>(n));
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

std::vector<LoweredValue> typed_call(OpContext& ctx, const std::vector<std::optional<TensorBox>>& inputs,
                                     const std::vector<HostOutput>& outputs,
                                     extern_kernels::Problem problem) {
  ir::ExternCall call;
  const std::string name = name_of(problem), operand = "operand of " + name;
  for (const auto& in : inputs) {
    call.inputs.emplace_back();
    if (in) call.inputs.back() = operand_of(ir::realize_strided(ctx.program, *in, operand));
  }
  std::vector<LoweredValue> values;
  for (const HostOutput& out : outputs) {
    ir::BufferId id = ctx.program.new_buffer("", out.dtype, out.sizes);
    call.outputs.push_back(id);
    for (SymInt s : out.sizes)
      if (is_made_here(ctx.program, s) &&
          std::find(call.output_symbols.begin(), call.output_symbols.end(), s) == call.output_symbols.end())
        call.output_symbols.push_back(s);
    values.emplace_back(ir::make_buffer_box(ctx.program, id));
  }
  call.problem = std::move(problem);
  ctx.program.operations.push_back({std::move(call), {}, "kernel of " + name});
  return values;
}

std::vector<LoweredValue> host_call(OpContext& ctx, const std::vector<std::optional<TensorBox>>& inputs,
                                    const std::vector<HostOutput>& outputs,
                                    extern_kernels::Attributes attributes,
                                    std::shared_ptr<const extern_kernels::CustomCall> custom) {
  extern_kernels::HostProblem problem{
      ctx.node.domain, ctx.node.op_type, ctx.opset(), std::move(attributes), {}, std::move(custom)};
  for (const HostOutput& out : outputs) problem.output_types.push_back(out.dtype);
  return typed_call(ctx, inputs, outputs, std::move(problem));
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

} // namespace tbx::lowering
